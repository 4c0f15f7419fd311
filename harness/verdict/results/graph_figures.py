"""How fast each graph of a process executed: the `graphs` of a record's measurements (pure)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

from harness.probe.transcript import StepResult
from harness.verdict.results.json_value import whole_numbers

_VERBS: Final = ("execute", "io-run", "ort-run", "executorch-run")
MOST_GRAPHS: Final = 256
"""So many graphs of a case have figures of their own, those that executed first."""


def round_times(step: StepResult) -> list[int]:
    """The times of a step's rounds that count (us): of the first thousand."""
    known = whole_numbers(step.data.get("run_us"))
    return known or ([step.duration_us] if step.duration_us is not None else [])


def typical_us(step: StepResult) -> int | None:
    """What an execution took (us): of several rounds the median."""
    times = round_times(step)
    return round(statistics.median(times)) if times else None


def percentile(times: Sequence[float], part: float) -> float:
    """The smallest of the times that so large a part of them do not exceed."""
    return sorted(times)[max(0, math.ceil(part * len(times)) - 1)]


def graph_figures(
    steps: Iterable[StepResult], contexts: Sequence[str], on: str
) -> list[dict[str, Any]]:
    """A line for each graph of each context that executed; times in microseconds.

    `contexts` are the names of the contexts, taken in turn; `on` says on what they executed. What
    steps of one graph took is put together. `first_us` is its very first execution, `warmup` how
    many rounds did not count, `rounds` how many did.
    """
    found: dict[tuple[int, str | None], list[StepResult]] = {}
    for step in steps:
        if step.verb in _VERBS and step.ok:
            graph = step.data.get("graph")
            number = step.context or 0
            # contexts of one name are a model with several sets of inputs
            same = contexts.index(contexts[number]) if number < len(contexts) else number
            key = same, graph if isinstance(graph, str) else None
            found.setdefault(key, []).append(step)
    figures = []
    for (context, graph), executed in [*found.items()][:MOST_GRAPHS]:
        times = [time for step in executed for time in round_times(step)]
        first = executed[0].data.get("first_us")
        figures.append(
            {
                "graph": graph,
                "context": contexts[context % len(contexts)] if contexts else None,
                "warmup": sum(_count(step, "warmup") for step in executed),
                "rounds": sum(_count(step, "runs") or 1 for step in executed),
                "first_us": first if type(first) is int else times[0],
                "median_us": round(statistics.median(times)),
                "p95_us": percentile(times, 0.95),
                "on": on,
            }
        )
    return figures


def _count(step: StepResult, name: str) -> int:
    value = step.data.get(name)
    return value if type(value) is int else 0
