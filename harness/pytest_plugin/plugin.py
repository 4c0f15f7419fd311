"""The hooks that pytest calls: they only connect pytest's life cycle to the rooms below.

Imports at the top stay small, since every pytest run of the environment loads this module.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness.errors import ConfigError, HarnessError
from harness.pytest_plugin.options import add_options, read_options
from harness.pytest_plugin.report_marks import LAB_ERROR, OURS, RETRIED, UNSUPPORTED
from harness.pytest_plugin.run import Run
from harness.pytest_plugin.terminal import terminal_notices

if TYPE_CHECKING:
    from harness.bench import Bench
    from harness.pytest_plugin.case import Case
    from harness.workbench import Need, Placement

RUN = pytest.StashKey[Run]()
CASE = pytest.StashKey["Case"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "device(backend, engine, compilers, htp_arch, soc, target, simulated, tags): runs on "
        "devices of the lab that satisfy every keyword given; with ONNX Runtime if engine is ort, "
        "with contexts of all compilers if compilers is all",
    )
    config.addinivalue_line(
        "markers", "timed: waits until its device is cool and idle (`gate` in devices.yaml)"
    )
    config.addinivalue_line(
        "markers", "planned(says): a function of contexts and parameters; what --plan says besides"
    )
    from harness.pytest_plugin.parallel import (
        Controller,
        is_controller,
        moves_of_worker,
        run_of_worker,
    )

    run = Run(read_options(config), *terminal_notices(config), works_for=run_of_worker(config))
    run.moves = moves_of_worker(config)
    config.stash[RUN] = run
    if "device" in str(config.getoption("markexpr", "")):
        from harness.pytest_plugin.offered import Collected

        run.collected = Collected(run)
        config.pluginmanager.register(run.collected, "qnn-harness-collected")
    if is_controller(config):
        config.pluginmanager.register(Controller(run), "qnn-harness-controller")
    if not run.is_worker:
        from harness.pytest_plugin.recorder import Recorder

        config.pluginmanager.register(Recorder(run), "qnn-harness-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    if config.getoption("--plan") and hasattr(config.option, "numprocesses"):
        config.option.numprocesses = None  # a plan is printed, not distributed
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: as many workers as there are devices, if only device tests are asked for.

    One device needs no worker: it is driven from here.
    """
    if config.getoption("markexpr", "") != "device":
        return None
    run = Run(read_options(config), *terminal_notices(config))
    devices = len(run.device_names)
    return devices if devices > 1 else 0


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUN in config.stash:
        config.stash[RUN].close()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "placement" not in metafunc.fixturenames:
        return
    run = metafunc.config.stash[RUN]
    marker = metafunc.definition.get_closest_marker("device")
    found: list[Placement] = []
    try:
        found, reasons = run.placements(dict(marker.kwargs) if marker else {})
        run.unfit[metafunc.definition.nodeid] = reasons
    except HarnessError as error:
        # Raised here it would be reported once per test; it stops the run after collection.
        run.problem = run.problem or error
    metafunc.parametrize("placement", found, ids=[str(place) for place in found], scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    if run.problem is not None and any("placement" in _fixtures(item) for item in items):
        _stop(config, run.problem)
    for item in items:
        if item.get_closest_marker("device") and "placement" not in _fixtures(item):
            problem = f"{item.nodeid} is marked `device` and must take the fixture `bench`"
            _stop(config, ConfigError(problem))
    try:
        if run.options.only_case is not None:
            from harness.pytest_plugin.only_case import only_case

            left = only_case(run.options.only_case, items, _placement, config.invocation_params.dir)
            config.hook.pytest_deselected(items=[item for item in items if item not in left])
            items[:] = left
        done = [item for item in items if _placement(item) and run.has_verdict(item.nodeid)]
    except HarnessError as error:
        _stop(config, error)
    if done:
        items[:] = [item for item in items if item not in set(done)]
        config.hook.pytest_deselected(items=done)
    for item in items:
        reasons = run.unfit.get(item.nodeid.partition("[")[0])
        if reasons and _placement(item) is None and "placement" in _fixtures(item):
            why = "no device of the lab fits: " + "; ".join(reasons)
            item.add_marker(pytest.mark.skip(reason=why), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    run = session.config.stash[RUN]
    needs = [need for need in map(_need, session.items) if need is not None]
    if not needs or session.config.option.collectonly:
        return None
    try:
        if run.options.plan:
            from harness.pytest_plugin.plan_view import show_plan

            show_plan(session, run, _need)
            return True
        run.begin(needs)
        if not any(item.get_closest_marker("timed") for item in session.items):
            run.prepare_ahead()
    except HarnessError as error:
        run.problem = error
        _stop(session.config, error)
    return None


def _stop(config: pytest.Config, error: HarnessError) -> NoReturn:
    """Ends the run with one clear message and the exit code of its cause."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(f"error: {error}", red=True)
    config.stash[RUN].note_problem(error)
    pytest.exit("nothing was run", returncode=error.exit_code)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    placement = _placement(item)
    run = item.config.stash[RUN]
    if placement is None or run.folder is None:
        return None
    from harness.pytest_plugin.attempts import run_case

    run_case(item, nextitem, run, placement, CASE)
    return True


@pytest.fixture
def bench(request: pytest.FixtureRequest, placement: Placement) -> Bench:
    """A device with the asked-for runtime on it, ready for this case.

    After a fault of the lab it may be a twin of the device that `placement` names.
    """
    from harness.bench import Bench

    run = request.config.stash[RUN]
    case = request.node.stash[CASE]
    assert run.folder is not None
    logs = run.folder.case_folder(request.node.nodeid)
    try:
        workbench = run.ready(case.placement)
    finally:
        case.preflight = run.workbench.findings(case.placement)
    made = Bench(workbench, case.placement, logs)
    case.bench = made
    case.log_prefix = logs.relative_to(run.folder.path).as_posix()
    case.identity = made.device.identity()
    if request.node.get_closest_marker("timed") is not None:
        made.settle()
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    case = item.stash.get(CASE, None)
    if case is None:
        return report
    setattr(report, OURS, True)
    failure = call.excinfo.value if call.excinfo else None
    if report.when == "call" and report.passed:
        failure = case.unchecked_failure()
        report.outcome = "failed" if failure else "passed"
    case.saw(report, failure)
    if isinstance(failure, ConfigError):
        item.config.stash[RUN].note_problem(failure)
    if report.failed:
        _explain(item, case, report, failure)
    elif report.when == "call" and report.passed:
        case.fixed = item.config.stash[RUN].fixed(case.record())
        if case.fixed is not None and case.fixed.fails:
            report.outcome = "failed"
            names = ", ".join(case.fixed.known_issues)
            report.longrepr = f"fixed? it passed, and is a known issue: {names} (--strict-known)"
    return report


def _explain(
    item: pytest.Item, case: Case, report: pytest.TestReport, failure: BaseException | None
) -> None:
    """Says what a failure means: an expected one, the target's, or the lab's."""
    from harness.bench import TargetFailure

    record = case.record()
    issue = item.config.stash[RUN].expected(record)
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
        report.longrepr = (path, (line or 0) + 1, f"unsupported: {failure}")
    elif isinstance(failure, TargetFailure | HarnessError):
        report.longrepr = str(failure)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str] | None:
    if report.failed and getattr(report, LAB_ERROR, None):
        return "error", "E", "ERROR"
    if str(report.outcome) == RETRIED:
        return RETRIED, "R", "RETRIED"
    if getattr(report, UNSUPPORTED, False):
        return "unsupported", "u", "UNSUPPORTED"
    return None


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if config.pluginmanager.hasplugin("qnn-harness-controller") and "device" in str(
        config.getoption("markexpr")
    ):
        # A worker could only crash over it.
        try:
            config.stash[RUN].check()
        except HarnessError as error:
            _stop(config, error)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    run = session.config.stash[RUN]
    if run.options.resume and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and run.earlier:
        from harness.pytest_plugin.recorder import finish_complete

        finish_complete(session, run)
        return
    if run.folder is None or run.is_worker:
        run.close()
        return
    from harness.pytest_plugin.recorder import finish

    finish(session, run, exitstatus)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash[RUN]
    if run.folder is not None:
        from harness.pytest_plugin.recorder import show_summary

        show_summary(terminalreporter, run, run.folder)


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _placement(item: pytest.Item) -> Placement | None:
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("placement") if callspec else None
    return found if hasattr(found, "compiler") else None


def _need(item: pytest.Item) -> Need | None:
    placement = _placement(item)
    if placement is None:
        return None
    from harness.pytest_plugin.axes import models_of
    from harness.workbench import Need

    return Need(placement, models_of(item.callspec.params))  # type: ignore[attr-defined]
