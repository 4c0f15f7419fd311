"""pytest-xdist: what its controller keeps of a run whose cases workers run."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.platform import children
from harness.core.whole_file import read_json, scratch_folder
from harness.plugin.collected import asks_for_devices
from harness.plugin.neighbours import ignored_options
from harness.plugin.pytest_internals import (
    forget_in_junitxml,
    is_maxfail,
    no_test_of_junitxml,
)
from harness.plugin.recorder import EVENTS
from harness.plugin.terminal import (
    LAB_ERROR,
    OURS,
    OVER,
    RETRIED,
    STOPPED_BY,
    forget,
    stop,
)

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from harness.plugin.device_run import Run

_MAX_BYTES: Final = 1 << 30


class SharedFolder:
    """What a controller and its workers know of each other besides what pytest-xdist tells."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep_cases(self, worker: str, cases: Sequence[str], code: Mapping[str, str]) -> None:
        """Has the controller know which of a worker's tests are cases, and of which code.

        To be called before pytest-xdist tells which tests there are.
        """
        (self.path / f"cases-{worker}").write_text(json.dumps([cases, code]))

    def cases(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """What `keep_cases` kept; empty if a worker has no case."""
        try:
            cases, code = read_json(self.path / f"cases-{worker}", _MAX_BYTES)
        except FileNotFoundError:
            return [], {}
        return cases, code

    def ends_in_order(self) -> None:
        """Says that this worker takes a SIGTERM for Ctrl-C."""
        (self.path / f"worker-{os.getpid()}").touch()

    def end_workers(self) -> None:
        """Ends those of our workers that said so."""
        ours = set(map(str, children()))
        for file in self.path.glob("worker-*"):
            if (pid := file.name.partition("-")[2]) in ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)


@dataclass
class _Course:
    """How a case fares that workers run, as their controller knows it.

    `said` are the reports of a case that is not `over`. `died_in` is the report of a worker that
    died in it, until another worker takes the case; `deaths` is how many did.
    """

    died_in: Any = None
    over: bool = False
    said: list[Any] = field(default_factory=list)
    deaths: int = 0


