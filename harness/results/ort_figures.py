"""From what the probe reported of ONNX Runtime to the figures of a record (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from harness.probe.events import StepResult

_WARM_ROUNDS: Final = 8
"""After so many sessions a library has made what it keeps for good (measured: at most 6)."""


def ort_figures(steps: Sequence[StepResult]) -> dict[str, object]:
    """The figures of one process; nothing if it did not use ORT.

    `sessions`, `runs` and `released` count successful steps; `create_us`, `run_us` and
    `release_us` are one duration per step; `placement` tells per execution provider how many
    nodes it got of the session asked last. `kept_bytes` is what stays of the first session's
    memory after the last was released, `growth_bytes_per_session` by how much that grows with
    each further one, once the first few are over; both need sessions that were released.
    """
    if not any(step.verb.startswith("ort-") for step in steps):
        return {}
    created = _ok(steps, "ort-session")
    runs, released = _ok(steps, "ort-run"), _ok(steps, "ort-session-free")
    figures: dict[str, object] = {
        "ort_version": _first_version(steps),
        "sessions": len(created),
        "runs": len(runs),
        "released": len(released),
        "create_us": [step.duration_us for step in created],
        "run_us": [step.duration_us for step in runs],
        "release_us": [step.duration_us for step in released],
    }
    for step in _ok_or_failed(steps, "ort-placement"):
        figures["placement"] = _placement(step)
    levels = [step.pss_after_bytes for step in released if step.pss_after_bytes is not None]
    before = next((step.pss_before_bytes for step in created), None)
    if levels and before is not None:
        figures["kept_bytes"] = levels[-1] - before
    growth = growth_per_round(levels)
    if growth is not None:
        figures["growth_bytes_per_session"] = growth
    return figures


def growth_per_round(levels: Sequence[int], warm: int = _WARM_ROUNDS) -> int | None:
    """By how much a level rises per round once the first `warm` are over; None for too few.

    It compares the medians of the first and the last third behind them, so that a single jump,
    such as a page table or an arena of malloc, counts as one and is not taken for a leak in each
    round.
    """
    steady = levels[warm:]
    third = len(steady) // 3
    if third < 2:
        return None
    rise = statistics.median(steady[-third:]) - statistics.median(steady[:third])
    return round(rise / (len(steady) - third))


def _placement(step: StepResult) -> dict[str, int]:
    """Execution provider to number of nodes, as far as the event has its proper form."""
    found = step.data.get("placement")
    if not isinstance(found, list):
        return {}
    return {
        part["ep"]: part["nodes"]
        for part in found
        if isinstance(part, dict)
        and isinstance(part.get("ep"), str)
        and type(part.get("nodes")) is int
    }


def _first_version(steps: Iterable[StepResult]) -> str | None:
    said = (step.data.get("version") for step in _ok(steps, "ort-load"))
    return next((version for version in said if isinstance(version, str)), None)


def _ok(steps: Iterable[StepResult], verb: str) -> list[StepResult]:
    return [step for step in steps if step.verb == verb and step.ok]


def _ok_or_failed(steps: Iterable[StepResult], verb: str) -> list[StepResult]:
    return [step for step in steps if step.verb == verb and step.ended]
