"""Where the reports of all cases come together: the journal, the exit code, the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import ConfigError, HarnessError
from harness.pytest_plugin.report_marks import OURS, RECORDS

if TYPE_CHECKING:
    from harness.pytest_plugin.run import Run
    from harness.results.rundir import RunFolder

_EXIT_AFTER_FAILURES = 1
_EXIT_NOTHING_WRONG = (0, 1)
_SAID_CHARS = 1000


class Recorder:
    """Writes each finished case to the journal; lives where pytest reports come together."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected keeps the run from all cases."""
        if report.failed:
            said = " ".join(report.longreprtext.split())[-_SAID_CHARS:]
            self._run.note_problem(ConfigError(f"{report.nodeid} cannot be collected: {said}"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the lines for the journal that come with a report."""
        try:
            for record in report.__dict__.pop(RECORDS, ()):
                self._run.open_folder().journal.append(record)
        except HarnessError as error:
            self._run.problem = error
            pytest.exit(f"results cannot be kept: {error}", returncode=error.exit_code)


def finish(session: pytest.Session, run: Run, exitstatus: int | pytest.ExitCode) -> None:
    """Ends a run: decides its exit code, lets go of its devices, and writes its reports."""
    from harness.results.summary import exit_code

    assert run.folder is not None
    if exitstatus in _EXIT_NOTHING_WRONG:
        foreign = _foreign_failures(session)
        own = exit_code(run.folder.records())
        session.exitstatus = _EXIT_AFTER_FAILURES if foreign else own
    run.close()
    problem = str(run.problem) if run.problem else None
    if exitstatus == pytest.ExitCode.INTERRUPTED and problem is None:
        problem = "interrupted"
    try:
        run.finish(int(session.exitstatus), problem)
    except HarnessError as error:
        session.exitstatus = error.exit_code
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"error: {error}", red=True)


def finish_complete(session: pytest.Session, run: Run) -> None:
    """Ends a `--resume` of a run that lacks nothing: as that run ended, and says so."""
    from harness.results.summary import exit_code

    run.close()
    session.exitstatus = exit_code(run.earlier.values())
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(f"nothing is missing in {run.planned_folder}")


def show_summary(terminalreporter: Any, run: Run, folder: RunFolder) -> None:
    """Prints what the run came to."""
    from harness.results.grid import grid_lines, grids
    from harness.results.summary import summary_lines

    terminalreporter.section("qnn-harness")
    records = folder.records()
    for line in summary_lines(records, folder.path):
        terminalreporter.write_line(line)
    for grid in grids(records):
        if len(grid.cells) > 1:
            for line in grid_lines(grid):
                terminalreporter.write_line(line)
    for line in run.remarks(records):
        terminalreporter.write_line(line, yellow=True)


def _foreign_failures(session: pytest.Session) -> bool:
    """Whether something failed that is not a case of ours (a plain test, a collection)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats if reporter is not None else {}
    bad = [*stats.get("failed", []), *stats.get("error", [])]
    return any(not getattr(report, OURS, False) for report in bad)
