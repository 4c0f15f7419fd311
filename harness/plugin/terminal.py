"""Terminal output of a run: progress, with live lines where possible, and warnings."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import threading
import warnings
from collections import Counter
from collections.abc import Collection, Generator
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

import pytest

from harness.core.errors import HarnessError
from harness.core.notices import Notices, shown_by
from harness.core.outgoing_text import OutgoingStream, continued, counted, outgoing
from harness.plugin.options import with_our_options
from harness.plugin.pytest_internals import (
    column,
    is_pytests_own,
    reword,
    suppress_exit_line,
    uncaptured,
    write_through,
)

if TYPE_CHECKING:
    from harness.plugin.live_progress import Show
    from harness.plugin.progress import RunCounts

STOPPED_BY: Final = "qnn_harness_stopped_by"
"""The key of the error that stopped a worker of pytest-xdist, with its exit code."""

# Attributes of reports, which also travel from pytest-xdist's workers to the controller.

RECORDS: Final = "qnn_harness_records"
"""The lines for the journal: events of devices, and every attempt at the case."""

LAB_ERROR: Final = "qnn_harness_lab_error"
"""The cause of an error that says nothing about the target."""

NO_DEVICE: Final = "no device of the lab fits"
"""The beginning of the reason why a test has no case."""
NO_LAB: Final = "no devices.yaml here"
"""Its beginning if there is no lab."""
NOT_ASKED: Final = "it needs"
"""Its continuation if the test does not run with the selected versions or backends."""

UNSUPPORTED: Final = "qnn_harness_unsupported"
"""Set if the target does not support the case."""

OURS: Final = "qnn_harness_case"
"""Set on every report of a case with a device."""

MISTAKEN: Final = "qnn_harness_mistaken"
"""Set if an error in its markers kept a test from running."""

LIVE_FROM = pytest.StashKey[int]()
"""The lowest verbosity with live lines: 0, or less for a command that makes pytest quieter."""

_PHASES: Final = ("setup", "call", "teardown")

RETRIED: Final = "retried"
"""The outcome of a report whose case goes on elsewhere."""
OVER: Final = "over"
"""The outcome of a report about a dead worker whose case was over; it is not counted."""


def write_line(reporter: Any, text: str, **markup: bool) -> None:
    """Write one or more lines, without control characters from a device."""
    reporter.write_line(outgoing(with_our_options(reporter.config, text)), **markup)


def write_lines(config: pytest.Config, text: str, **markup: bool) -> None:
    """Write lines that begin in a new line of the terminal; nothing without a reporter.

    Without a text, only end the line.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        if column(reporter):  # with -q, or dots of pytest-xdist, it does not end their line
            reporter.line("")
        if text:
            write_line(reporter, text, **markup)
        reporter.flush()


def write_error(config: pytest.Config, error: object) -> None:
    """Write an error on stderr, below the output so far; that of a worker is not visible."""
    if hasattr(config, "workerinput"):
        return
    if (live := config.pluginmanager.get_plugin("qnn-harness-live")) is not None:
        live.hide()
    write_lines(config, "")
    with uncaptured(config):
        sys.stderr.write(f"error: {outgoing(with_our_options(config, str(error)))}\n")


def drop_reports(config: pytest.Config, reports: Collection[pytest.TestReport]) -> None:
    """Remove reports of a case that is run again from pytest's counts."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for counted_reports in reporter.stats.values() if reporter is not None else ():
        counted_reports[:] = [report for report in counted_reports if report not in reports]


_Error: Final = type("error", (pytest.exit.Exception,), {"__module__": "builtins"})
"""Ends a run. Before the session has begun, pytest prints its name and text on stderr."""


def stop(config: pytest.Config, error: HarnessError, *, started: bool = True) -> NoReturn:
    """End the run with one message and the exit code of its cause.

    For a worker, whose output is not visible, the controller prints the message.
    """
    text = with_our_options(config, str(error))
    if started:
        write_error(config, text)
    suppress_exit_line(config)
    tell_controller(config, text, error.exit_code)
    raise _Error(text, int(error.exit_code))


def tell_controller(config: pytest.Config, problem: str, exit_code: int) -> None:
    """Make the controller end the run with this error, if this is a worker."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[STOPPED_BY] = problem, int(exit_code)  # execnet takes no enum


def wrapped(reporter: Any, text: str) -> str:
    """Break lines at spaces to fit the terminal, if there is one."""
    if not reporter.isatty:
        return text
    width, lines = reporter.config.get_terminal_writer().fullwidth, []
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    for line in text.split("\n"):
        wrapper.subsequent_indent = f"{line[: len(line) - len(line.lstrip(' |'))]}  "
        lines += wrapper.wrap(line) or [line]
    return "\n".join(lines)


