"""What a run shares with whoever watches it: progress, live where it can be, and warnings."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Collection, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

import pytest

from harness.core.errors import HarnessError
from harness.core.notices import Notices, followed_by, shown_by
from harness.core.outgoing_text import (
    Command,
    OutgoingStream,
    continued,
    counted,
    outgoing,
)
from harness.plugin.options import with_our_options
from harness.plugin.pytest_internals import (
    column,
    is_pytests_own,
    message_of,
    reword,
    say_no_end,
    uncaptured,
    write_through,
)

if TYPE_CHECKING:
    from harness.core.facts import RunCounts
    from harness.core.show import Listener, Show

STOPPED_BY: Final = "qnn_harness_stopped_by"
"""Where a worker of pytest-xdist says what kept it from all tests, and its exit code."""

# What reports carry besides pytest's own, also from pytest-xdist's workers to the controller.

RECORDS: Final = "qnn_harness_records"
"""The lines for the journal: what happened to devices, and every attempt at the case."""

LAB_ERROR: Final = "qnn_harness_lab_error"
"""The cause of what went wrong, if that says nothing about the target."""

NO_DEVICE: Final = "no device of the lab fits"
"""The reason why a test has no case begins so."""
NO_LAB: Final = "no devices.yaml here"
"""So it begins where nobody has said which devices there are."""
NOT_ASKED: Final = "it needs"
"""So it goes on if versions or backends were asked for that the test does not take."""

UNSUPPORTED: Final = "qnn_harness_unsupported"
"""Set where the target said that it cannot do what the case is about."""

OURS: Final = "qnn_harness_case"
"""Set on every report of a case with a device."""

MISTAKEN: Final = "qnn_harness_mistaken"
"""Set where what is wrong with how a test is marked kept it from running."""

LIVE_FROM = pytest.StashKey[int]()
"""The least verbosity with live lines: 0, or less for a command that has pytest say less."""

_PHASES: Final = ("setup", "call", "teardown")

RETRIED: Final = "retried"
"""Outcome of a report whose case goes on elsewhere."""
OVER: Final = "over"
"""Outcome of a report that a worker died whose case was over: it counts for nothing."""


def fits_nowhere(why: str) -> bool:
    """Whether a test has no case because no device fits, and not because of what was asked for."""
    return why.startswith(NO_DEVICE) and f": {NOT_ASKED} " not in why


def write_line(reporter: Any, text: str, **markup: bool) -> None:
    """Shows a line, or several, in which nothing that a device said steers the terminal."""
    if not isinstance(text, Command):
        text = with_our_options(reporter.config, text)
    reporter.write_line(outgoing(text), **markup)


def tell(config: pytest.Config, text: str, **markup: bool) -> None:
    """Shows lines of their own, whatever was written before; nothing without a reporter."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        if column(reporter):  # with -q it leaves letters of cases where they are
            reporter.line("")
        write_line(reporter, text, **markup)
        reporter.flush()


def forget(config: pytest.Config, reports: Collection[pytest.TestReport]) -> None:
    """Takes what a worker said of a case that is run again out of pytest's counts."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for told in reporter.stats.values() if reporter is not None else ():
        told[:] = [one for one in told if one not in reports]


_Error: Final = type("error", (pytest.exit.Exception,), {"__module__": "builtins"})
"""Ends a run. pytest itself says its name and text, on stderr, if the session has not begun."""


def stop(config: pytest.Config, error: HarnessError, *, begun: bool = True) -> NoReturn:
    """Ends the run with one clear message and the exit code of its cause.

    What a worker prints is not seen: its controller says it.
    """
    text = with_our_options(config, str(error))
    if begun:
        tell(config, f"error: {text}", red=True)
    say_no_end(config)
    tell_controller(config, text, error.exit_code)
    raise _Error(text, int(error.exit_code))


def tell_controller(config: pytest.Config, problem: str, exit_code: int) -> None:
    """Has the controller of this worker, if it is one, end the run for the same reason."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[STOPPED_BY] = problem, int(exit_code)  # execnet takes no enum


