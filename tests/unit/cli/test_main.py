"""The list of commands loads none of them, and says of each what it says itself."""

from __future__ import annotations

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
from click.testing import CliRunner

from harness.cli.main import COMMANDS, commands
from harness.core.errors import HarnessError
from tests.integration.in_process import qnn_harness


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
    page = shown[shown.index("  All pages to read:") + 1]  # whole, to be copied as one word
    assert Path(page.strip()).read_text().startswith("# Start here")
    assert [line.split()[0] for line in listed if line[2] != " "] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_its_own_words(name: str) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(1000) == COMMANDS[name]


@pytest.mark.parametrize(
    ("command", "code"), [("--help", 3), ("contexts --help", 3), ("devces", 2), ("report gone", 2)]
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


def test_a_command_that_there_is_not() -> None:
    completed = CliRunner().invoke(commands, ["devces"])
    assert completed.exit_code == 2
    assert "devces" in completed.output
    assert "did you mean 'devices'?" in completed.output
    completed = CliRunner().invoke(commands, ["zzzz"])
    assert (completed.exit_code, "'zzzz'" in completed.output, "mean" in completed.output) == (
        2,
        True,
        False,
    )


def test_the_version_tells_the_schemas() -> None:
    from harness.results.record import SCHEMA

    output = CliRunner().invoke(commands, ["--version"]).output
    assert f"results {SCHEMA}, all others 1" in output


@pytest.mark.parametrize(
    ("incomplete", "completed"),
    [
        ("expl", [("plain", "explain")]),
        ("contexts ins", [("plain", "inspect")]),
        ("run --resid", [("plain", "--residency")]),
        ("run --residency se", [("plain", "sequential")]),
        ("run --reference m", [("file", "m")]),
        ("run m", [("file", "m")]),
    ],
)
def test_the_tab_key_completes(incomplete: str, completed: list[tuple[str, str]]) -> None:
    *words, last = incomplete.split()
    shell = ShellComplete(commands, {}, "qnn-harness", "_QNN_HARNESS_COMPLETE")
    completions = shell.get_completions(words, last)
    assert [(item.type, item.value) for item in completions] == completed


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
        assert isinstance(command, click.Group)
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
    assert line.startswith("error: internal error: RuntimeError: planted here; please report it")
    code, stderr = planted(words, RuntimeError("planted"), "-v")
    assert code == 3
    assert "Traceback (most recent call last)" in stderr
    assert stderr.splitlines()[-1].endswith("please report it with this traceback")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BrokenPipeError(errno.EPIPE, "gone"), 0, ""),
        (OSError(errno.ENOSPC, "No space left"), 3, "error: the output could not"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "error: x: Permission denied"),
        (PermissionError(errno.EPERM, "not permitted"), 3, "error: internal error: PermissionErr"),
        (FileNotFoundError(errno.ENOENT, "none"), 2, "error: the current folder is gone; change"),
        (OSError(errno.EIO, "broken", "x"), 3, "error: internal error: OSError: [Errno 5] broken"),
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 3, "error: this computer has not enough memory for that"),
        (RecursionError("too deep"), 3, "error: internal error: RecursionError: too deep; please"),
        (AssertionError(), 3, "error: internal error: AssertionError; please report it with"),
        (HarnessError("so it is"), 3, "error: so it is"),
        (ValueError("x" * 10_000), 3, "error: internal error: ValueError: xxx"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_how_a_command_ends(error: BaseException, code: int, message: str) -> None:
    ended, stderr = planted(("devices",), error)
    assert (ended, len(stderr.strip().splitlines())) == (code, bool(message))
    assert stderr.startswith(message)
    assert len(stderr) < 500
