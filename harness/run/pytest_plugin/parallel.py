"""pytest-xdist: a worker holds the devices it was first given, and no two workers share one."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.errors.outgoing_text import counted
from harness.ground.files.scratch import scratch_folder
from harness.run.pytest_plugin.attempts import Course, MovedCase
from harness.run.pytest_plugin.messages import Messages
from harness.run.pytest_plugin.neighbours import ignored_options
from harness.run.pytest_plugin.pytest_internals import (
    forget_in_junitxml,
    is_maxfail,
    no_test_of_junitxml,
    say_of_workers,
)
from harness.run.pytest_plugin.recorder import EVENTS
from harness.run.pytest_plugin.scheduler import ByDevice, CaseNeeds
from harness.run.pytest_plugin.selection import asks_for_devices
from harness.run.pytest_plugin.terminal import (
    GIVEN_UP,
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
    from harness.run.pytest_plugin.device_run import Run


class Controller:
    """Hooks of the process that distributes; it collects nothing and holds no device itself."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._workers = 0
        self._scheduler: ByDevice | None = None
        self._temporary = contextlib.ExitStack()
        self._messages = Messages(self._temporary.enter_context(scratch_folder()))
        self._cases: dict[str, CaseNeeds] = {}
        self._courses = defaultdict[str, Course](Course)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        """Starts the workers; one that dies before it can say anything ends the run."""
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
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """As many workers as will collect."""
        self._workers = len(specs)
        if self._run.live is not None:
            self._run.live.listen(self._messages.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: ByDevice) -> None:
        """That a worker died says nothing about the target; the case is run again by another.

        It is an error if no other worker comes to run the case, or if as many died in it as it may
        be tried; other cases still run. What the worker had said of the case no longer counts,
        unless it had said all: then the case is over.
        """
        if crashitem not in self._cases:
            return
        setattr(report, OURS, True)
        course = self._courses[crashitem]
        if course.over:
            report.outcome = OVER
            _log.warning(f"{report.longrepr}; that case was over")
            return
        said, course.said = course.said, []
        forget_in_junitxml(sched.config, report.node, said)
        forget(sched.config, said)
        if not course.died(self._run.options.retries):
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
        self._messages.end_workers()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Notes how many cases there are; the journal begins here."""
        if self._cases:
            return
        records = self._run.records
        told, records.code = self._messages.cases(node.gateway.id)
        self._cases.update({name: told[name] for name in ids if name in told})
        if self._cases:
            for text in ignored_options(node.config, ()):
                _log.warning(text)
            if self._workers > 1:
                tests = counted(len(ids), "item")
                begins = "cases begin with the first that is ready"
                say_of_workers(node.config, f"{self._workers} workers [{tests}]; {begins}")
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
        """Tells each worker which run it works for."""
        node.workerinput["qnn_harness_run"] = str(self._run.records.planned_folder)
        node.workerinput["qnn_harness_messages"] = str(self._messages.folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> ByDevice:
        """Distributes by device."""
        self._scheduler = ByDevice(
            config,
            self._workers,
            self._cases,
            kinds=lambda: self._run.asked.kinds,
            earlier=lambda: self._before[0],
            paces=lambda: self._before[1],
            bind=self._bind,
            is_taken=lambda device: self._run.workbench.lab.device(device).is_taken,
            is_lent=lambda device: self._run.workbench.lab.device(device).has_loan,
        )
        return self._scheduler

    @cached_property
    def _before(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        from harness.answers.history.previous import last_rows
        from harness.run.scheduling.pace import paces_of

        folder = self._run.records.folder
        return ({}, {}) if folder is None else paces_of(last_rows(folder))

    def _bind(self, node_id: str, device: str) -> None:
        own, retries = self._cases[node_id][0], self._run.options.retries
        move = self._courses[node_id].bound_to(device, own, retries)
        if move is not None:
            self._messages.put(node_id, move)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> Generator[None, object, object]:
        """Has a case go on with a worker that has another device, if its own cannot run it."""
        if self._scheduler is None or not (
            self._is_retried(report) or report.outcome in (RETRIED, OVER)
        ):
            self._note(report)
            return (yield)
        with no_test_of_junitxml(self._scheduler.config):
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

    def _is_retried(self, report: Any) -> bool:
        assert self._scheduler is not None
        told = getattr(report, GIVEN_UP, None)
        if told is None:
            return False
        left, course = MovedCase(**told), self._courses[report.nodeid]
        if report.when == "setup":
            course.is_moving = False
            ask = self._scheduler.cannot if left.cannot else self._scheduler.gave_up
            if ask(report.nodeid, left.device):
                course.goes_on(left)
        if not course.is_moving:
            return False
        if report.failed or left.cannot:
            report.outcome = RETRIED
        if report.when == "teardown":
            course.is_moving = False
            self._scheduler.give_back(report.nodeid)
        return True

    def pytest_unconfigure(self) -> None:
        """Removes what workers were told."""
        self._temporary.close()


def folder_for_worker(config: pytest.Config, what: str) -> Path | None:
    """The folder of the `run` of an xdist worker, or of its `messages`; None elsewhere."""
    given = getattr(config, "workerinput", {}).get(f"qnn_harness_{what}")
    return Path(str(given)) if given else None


def is_controller(config: pytest.Config) -> bool:
    """Whether this process distributes tests to workers."""
    return config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
