"""One case while pytest runs it: its attempts, and one result record for each.

A fault of the lab is no verdict: the case is tried again.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.bench.case_session import CaseSession, NotPassed
from harness.bench.exception_attribution import at_fault, place_of
from harness.core.errors import (
    Cause,
    ConfigError,
    DeviceError,
    DeviceFull,
    DeviceHot,
    HarnessError,
    InfraError,
)
from harness.core.matrix_axes import IN_AXES
from harness.core.notices import report_progress
from harness.diagnosis.diagnosis import PD_EXHAUSTED, Foreseen, diagnosed
from harness.diagnosis.error_record import ErrorRecord, Outcome
from harness.lab.health import DeviceEvent
from harness.plugin.axes import parameter_axes, sources_in, sources_of, takes_compiled
from harness.plugin.collection import (
    file_options,
    files_sha256,
    mistake_in,
    own_test,
    parameters_of,
    placement_of,
)
from harness.plugin.device_run import AttemptEnd
from harness.plugin.plugin_compat import time_limit, timeout_message
from harness.plugin.pytest_internals import run_phases
from harness.plugin.terminal import NO_DEVICE, NOT_ASKED, UNSUPPORTED
from harness.plugin.user_files import suite_of
from harness.results.record import CaseRecord, DeviceRecord, Expected, Fixed
from harness.runtimes.runtime import NotOffered

if TYPE_CHECKING:
    from harness.bench.case_placement import Placement
    from harness.plugin.device_run import Run
    from harness.runtimes.preflight_findings import Finding

_COMPARED_CHARS: Final = 2000
_OUTPUT_BYTES: Final = 400
_UNUSED: Final = (
    "the test ran nothing on its device, so there is no verdict; if there is nothing to run, "
    "call `pytest.skip`"
)
_JUDGED: Final = (AssertionError, pytest.fail.Exception)
"""The exceptions by which a test reports a failure of the target."""

_WITH_EVIDENCE: Final[tuple[Outcome, ...]] = ("failed", "crashed", "hung")


class Case:
    """Collects the results of one item until its teardown has ended.

    The fixture sets `session` and `device` once the device is ready, `preflight` before that;
    `attempt` is the number of this attempt, from 1.
    """

    def __init__(self, item: pytest.Item, run: Run, placement: Placement, attempt: int) -> None:
        self.item = item
        self.placement = placement
        self.device: DeviceRecord | None = None
        self._run = run
        self.session: CaseSession | None = None
        self.preflight: tuple[Finding, ...] = ()
        self.log_prefix = ""
        self.attempt = attempt
        self._files_sha256 = files_sha256(item)
        self._started = datetime.now(UTC)
        self._start = time.monotonic()
        self._evidence_s = 0.0
        self._outcome: Outcome = "passed"
        self._cause: Cause | None = None
        self._error: ErrorRecord | None = None
        self._reason: str | None = None
        self._lab_end: AttemptEnd = "lab"
        self.known_issue: str | None = None
        self.fixed: Fixed | None = None

    def add_report(self, report: pytest.TestReport, failure: BaseException | None) -> None:
        if self._outcome != "passed" or report.passed:
            return
        marked = hasattr(report, "wasxfail") and not isinstance(failure, pytest.xfail.Exception)
        if report.failed or (marked and failure is not None):
            self._fail(report, failure)
            self._collect_evidence()
            self._error = self._with_remedies()
        # a mark expects a mistake of the test only if it names the exception
        named = any("raises" in mark.kwargs for mark in self.item.iter_markers("xfail"))
        if report.skipped and (self._outcome == "passed" or (named and self._cause == "config")):
            self._outcome, self._cause, self._error = "skipped", None, None
            self._reason = _reason(report)
        elif report.skipped and self._outcome in _WITH_EVIDENCE:
            self.known_issue = _reason(report)

    def _collect_evidence(self) -> None:
        if self._outcome not in _WITH_EVIDENCE or self.session is None:
            return
        start = time.monotonic()
        lines = self.session.collect_evidence()
        if self._error is not None:
            known = self.session.foreseen
            self._error = diagnosed(self._outcome, self._error, lines, foreseen=known)
        self._evidence_s += time.monotonic() - start

    def add_note(self, line: str) -> None:
        self._error = self._error and self._error.with_line(line)

    def mark_not_run(self, error: HarnessError) -> None:
        self._outcome, self._cause = "error", error.cause
        self._error = ErrorRecord.of(message=str(error), symbol=error.code)

    def unchecked_failure(self) -> NotPassed | ConfigError | None:
        """Return the failure of a plan whose result the test did not `check`; None if it passed.

        A test that did not use its device at all gets a ConfigError.
        """
        if self.session is not None and self.session.is_unused:
            return mistake_in(self.item, _UNUSED)
        verdict = self.session.notes.verdict if self.session else None
        return NotPassed.of(verdict) if verdict and verdict.outcome != "passed" else None

    def place_of(self, failure: BaseException) -> str | None:
        """Return the line of the test that failed, or that ran a plan without checking it."""
        line = place_of(failure, str(self.item.path))
        notes = self.session.notes if self.session and not failure.__traceback__ else None
        return line or (notes.test_line if notes else None)

    def mistake_of_the_test(self) -> ConfigError | None:
        """Return the test's own mistake, if that is why there is no verdict."""
        if self._cause != "config" or self._error is None:
            return None
        return ConfigError(f"{self.item.nodeid}: {self._error.message}")

    @property
    def is_unsupported(self) -> bool:
        return self._outcome == "unsupported"

    @property
    def is_lab_error(self) -> bool:
        return self._outcome == "error"

    @property
    def end(self) -> AttemptEnd:
        if self._outcome == "error" and self._cause == "infra":
            return self._lab_end
        return "unsupported" if self.is_unsupported else "verdict"

    def record(self) -> CaseRecord:
        notes = self.session.notes if self.session else None
        measured: dict[str, Any] = notes.figures() if notes else {}
        device = self.device or self._run.selection.device_record(self.placement)
        if device.name != self.placement.device:
            # the result of another device is no verdict about the one in the case's name
            message = (
                f"ran on {device.name} instead of {self.placement.device}: a bug in qnn-harness"
            )
            self._outcome, self._cause = "error", "harness"
            self._error = ErrorRecord.of(message=message)
            device = self._run.selection.device_record(self.placement)
        return CaseRecord(
            run=self._run.records.open_folder().run_id,
            case=self.item.nodeid,
            test=own_test(self.item),
            placement=self.placement.record,
            engine=self.placement.engine,
            suite=suite_of(self.item),
            line=None if (line := self.item.location[1]) is None else line + 1,
            asked=file_options(self.item, self._run.options.contexts),
            files_sha256=self._files_sha256,
            axes=self._axes(),
            device=device,
            runtime=notes.libraries() if notes else None,
            preflight=self.own_findings(),
            outcome=self._outcome,
            cause=self._cause,
            expected=Expected(known_issue=self.known_issue) if self.known_issue else None,
            fixed=self.fixed if self._outcome == "passed" else None,
            error=self._error,
            measurements=measured | ({"skip_reason": self._reason} if self._reason else {}),
            checks=tuple(notes.checks) if notes else (),
            outputs=notes.outputs if notes else None,
            emulated=tuple(notes.dsp_replies) if notes else (),
            started=self._started,
            duration_s=round(time.monotonic() - self._start - self._evidence_s, 6),
            attempt=self.attempt,
            logs=tuple(f"{self.log_prefix}/{name}" for name in notes.logs) if notes else (),
        )

    def _with_remedies(self) -> ErrorRecord | None:
        """Return the error; for a full PD with the remedies that worked for these contexts."""
        error, device = self._error, self.device
        known = error.diagnosis if error is not None else None
        if error is None or known is None or known.id != PD_EXHAUSTED or device is None:
            return error
        from harness.experiments.remedy_ranking import known_remedies

        parameters, reports = parameters_of(self.item), self._run.options.reports
        number = parameters.get("contexts")
        if "remedy" in parameters:  # it tries one itself
            fix = f"use a remedy that works here; {(known.fix or '').rpartition('; ')[2]}"
        elif rows := known_remedies(reports, device.name, self._files_sha256, number):
            names = ", ".join(row.remedy for row in rows)
            fix = f"on {device.name} these contexts worked with {names}; {known.fix}"
        else:
            return error
        return error.model_copy(update={"diagnosis": known.model_copy(update={"fix": fix})})

    def _axes(self) -> dict[str, Any]:
        axes, parameters = self.placement.axes, parameters_of(self.item)
        runtime = self.session.notes.runtime if self.session else None
        if runtime is not None and runtime.ort:  # its version, even if none was selected
            axes["ort"] = runtime.ort
        if not takes_compiled(parameters.values()):
            axes["compiler"] = None
        if self._run.options.spread in ("device", "soc"):
            axes[self._run.options.spread] = self.placement.device_name
        return axes | parameter_axes(parameters)

    def own_findings(self) -> tuple[Finding, ...]:
        """Return the findings of preflight, without those about contexts of other cases."""
        if not self.preflight:
            return ()
        sources = sources_of(parameters_of(self.item), self.item.path.parent)
        names = {None, *map(str, sources)}
        return tuple(finding for finding in self.preflight if finding.context in names)

    def foreseen(self) -> Foreseen:
        # ONNX Runtime creates one session from all contexts of a model
        loaded = () if self.placement.takes_models else sources_in(parameters_of(self.item))
        return Foreseen(self.own_findings(), tuple(map(str, loaded)))

    def _fail(self, report: pytest.TestReport, failure: BaseException | None) -> None:
        if isinstance(failure, NotPassed):
            verdict = failure.verdict
            self._outcome, self._cause = verdict.outcome, verdict.cause
            self._error = verdict.error
            if verdict.error is not None and (place := self.place_of(failure)):
                self._error = verdict.error.with_line(f"at {place}")
            return
        cause, refused = at_fault(failure, str(self.item.path))
        by_test = failure is None or (cause == "config" and refused is None)
        is_judged = isinstance(failure, _JUDGED) and report.when == "call"
        if isinstance(failure, NotOffered):
            self._outcome, self._cause = "unsupported", None
        elif isinstance(failure, HarnessError):
            self._outcome, self._cause = "error", failure.cause
            known: dict[type, AttemptEnd] = {DeviceFull: "full", DeviceHot: "hot"}
            self._lab_end = known.get(type(failure), "lab")
        elif failure is not None and (limit := timeout_message(failure)) is not None:
            self._outcome, self._cause = "error", "config"
            self._error = ErrorRecord.of(message=limit)
            return
        elif failure is None or (by_test and is_judged):
            # A failure without an exception is an xfail(strict) that passed.
            self._outcome, self._cause = "failed", "target"
        else:
            self._outcome, self._cause = "error", cause
        text = str(report.longrepr if failure is None else failure).strip()
        if isinstance(failure, pytest.FixtureLookupError):  # its message is in the report only
            text = f"fixture {failure.argname!r} not found"
        if failure is not None and not isinstance(failure, (HarnessError, *_JUDGED)):
            text = f"{type(failure).__name__}: {text}"
            if refused is not None:
                text = f"{refused}; {text}"
            elif by_test and (place := _test_line(failure, self.item).removeprefix("at ")):
                text = f"{place}: mistake in the test: {text}"
        summary, more = text, []
        if self._outcome == "failed":
            # The first line is the test's message; pytest appends its comparison.
            summary, _, compared = text.partition("\n")
            more = [compared[:_COMPARED_CHARS].rstrip(), _test_line(failure, self.item)]
        elif isinstance(failure, DeviceError) and failure.output:
            output = failure.output[-_OUTPUT_BYTES:].decode("utf-8", "replace")
            more = [f"output so far: {output!r}"]
        message = "\n".join(filter(None, (summary, *more)))
        if isinstance(failure, InfraError) and self.placement.device not in str(failure):
            serial = (self.device or self._run.selection.device_record(self.placement)).serial
            # people know devices by name; the signature is unaffected
            if isinstance(failure, DeviceError) or (serial and serial in str(failure)):
                message = f"{self.placement.device}: {message}"
        signature = ErrorRecord.of(message=summary).signature
        code = failure.code if isinstance(failure, HarnessError) else None
        error = ErrorRecord.of(message=message, symbol=code)
        self._error = error.model_copy(update={"signature": signature})