class Controller:
    """Hooks of the process that distributes; it collects nothing and holds no device itself."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._config: pytest.Config | None = None
        self._temporary = contextlib.ExitStack()
        self._shared = SharedFolder(self._temporary.enter_context(scratch_folder()))
        self._cases: set[str] = set()
        self._courses = defaultdict[str, _Course](_Course)
        self._durations: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        """Starts the workers; one that dies before it can say anything ends the run."""
        self._config = session.config
        try:
            with self._saying_that_workers_die(session.config, begun=False):
                return (yield)
        except pytest.exit.Exception as end:
            # for a session that has not started there is no `pytest_sessionfinish`
            if end.returncode == InfraError.exit_code:
                with contextlib.suppress(HarnessError):
                    self._run.records.finish(end.returncode, str(self._run.problem))
            raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Distributes the tests. Workers in the place of dead ones would die in the same way."""
        with self._saying_that_workers_die(session.config):
            try:
                return (yield)
            except KeyboardInterrupt as error:
                # pytest-xdist's word for --maxfail, too, whose workers are done by now
                if not self._run.records.to_run or not is_maxfail(error):
                    raise
                raise session.Failed(str(error)) from error

    @contextlib.contextmanager
    def _saying_that_workers_die(
        self, config: pytest.Config, *, begun: bool = True
    ) -> Generator[None]:
        try:
            yield
        except (OSError, EOFError, RuntimeError) as error:
            # What execnet raises where the other end of its pipe is gone, and pytest-xdist where
            # no worker is left. pytest would call it an internal error and report nothing.
            if not asks_for_devices(config) and not self._run.records.to_run:
                raise
            said = (str(error) or type(error).__name__).partition(": <")[0]
            problem = InfraError(f"workers of pytest-xdist died as they were started: {said}")
            self._run.problem = problem
            with contextlib.suppress(HarnessError):
                self._run.records.open_folder()
            stop(config, problem, begun=begun)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Has workers know how long cases took, and be heard."""
        if asks_for_devices(config):
            self._durations = self._run.records.last_durations()
        if self._run.live is not None:
            self._run.live.listen(self._shared.path)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """That a worker died says nothing about the target; the case is run again by another.

        It is an error if no other worker comes to run the case, or if as many died in it as it may
        be tried; other cases still run. What the worker had said of the case no longer counts,
        unless it had said all: then the case is over.
        """
        if crashitem not in self._cases:
            return
        assert self._config is not None
        setattr(report, OURS, True)
        course = self._courses[crashitem]
        if course.over:
            report.outcome = OVER
            _log.warning(f"{report.longrepr}; that case was over")
            return
        said, course.said = course.said, []
        forget_in_junitxml(self._config, report.node, said)
        forget(self._config, said)
        course.deaths += 1
        if course.deaths > max(1, self._run.options.retries):
            setattr(report, LAB_ERROR, "infra")
            _log.warning(f"{report.longrepr}; that case is not run again")
            return
        report.outcome = RETRIED
        course.died_in = report
        sched.mark_test_pending(crashitem)
        _log.warning(f"{report.longrepr}; that case is run again by another")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tells of cases in which a worker died and which no other one came to run."""
        for report in [one.died_in for one in self._courses.values() if one.died_in is not None]:
            setattr(report, LAB_ERROR, "infra")
            report.outcome = "failed"
            session.config.hook.pytest_runtest_logreport(report=report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Tells the workers, too, so that they let go of their devices and end.

        execnet would ask them after 5 s, and in vain where SIGINT is ignored.
        """
        self._shared.end_workers()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Notes how many cases there are; the journal begins here."""
        if self._cases:
            return
        records = self._run.records
        told, records.code = self._shared.cases(node.gateway.id)
        self._cases = {*told} & {*ids}
        if self._cases:
            for text in ignored_options(node.config, ()):
                _log.warning(text)
            self._run.will_run(self._cases)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Ends the run with what kept a worker from all cases, as it would keep the others, too."""
        output = getattr(node, "workeroutput", {})
        for event in output.get(EVENTS, ()):
            self._run.records.open_folder().journal.append(event)
        told = output.get(STOPPED_BY)
        if told is not None:
            text, exit_code = told
            if exit_code == pytest.ExitCode.USAGE_ERROR:
                raise pytest.UsageError(*text.split("\n"))
            error = ConfigError(text) if exit_code == ConfigError.exit_code else InfraError(text)
            self._run.problem = error
            stop(node.config, error)

    def pytest_configure_node(self, node: Any) -> None:
        """Tells each worker which run it works for, and how its cases are distributed."""
        node.workerinput["qnn_harness_run"] = str(self._run.records.planned_folder)
        node.workerinput["qnn_harness_shared"] = str(self._shared.path)
        node.workerinput["qnn_harness_dist"] = node.config.option.dist
        node.workerinput["qnn_harness_durations"] = self._durations

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> Generator[None, object, object]:
        """Keeps a case that a worker died in out of the tests of `--junitxml`."""
        if self._config is None or report.outcome not in (RETRIED, OVER):
            self._note(report)
            return (yield)
        with no_test_of_junitxml(self._config):
            return (yield)

    def _note(self, report: Any) -> None:
        if report.nodeid not in self._cases:
            return
        course = self._courses[report.nodeid]
        course.died_in = None
        if report.when == "teardown":
            course.said, course.over = [], True
        else:
            course.said.append(report)

    def pytest_unconfigure(self) -> None:
        """Removes what workers were told."""
        self._temporary.close()


def told_to_worker(config: pytest.Config, what: str) -> Any:
    """The `run` of an xdist worker, its `shared` folder, `dist` or `durations`; None elsewhere."""
    return getattr(config, "workerinput", {}).get(f"qnn_harness_{what}")


def is_controller(config: pytest.Config) -> bool:
    """Whether this process distributes tests to workers."""
    return config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
