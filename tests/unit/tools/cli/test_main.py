"""The list of commands loads none of them, and says of each what it says itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from harness.tools.cli.main import COMMANDS, commands


def test_help_loads_no_command() -> None:
    script = (
        "import sys; from harness.tools.cli.main import commands\n"
        "commands.main(['--help'], standalone_mode=False)\n"
        "print(*[name for name in sys.modules if name.startswith('harness.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    *shown, loaded = done.stdout.splitlines()
    rooms = {".".join(name.split(".")[1:3]) for name in loaded.split() if name.count(".") > 1}
    assert rooms <= {"tools.cli", "ground.errors"}
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
            done = subprocess.run(
                [sys.executable, "-m", "harness.tools.cli.main", *command.split()],
                stdout=full,
                stderr=stderr or full,
                text=True,
                check=False,
                timeout=60,
            )
        assert done.returncode == code
        if stderr and code == 3:
            (line,) = done.stderr.splitlines()
            assert line.startswith("error: ")
            assert line.endswith("No space left on device")


def test_a_command_that_there_is_not() -> None:
    done = CliRunner().invoke(commands, ["devces"])
    assert done.exit_code == 2
    assert "devces" in done.output
    assert "did you mean 'devices'?" in done.output
    done = CliRunner().invoke(commands, ["zzzz"])
    assert (done.exit_code, "'zzzz'" in done.output, "mean" in done.output) == (2, True, False)


def test_the_version_tells_the_schemas() -> None:
    from harness.verdict.results.record import SCHEMA

    output = CliRunner().invoke(commands, ["--version"]).output
    assert f"results {SCHEMA}, all others 1" in output


@pytest.mark.parametrize(
    ("begun", "completed"),
    [
        ("expl", [("plain", "explain")]),
        ("contexts ins", [("plain", "inspect")]),
        ("run --resid", [("plain", "--residency")]),
        ("run --residency se", [("plain", "sequential")]),
        ("run --engine o", [("plain", "ort")]),
        ("run --backend h", [("plain", "htp")]),
        ("run --reference m", [("file", "m")]),
        ("run --lab m", [("file", "m")]),
        ("run m", [("file", "m")]),
    ],
)
def test_the_tab_key_completes(begun: str, completed: list[tuple[str, str]]) -> None:
    *words, last = begun.split()
    shell = ShellComplete(commands, {}, "qnn-harness", "_QNN_HARNESS_COMPLETE")
    found = shell.get_completions(words, last)
    assert [(one.type, one.value) for one in found] == completed