class Failures:
    """Prints each text of failed cases once, unless with -v. `shown` has the texts of cases."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self._all: list[tuple[list[Any], list[Any]]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, object, object]:
        option, texts = terminalreporter.config.option, set[str]()
        for name in ("error", "failed") if option.tbstyle != "no" else ():
            reports = terminalreporter.stats.get(name, [])
            self._all.append((reports, [*reports]))
            reports.clear()
            for report in self._all[-1][1]:
                text = report.longrepr
                if getattr(report, OURS, False) and isinstance(text, str):
                    if text in texts and option.verbose <= 0:
                        continue
                    texts.add(text)
                    report = copy(report)
                    report.longrepr = wrapped(terminalreporter, text)
                reports.append(report)
                self.shown[report.nodeid] = str(text)
        try:
            return (yield)
        finally:
            self.restore()

    def restore(self) -> None:
        """Give pytest all reports back, for its list of cases and its counts."""
        for reports, every in self._all:
            reports[:] = every
        self._all.clear()


def show_skipped(reporter: Any) -> None:
    """Write why device tests were skipped, each reason once, unless pytest does (-rs)."""
    if reporter.hasopt("skipped"):
        return
    places = [report.longrepr for report in reporter.stats.get("skipped", ())]
    reasons = [place[2].removeprefix("Skipped: ") for place in places if isinstance(place, tuple)]
    for reason, tests in Counter(reasons).items():
        if reason.startswith((NO_DEVICE, NO_LAB)):
            some = counted(tests, "device test is", "device tests are")
            write_line(reporter, f"{some} skipped: {reason}", yellow=True)


def clean_report(report: pytest.TestReport) -> None:
    """Make a report printable, whatever text of a device it contains.

    In CI pytest prints all lines of a failure's message in its short summary, too.
    """
    longrepr: Any = report.longrepr
    if isinstance(longrepr, str):
        report.longrepr = continued(outgoing(longrepr))
    elif isinstance(longrepr, tuple):
        report.longrepr = (longrepr[0], longrepr[1], continued(outgoing(longrepr[2])))
    else:  # the filter of all output cleans other forms
        reword(longrepr, message=lambda text: continued(outgoing(text)), line=outgoing)
    if hasattr(report, "wasxfail"):
        report.wasxfail = continued(outgoing(report.wasxfail))
    report.sections[:] = [(name, outgoing(text)) for name, text in report.sections]


_OF_A_WORKER: Final = "qnn-harness"
"""The file name in a warning that a worker passes on."""


def show_notices(config: pytest.Config) -> None:
    """Show progress on a terminal, and warnings anywhere, until pytest ends.

    Both go through pytest's reporter, whose output is captured while a case runs, and lost if the
    case passes. The output of an xdist worker is not visible: its warnings become pytest warnings,
    which the controller shows at once (`Live`).
    """

    def progress(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.isatty:
            write_line(reporter, text)

    def warn(text: str) -> None:
        if hasattr(config, "workerinput"):
            warning = warnings.WarningMessage(
                pytest.PytestWarning(outgoing(text)), pytest.PytestWarning, _OF_A_WORKER, 0
            )
            more = {"when": "runtest", "nodeid": "", "location": None}
            config.hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": warning, **more}
            )
            return
        # another thread cannot know when this one starts and stops capturing
        is_main_thread = threading.current_thread() is threading.main_thread()
        with uncaptured(config) if is_main_thread else contextlib.nullcontext():
            write_lines(config, f"warning: {text}", yellow=True)

    shown = contextlib.ExitStack()
    shown.enter_context(shown_by(Notices(progress=progress, warn=warn)))
    config.add_cleanup(shown.close)


class Live:
    """Hooks that show the progress of a run by live lines on a terminal.

    None with -q. A terminal has live lines if pytest alone writes to it: output of tests is
    captured, no other plug-in moves the cursor, and no debugger uses it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._show: Show | None = None
        self._counts: RunCounts | None = None
        self._file: Any = None  # the reporter's, while live lines are shown
        self._under_way: dict[str, list[pytest.TestReport]] = {}

    @property
    def _reporter(self) -> Any:
        return self._config.pluginmanager.get_plugin("terminalreporter")

    def _is_possible(self) -> bool:
        reporter = self._reporter
        return (
            is_pytests_own(reporter)
            and self._config.option.verbose >= self._config.stash.get(LIVE_FROM, 0)
            and bool(reporter.isatty)
            and self._config.getoption("capture") == "fd"
            and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
            and not os.environ.get("CI")
        )

    def begin(self, cases: Collection[str]) -> None:
        from harness.plugin.progress import RunCounts

        self._counts = RunCounts(cases)
        self._start()

    def _start(self) -> None:
        if self._show is not None or self._counts is None or not self._is_possible():
            return
        from harness.plugin.live_progress import Show

        reporter, counts = self._reporter, self._counts
        if column(reporter):  # the line that says how many workers there are
            reporter.line("")

        def shown(file: TextIO) -> OutgoingStream:
            show: Any = Show(counts, file, colours=reporter.hasmarkup)
            self._show = show
            show.start()
            return OutgoingStream(show, trusted=False)

        with contextlib.suppress(OSError):
            self._file = write_through(reporter, shown)

    def hide(self, *, clear: bool = True) -> None:
        if self._show is not None:
            self._show.stop(clear=clear)
            self._show = None
            write_through(self._reporter, lambda _: self._file)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Remove the live lines before anything else is written."""
        try:
            return (yield)
        finally:
            self.hide()
            self._counts = None

    @pytest.hookimpl(trylast=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Show a worker's warning at once instead of at the end: it may be waiting."""
        if warning_message.filename == _OF_A_WORKER and self._reporter is not None:
            del self._reporter.stats["warnings"][-1:]
            write_lines(self._config, f"warning: {warning_message.message}", yellow=True)

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger."""
        self.hide(clear=False)

    def pytest_leave_pdb(self) -> None:
        self._start()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # a worker that died has a report of no phase: its case is run again
        if self._counts is None or not getattr(report, OURS, False):
            return
        if report.when not in _PHASES:
            self._under_way.pop(report.nodeid, None)
            return
        reports = [*self._under_way.pop(report.nodeid, ()), report]
        if report.when != "teardown":
            self._under_way[report.nodeid] = reports
        elif all(str(each.outcome) != RETRIED for each in reports):
            bad = [getattr(each, LAB_ERROR, None) for each in reports if each.failed]
            self._counts.ended(report.nodeid, failed=None in bad, lab=any(bad))
