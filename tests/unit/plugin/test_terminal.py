"""Lines on pytest's terminal, and the ends of runs."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.terminal import TerminalReporter
from xdist.dsession import Interrupted

from harness.plugin.parallel import Controller
from harness.plugin.terminal import OURS, Failures, wrapped, write_lines


@pytest.mark.parametrize("before", ["", "..F", "test_a.py ..F", "..F\n"])
def test_what_is_written_begins_a_line(pytestconfig: pytest.Config, before: str) -> None:
    written = io.StringIO()
    reporter = TerminalReporter(pytestconfig, written)
    reporter.write(before)
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: reporter if name else None)
    )
    write_lines(cast(pytest.Config, config), "so")
    line = "" if not before or before.endswith("\n") else "\n"
    assert written.getvalue() == f"{before}{line}so\n"


def test_lines_break_at_spaces_of_a_terminal_only() -> None:
    writer = SimpleNamespace(fullwidth=20)
    config = SimpleNamespace(get_terminal_writer=lambda: writer)
    text = f"failed in step 59: it returned 1002\n\n  | remedy: {'x' * 30} or `fewer contexts`"
    reporter = SimpleNamespace(isatty=True, config=config)
    assert wrapped(reporter, text).splitlines() == [
        *("failed in step 59:", "  it returned 1002", ""),
        *("  | remedy:", f"  |   {'x' * 30}", "  |   or `fewer", "  |   contexts`"),
    ]
    reporter.isatty = False
    assert wrapped(reporter, text) == text


@pytest.mark.parametrize(("verbose", "printed"), [(0, ["a", "c", "d", "e"]), (1, [*"abcde"])])
def test_equal_failures_of_cases_are_printed_once(verbose: int, printed: list[str]) -> None:
    texts = {
        "a": "x" * 15 + " y" * 15,
        "b": "x" * 15 + " y" * 15,
        "c": "y",
        "d": ("x",),
        "e": ("x",),
    }
    failed = [SimpleNamespace(nodeid=k, longrepr=v, **{OURS: True}) for k, v in texts.items()]
    config = SimpleNamespace(
        option=SimpleNamespace(tbstyle="auto", verbose=verbose),
        get_terminal_writer=lambda: SimpleNamespace(fullwidth=20),
    )
    reporter = SimpleNamespace(stats={"failed": [*failed]}, config=config, isatty=True)
    failures = Failures()
    summary = failures.pytest_terminal_summary(reporter)
    next(summary)
    assert [report.nodeid for report in reporter.stats["failed"]] == printed
    assert sorted(failures.shown) == printed
    summary.close()
    assert reporter.stats["failed"] == failed
    assert {report.nodeid: report.longrepr for report in failed} == texts


@pytest.mark.parametrize(
    ("end", "cases", "raised"),
    [
        (Interrupted("stopping after 1 failures"), 3, pytest.Session.Failed),
        (Interrupted("stopping after 1 failures"), 0, Interrupted),
        (Interrupted("<WorkerController gw0> received keyboard-interrupt"), 3, Interrupted),
        (KeyboardInterrupt(), 3, KeyboardInterrupt),
    ],
)
def test_a_run_of_cases_that_maxfail_stops_was_not_interrupted(
    end: BaseException, cases: int, raised: type[BaseException]
) -> None:
    run: Any = SimpleNamespace(records=SimpleNamespace(to_run=cases))
    session: Any = SimpleNamespace(config=None, Failed=pytest.Session.Failed)
    controller = Controller(run)
    loop = controller.pytest_runtestloop(session)
    next(loop)
    with pytest.raises(raised) as caught:
        loop.throw(end)
    controller.pytest_unconfigure()
    assert type(caught.value) is raised
