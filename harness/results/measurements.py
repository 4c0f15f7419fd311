"""From what the probe reported to the figures of a record (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.probe.events import StepResult, Transcript
from harness.results.ort_figures import ort_figures

_LIST = "context-load-list"
_ESTIMATE = re.compile(r"context size estimate\s+(\d{1,15})")


def measure(transcript: Transcript) -> dict[str, object]:
    """The figures of one probe process; only what it really did appears.

    `loaded`, `executed` and `freed` count what succeeded (of a list, its contexts; of a step with
    kept buffers, its executions); `load_us` and `execute_us` are one duration each in the order
    they ran, without lists;
    `rss_bytes` and `pss_bytes` give the process at the start, at its highest and at the end;
    `outputs` sums up the comparison with the reference.
    What ONNX Runtime did is in the figures of `ort_figures`.
    """
    steps = transcript.steps
    loads = _succeeded(steps, "context-load")
    listed = sum(_count(step.data.get("contexts")) for step in _succeeded(steps, _LIST))
    executions = _succeeded(steps, "execute")
    bound = _succeeded(steps, "io-run")
    kept = [time for step in bound for time in _times(step.data.get("run_us"))]
    figures: dict[str, object] = {}
    if any(step.verb.startswith("context-") or step.verb == "execute" for step in steps):
        figures |= {
            "loaded": len(loads) + listed,
            "executed": len(executions) + len(kept),
            "freed": len(_succeeded(steps, "context-free")),
            "load_us": [step.duration_us for step in loads],
            "execute_us": [*(step.duration_us for step in executions), *kept],
        }
    for name in ("rss", "pss"):
        memory = _memory(steps, name)
        if memory:
            figures[f"{name}_bytes"] = memory
    figures |= ort_figures(steps)
    compared = [*executions, *bound, *_succeeded(steps, "ort-run")]
    outputs = [output for step in compared for output in _outputs(step)]
    if outputs:
        figures["outputs"] = {
            "compared": len(outputs),
            "max_abs": max((_number(output.get("max_abs")) for output in outputs), default=0.0),
            "beyond_tolerance": int(sum(_number(output.get("beyond")) for output in outputs)),
        }
    estimates = context_estimate(transcript)
    if estimates:
        figures["refused_estimate_bytes"] = max(estimates)
    return figures


def context_estimate(transcript: Transcript) -> list[int]:
    """The sizes that the library itself says it reckons with for contexts it refused (bytes).

    HTP libraries log them: "Failed to find available PD for contextId N ... context size
    estimate E" (pytorch/executorch#14985).
    """
    texts = (line.text for step in transcript.steps if step.code for line in step.logs)
    return [int(found[1]) for text in texts for found in _ESTIMATE.finditer(text)]


def _succeeded(steps: Iterable[StepResult], verb: str) -> list[StepResult]:
    return [step for step in steps if step.verb == verb and step.ok]


def _memory(steps: Iterable[StepResult], name: str) -> dict[str, int]:
    before = [getattr(step, f"{name}_before_bytes") for step in steps]
    after = [getattr(step, f"{name}_after_bytes") for step in steps]
    known = [value for value in (*before, *after) if value is not None]
    if not known or before[0] is None:
        return {}
    ends = [value for value in after if value is not None]
    return {"start": before[0], "peak": max(known), "end": ends[-1] if ends else before[0]}


def _outputs(step: StepResult) -> list[dict[str, object]]:
    outputs = step.data.get("outputs") if step.data else None
    if not isinstance(outputs, list):
        return []
    return [output for output in outputs if isinstance(output, dict) and "max_abs" in output]


def _times(value: object) -> list[int]:
    return [one for one in value if type(one) is int] if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if type(value) is int else 0


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
