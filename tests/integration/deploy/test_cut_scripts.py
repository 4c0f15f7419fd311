"""The store's scripts ended by SIGKILL at each of their commands: the next deployment mends."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.deploy.layout import (
    CONDEMNED_TOUCH,
    FileSet,
    entry_name,
    look_input,
    names_used,
    parse_look,
)
from harness.deploy.store_client import ScriptName, plan_eviction, script
from tests.unit.deploy.store_device import (
    CLAIM,
    CONTENTS,
    LASTS_S,
    SHELLS,
    ScriptDevice,
    a_set,
    device_of,
    needing_shell,
)

# each shell counts its own commands before running them; the one with this number never runs
TRACE = """PS4='$(n=0; read -r n 2>/dev/null <"$COUNTER"; n=$((n + 1)); echo $n >"$COUNTER"; \
[ $n -ne $CUT ] || kill -9 0)'; set -x
"""
MINE, OTHER = "mine-5-0000aaaa", "other-6-0000bbbb"
# A part of the commands, as each cut is a whole deployment: more of them by night, in one shell.
# QNN_HARNESS_EVERY_CUT=1 cuts at every one in every shell, which takes minutes.
STRIDE = {"dash": 29, "bash": 31, "mksh with toybox": 37, "busybox": 29, "android": 37}
CLOSELY = pytest.param("dash closely", marks=[pytest.mark.needs("dash"), pytest.mark.nightly])


@pytest.fixture(params=[*map(needing_shell, SHELLS), CLOSELY])
def stride(request: pytest.FixtureRequest) -> tuple[str, int]:
    shell, closely, _ = request.param.partition(" closely")
    every = os.environ.get("QNN_HARNESS_EVERY_CUT") == "1"
    return shell, 1 if every else 5 if closely else STRIDE[shell]


@contextlib.contextmanager
def traced(
    device: ScriptDevice, trace: str, name: ScriptName, arguments: list[str], **variables: object
) -> Iterator[subprocess.Popen[bytes]]:
    """A script under way, each of its commands counted; gone with its family afterwards."""
    counter = device.workdir.parent / "counter"
    counter.unlink(missing_ok=True)
    environment = {"PATH": device.path, "COUNTER": str(counter)}
    with subprocess.Popen(
        [*device.shell, "-c", trace + script(name), "sh", str(device.workdir), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment | {key: str(value) for key, value in variables.items()},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run_cut(
    device: ScriptDevice, name: ScriptName, arguments: list[str], stdin: bytes, cut: int
) -> tuple[int, bytes]:
    """Runs a script until its `cut`th command; its exit status and how far it came."""
    with traced(device, TRACE, name, arguments, CUT=cut) as process:
        output, _ = process.communicate(stdin, timeout=60)
    return process.returncode, output


def cuts(stride: tuple[str, int]) -> Iterator[int]:
    """Numbers of commands to cut at: the test ends the loop once a script comes to its end."""
    yield from range(1, 2000, stride[1])


def fresh(stride: tuple[str, int], folder: Path) -> ScriptDevice:
    folder.mkdir()
    return device_of(stride[0], folder)


def deploy_again(device: ScriptDevice, file_set: FileSet, claim: str = MINE) -> None:
    """Deploy a set like a Deployer, from any state of the store."""
    for _ in range(3):
        view = device.look(file_set, claim=claim)
        if view.find_set(file_set):
            break
        device.deploy(file_set, claim=claim)
    assert_whole(device, file_set)


def assert_whole(device: ScriptDevice, file_set: FileSet) -> None:
    name = device.look(file_set, claim=MINE).find_set(file_set)
    assert name
    folder = device.workdir / "sets" / name
    for file in file_set.files:
        assert (folder / file.name).read_bytes() == CONTENTS[file.name]
    for path in device.workdir.glob("listed/[!.]*"):
        for entry in path.read_text().split():
            assert (device.workdir / "store" / entry).exists(), f"{path.name} wants {entry}"


def assert_can_be_emptied(device: ScriptDevice) -> None:
    """Nothing is left that an eviction would not find, once nobody uses anything."""
    claims = device.inventory().claims
    device.evict(plan_eviction(device.inventory(), 0), *claims)
    for _ in range(2):
        device.evict(plan_eviction(device.inventory(), None))
    inventory = device.inventory()
    assert (inventory.entries, inventory.sets, inventory.folders, inventory.incoming) == (
        {},
        {},
        set(),
        {},
    )


def test_looking(stride: tuple[str, int], tmp_path: Path) -> None:
    file_set = a_set("mine", "probe")
    for cut in cuts(stride):
        device = fresh(stride, tmp_path / str(cut))
        stdin = look_input([file_set], names_used([file_set]))
        arguments = [MINE, str(LASTS_S)]
        status, output = run_cut(device, "look", arguments, stdin, cut)
        deploy_again(device, file_set)
        if status == 0:
            parse_look(output.decode())
            return
        assert status == -signal.SIGKILL
        if cut % 3 == 1:
            assert_can_be_emptied(device)
    pytest.fail("never came to its end")


def assert_goes_on(
    device: ScriptDevice, status: int, file_set: FileSet, others: FileSet, cut: int
) -> None:
    """Whatever a cut script did, others keep what they have, and the next one succeeds."""
    assert_whole(device, others)
    deploy_again(device, file_set)
    assert_whole(device, others)
    if status != 0:
        assert status == -signal.SIGKILL
        if cut % 3 == 1:
            assert_can_be_emptied(device)


@pytest.mark.parametrize("alone", [False, True])
def test_placing(alone: bool, stride: tuple[str, int], tmp_path: Path) -> None:
    file_set, shared = a_set("mine", "probe", "lib/one.so"), a_set("others", "lib/one.so")
    for cut in cuts(stride):
        device = fresh(stride, tmp_path / str(cut))
        device.deploy(shared, claim=OTHER)
        arguments, stdin = device.prepared(file_set, alone=alone, claim=MINE)
        status, _ = run_cut(device, "install", arguments, stdin, cut)
        assert_goes_on(device, status, file_set, shared, cut)
        if status == 0:
            return
    pytest.fail("never came to its end")


def test_placing_what_came_only_in_part(stride: tuple[str, int], tmp_path: Path) -> None:
    file_set = a_set("mine", "probe", "lib/one.so")
    length = len(fresh(stride, tmp_path / "whole").prepared(file_set)[1])
    for size in range(0, length, 512 + 400 * stride[1]):
        device = fresh(stride, tmp_path / str(size))
        arguments, stdin = device.prepared(file_set, claim=MINE)
        run_cut(device, "install", arguments, stdin[:size], 2000)
        deploy_again(device, file_set)


@pytest.mark.slow
def test_evicting(stride: tuple[str, int], tmp_path: Path) -> None:
    mine, other = a_set("mine", "probe", "lib/one.so"), a_set("others", "lib/one.so")
    for cut in cuts(stride):
        device = fresh(stride, tmp_path / str(cut))
        device.deploy(mine, claim=MINE)
        device.evict(plan_eviction(device.inventory(), 0), MINE)
        device.deploy(other, claim=OTHER)
        plan = plan_eviction(device.inventory(), None)
        assert [name.partition(".")[0] for name in plan.sets] == ["mine"]
        assert len(plan.entries) == 1
        arguments = ["e0", str(LASTS_S), CONDEMNED_TOUCH]
        status, _ = run_cut(device, "evict", arguments, plan.text(), cut)
        assert_goes_on(device, status, mine, other, cut)
        if status == 0:
            return
    pytest.fail("never came to its end")


@pytest.mark.slow
def test_evicting_what_is_wanted_meanwhile(stride: tuple[str, int], tmp_path: Path) -> None:
    """Another host claims and looks at every point of an eviction that was planned before."""
    mine = a_set("mine", "probe", "lib/one.so")
    for cut in cuts(stride):
        device = fresh(stride, tmp_path / str(cut))
        device.deploy(mine, claim=MINE)
        folder = device.folder(mine)
        device.evict(plan_eviction(device.inventory(), 0), MINE, CLAIM)
        plan = plan_eviction(device.inventory(), None)
        assert plan.sets
        completed = run_with_another_in_between(device, plan.text(), mine, cut)
        if device.used_by_other:
            assert folder.exists() or device.told_missing
            if not device.told_missing:
                for file in mine.files:
                    assert (folder / file.name).read_bytes() == CONTENTS[file.name]
                assert all(
                    device.workdir.glob(f"store/{entry_name(file)}.*") for file in mine.files
                )
        deploy_again(device, mine)
        if completed:
            return
    pytest.fail("never came to its end")


def run_with_another_in_between(
    device: ScriptDevice, stdin: bytes, file_set: FileSet, cut: int
) -> bool:
    """Stops an eviction before its `cut`th command while another looks; whether it ended first."""
    gate = device.workdir.parent / "gate"
    os.mkfifo(gate)
    # only one may wait there: the shells of a pipeline can come to the same number
    wait = '{ mkdir "$GATE.taken" 2>/dev/null && { echo >"$GATE"; read x <"$GATE"; }; }'
    trace, arguments = TRACE.replace("kill -9 0", wait), ["e0", str(LASTS_S), CONDEMNED_TOUCH]
    with traced(device, trace, "evict", arguments, CUT=cut, GATE=gate) as process:
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        reader = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
        stopped = waits_at_gate(reader, process)
        os.close(reader)
        device.used_by_other = stopped
        if stopped:
            view = device.look(file_set, claim=MINE)
            device.told_missing = view.find_set(file_set) is None
            gate.write_text("go on\n")
        assert process.wait(timeout=60) == 0
    return not stopped


def waits_at_gate(reader: int, process: subprocess.Popen[bytes]) -> bool:
    """Return True if the script came to its gate, and not to its end."""
    while True:
        select.select([reader], [], [], 0.02)
        with contextlib.suppress(BlockingIOError):
            if os.read(reader, 10):
                return True
        if process.poll() is not None:
            return False
