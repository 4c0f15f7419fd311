"""The error record of a failed step of ONNX Runtime's (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.probe.events import StepResult
from harness.qnn.ort_errors import take_apart
from harness.results.chain import call_chain
from harness.results.record import ErrorRecord, OrtCode


def is_ort_failure(step: StepResult) -> bool:
    """Whether it was ORT that refused, and not the probe."""
    return step.verb.startswith("ort-") and step.error is None and bool(step.code)


def ort_error(step: StepResult, logged: Sequence[str]) -> ErrorRecord:
    """The record: QNN's code where the texts hold one, ORT's own beside it, all that was said."""
    text = step.data.get("status_text")
    message = text if isinstance(text, str) else step.message or ""
    error = take_apart(step.code or 0, message, logged)
    return ErrorRecord.of(
        api=step.api,
        code=error.qnn_code,
        symbol=error.qnn_symbol,
        message="\n".join(error.chain),
        step=step.step,
        context=step.context,
        ort=OrtCode(code=error.code, name=error.name),
        chain=call_chain(step, code=error.qnn_code, symbol=error.qnn_symbol, message=message),
    )