def _test_line(failure: BaseException | None, item: pytest.Item) -> str:
    frames = traceback.extract_tb(failure.__traceback__) if failure is not None else ()
    lines = [frame.lineno for frame in frames if frame.filename == str(item.path)]
    return f"at {item.path.name}:{lines[-1]}" if lines else ""


def run_case(
    item: pytest.Item,
    nextitem: pytest.Item | None,
    run: Run,
    placement: Placement,
    key: pytest.StashKey[Case],
) -> None:
    """Run one case on the device in its name, or on one of those that share it.

    Each attempt has its device to itself; hooks find the current one in the item's stash under
    `key`. After a fault of the lab the case is tried again, as often as the run allows and as long
    as a device is left. If a device does not support the case, a device of another kind is tried,
    if any device will do. Only the reports of the last attempt are logged. They carry the records
    of all attempts, each preceded by the events of devices in the meantime.
    """
    assert run.records.folder is not None
    attempts = run.attempts(item.nodeid, placement)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    records: list[CaseRecord | DeviceEvent] = []
    goes_on = True
    while goes_on:
        place = attempts.begin()
        item.stash[key] = case = Case(item, run, place, attempts.number)
        report_progress(place.device, case=item.nodeid)
        try:
            with time_limit(item):
                reports = run_phases(item, nextitem)
        finally:  # the end of the run releases all devices
            report_progress(place.device, case=None)
        records += run.records.take_events()
        # a fault of the lab does not revoke a verdict
        lost = case.end in ("lab", "full", "hot") and attempts.has_verdict
        records += [] if lost else [case.record()]
        stop, is_last = bool(item.session.shouldstop), nextitem is None
        goes_on = attempts.finish(case.end, stop=stop, is_last=is_last)
    records += run.records.take_events()
    run.records.attach(records, reports[-1])
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    del item.stash[key]  # pytest keeps every item until the end of the run