def tell_skipped(reporter: Any) -> None:
    """Says why device tests have no device, each reason once, where pytest itself does not."""
    if reporter.hasopt("skipped"):
        return
    told = [one.longrepr for one in reporter.stats.get("skipped", ())]
    whys = [one[2].removeprefix("Skipped: ") for one in told if isinstance(one, tuple)]
    for why, tests in Counter(whys).items():
        if why.startswith((NO_DEVICE, NO_LAB)):
            some = counted(tests, "device test is", "device tests are")
            write_line(reporter, f"{some} skipped: {why}", yellow=True)


def clean_report(report: pytest.TestReport) -> None:
    """Makes what pytest will print of a case printable, whatever a device put into it.

    In CI pytest prints all lines of a failure's message in its short summary, too.
    """
    told: Any = report.longrepr
    if isinstance(told, str):
        report.longrepr = continued(outgoing(told))
    elif isinstance(told, tuple):
        report.longrepr = (told[0], told[1], continued(outgoing(told[2])))
    else:  # what else pytest knows to tell, `guard_output` sees
        reword(told, message=lambda text: continued(outgoing(text)), line=outgoing)
    if hasattr(report, "wasxfail"):
        report.wasxfail = continued(outgoing(report.wasxfail))
    report.sections[:] = [(name, outgoing(text)) for name, text in report.sections]


def guard_output(config: pytest.Config) -> None:
    """Lets nothing that pytest prints steer a terminal or a CI system, or tell a secret.

    Be it a name, a warning, a traceback or what keeps a file from being collected.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        write_through(reporter, lambda file: OutgoingStream(file, trusted=False))


_OF_A_WORKER: Final = "qnn-harness"
"""Instead of a file's name, in a warning that a worker passes on."""


def show_notices(config: pytest.Config) -> None:
    """Shows, until pytest ends, progress on a terminal only, and warnings in a pipe, too.

    Both go through pytest's own reporter. What it writes while a case runs is captured, too, and
    lost if the case passes in the end. Nobody sees what a worker of pytest-xdist writes: its
    warnings become pytest's, which the controller shows at once (`Live`).
    """

    def progress(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.isatty:
            write_line(reporter, text)

    def warn(text: str) -> None:
        if hasattr(config, "workerinput"):
            told = warnings.WarningMessage(
                pytest.PytestWarning(outgoing(text)), pytest.PytestWarning, _OF_A_WORKER, 0
            )
            more = {"when": "runtest", "nodeid": "", "location": None}
            config.hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": told, **more}
            )
            return
        # no other thread can know when this one begins and ends to capture
        own = threading.current_thread() is threading.main_thread()
        with uncaptured(config) if own else contextlib.nullcontext():
            tell(config, f"warning: {text}", yellow=True)

    shown = contextlib.ExitStack()
    shown.enter_context(shown_by(Notices(progress=progress, warn=warn)))
    config.add_cleanup(shown.close)


