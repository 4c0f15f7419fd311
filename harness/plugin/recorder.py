"""Writes finished cases down, and ends a run: its exit code, its reports, its summary."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.core.errors import ConfigError, HarnessError
from harness.core.outgoing_text import counted, outgoing
from harness.plugin.collected import asks_for_devices
from harness.plugin.terminal import (
    LAB_ERROR,
    LIVE_FROM,
    MISTAKEN,
    OURS,
    RECORDS,
    stop,
    tell,
    write_line,
)

if TYPE_CHECKING:
    from harness.plugin.device_run import Run
    from harness.results.run_folder import RunFolder

_NO_TEST: Final = (
    "no device test was selected; those that come with qnn-harness: --pyargs harness.suites"
)
EVENTS: Final = "qnn_harness_events"
"""What a worker tells at its end of what happened to its devices."""
_EXIT_AFTER_FAILURES = 1
_EXIT_NOTHING_WRONG = (0, 1)
_SAID_CHARS = 1000


class Recorder:
    """Writes each finished case to the journal; lives where pytest reports come together."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config = config
        self._run = run

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected keeps the run from all cases."""
        if report.failed:
            lines = report.longreprtext.splitlines()
            errors = [line[1:] for line in lines if line.startswith("E ")]  # as pytest marks them
            said = " ".join(" ".join(errors or lines).split())[-_SAID_CHARS:]
            self._run.asked.note_problem(
                ConfigError(f"{report.nodeid} cannot be collected: {said}")
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the lines for the journal that come with a report."""
        try:
            for record in report.__dict__.pop(RECORDS, ()):
                self._run.records.open_folder().journal.append(record)
        except HarnessError as error:
            self._run.problem = error
            stop(self._config, error)


def end_session(session: pytest.Session, run: Run, exitstatus: int | pytest.ExitCode) -> None:
    """Lets go of devices and writes the reports, as far as there is anything to report."""
    run.ended = True
    _shorten_repeats(session.config)
    if _has_no_case_left(session, run, exitstatus):
        _finish_complete(session, run)
    elif run.records.folder is None or run.records.is_worker:
        run.close()
        if exitstatus == _EXIT_AFTER_FAILURES and _bad_reports(session):
            code = _EXIT_AFTER_FAILURES if _foreign_failures(session) else ConfigError.exit_code
            session.exitstatus = code
        none = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and asks_for_devices(session.config)
        if none and not run.records.is_worker:
            tell(session.config, _NO_TEST, yellow=True)
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[EVENTS] = run.records.told_at_end()
    else:
        _finish(session, run, run.records.folder, exitstatus)


def _has_no_case_left(session: pytest.Session, run: Run, exitstatus: int | pytest.ExitCode) -> bool:
    if run.options.resume is None or run.records.folder is not None or run.records.is_worker:
        return False
    none = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    ran = exitstatus in _EXIT_NOTHING_WRONG and not _only_looks(session, run)
    return (none or ran) and bool(run.records.earlier)


def _only_looks(session: pytest.Session, run: Run) -> bool:
    return bool(session.config.option.collectonly or run.options.plan)


def _finish(
    session: pytest.Session, run: Run, folder: RunFolder, exitstatus: int | pytest.ExitCode
) -> None:
    """Ends a run: decides its exit code, lets go of its devices, and writes its reports."""
    coverage = folder.coverage()
    foreign = _foreign_failures(session) or _drifts(run, folder)
    if exitstatus in _EXIT_NOTHING_WRONG:
        mistaken = any(getattr(one, MISTAKEN, False) for one in _bad_reports(session))
        lost = ConfigError.exit_code if mistaken else coverage.lost_code
        session.exitstatus = _EXIT_AFTER_FAILURES if foreign or coverage.fails else lost
    problem = str(run.problem) if run.problem else None
    if exitstatus == pytest.ExitCode.INTERRUPTED and problem is None:
        problem = "interrupted"
    elif problem is None and coverage.not_run:  # as with -x
        problem = f"not run: {coverage.not_run} of {counted(coverage.selected or 0, 'case')}"
    try:
        _close(session, run)
    finally:
        with run.ending.held():
            try:
                code = int(session.exitstatus)
                for line in run.records.finish(code, problem, other_failures=foreign):
                    tell(session.config, line)
                # `qnn-harness run`, a night and a bisection say themselves how to go on
                own = LIVE_FROM in session.config.stash or run.options.problem_file is not None
                if problem == "interrupted" and coverage.not_run and not own:
                    tell(session.config, folder.to_go_on)
            except HarnessError as error:
                session.exitstatus = error.exit_code
                tell(session.config, f"error: {error}", red=True)


