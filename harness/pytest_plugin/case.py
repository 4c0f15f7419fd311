"""One case while pytest runs it: gathers its phases into one result record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.errors import Cause, HarnessError
from harness.pytest_plugin.axes import axis_value
from harness.results.diagnose import diagnosed
from harness.results.libraries import PreflightRecord, RuntimeRecord
from harness.results.record import (
    CaseRecord,
    DeviceRecord,
    ErrorRecord,
    Expected,
    Fixed,
    JsonObject,
    Outcome,
    as_json,
)

if TYPE_CHECKING:
    from harness.bench import Bench, Notes
    from harness.runtimes.findings import Finding
    from harness.workbench import Placement

_WITH_EVIDENCE: Final[tuple[Outcome, ...]] = ("failed", "crashed", "hung")


class Case:
    """Collects what happens to one item until its teardown is over.

    `bench` is set by the fixture once the device is ready, `preflight` before that; `identity`
    says which device it was to be even if it never was.
    """

    def __init__(
        self,
        item: pytest.Item,
        *,
        run_id: str,
        placement: Placement,
        identity: Mapping[str, Any],
        attempt: int = 1,
    ) -> None:
        self.item = item
        self.placement = placement
        self.identity = dict(identity)
        self.bench: Bench | None = None
        self.preflight: tuple[Finding, ...] = ()
        self.log_prefix = ""
        self._run_id = run_id
        self.attempt = attempt
        self._started = datetime.now(UTC)
        self._begun = time.monotonic()
        self._aside_s = 0.0
        self._outcome: Outcome = "passed"
        self._cause: Cause | None = None
        self._error: ErrorRecord | None = None
        self._reason: str | None = None
        self.known_issue: str | None = None
        self.fixed: Fixed | None = None

    def saw(self, report: pytest.TestReport, failure: BaseException | None) -> None:
        """Takes note of one finished phase (setup, call or teardown)."""
        if report.skipped and self._outcome == "passed":
            self._outcome = "skipped"
            self._reason = _reason(report)
        elif report.failed and self._outcome == "passed":
            self._fail(report, failure)
            if self._outcome in _WITH_EVIDENCE and self.bench is not None:
                began = time.monotonic()
                seen = self.bench.collect_evidence()
                if self._error is not None:
                    self._error = diagnosed(self._outcome, self._error, seen)
                self._aside_s += time.monotonic() - began

    def unchecked_failure(self) -> BaseException | None:
        """The failure of a plan whose observation the test did not `check`; None if it passed."""
        from harness.bench import TargetFailure

        verdict = self.bench.notes.verdict if self.bench else None
        return TargetFailure(verdict) if verdict and verdict.outcome != "passed" else None

    @property
    def is_unsupported(self) -> bool:
        """Whether the target said that it cannot do what the case is about."""
        return self._outcome == "unsupported"

    @property
    def is_lab_error(self) -> bool:
        """Whether what went wrong says nothing about the target."""
        return self._outcome == "error"

    @property
    def failed_by_the_lab(self) -> bool:
        """Whether trying again, with the lab in order, may give a verdict."""
        return self._outcome == "error" and self._cause == "infra"

    def record(self) -> CaseRecord:
        """The case's record as of now."""
        notes = self.bench.notes if self.bench else None
        if notes is not None and notes.probe_us:
            notes.measurements["probe_us"] = notes.probe_us
        return CaseRecord(
            run=self._run_id,
            case=self.item.nodeid,
            suite=self.item.path.stem.removeprefix("test_"),
            axes=self._axes(),
            device=DeviceRecord.model_validate(self.identity),
            runtime=_runtime(notes),
            preflight=_preflight(notes.preflight if notes else self.preflight),
            outcome=self._outcome,
            cause=self._cause,
            expected=Expected(known_issue=self.known_issue) if self.known_issue else None,
            fixed=self.fixed if self._outcome == "passed" else None,
            error=self._error,
            measurements=_json_object(self._measurements()),
            checks=tuple(notes.checks) if notes else (),
            started=self._started,
            duration_s=round(time.monotonic() - self._begun - self._aside_s, 6),
            attempt=self.attempt,
            logs=tuple(f"{self.log_prefix}/{name}" for name in notes.logs) if notes else (),
        )

    def _measurements(self) -> Mapping[str, object]:
        measured = self.bench.notes.measurements if self.bench else {}
        return measured | {"skip_reason": self._reason} if self._reason else measured

    def _axes(self) -> JsonObject:
        placement = self.placement
        axes: dict[str, object] = {
            "backend": placement.backend,
            "qnn": placement.qnn_version,
            "ort": self._ort(),
            "compiler": placement.compiler,
        }
        callspec = getattr(self.item, "callspec", None)
        parameters = callspec.params if callspec else {}
        axes |= {k: axis_value(v) for k, v in parameters.items() if k != "placement"}
        return _json_object(axes)

    def _ort(self) -> str | None:
        """The version of the ONNX Runtime that the case uses, if it uses one."""
        runtime = self.bench.notes.runtime if self.bench else None
        known = None if runtime is None else runtime.get("ort")
        return str(known) if known else self.placement.ort_version

    def _fail(self, report: pytest.TestReport, failure: BaseException | None) -> None:
        from harness.bench import TargetFailure
        from harness.runtimes.runtime import NotOffered

        if isinstance(failure, TargetFailure):
            verdict = failure.verdict
            self._outcome, self._cause, self._error = (
                verdict.outcome,
                verdict.cause,
                verdict.error,
            )
            return
        if isinstance(failure, NotOffered):
            self._outcome, self._cause = "unsupported", None
        elif isinstance(failure, HarnessError):
            self._outcome, self._cause = "error", failure.cause
        elif failure is None or (isinstance(failure, AssertionError) and report.when == "call"):
            # Without an exception it is an xfail(strict) that passed.
            self._outcome, self._cause = "failed", "target"
        else:
            self._outcome, self._cause = "error", _whose_bug(failure)
        text = str(report.longrepr if failure is None else failure).strip()
        if failure is not None and not isinstance(failure, HarnessError | AssertionError):
            text = f"{type(failure).__name__}: {text}"
        if self._outcome == "failed":
            # pytest appends how it compared; the first line is what the test says.
            text = text.partition("\n")[0]
        self._error = ErrorRecord.of(api=None, code=None, message=text)


def _runtime(notes: Notes | None) -> RuntimeRecord | None:
    return RuntimeRecord.model_validate(notes.runtime) if notes and notes.runtime else None


def _preflight(found: tuple[Finding, ...]) -> tuple[PreflightRecord, ...]:
    return tuple(PreflightRecord.model_validate(asdict(one)) for one in found)


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped, or expected to fail."""
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return f"xfail: {expected}"
    told = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")


def _whose_bug(failure: BaseException | None) -> Cause:
    """Whose code raised an exception that nobody foresaw: ours, or the suite's."""
    trace, last = failure.__traceback__ if failure else None, ""
    while trace is not None:
        last, trace = trace.tb_frame.f_code.co_filename, trace.tb_next
    ours = Path(last).is_relative_to(Path(__file__).parents[1])
    return "harness" if ours or not last else "config"


def _json_object(values: Mapping[str, object]) -> JsonObject:
    return {name: as_json(value) for name, value in values.items()}