class Live:
    """Hooks that show how far a run is: live lines on a terminal, elsewhere a line now and then.

    Nothing with -q. A terminal has live lines if pytest alone writes to it: what tests print is
    captured, no other plug-in moves the cursor, no debugger has it.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._listener: Listener | None = None
        self._show: Show | None = None
        self._counts: RunCounts | None = None
        self._began = 0.0
        self._file: Any = None  # the reporter's, while live lines are shown
        self._said = (0.0, 0)
        self._under_way: dict[str, list[pytest.TestReport]] = {}

    @property
    def _reporter(self) -> Any:
        return self._config.pluginmanager.get_plugin("terminalreporter")

    @property
    def _verbosity(self) -> int:
        return int(self._config.option.verbose) - self._config.stash.get(LIVE_FROM, 0)

    def _is_possible(self) -> bool:
        reporter = self._reporter
        return (
            is_pytests_own(reporter)
            and self._verbosity >= 0
            and bool(reporter.isatty)
            and self._config.getoption("capture") == "fd"
            and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
            and not os.environ.get("CI")
        )

    def listen(self, folder: Path) -> None:
        """Hears workers of pytest-xdist by a socket in a folder of theirs, if it is of use."""
        if self._is_possible():
            from harness.core.show import Listener

            with contextlib.suppress(OSError):
                self._listener = Listener(folder)

    def begin(self, cases: Collection[str]) -> None:
        """Cases are about to run, by their node ids."""
        if self._reporter is None or self._verbosity < 0:
            return
        from harness.core.facts import RunCounts

        self._counts, self._began = RunCounts(cases), time.monotonic()
        self._said = (self._began, 0)
        self._start()

    def _start(self) -> None:
        if self._show is not None or self._counts is None or not self._is_possible():
            return
        from harness.core.show import Show

        reporter, counts = self._reporter, self._counts
        if column(reporter):  # the line that says how many workers there are
            reporter.line("")

        def shown(file: TextIO) -> OutgoingStream:
            show: Any = Show(counts, file, colours=reporter.hasmarkup, listener=self._listener)
            self._show = show
            show.start()
            return OutgoingStream(show, trusted=False)

        with contextlib.suppress(OSError):
            self._file = write_through(reporter, shown)

    def _stop(self, *, clear: bool = True) -> None:
        if self._show is not None:
            self._show.stop(clear=clear)
            self._show = None
            write_through(self._reporter, lambda _: self._file)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """However the cases end, the live lines are gone before anything else is written."""
        try:
            return (yield)
        finally:
            self._stop()
            self._counts = None
            if self._listener is not None:
                self._listener.close()

    @pytest.hookimpl(trylast=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Says at once, and not at the end, what a worker has to say: it may be waiting."""
        if warning_message.filename == _OF_A_WORKER and self._reporter is not None:
            del self._reporter.stats["warnings"][-1:]
            tell(self._config, f"warning: {warning_message.message}", yellow=True)

    def pytest_enter_pdb(self) -> None:
        """A debugger has the terminal to itself, and pytest has said so already."""
        self._stop(clear=False)

    def pytest_leave_pdb(self) -> None:
        """It is ours again."""
        self._start()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts cases that are over, and says what fails above the live lines."""
        # of a worker that died there is one report more, of no phase: its case is run again
        if self._counts is None or not getattr(report, OURS, False):
            return
        if report.when not in _PHASES:
            self._under_way.pop(report.nodeid, None)
            return
        if report.failed:
            self._say_failed(report)
        reports = [*self._under_way.pop(report.nodeid, ()), report]
        if report.when != "teardown":
            self._under_way[report.nodeid] = reports
        elif all(str(one.outcome) != RETRIED for one in reports):
            bad = [getattr(one, LAB_ERROR, None) for one in reports if one.failed]
            self._count(report.nodeid, None in bad, any(bad))

    def _say_failed(self, report: pytest.TestReport) -> None:
        if self._show is None or self._verbosity:
            return
        from harness.core.facts import one_line

        why = message_of(report).partition("\n")[0]
        word = "ERROR" if getattr(report, LAB_ERROR, None) else "FAILED"
        self._say(f"{word} {one_line(report.nodeid)} - {one_line(why)}", red=True)

    def _say(self, line: str, **markup: bool) -> None:
        self._reporter.ensure_newline()
        if column(self._reporter):  # dots of pytest-xdist, without a file's name
            self._reporter.write("\n")
        write_line(self._reporter, line, **markup)

    def _count(self, case: str, failed: bool, lab: bool) -> None:
        assert self._counts is not None
        counts, now = self._counts, time.monotonic()
        if self._show is not None:
            self._show.ended(case, failed=failed, lab=lab)
            return
        counts.ended(case, failed=failed, lab=lab)
        since, done = self._said
        from harness.core.facts import plain_is_due

        since_s, done_since = now - since, counts.done - done
        if not self._config.option.verbose and plain_is_due(
            counts.done, counts.total, since_s, done_since
        ):
            self._said = now, counts.done
            self._say(counts.plain_line(now - self._began))


def tell_progress(config: pytest.Config, folder: str | None) -> None:
    """Has a worker of pytest-xdist tell its controller how far it is, if that listens there."""
    if folder is None:
        return
    from harness.core.show import Sender

    with contextlib.suppress(OSError):
        followed = contextlib.ExitStack()
        sender = followed.enter_context(contextlib.closing(Sender(Path(folder))))
        followed.enter_context(followed_by(sender))
        config.add_cleanup(followed.close)
