"""The list of commands loads none of them, and says of each what it says itself."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest
from click.shell_completion import ShellComplete

from harness.cli.main import COMMANDS, commands
from harness.core.errors import HarnessError
from harness.results.record import SCHEMA
from tests.integration.in_process import qnn_harness
from tests.snapshots import Snapshot


def test_help_loads_no_command() -> None:
    script = (
        "import sys; from harness.cli.main import commands\n"
        "commands.main(['--help'], standalone_mode=False)\n"
        "print(*[name for name in sys.modules if name.startswith('harness.')])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    *shown, loaded = completed.stdout.splitlines()
    packages = {name.split(".")[1] for name in loaded.split()}
    assert packages <= {"cli", "core"}
    listed = shown[shown.index("Commands:") + 1 : shown.index("", shown.index("Commands:"))]
    (page,) = (line.strip() for line in shown if Path(line.strip()).is_file())  # one word to copy
    assert Path(page).read_text().startswith("# qnn-harness")
    assert [line.split()[0] for line in listed if line[2] != " "] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_its_own_words(name: str) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command.name == name
    assert command.get_short_help_str(1000) == COMMANDS[name]


@pytest.mark.parametrize(
    ("command", "code"), [("--help", 3), ("model --help", 3), ("devces", 2), ("report gone", 2)]
)
def test_output_that_nobody_takes_is_one_line_and_an_exit_code(command: str, code: int) -> None:
    for stderr in (subprocess.PIPE, None):
        with open("/dev/full", "w") as full:
            completed = subprocess.run(
                [sys.executable, "-m", "harness.cli.main", *command.split()],
                stdout=full,
                stderr=stderr or full,
                text=True,
                check=False,
                timeout=60,
            )
        assert completed.returncode == code
        if stderr and code == 3:
            (line,) = completed.stderr.splitlines()
            assert line.startswith("error: ")
            assert line.endswith("No space left on device")


@pytest.mark.parametrize("word", ["devces", "zzzz", __file__])
def test_a_command_that_there_is_not(word: str) -> None:
    completed = qnn_harness(word)
    assert (completed.returncode, f"'{word}'" in completed.stderr) == (2, True)
    assert ("'devices'" in completed.stderr) == (word == "devces")
    assert (f"qnn-harness run {word}" in completed.stderr) == (word == __file__)


def test_common_options_are_explained_once_and_completed_everywhere(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("fine\n")
    for words in (["--json", "explain"], ["explain", "--json"], ["explain"]):
        printed = qnn_harness(*words, tmp_path / "log", code=1).stdout
        assert printed.startswith("{") == ("--json" in words)
    for name, common in (("run", "--lab, --reports, --json"), ("model fit", "--lab, --json")):
        command = [sys.executable, "-m", "harness.cli.main", *name.split(), "-h"]
        page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (line,) = (line for line in page.splitlines() if "--json  " in line)
        assert line.split("  ")[1] == common
        completion = ShellComplete(commands, {}, "qnn-harness", "")
        options = {item.value for item in completion.get_completions(name.split(), "--")}
        assert {*common.split(", ")} <= options


def test_the_version_tells_the_schemas() -> None:
    assert f"results {SCHEMA}," in qnn_harness("--version").stdout


def every(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*above, name)
        if isinstance(command, click.Group):
            yield from every(command, *above, name)


def planted(words: tuple[str, ...], error: BaseException, *before: str) -> tuple[int, str]:
    """Return the end of a command whose body only raises this error."""
    command: click.Command | None = commands
    for word in words:
        command = command.get_command(click.Context(command), word)
    assert command is not None
    body = mock.Mock(side_effect=error)
    nothing: dict[str, Any] = {"params": [], "callback": body, "no_args_is_help": False}
    nothing |= {"invoke_without_command": True} if isinstance(command, click.Group) else {}
    with mock.patch.multiple(command, **nothing):
        completed = qnn_harness(*before, *words)
    assert body.called
    return completed.returncode, completed.stderr


@pytest.mark.parametrize("words", [*every(commands)], ids=" ".join)
def test_a_fault_of_ours_is_3_and_one_line_and_its_traceback_only_with_v(
    words: tuple[str, ...],
) -> None:
    code, stderr = planted(words, RuntimeError("planted\nhere"))
    (line,) = stderr.splitlines()
    assert code == 3
    assert line.startswith("error: internal error: RuntimeError: planted here; ")
    code, stderr = planted(words, RuntimeError("planted"), "-v")
    assert code == 3
    assert "Traceback (most recent call last)" in stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokenPipeError(errno.EPIPE, "gone"), 0),
        (OSError(errno.ENOSPC, "No space left"), 3),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2),
        (PermissionError(errno.EPERM, "not permitted"), 3),
        (FileNotFoundError(errno.ENOENT, "none"), 2),
        (OSError(errno.EIO, "broken", "x"), 3),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 3),
        (AssertionError(), 3),
        (HarnessError("so it is"), 3),
        (ValueError("x" * 10_000), 3),
    ],
    ids=[
        *("EPIPE", "ENOSPC", "EACCES", "EPERM", "ENOENT", "EIO", "ctrl-c", "memory"),
        *("assert", "harness", "long"),
    ],
)
def test_how_a_command_ends(error: BaseException, code: int, snapshot: Snapshot) -> None:
    ended, stderr = planted(("devices",), error)
    assert (ended, len(stderr.splitlines()) < 2, len(stderr) < 500) == (code, True, True)
    assert stderr.replace("x" * 20, "") == snapshot
