"""What a run shares with whoever watches it: progress and warnings."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import Any, Final, NoReturn

import pytest

from harness.errors import HarnessError
from harness.errors.outgoing_text import outgoing
from harness.files.notices import Notices, shown_by

STOPPED_BY: Final = "qnn_harness_stopped_by"
"""Where a worker of pytest-xdist says what kept it from all tests, and its exit code."""

# What reports carry besides pytest's own, also from pytest-xdist's workers to the controller.

RECORDS: Final = "qnn_harness_records"
"""The lines for the journal: what happened to devices, and every attempt at the case."""

LAB_ERROR: Final = "qnn_harness_lab_error"
"""The cause of what went wrong, where that says nothing about the target."""

UNSUPPORTED: Final = "qnn_harness_unsupported"
"""Set where the target said that it cannot do what the case is about."""

OURS: Final = "qnn_harness_case"
"""Set on every report of a case with a device."""

GIVEN_UP: Final = "qnn_harness_given_up"
"""Set where the device was given up while attempts were left: which, and how many."""

RETRIED: Final = "retried"
"""Outcome of a report whose case goes on elsewhere."""


def write_line(reporter: Any, text: str, **markup: bool) -> None:
    """Shows a line, or several, in which nothing that a device said steers the terminal."""
    reporter.write_line(outgoing(text), **markup)


def stop(config: pytest.Config, error: HarnessError) -> NoReturn:
    """Ends the run with one clear message and the exit code of its cause.

    What a worker prints is not seen: its controller says it.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        write_line(reporter, f"error: {error}", red=True)
    tell_controller(config, str(error), error.exit_code)
    pytest.exit("nothing was run", returncode=error.exit_code)


def tell_controller(config: pytest.Config, problem: str, exit_code: int) -> None:
    """Has the controller of this worker, if it is one, end the run for the same reason."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[STOPPED_BY] = problem, int(exit_code)  # execnet takes no enum


def clean_report(report: pytest.TestReport) -> None:
    """Makes what pytest will print of a case printable, whatever a device put into it."""
    told: Any = report.longrepr
    if isinstance(told, str):
        report.longrepr = outgoing(told)
    elif isinstance(told, tuple):
        report.longrepr = (told[0], told[1], outgoing(told[2]))
    elif told is not None:
        chain = getattr(told, "chain", ())
        for trace, crash, _ in chain or ((told.reprtraceback, told.reprcrash, None),):
            for place in filter(None, (crash, getattr(told, "reprcrash", None))):
                place.message = outgoing(place.message)
            for entry in trace.reprentries:
                entry.lines[:] = map(outgoing, entry.lines)
    if hasattr(report, "wasxfail"):
        report.wasxfail = outgoing(report.wasxfail)
    report.sections[:] = [(name, outgoing(text)) for name, text in report.sections]


def show_notices(config: pytest.Config) -> None:
    """Shows, until pytest ends, progress on a terminal only, and warnings in a pipe, too.

    Both go through pytest's own reporter. What it writes while a case runs is captured, too, and
    lost if the case passes in the end. Nobody sees that of a worker of pytest-xdist: its
    warnings become pytest's, which the controller shows at the end.
    """

    def progress(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.isatty:
            write_line(reporter, text)

    def warn(text: str) -> None:
        if hasattr(config, "workerinput"):
            told = warnings.WarningMessage(
                pytest.PytestWarning(outgoing(text)), pytest.PytestWarning, "qnn-harness", 0
            )
            more = {"when": "runtest", "nodeid": "", "location": None}
            config.hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": told, **more}
            )
            return
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            with uncaptured():
                reporter.ensure_newline()
                write_line(reporter, f"warning: {text}", yellow=True)

    def uncaptured() -> contextlib.AbstractContextManager[None]:
        capture = config.pluginmanager.get_plugin("capturemanager")
        # no other thread can know when this one begins and ends to capture
        if capture is None or threading.current_thread() is not threading.main_thread():
            return contextlib.nullcontext()
        disabled: contextlib.AbstractContextManager[None] = capture.global_and_fixture_disabled()
        return disabled

    shown = contextlib.ExitStack()
    shown.enter_context(shown_by(Notices(progress=progress, warn=warn)))
    config.add_cleanup(shown.close)
