"""pytest-xdist: the controller of a run whose cases are run by workers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import read_json, scratch_folder
from harness.core.linux_processes import children
from harness.plugin.collection import asks_for_devices, selection
from harness.plugin.pytest_internals import is_maxfail
from harness.plugin.scheduling import learn_paces
from harness.plugin.session_end import EVENTS
from harness.plugin.terminal import LAB_ERROR, OURS, OVER, RETRIED, STOPPED_BY, drop_reports, stop

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from harness.plugin.device_run import Run

_MAX_BYTES: Final = 1 << 30


class SharedFolder:
    """A folder in which a controller and its workers exchange what pytest-xdist does not send."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_cases(self, worker: str, cases: Sequence[str], code: Mapping[str, str]) -> None:
        """Write which of a worker's tests are cases, before pytest-xdist sends their names."""
        (self.path / f"cases-{worker}").write_text(json.dumps([cases, code]))

    def read_cases(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """Return what `write_cases` wrote; empty if a worker has no case."""
        try:
            cases, code = read_json(self.path / f"cases-{worker}", _MAX_BYTES)
        except FileNotFoundError:
            return [], {}
        return cases, code

    def register_worker(self) -> None:
        """Register that this worker treats SIGTERM like Ctrl-C."""
        (self.path / f"worker-{os.getpid()}").touch()

    def terminate_workers(self) -> None:
        ours = set(map(str, children()))
        for file in self.path.glob("worker-*"):
            if (pid := file.name.partition("-")[2]) in ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)


@dataclass
class _CaseState:
    """The state of a case that is run by workers, as their controller knows it.

    `reports` are those of a case that is not over. `died_in` is the report of a worker that died
    in it, until another worker takes the case; `deaths` counts such workers.
    """

    died_in: Any = None
    is_over: bool = False
    reports: list[Any] = field(default_factory=list)
    deaths: int = 0


class Controller:
    """Hooks of the controller, which collects no tests and holds no device itself."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._config: pytest.Config | None = None
        self._temporary = contextlib.ExitStack()
        self._shared = SharedFolder(self._temporary.enter_context(scratch_folder()))
        self._cases: set[str] = set()
        self._states = defaultdict[str, _CaseState](_CaseState)
        self._paces: tuple[dict[str, float], dict[str, float]] = {}, {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        """Start the workers; one that dies at once ends the run."""
        self._config = session.config
        with self._reporting_dead_workers(session.config, started=False):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Distribute the tests; end the run if workers cannot be replaced."""
        with self._reporting_dead_workers(session.config):
            try:
                return (yield)
            except KeyboardInterrupt as error:
                # pytest-xdist raises this for --maxfail, too, when its workers have ended
                if not self._run.records.to_run or not is_maxfail(error):
                    raise
                raise session.Failed(str(error)) from error

    @contextlib.contextmanager
    def _reporting_dead_workers(
        self, config: pytest.Config, *, started: bool = True
    ) -> Generator[None]:
        try:
            yield
        except (OSError, EOFError, RuntimeError) as error:
            # execnet raises these if the other end of its pipe is gone, pytest-xdist if no worker
            # is left. pytest would call it an internal error and report nothing.
            if not asks_for_devices(config) and not self._run.records.to_run:
                raise
            detail = (str(error) or type(error).__name__).partition(": <")[0]
            what = "ended the run" if started else "could not start its workers"
            problem = InfraError(f"pytest-xdist {what}: {detail}")
            self._run.problem = problem
            if started:
                with contextlib.suppress(HarnessError):
                    self._run.records.open_folder()
            stop(config, problem, started=started)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        if asks_for_devices(config):
            from harness.history.previous_run import last_durations

            folder, words = self._run.records.planned_folder, list(selection(sys.argv))
            self._paces = learn_paces(last_durations(folder, words), self._run.selection.kinds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Let another worker run the case in which a worker died.

        The death says nothing about the target. It becomes an error if no other worker runs the
        case, or after as many deaths as there may be attempts; other cases go on. Reports of the
        dead worker about the case are dropped, unless the case was over.
        """
        if crashitem not in self._cases:
            return
        assert self._config is not None
        setattr(report, OURS, True)
        report.location = (*report.location[:2], crashitem.partition("::")[2])
        state = self._states[crashitem]
        if state.is_over:
            report.outcome = OVER
            _log.warning(f"{report.longrepr}; its case was finished")
            return
        reports, state.reports = state.reports, []
        drop_reports(self._config, reports)
        state.deaths += 1
        if state.deaths > max(1, self._run.options.retries):
            setattr(report, LAB_ERROR, "infra")
            _log.warning(f"{report.longrepr}; that case is not run again")
            return
        report.outcome = RETRIED
        state.died_in = report
        with contextlib.suppress(NotImplementedError):  # loadscope runs it again by itself
            sched.mark_test_pending(crashitem)
        _log.warning(f"{report.longrepr}; another worker runs that case again")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report cases in which a worker died and that no other worker has run."""
        reports = [state.died_in for state in self._states.values()]
        for report in [report for report in reports if report is not None]:
            setattr(report, LAB_ERROR, "infra")
            report.outcome = "failed"
            session.config.hook.pytest_runtest_logreport(report=report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Terminate the workers, so that they release their devices and end.

        execnet would do so only after 5 s, and in vain where SIGINT is ignored.
        """
        self._shared.terminate_workers()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Take the list of cases from the first worker; the journal begins here."""
        if self._cases:
            return
        records = self._run.records
        cases, records.code = self._shared.read_cases(node.gateway.id)
        self._cases = {*cases} & {*ids}
        if self._cases:
            self._run.announce(self._cases)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """End the run with the error that stopped a worker, since it would stop all others."""
        output = getattr(node, "workeroutput", {})
        for event in output.get(EVENTS, ()):
            self._run.records.open_folder().journal.append(event)
        stopped_by = output.get(STOPPED_BY)
        if stopped_by is not None:
            text, exit_code = stopped_by
            if exit_code == pytest.ExitCode.USAGE_ERROR:
                raise pytest.UsageError(*text.split("\n"))
            error = ConfigError(text) if exit_code == ConfigError.exit_code else InfraError(text)
            self._run.problem = error
            stop(node.config, error)

    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker the run's folder, and how its cases are distributed."""
        node.workerinput["qnn_harness_run"] = str(self._run.records.planned_folder)
        node.workerinput["qnn_harness_shared"] = str(self._shared.path)
        node.workerinput["qnn_harness_dist"] = node.config.option.dist
        node.workerinput["qnn_harness_paces"] = self._paces
        node.workerinput["qnn_harness_recorded"] = self._run.records.recorded

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note the reports of a case that is not over."""
        if report.outcome in (RETRIED, OVER) or report.nodeid not in self._cases:
            return
        state = self._states[report.nodeid]
        state.died_in = None
        if report.when == "teardown":
            state.reports, state.is_over = [], True
        else:
            state.reports.append(report)

    def pytest_unconfigure(self) -> None:
        self._temporary.close()


def worker_input(config: pytest.Config, key: str) -> Any:
    """Return `run`, `shared`, `dist`, `paces` or `recorded` of an xdist worker; None elsewhere."""
    return getattr(config, "workerinput", {}).get(f"qnn_harness_{key}")


def is_controller(config: pytest.Config) -> bool:
    """Return whether this process distributes tests to workers."""
    return config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
