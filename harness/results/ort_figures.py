"""From what the probe reported of ONNX Runtime to the figures of a record (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from harness.probe.events import StepResult

WARM_ROUNDS: Final = 8
"""After so many sessions a library has made most of what it keeps for good."""


def ort_figures(steps: Sequence[StepResult]) -> dict[str, object]:
    """The figures of one process; nothing if it did not use ORT.

    `sessions`, `runs` and `released` count successful steps; `create_us`, `run_us` and
    `release_us` are one duration per step; `placement` tells per execution provider how many
    nodes it got of the session asked last. `kept_bytes` is the memory that belongs to no file and
    is there after the last release but was not before the first session, and
    `growth_bytes_per_session` by how much that grows with most that are made and released, once
    the first few are over; `drift_bytes` is the growth over all of those together.
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
    levels = _levels(steps)
    before = _count(created[0], "anonymous_before_bytes") if created else None
    if levels and before is not None:
        figures["kept_bytes"] = levels[-1] - before
    steady = levels[WARM_ROUNDS:]
    if len(steady) > 1:
        figures["growth_bytes_per_session"] = growth_per_round(steady)
        figures["drift_bytes"] = steady[-1] - steady[0]
    return figures


def growth_per_round(levels: Sequence[int]) -> int:
    """By how much a level rises in most rounds: what a leak in each of them would show.

    The median of the steps, so that a single jump, such as a new arena of malloc, does not count.
    """
    return round(statistics.median(after - before for before, after in pairwise(levels)))


def _levels(steps: Iterable[StepResult]) -> list[int]:
    """The memory that belongs to no file, after each release that left no session behind."""
    alive, levels = 0, []
    for step in steps:
        alive += step.verb == "ort-session" and step.ok
        if step.verb == "ort-session-free" and step.ok:
            alive -= 1
            level = _count(step, "anonymous_bytes")
            if alive == 0 and level is not None:
                levels.append(level)
    return levels


def _count(step: StepResult, key: str) -> int | None:
    value = step.data.get(key)
    return value if type(value) is int and value >= 0 else None


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