def _drifts(run: Run, folder: RunFolder) -> bool:
    steps = run.options.drift_steps
    return steps is not None and any(one.beyond(steps) for one in folder.drift())


def _close(session: pytest.Session, run: Run) -> None:
    try:
        run.close()
    except HarnessError as error:
        session.exitstatus = session.exitstatus or error.exit_code
        tell(session.config, f"error: {error}", red=True)


def _finish_complete(session: pytest.Session, run: Run) -> None:
    """Ends a `--resume` that had nothing left to do as that run had ended, and says so.

    Where that has no end, since it died in it or was cut short, it gets one now.
    """
    from harness.results.run_folder import RunFolder

    folder = RunFolder.open(run.records.planned_folder)
    told = f"nothing that was asked for is left to run in {folder.path}"
    if not folder.ended_in_order and not _only_looks(session, run):
        tell(session.config, f"{told}: its end is written now")
        try:
            _finish(session, run, run.records.open_folder(), pytest.ExitCode.OK)
        except HarnessError as error:
            run.close()
            session.exitstatus = error.exit_code
            tell(session.config, f"error: {error}", red=True)
        return
    run.close()
    fails = _foreign_failures(session) or _drifts(run, folder)
    coverage = folder.coverage()
    session.exitstatus = _EXIT_AFTER_FAILURES if fails else coverage.exit_code
    # the run may lack what was not asked for this time
    tell(session.config, f"{told}: {coverage.sentence()}")


def show_summary(terminalreporter: Any, run: Run, folder: RunFolder) -> None:
    """Prints what the run came to."""
    from harness.report.document import lines
    from harness.report.model_figures import figure_blocks
    from harness.report.summary import grid_lines, grids, summary_lines
    from harness.results.drift import drift_lines
    from harness.results.journal import read_once

    terminalreporter.section("qnn-harness")
    cases = folder.contents().cases
    shown = terminalreporter.config.option.tbstyle != "no"
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    above = "\n".join(str(one.longrepr) for one in failed if shown)
    summary = partial(summary_lines, coverage=folder.coverage(), report=folder.path, above=above)
    collected = run.collected.tests() if run.collected and run.asked.known_issues else None
    remarks = partial(run.records.remarks, collected=collected)
    summed_up, figures, remarked = read_once(cases, summary, figure_blocks, remarks)
    for line in (*summed_up, *lines(figures)):
        write_line(terminalreporter, line)
    for grid in grids(cases):
        if grid.compares:
            for line in grid_lines(grid):
                write_line(terminalreporter, line)
    for line in drift_lines(folder.drift()):
        write_line(terminalreporter, line, yellow=True)
    for line in remarked:
        write_line(terminalreporter, line, yellow=True)


def _shorten_repeats(config: pytest.Config) -> None:
    """Leave what a dead adb server has done to one case; the others it ended refer to that.

    JUnit has taken the whole text of each by now.
    """
    from harness.transport.faults import NO_SERVER, server_lost

    reporter, first = config.pluginmanager.get_plugin("terminalreporter"), dict[str, str]()
    for report in reporter.stats.get("error", []) if reporter is not None else ():
        server = server_lost(str(report.longrepr)) if getattr(report, LAB_ERROR, None) else None
        if server is None:
            continue
        if first.setdefault(server, report.nodeid) != report.nodeid:
            report.longrepr = outgoing(f"same fault as {first[server]}: {NO_SERVER}{server}")


def _bad_reports(session: pytest.Session) -> list[object]:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats if reporter is not None else {}
    return [*stats.get("failed", []), *stats.get("error", [])]


def _foreign_failures(session: pytest.Session) -> bool:
    """Whether tests fail that are no cases; those that are marked wrongly say nothing."""
    bad = _bad_reports(session)
    return not all(getattr(one, OURS, False) or getattr(one, MISTAKEN, False) for one in bad)
