"""The hooks that pytest calls; they only connect pytest's life cycle to the modules below.

Keep the imports at the top few, since every pytest run of the environment loads this module.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import traceback
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness.core import hooks
from harness.core.end_signals import Ending
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.outgoing_text import OutgoingStream
from harness.plugin.collection import (
    MARKERS,
    MISTAKE,
    Collected,
    asks_for_devices,
    deselect,
    need_of,
    placement_of,
    placements_for,
    takes_bench,
)
from harness.plugin.device_run import Run
from harness.plugin.options import (
    SPELLED,
    SPELLINGS,
    add_options,
    add_short_forms,
    read_options,
    with_our_options,
)
from harness.plugin.plugin_compat import (
    LIMIT,
    known_arguments,
    refuse_a_moved_rootdir,
    refuse_cases_of_one_name,
    refuse_programs_beside_files,
)
from harness.plugin.pytest_internals import apply_xfail, write_through
from harness.plugin.selection import Selection
from harness.plugin.session_end import Recorder, end_session, show_summary
from harness.plugin.terminal import (
    LAB_ERROR,
    MISTAKEN,
    NO_DEVICE,
    OURS,
    OVER,
    RETRIED,
    STOPPED_BY,
    UNSUPPORTED,
    Failures,
    Live,
    clean_report,
    show_notices,
    show_skipped,
    stop,
    tell_controller,
    write_error,
    write_lines,
)
from harness.plugin.user_files import (
    ArtefactFile,
    collect_artefact,
    file_error,
    is_of_a_file,
    refuse_wrong_files,
    tests_without_contexts,
)

if TYPE_CHECKING:
    from harness.bench.bench import Bench
    from harness.bench.case_placement import Placement
    from harness.plugin.case import Case


RUN = pytest.StashKey[Run]()
CASE = pytest.StashKey["Case"]()

_EXPECTED = (
    "the test continued; if it expects this failure, call `bench.accept_refusal()` after a "
    "refusal, or mark the test with `@pytest.mark.xfail(raises=TargetFailure, strict=True)`"
)
_EARLIER = "failed earlier on the device, which `check()` of that run raises"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    try:
        hooks.use(pluginmanager)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None]:
    known = known_arguments(early_config, parser, args)
    refuse_a_moved_rootdir(early_config, known)
    refuse_programs_beside_files(early_config, known)
    tried = [SPELLINGS[name] for word in args if (name := word.partition("=")[0]) in SPELLINGS]
    if tried:  # shown if pytest does not know that option
        parser.extra_info["hint"] = f"use {' '.join(tried)}"
    try:
        return (yield)
    finally:  # a conftest.py may have claimed some, too
        early_config.stash[SPELLED] = add_short_forms(parser)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    from harness.plugin.parallel import Controller, is_controller, worker_input

    show_notices(config)
    ending = Ending(interrupt=not config.getoption("usepdb", False))
    config.pluginmanager.register(ending, "qnn-harness-ending")
    config.pluginmanager.register(_Outermost(), "qnn-harness-last")
    worker_of = worker_input(config, "run")
    worker = str(getattr(config, "workerinput", {}).get("workerid", ""))
    run = Run(
        read_options(config),
        worker_of=None if worker_of is None else Path(worker_of),
        recorded=worker_input(config, "recorded"),
        worker=worker,
        ending=ending,
    )
    run.selection.reserves_places &= not (run.options.dry_run or config.option.collectonly)
    config.stash[RUN] = run
    if asks_for_devices(config):
        ending.watch()
        # Most of what is imported and collected stays: looking for garbage is a sixth of a start.
        config.add_cleanup(functools.partial(gc.set_threshold, *gc.get_threshold()))
        if gc.get_threshold()[0]:
            gc.set_threshold(100_000)
    run.collected = Collected(run.selection)
    config.pluginmanager.register(run.collected, "qnn-harness-collected")
    if is_controller(config):
        config.pluginmanager.register(Controller(run), "qnn-harness-controller")
    if not run.records.is_worker:
        config.pluginmanager.register(Recorder(config, run), "qnn-harness-recorder")
        run.live, run.failures = Live(config), Failures()
        config.pluginmanager.register(run.failures, "qnn-harness-failures")
        config.pluginmanager.register(run.live, "qnn-harness-live")


@pytest.hookimpl(tryfirst=True, specname="pytest_cmdline_main")
def pytest_check_options(config: pytest.Config) -> int | None:
    """Report an unknown engine or simulated device in the form of other errors."""
    try:
        read_options(config)
    except ConfigError as error:
        write_error(config, error)
        return pytest.ExitCode.USAGE_ERROR
    return None


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    if hasattr(config.option, "numprocesses"):
        if config.getoption("--qnn-dry-run"):
            config.option.numprocesses = None  # a plan is printed, not distributed
        elif config.option.numprocesses and config.option.dist == "no":
            config.option.dist = "worksteal"
    try:
        return (yield)
    except pytest.UsageError:
        raise
    except Exception as error:
        if not _is_ours(error):
            raise
        code = _end_of_fault(config, error)
        with contextlib.suppress(Exception):  # it may fail again
            pytest_unconfigure(config)
        if RUN in config.stash:  # pytest calls the hook again, where nothing catches errors
            del config.stash[RUN]
        return code


def _is_ours(error: Exception) -> bool:
    """Return whether an error comes from our code, called by the last hook in the traceback."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    called = max(number for number, file in enumerate(files) if "pluggy" in Path(file).parts)
    ours = Path(__file__).parents[1]
    return any(Path(file).is_relative_to(ours) for file in files[called + 1 :])


