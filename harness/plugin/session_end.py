"""Recording of finished cases, and the end of a run: its exit code, reports and summary."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.core import hooks
from harness.core.errors import ConfigError, HarnessError, InfraError, raised_text
from harness.core.outgoing_text import counted
from harness.plugin.collection import asks_for_devices
from harness.plugin.terminal import (
    LIVE_FROM,
    MISTAKEN,
    OURS,
    RECORDS,
    stop,
    wrapped,
    write_error,
    write_line,
    write_lines,
)

if TYPE_CHECKING:
    from harness.plugin.device_run import Run
    from harness.report.sections import RunData, Since
    from harness.results.run_folder import RunFolder

_NO_TEST: Final = (
    "no device test was selected; use --pyargs harness.suites for the suites of qnn-harness"
)
_NO_CASE: Final = "no case was selected; check the pytest options after `--`"
EVENTS: Final = "qnn_harness_events"
"""The key of the device events that a worker sends at its end."""
_EXIT_AFTER_FAILURES = 1
_EXIT_NOTHING_WRONG = (0, 1)
_SAID_CHARS = 1000
_MANY_CASES = 20
_MOST_NEW = 10
_WIDTH = 1000


class Recorder:
    """Writes each finished case to the journal, in the process that gets all reports."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config = config
        self._run = run

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be collected, which stops the run."""
        if report.failed:
            lines = report.longreprtext.splitlines()
            errors = [line[1:] for line in lines if line.startswith("E ")]  # as pytest marks them
            summary = " ".join(" ".join(errors or lines).split())[-_SAID_CHARS:]
            error = ConfigError(f"{report.nodeid} cannot be collected: {summary}")
            self._run.uncollected = error
            self._run.selection.note_problem(error)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        try:
            for record in report.__dict__.pop(RECORDS, ()):
                self._run.records.open_folder().journal.append(record)
        except HarnessError as error:
            self._run.problem = error
            stop(self._config, error)


def end_session(session: pytest.Session, run: Run, exitstatus: int | pytest.ExitCode) -> None:
    """Release the devices, and write the reports if there is anything to report."""
    run.ended = True
    if _has_no_case_left(session, run, exitstatus):
        _finish_complete(session, run)
    elif run.records.folder is None or run.records.is_worker:
        run.close()
        if exitstatus == _EXIT_AFTER_FAILURES and _bad_reports(session):
            code = _EXIT_AFTER_FAILURES if _foreign_failures(session) else ConfigError.exit_code
            session.exitstatus = code
        none = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not run.records.is_worker
        if none and (LIVE_FROM in session.config.stash or asks_for_devices(session.config)):
            text = _NO_CASE if LIVE_FROM in session.config.stash else _NO_TEST
            write_lines(session.config, text, yellow=True)
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[EVENTS] = [event.model_dump(mode="json") for event in run.records.take_events()]
    else:
        _finish(session, run, run.records.folder, exitstatus)


def _has_no_case_left(session: pytest.Session, run: Run, exitstatus: int | pytest.ExitCode) -> bool:
    if run.options.resume is None or run.records.folder is not None or run.records.is_worker:
        return False
    none = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    ran = exitstatus in _EXIT_NOTHING_WRONG and not _only_looks(session, run)
    return (none or ran) and bool(run.records.earlier)


def _only_looks(session: pytest.Session, run: Run) -> bool:
    return bool(session.config.option.collectonly or run.options.dry_run)


def _finish(
    session: pytest.Session, run: Run, folder: RunFolder, exitstatus: int | pytest.ExitCode
) -> None:
    mistaken = [report for report in _bad_reports(session) if getattr(report, MISTAKEN, False)]
    not_started = [str(report.longrepr) for report in mistaken]
    coverage = folder.contents().tally.coverage(folder.info() | {"not_started": ()})
    foreign = _foreign_failures(session) or _drifts(run, folder)
    if exitstatus in _EXIT_NOTHING_WRONG:
        lost = ConfigError.exit_code if mistaken else coverage.lost_code
        session.exitstatus = _EXIT_AFTER_FAILURES if foreign or coverage.fails else lost
    problem = str(run.problem or run.uncollected or "") or None
    if exitstatus == pytest.ExitCode.INTERRUPTED and problem is None:
        problem = "interrupted"
    elif problem is None and coverage.not_run:  # as with -x
        problem = f"not run: {coverage.not_run} of {counted(coverage.selected or 0, 'case')}"
        if run.options.resume is not None and not (session.shouldstop or session.shouldfail):
            problem += ", not selected by this command"
    data = None
    try:
        with _reporting_errors(session):
            run.close()
    finally:
        with run.ending.uninterrupted(), _reporting_errors(session):
            code = int(session.exitstatus)
            data = run.records.finish(
                code, problem, other_failures=foreign, not_started=not_started
            )
            # `qnn-harness run`, a night and a bisection print themselves how to go on
            wrapped = LIVE_FROM in session.config.stash or run.options.problem_file is not None
            if problem == "interrupted" and coverage.not_run and not wrapped:
                write_lines(session.config, folder.resume_hint)
        if data is not None:
            with _reporting_errors(session):
                _call_plugins(session, run, folder, data)


@contextlib.contextmanager
def _reporting_errors(session: pytest.Session) -> Generator[None]:
    try:
        yield
    except HarnessError as error:
        session.exitstatus = session.exitstatus or error.exit_code
        write_error(session.config, error)


def _call_plugins(session: pytest.Session, run: Run, folder: RunFolder, data: RunData) -> None:
    """Call `qnn_run_finished` of each plug-in, and record those that fail."""
    from harness.notify.messages import RunNotifier
    from harness.report import ci
    from harness.report.summary import totals

    code, errors = int(session.exitstatus), []
    hooks.add(ci, "qnn-harness-ci")
    channels = [channel for channel in run.selection.lab.notify if channel.runs]
    if channels and run.options.problem_file is None:  # nights and bisections send their own
        hooks.add(RunNotifier(channels), "qnn-harness-notify")
    arguments = {"folder": folder.path, "exit_code": code, "outcomes": totals(data.cases)}
    for plugin, call in hooks.calls("qnn_run_finished", **arguments, run=data):
        try:
            lines = call() or ()
            if isinstance(lines, str):
                raise TypeError("it returns a string instead of a list of lines")
            for line in lines:
                write_lines(session.config, line)
        except Exception as error:
            errors.append(raised_text(f"plug-in {plugin}: qnn_run_finished", error))
            write_error(session.config, errors[-1])
            if session.config.option.verbose > 0:
                write_lines(session.config, "".join(traceback.format_exception(error)))
    if errors:
        session.exitstatus = code or InfraError.exit_code
        ended = {"finished": data.info.get("finished"), "exit_code": int(session.exitstatus)}
        folder.end({**ended, "plugin_errors": errors})


def _drifts(run: Run, folder: RunFolder) -> bool:
    steps = run.options.drift_steps
    return steps is not None and any(drift.beyond(steps) for drift in folder.drift())


def _finish_complete(session: pytest.Session, run: Run) -> None:
    """End a `--resume` that had nothing left to do, like the resumed run.

    If that run died before its end was written, it is written now.
    """
    from harness.results.run_folder import RunFolder

    folder = RunFolder.open(run.records.planned_folder)
    message = f"all selected cases in {folder.path} are done"
    if not folder.ended_in_order and not _only_looks(session, run):
        write_lines(session.config, f"{message}; finishing this run")
        try:
            _finish(session, run, run.records.open_folder(), pytest.ExitCode.OK)
        except HarnessError as error:
            run.close()
            session.exitstatus = error.exit_code
            write_error(session.config, error)
        return
    run.close()
    fails = _foreign_failures(session) or _drifts(run, folder)
    coverage = folder.coverage()
    session.exitstatus = _EXIT_AFTER_FAILURES if fails else coverage.exit_code
    # the run may have gaps outside of this selection
    write_lines(session.config, f"{message}: {coverage.headline()}")


def show_summary(terminalreporter: Any, run: Run, folder: RunFolder) -> None:
    """Print the summary of the run."""
    from harness.report.document import lines
    from harness.report.model_tables import figure_blocks
    from harness.report.summary import grid_lines, grids, summary_lines
    from harness.results.journal import read_once
    from harness.results.output_drift import drift_lines

    part = "" if run.options.resume is None else ": the whole run, not only its resumed part"
    terminalreporter.write_sep("=", f"qnn-harness{part}")
    cases = folder.contents().cases
    above = run.failures.shown if run.failures is not None else {}
    coverage = folder.coverage()
    many = (coverage.selected or coverage.judged) > _MANY_CASES
    brief = many and terminalreporter.config.option.verbose <= 0
    page = folder.path / "report.html"
    summary = partial(
        summary_lines, coverage=coverage, report=page, above=above, brief=brief, width=_WIDTH
    )
    collected = run.collected.tests() if run.collected and run.selection.known_issues else None
    remarks = partial(run.records.remarks, collected=collected, brief=brief)
    figures = () if brief else (figure_blocks,)
    summed_up, remarked, *blocks = read_once(cases, summary, remarks, *figures)
    if not brief:
        compared = [grid_lines(grid) for grid in grids(cases) if grid.compares]
        summed_up += [*lines(*blocks), *chain.from_iterable(compared)]
    for line in (*summed_up, *_since_lines(run.records.since if coverage.is_whole else None)):
        write_line(terminalreporter, wrapped(terminalreporter, line))
    for line in (*drift_lines(folder.drift()), *remarked):
        write_line(terminalreporter, wrapped(terminalreporter, line), yellow=True)


def _since_lines(since: Since | None) -> Iterator[str]:
    """Yield the number of changes since the previous run, and the cases that fail since then."""
    if since is None:
        return
    counts = Counter(since.became.values())
    changes = [f"{counts[name]} {title}" for name, title in since.titles.items() if counts[name]]
    changes += [f"{len(since.not_run)} not in this run"] if since.not_run else []
    if changes:
        yield f"compared with {since.base}: {', '.join(changes)}"
    new = [case for case, became in since.became.items() if became == "new"]
    yield from (f"  new: {case}" for case in new[:_MOST_NEW])
    if len(new) > _MOST_NEW:
        yield f"  and {len(new) - _MOST_NEW} more"


def _bad_reports(session: pytest.Session) -> list[Any]:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats if reporter is not None else {}
    return [*stats.get("failed", []), *stats.get("error", [])]


def _foreign_failures(session: pytest.Session) -> bool:
    """Return whether other tests than cases fail, apart from wrongly marked ones."""
    bad = _bad_reports(session)
    return not all(getattr(each, OURS, False) or getattr(each, MISTAKEN, False) for each in bad)