def record_not_run(items: Iterable[pytest.Item], run: Run, error: HarnessError) -> None:
    """Write a record with the error for each case of a run that cannot start."""
    for item in items:
        if (placement := placement_of(item)) is not None:
            earlier = run.records.earlier.get(item.nodeid)
            case = Case(item, run, placement, 1 + (earlier.attempt if earlier else 0))
            case.mark_not_run(error)
            run.records.open_folder().journal.append(case.record())


def note_unfit(item: pytest.Item, report: pytest.TestReport, run: Run) -> None:
    """Write one record, `unsupported`, for a test that no device of the lab can run.

    Not for a test that needs other versions or backends than the selected ones.
    """
    reason, folder = _reason(report), run.records.folder
    fits_nowhere = reason.startswith(NO_DEVICE) and f": {NOT_ASKED} " not in reason
    if not fits_nowhere or folder is None or item.nodeid in run.records.earlier:
        return
    path, line, _ = item.location
    record = CaseRecord(
        run=folder.run_id,
        case=item.nodeid,
        test=own_test(item),
        placement=None,
        suite=suite_of(item),
        line=None if line is None else line + 1,
        asked=file_options(item, run.options.contexts),
        files_sha256=files_sha256(item),
        axes={**dict.fromkeys(IN_AXES), **parameter_axes(parameters_of(item))},
        device=None,
        outcome="unsupported",
        error=ErrorRecord.of(message=reason),
        started=datetime.now(UTC),
        duration_s=round(report.duration, 6),
    )
    run.records.attach([record], report)
    setattr(report, UNSUPPORTED, True)
    report.longrepr = (path, (line or 0) + 1, f"unsupported: {reason}")


def _reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped, or expected to fail."""
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return f"xfail: {expected}".removesuffix(": ")
    longrepr = report.longrepr
    return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