def _end_of_fault(config: pytest.Config, error: Exception) -> int:
    """Report an error at the end of a session, where pytest would exit with 1, and its code."""
    if isinstance(error, HarnessError):
        write_error(config, error)
        return int(error.exit_code)
    if config.option.verbose > 0:
        write_lines(config, "".join(traceback.format_exception(error)))
    text = " ".join(f"{type(error).__name__}: {error}".split())
    write_error(config, f"internal error: {text}; use `-v` for a traceback")
    return int(HarnessError.exit_code)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the workers of `-n auto` for device tests: one for each device, 0 for a single one."""
    if not asks_for_devices(config, alone=True):
        return None
    workers = Selection(read_options(config)).most_workers
    return workers if workers > 1 else 0


def pytest_unconfigure(config: pytest.Config) -> None:
    hooks.leave(config.pluginmanager)
    if RUN in config.stash:
        config.stash[RUN].close()
        config.stash[RUN].records.release()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ArtefactFile | None:
    return collect_artefact(file_path, parent)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not takes_bench(metafunc.fixturenames):
        return
    run = metafunc.config.stash[RUN]
    values, problem = placements_for(metafunc, run.selection)
    # Stops the run after collection; raised here it would be reported once per test.
    run.problem = run.problem or problem
    metafunc.parametrize("placement", values, ids=str, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    if run.problem is not None and any(
        takes_bench(getattr(item, "fixturenames", ())) for item in items
    ):
        _stop(config, run.problem)
    try:
        deselect(config, items, tests_without_contexts(items, run.options))
        refuse_cases_of_one_name([item for item in items if placement_of(item)])
        if run.options.only_case is not None:
            from harness.plugin.only_case import only_case, refuse_a_compiler

            selected = only_case(run.options.only_case, items, config.invocation_params.dir)
            refuse_a_compiler(selected[0], run.options.axes["compiler"])
            deselect(config, items, [item for item in items if item not in selected])
        if any(placement_of(item) for item in items):
            from harness.plugin.only_case import without_repeats

            items[:] = without_repeats(items)
        finished = [item for item in items if run.records.is_done(item)]
    except HarnessError as error:
        _stop(config, error)
    deselect(config, items, finished)
    _order(config, items)


def _order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests so that workers of pytest-xdist begin with the best ones."""
    from harness.plugin.parallel import worker_input
    from harness.plugin.scheduling import Forecast, deal

    placed = {i: placement for i, item in enumerate(items) if (placement := placement_of(item))}
    if not placed or worker_input(config, "dist") != "worksteal":
        return
    lengths_by_name, paces = worker_input(config, "paces")
    names = [item.nodeid for item in items]
    lengths = {n: lengths_by_name[names[n]] for n in placed if names[n] in lengths_by_name}
    cases = {number: placement.candidates for number, placement in placed.items()}
    workers = int(config.workerinput["workercount"])  # type: ignore[attr-defined]
    shares = deal(len(items), cases, lengths, paces, workers)
    run = config.stash[RUN]
    run.homes = {names[number]: share.device for share in shares for number in share.tests}
    file = Path(worker_input(config, "shared"), "begun-and-ended")
    devices_of = {names[number]: devices for number, devices in cases.items()}
    run.forecast = Forecast(file, devices_of, lengths_by_name, paces, run.selection.kinds)
    items[:] = [items[number] for share in shares for number in share.tests]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Report a missing path to the controller, which would otherwise crash over it."""
    try:
        return (yield)
    except pytest.UsageError as error:
        problem = "\n".join(map(str, error.args))
        tell_controller(session.config, problem, pytest.ExitCode.USAGE_ERROR)
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write which of a worker's tests are cases, before pytest-xdist sends their names."""
    from harness.plugin.parallel import SharedFolder, worker_input

    run, shared = session.config.stash[RUN], worker_input(session.config, "shared")
    # pytest calls this after errors of collection, too, when nothing will be run
    if shared is None or STOPPED_BY in session.config.workeroutput:  # type: ignore[attr-defined]
        return
    if cases := [item for item in session.items if placement_of(item)]:
        run.records.note_code(cases)
        worker = session.config.workerinput["workerid"]  # type: ignore[attr-defined]
        names = [case.nodeid for case in cases]
        SharedFolder(Path(shared)).write_cases(worker, names, run.records.code)
        gc.freeze()  # most objects are of modules now; pytest collects garbage twice at the end


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    from harness.plugin.parallel import SharedFolder, worker_input

    run = session.config.stash[RUN]
    needs = [need for need in map(need_of, session.items) if need is not None]
    if not needs or session.config.option.collectonly:
        return None
    try:
        if run.options.dry_run:
            from harness.plugin.plan_view import show_plan

            show_plan(session, run)
            return True
        cases = [item for item in session.items if placement_of(item)]
        for case in cases:  # otherwise pytest-retry repeats it within its report
            if case.get_closest_marker("flaky") is not None:
                case.add_marker(pytest.mark.flaky(condition=False), append=False)
        shared = worker_input(session.config, "shared")
        if shared is None:
            run.records.note_code(cases)
        run.announce([case.nodeid for case in cases])
        run.begin(needs)
        if shared is not None:
            SharedFolder(Path(shared)).register_worker()
        refuse_wrong_files(session.items, needs, run.workbench)
    except HarnessError as error:
        if isinstance(error, InfraError) and run.records.folder is not None:
            from harness.plugin.case import record_not_run

            record_not_run(session.items, run, error)
        elif isinstance(error, ConfigError):
            run.records.discard()
        run.problem = error
        _stop(session.config, error)
    return None


