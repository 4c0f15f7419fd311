"""Lines on pytest's terminal, and the ends of runs."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.terminal import TerminalReporter
from xdist.dsession import Interrupted

from harness.plugin.parallel import Controller
from harness.plugin.terminal import write_lines


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
