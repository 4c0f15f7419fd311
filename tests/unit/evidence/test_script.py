"""The scripts that ask for evidence fit into one request, and shells take them."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.evidence.device_replies import NO_STACK, collect_script, look_script, state_script
from harness.transport.adb_client import MAX_REQUEST_BYTES
from harness.transport.device_queries import split_sections
from harness.transport.shell_protocol import TOKEN_VARIABLE
from tests.unit.deploy.store_device import SHELLS, needing_shell, with_all_programs
from tests.waiting import wait_for

TOKEN = "0123456789abcdef"
SCRIPTS = {
    "state": state_script(TOKEN),
    "collect": collect_script(TOKEN, last_s=7, boot_epoch_s=1, file_bytes=1 << 20, tombstones=4),
    "look": look_script(TOKEN, 7, file_bytes=1 << 20, seconds=2.5),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_small_and_valid(name: str) -> None:
    assert len(SCRIPTS[name]) < min(4000, MAX_REQUEST_BYTES)
    completed = subprocess.run(["sh", "-n", "-c", SCRIPTS[name]], capture_output=True, check=False)
    assert completed.stderr == b""
    assert "\n" not in SCRIPTS[name]


REFUSED = "echo debuggerd: failed to dump process >&2; exit 1"
DEBUGGERS = {
    "debuggerd": ({"debuggerd": "echo frames", "gdb": "echo more"}, "frames"),
    "the next one": (
        {"debuggerd": REFUSED, "gdb": "echo frames"},
        "debuggerd: failed to dump process\nframes",
    ),
    "the last one": ({"debuggerd": REFUSED, "eu-stack": "exit 2", "gdb": "echo last"}, "last"),
    "all fail": (
        {"debuggerd": REFUSED, "gdb": "exit 1"},
        f"debuggerd: failed to dump process\n{NO_STACK}",
    ),
    "none": ({}, NO_STACK),
    "too late": ({"debuggerd": "exit 137", "gdb": "echo never"}, ""),
}


LOUD = "head -c 2000000 /dev/zero | tr '\\0' x"
LIMIT = 1000


def sections_sent(
    script: str, tools: Mapping[str, str], folder: Path, **variables: str
) -> dict[str, bytes]:
    """The sections of an answer where a device has these tools, and what scripts need."""
    for name in ("cat", "grep", "head", "ls", "rm", "sleep", "stat", "tail", "tr", "true"):
        if name not in tools and not (folder / name).exists():
            (folder / name).symlink_to(f"/usr/bin/{name}")
    for name, text in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    completed = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": str(folder)} | variables,
        capture_output=True,
        check=False,
    )
    sections = split_sections(completed.stdout, TOKEN)
    assert all(section.whole for section in sections.values())
    return {name: section.content for name, section in sections.items()}


@pytest.mark.parametrize("kind", DEBUGGERS)
def test_the_next_debugger_is_tried_where_one_fails(kind: str, tmp_path: Path) -> None:
    tools, answer_text = DEBUGGERS[kind]
    with subprocess.Popen(["sleep", "100"], env=os.environ | {TOKEN_VARIABLE: "x"}) as looked_at:
        try:
            # it is empty for a moment after the program began
            wait_for(Path(f"/proc/{looked_at.pid}/environ").read_bytes)
            script = look_script(TOKEN, looked_at.pid, file_bytes=1 << 20, seconds=2.5)
            answer = sections_sent(script, tools, tmp_path)["stack"].decode().strip()
        finally:
            looked_at.kill()
    assert answer.endswith(answer_text) if answer_text else answer == ""


def collecting(boot_epoch_s: int | None = None) -> str:
    return collect_script(
        TOKEN, last_s=7, boot_epoch_s=boot_epoch_s, file_bytes=LIMIT, tombstones=2
    )


def test_of_whatever_a_device_has_a_bounded_part_is_sent(tmp_path: Path) -> None:
    # of a log the end counts: that of its first 16 MiB
    log = "head -c 16777215 /dev/zero | tr '\\0' x; printf Zyyyyyy"
    tools = {"cat": LOUD, "logcat": log, "dmesg": LOUD, "date": "echo 1"}
    sections = sections_sent(collecting(), tools, tmp_path)
    # one byte more than is kept, so that it is seen to be cut
    assert {name: len(sections[name]) for name in ("logcat", "dmesg")} == {
        "logcat": LIMIT + 1,
        "dmesg": LIMIT + 1,
    }
    assert sections["logcat"].endswith(b"xxxZ")
    assert len(sections["meminfo"]) == 16384
    state = sections_sent(state_script(TOKEN), {"date": LOUD}, tmp_path)
    assert (set(state), len(state["clock"])) == ({"clock", "dsps"}, 4096)


def test_of_a_hung_process_a_bounded_part_is_sent(tmp_path: Path) -> None:
    tools = dict.fromkeys(("cat", "grep", "ls", "debuggerd"), LOUD)
    with subprocess.Popen(["sleep", "100"]) as looked_at:
        script = look_script(TOKEN, looked_at.pid, file_bytes=LIMIT, seconds=1)
        sections = sections_sent(script, tools, tmp_path)
        assert looked_at.wait(timeout=60) == -9
    assert {name: len(content) for name, content in sections.items()} == {
        **dict.fromkeys(("threads", "maps", "files", "stack"), LIMIT + 1),
        "status": 16384,
    }


@pytest.mark.parametrize(("seconds", "limit"), [(0.2, 1), (1.9, 1), (2.5, 2)])
def test_each_tool_has_whole_seconds_and_one_at_least(seconds: float, limit: int) -> None:
    script = look_script(TOKEN, 7, file_bytes=LIMIT, seconds=seconds)
    assert f";seconds={limit};" in script
    assert ";bounded 5;" in collecting()


def test_the_newest_tombstones_of_the_case_are_sent_as_far_as_they_are_kept(tmp_path: Path) -> None:
    dumps = tmp_path / "data/tombstones"
    dumps.mkdir(parents=True)
    for number, name in enumerate(("tombstone_00", "tombstone_01", "tombstone_02", "t_03")):
        (dumps / name).write_text(f"{number}" * 2000)
        os.utime(dumps / name, (1_000_000 + number, 1_000_000 + number))
    (dumps / "tombstone_00.pb").write_bytes(b"\xff")
    data = str(tmp_path / "data")
    for now, count in ((1_000_007, 2), (1_000_008, 2), (1_000_009, 1), (1_000_010, 0)):
        sections = sections_sent(collecting(), {"date": f"echo {now}"}, tmp_path, ANDROID_DATA=data)
        names = ["tombstone_02", "tombstone_01"][:count]
        assert [name for name in sections if name.startswith("tombstone_")] == names
        assert [sections[name] for name in names] == [
            name[-1:].encode() * (LIMIT + 1) for name in names
        ]
        assert b"t_03" in sections["tombstones"]


@pytest.mark.parametrize(("off", "jumped"), [(5, False), (6, True), (-5, False), (-6, True)])
def test_a_clock_that_went_wrong_by_more_than_five_seconds_has_jumped(
    off: int, jumped: bool, tmp_path: Path
) -> None:
    # a clock of a device that booted at 1000000, and its logcat, which says what it was asked
    clock = "read u x </proc/uptime; echo $((1000000+${u%.*}))"
    tools = {"date": f'case "$*" in +%s) {clock};; *) echo moment;; esac', "logcat": 'echo "$@"'}
    for _ in range(30):
        before = Path("/proc/uptime").read_text().partition(".")[0]
        sections = sections_sent(collecting(1_000_000 - off), tools, tmp_path)
        if Path("/proc/uptime").read_text().partition(".")[0] == before:
            break
    assert (f"jump_s={off}\n".encode() in sections["clock"]) is jumped
    # where times mean nothing, so many lines are taken
    option = b"-t 20000\n" if jumped else b"-t moment\n"
    assert sections["logcat"].endswith(option)
    assert b"jump_s" not in sections_sent(collecting(), tools, tmp_path)["clock"]


@pytest.mark.parametrize("name", list(map(needing_shell, SHELLS)))
def test_shells_of_devices_understand_them(name: str, tmp_path: Path) -> None:
    device = with_all_programs(name, tmp_path)
    ours = {"PATH": device.path, "TMPDIR": str(tmp_path)}
    sections_of_shell: dict[str, set[str]] = {}
    for script in ("state", "collect"):
        command = [*device.shell, "-c", SCRIPTS[script]]
        completed = subprocess.run(command, env=ours, capture_output=True, timeout=60, check=False)
        assert b"syntax" not in completed.stderr
        sections = split_sections(completed.stdout, TOKEN)
        assert all(section.whole for section in sections.values())
        assert b"epoch_s=" in sections["clock"].content
        sections_of_shell[script] = set(sections)
    assert sections_of_shell["state"] == {"clock", "dsps"}
    parts = {"tools", "tombstones", "tags", "dmesg", "logcat", "meminfo"}
    assert sections_of_shell["collect"] >= sections_of_shell["state"] | parts
    command = [*device.shell, "-c", SCRIPTS["look"]]
    completed = subprocess.run(command, env=ours, capture_output=True, timeout=60, check=False)
    assert (completed.returncode, completed.stdout) == (3, b"")  # that process is none of ours