def _stop(config: pytest.Config, error: HarnessError, *, started: bool = True) -> NoReturn:
    config.stash[RUN].selection.note_problem(error)
    stop(config, error, started=started)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    placement = placement_of(item)
    run = item.config.stash[RUN]
    if placement is None or run.records.folder is None:
        return None
    from harness.plugin.case import run_case

    run_case(item, nextitem, run, placement, CASE)
    return True


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Leave the limit of a case to its attempts."""
    if placement_of(item) is None or CASE in item.stash or settings.func_only:
        return None
    item.stash[LIMIT] = settings
    return True


@pytest.fixture
def bench(request: pytest.FixtureRequest, placement: Placement) -> Bench:
    """A device with the selected runtime on it, prepared for this case.

    After a fault of the lab it may be another one of the devices that share the case.
    """
    from harness.bench.bench import Bench
    from harness.bench.case_session import CaseSession

    run = request.config.stash[RUN]
    case = request.node.stash[CASE]
    assert run.records.folder is not None
    if (error := file_error(request.node)) is not None:
        raise error
    logs = run.records.folder.case_folder(request.node.nodeid)
    try:
        ready = run.workbench.ready(case.placement)
    finally:
        case.preflight = run.workbench.findings(case.placement)
    run.workbench.refuse(case.placement, case.own_findings())
    session = CaseSession(ready, logs, request.node.path.parent)
    case.session, session.foreseen = session, case.foreseen()
    case.log_prefix = f"{logs.parent.name}/{logs.name}"
    case.device = ready.provisioned.record
    full = run.options.contexts.profile_run is not None and is_of_a_file(request.node.nodeid)
    if full or request.node.get_closest_marker("wait_until_idle") is not None:
        session.wait_until_idle(may_move=case.attempt < len(case.placement.candidates))
    return Bench(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if (mistake := item.stash.get(MISTAKE, None)) is not None:
        item.config.stash[RUN].selection.note_problem(mistake)
        pytest.fail(with_our_options(item.config, str(mistake)), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    case = item.stash.get(CASE, None)
    if case is None:
        if report.skipped and NO_DEVICE in str(report.longrepr):
            from harness.plugin.case import note_unfit

            note_unfit(item, report, item.config.stash[RUN])
        setattr(report, MISTAKEN, MISTAKE in item.stash)
        return report
    setattr(report, OURS, True)
    failure = call.excinfo.value if call.excinfo else None
    lost = case.session.lost_lease() if case.session is not None else None
    if lost is not None:
        failure, report.outcome = lost, "failed"
    elif report.when == "call" and failure is None:
        failure = case.unchecked_failure()
        if isinstance(failure, ConfigError) or (failure and not apply_xfail(report)):
            report.outcome = "failed"
    if isinstance(failure, ConfigError):
        from harness.bench.exception_attribution import with_its_place

        failure = with_its_place(failure, str(item.path))
    case.add_report(report, failure)
    if case.is_lab_error and hasattr(report, "wasxfail"):  # an xfail mark does not cover the lab
        del report.wasxfail
        report.outcome = "failed"
    if not report.skipped:  # nor failed as its mark expects
        is_ours = failure is None or isinstance(failure, HarnessError)
        mistake = failure if is_ours else case.mistake_of_the_test()
        if isinstance(mistake, ConfigError):
            item.config.stash[RUN].selection.note_problem(mistake)
    if report.failed:
        _explain(item, case, report, failure)
    elif report.when == "call" and report.passed:
        case.fixed = item.config.stash[RUN].selection.fixed(case.record)
        if case.fixed is not None and case.fixed.fails:
            report.outcome = "failed"
            names = ", ".join(case.fixed.known_issues)
            report.longrepr = f"fixed? it passed, but is a known issue: {names} (qnn_strict_known)"
    return report


def _explain(
    item: pytest.Item, case: Case, report: pytest.TestReport, failure: BaseException | None
) -> None:
    """Set the text of a failure, and its kind: expected, unsupported, the target's or the lab's."""
    from harness.bench.case_session import NotPassed, TargetFailure
    from harness.results.known_issues import match

    earlier = None if isinstance(failure, NotPassed) else case.unchecked_failure()
    if report.when == "call" and isinstance(earlier, NotPassed):
        report.sections.append((_EARLIER, f"{earlier}"))
        case.add_note(f"{_EARLIER}: {earlier}")
    record, known = case.record(), item.config.stash[RUN].selection.known_issues
    issue = match(record, known)
    unchecked = isinstance(failure, TargetFailure) and not failure.__traceback__
    note = issue is None and unchecked and item.getparent(ArtefactFile) is None
    if note:
        case.add_note(_EXPECTED)
    if issue is not None:
        case.known_issue = issue.id
        report.outcome = "skipped"
        report.wasxfail = f"known issue {issue.id}: {issue.link}"
    elif case.is_unsupported:
        report.outcome = "skipped"
        setattr(report, UNSUPPORTED, True)
    elif case.is_lab_error:
        setattr(report, LAB_ERROR, record.cause)
    if case.is_unsupported:
        path, line, _ = item.location
        text = "" if isinstance(failure, NotPassed) else "unsupported: "
        text = with_our_options(item.config, f"{text}{failure}")
        report.longrepr = (path, (line or 0) + 1, text)
    elif isinstance(failure, NotPassed | HarnessError):
        named = record.error is not None and isinstance(failure, InfraError)
        text = record.error.message if named and record.error else str(failure)
        if isinstance(failure, NotPassed) and (error := failure.verdict.error) and record.error:
            general, diagnosis = error.diagnosis, record.error.diagnosis
            if general and diagnosis and general.id == diagnosis.id:  # it may name what worked here
                error = error.model_copy(update={"diagnosis": diagnosis})
                text = replace(failure.verdict, error=error).explanation()
        if isinstance(failure, NotPassed) and (place := case.place_of(failure)):
            text = f"{place}: {text}"
        report.longrepr = with_our_options(item.config, f"{text}\n{_EXPECTED}" if note else text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if getattr(report, OURS, False):
        clean_report(report)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    if report.failed and getattr(report, LAB_ERROR, None):
        return "error", "E", "ERROR"
    if str(report.outcome) == RETRIED:
        return RETRIED, "R", "RETRIED"
    if str(report.outcome) == OVER:
        return "", "", ""
    if getattr(report, UNSUPPORTED, False):
        return "unsupported", "u", "UNSUPPORTED"
    return None


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    run = config.stash[RUN]
    try:
        if not (run.options.dry_run or config.option.collectonly):
            run.records.lock()
        if config.pluginmanager.hasplugin("qnn-harness-controller") and asks_for_devices(config):
            run.selection.check()  # a worker could only crash
    except HarnessError as error:
        _stop(config, error, started=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    end_session(session, session.config.stash[RUN], exitstatus)


class _Outermost:
    """Hooks around those of all other plug-ins, which catch an interruption of the end."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        # no control of the terminal or the CI system, and no secrets: they may be in a name, a
        # warning, a traceback or an error of collection
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            write_through(reporter, lambda file: OutgoingStream(file, trusted=False))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        try:
            return (yield)
        except KeyboardInterrupt:
            run = session.config.stash[RUN]
            if run.records.folder is None:
                raise
            session.exitstatus = pytest.ExitCode.INTERRUPTED
            if not run.ended:
                end_session(session, run, session.exitstatus)
            reporter = session.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.ensure_newline()
                pytest_terminal_summary(reporter, session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash[RUN]
    if run.failures is not None:
        run.failures.restore()
    quiet = config.getoption("no_summary", False) or run.records.is_worker
    if run.records.folder is not None and not quiet:
        with run.ending.uninterrupted():
            show_summary(terminalreporter, run, run.records.folder)
    show_skipped(terminalreporter)
