"""A run on a terminal: what it shows while it goes on, and that nothing of it stays."""

import re
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.terminal import Terminal

ROOT = Path(__file__).parents[3]
SUITE = '''"""Cases that take a while, one of which fails."""
from itertools import chain

import pytest

from harness import Model
from harness.models.session_plan import schedule
from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("context", [Model("tiny")], ids=str)
def test_slowly(bench, context):
    plan = bench.context_plan(bench.contexts(context), schedule(4, "resident"))
    slow = [(step, Step("sleep", {"ms": "300"})) for step in plan.steps]
    some = (pair if pair[0].verb == "context-load" else pair[:1] for pair in slow)
    bench.run(Plan(tuple(chain(*some)), plan.settings)).check()


@pytest.mark.device
@pytest.mark.parametrize("number", range(3))
def test_sleep(bench, number):
    bench.run(Plan((Step("sleep", {"ms": "400"}),))).check()
    assert number != 1, "[bold]one\\x1b[2J"
'''
DRAWN = b"\x1b[2K"
"""What nobody but the live lines writes."""

LOADING = re.compile(r"^sim-v73 .* ([1-3])/4 contexts .* test_slowly\[", re.MULTILINE)
PUSHING = re.compile(r"^pushing QNN .* \([0-9.]+ MB\)$", re.MULTILINE)
SLEEPING = re.compile(r"^(sim-\S+) +1/1 sleep +test_sleep\[", re.MULTILINE)
OF_THE_RUN = re.compile(r"^qnn-harness: \d+ of .*$", re.MULTILINE)

FREE = '''"""Live lines beside plain tests, so that what becomes of a terminal needs no device."""
import time
import pytest
from harness.plugin.plugin import RUN


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session):
    run = session.config.stash[RUN]
    run.live.begin([item.nodeid for item in session.items])
    return (yield)


@pytest.fixture(autouse=True)
def awhile():
    time.sleep(0.6)
'''


@pytest.fixture
def suite(lab: DeviceRuns) -> Path:
    return lab.write_suite(SUITE)


def environment(lab: DeviceRuns, **more: str) -> dict[str, str]:
    left_out = ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {k: v for k, v in lab.environment.items() if k not in left_out} | more


def on_terminal(
    lab: DeviceRuns, *arguments: object, columns: int = 100, rows: int = 30, **more: str
) -> Terminal:
    command = lab.command(*arguments)
    return Terminal(command, cwd=ROOT, env=environment(lab, **more), columns=columns, rows=rows)


def seen(terminal: Terminal, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    return [match for shown in terminal.seen for match in pattern.finditer(shown)]


def nothing_is_left(terminal: Terminal) -> None:
    """Of the live lines, on the screen or in what has gone out at its top."""
    assert not re.search(r"^sim-\S+ +(\d+/\d+|pushing|\d+ to run|-)", terminal.text, re.MULTILINE)
    assert not OF_THE_RUN.search(terminal.text)


@pytest.mark.slow
def test_each_device_and_the_run_have_a_line_while_it_goes_on(lab: DeviceRuns, suite: Path) -> None:
    with on_terminal(lab, suite) as terminal:
        assert terminal.finish() == 1
        assert seen(terminal, PUSHING), terminal.seen[-40:]
        assert {match[1] for match in seen(terminal, LOADING)} == {"1", "2", "3"}
        assert seen(terminal, SLEEPING)
        assert any("1 failed" in match[0] for match in seen(terminal, OF_THE_RUN))
        nothing_is_left(terminal)
        assert "1 failed, 3 passed" in terminal.lines[-1]
        assert terminal.text.count("FAILED ::test_sleep") == 1


@pytest.mark.slow
def test_ended_in_the_middle_it_leaves_nothing(lab: DeviceRuns, suite: Path) -> None:
    with on_terminal(lab, "-k", "slowly", suite) as terminal:
        terminal.wait_for(lambda screen: seen(screen, LOADING))
        terminal.send("\x03")
        assert terminal.finish() == 2
        nothing_is_left(terminal)


@pytest.mark.slow
def test_narrow_and_resized_in_the_middle(lab: DeviceRuns, suite: Path) -> None:
    with on_terminal(lab, suite, columns=20, rows=12) as terminal:
        terminal.wait_for("/4 conte")
        for columns, rows in ((90, 20), (40, 5), (20, 3), (60, 12)):
            terminal.resize(columns, rows)
            for _ in range(8):
                terminal.read()
        assert terminal.finish() == 1
        nothing_is_left(terminal)


def test_where_there_are_no_live_lines(lab: DeviceRuns, free: Path) -> None:
    with on_free_terminal(lab, free, "-q") as terminal:
        assert terminal.finish() == 0
        assert DRAWN not in terminal.everything
        assert b"\x1b[?25l" not in terminal.everything


@pytest.fixture
def free(tmp_path: Path) -> Path:
    folder = tmp_path / "free"
    folder.mkdir()
    (folder / "conftest.py").write_text(FREE)
    (folder / "test_free.py").write_text("def test_a():\n    pass\n\ndef test_b():\n    pass\n")
    return folder


def on_free_terminal(
    lab: DeviceRuns,
    folder: Path,
    *arguments: object,
    columns: int = 80,
    rows: int = 24,
    **more: str,
) -> Terminal:
    base = lab.command()[:3]
    command = [*base, "-p", "no:cacheprovider", "--rootdir", folder, *arguments, folder]
    env = environment(lab, PYTHONPATH=str(ROOT), **more)
    return Terminal(command, cwd=folder, env=env, columns=columns, rows=rows)


@pytest.mark.slow
def test_a_debugger_has_the_terminal_to_itself(lab: DeviceRuns, free: Path) -> None:
    (free / "test_free.py").write_text(
        "def test_a():\n    breakpoint()\n\ndef test_b():\n    assert 0\n"
    )
    with on_free_terminal(lab, free, "--pdb") as terminal:
        for answer in ("c", "q"):
            terminal.wait_for(lambda screen: screen.lines[-1] == "(Pdb)")
            drawn = terminal.everything.count(DRAWN)
            for _ in range(10):
                terminal.read()
            assert drawn
            assert terminal.everything.count(DRAWN) == drawn
            terminal.send(f"{answer}\n")
            terminal.wait_for(lambda screen: screen.lines[-1] != "(Pdb)")
        terminal.finish()
        assert "PDB set_trace" in terminal.text


@pytest.mark.slow
def test_a_crash_in_a_hook_leaves_nothing(lab: DeviceRuns, free: Path) -> None:
    with (free / "conftest.py").open("a") as conftest:
        conftest.write("\ndef pytest_runtest_logreport(report):\n    time.sleep(0.4)\n    1 / 0\n")
    with on_free_terminal(lab, free) as terminal:
        assert terminal.finish() == 3
        assert DRAWN in terminal.everything
        assert "INTERNALERROR> ZeroDivisionError" in terminal.text
        nothing_is_left(terminal)
