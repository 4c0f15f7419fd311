"""From what the probe reported to the figures of a record (pure)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from harness.probe.transcript import StepResult, Transcript
from harness.verdict.results.graph_figures import typical_us
from harness.verdict.results.json_value import whole_numbers

_LIST: Final = "context-load-list"
_OF_CONTEXTS: Final = ("context-", "execute", "executorch-")
_ESTIMATE: Final = re.compile(r"context size estimate\s+(\d{1,15})")
WARM_ROUNDS: Final = 8
"""After so many sessions a library has made most of what it keeps for good."""
ROUNDS_TOGETHER: Final = 3
_FEWEST_RISES: Final = 3


def measure(transcript: Transcript) -> dict[str, object]:
    """The figures of one probe process; only what it really did appears.

    `loaded`, `executed` and `freed` count what succeeded (of a list, its contexts; of a step with
    kept buffers, its executions). `load_us` and `execute_us` have a duration for each, in the order
    they ran, without lists: of an execution in several rounds the median. `load_rss_bytes` is what
    the process held after each of several loads.
    `rss_bytes` and `pss_bytes` give the process at the start, at its highest and at the end.
    `outputs` sums up the comparison with the reference. What ONNX Runtime did is in the figures of
    `ort_figures`.
    """
    steps = transcript.steps
    loads = _succeeded(steps, "context-load", "executorch-context")
    executions = _succeeded(steps, "execute", "executorch-run")
    bound = _succeeded(steps, "io-run")
    kept = [time for step in bound for time in whole_numbers(step.data.get("run_us"))]
    figures: dict[str, object] = {}
    if any(step.verb.startswith(_OF_CONTEXTS) for step in steps):
        figures |= {
            "loaded": loaded_contexts(steps),
            "executed": len(executions) + len(kept),
            "freed": len(_succeeded(steps, "context-free")),
            "load_us": [step.duration_us for step in loads],
            "execute_us": [*map(typical_us, executions), *kept],
        }
    held = [step.rss_after_bytes for step in loads]
    if len(held) > 1 and None not in held:
        figures["load_rss_bytes"] = held
    for name in ("rss", "pss"):
        memory = _memory(steps, name)
        if memory:
            figures[f"{name}_bytes"] = memory
    figures |= ort_figures(steps)
    compared = [*executions, *bound, *_succeeded(steps, "ort-run")]
    outputs = [output for step in compared for output in _outputs(step)]
    if outputs:
        # NaN is as expected where NaN is expected, and then says nothing
        nan = int(sum(_number(output.get("nan")) for output in outputs))
        figures["outputs"] = {
            "compared": len(outputs),
            "max_abs": max(_number(output.get("max_abs")) for output in outputs),
            "beyond_tolerance": int(sum(_number(output.get("beyond")) for output in outputs)),
            **({"nan": nan} if nan else {}),
        }
    estimates = context_estimate(transcript)
    if estimates:
        figures["refused_estimate_bytes"] = max(estimates)
    return figures


def loaded_contexts(steps: Sequence[StepResult]) -> int:
    """How many contexts were loaded, one by one or as a list."""
    listed = (_count(step, "contexts") for step in _succeeded(steps, _LIST))
    alone = _succeeded(steps, "context-load", "executorch-context")
    return len(alone) + sum(number or 0 for number in listed)


def context_estimate(transcript: Transcript) -> list[int]:
    """The sizes that the library itself says it reckons with for contexts it refused (bytes).

    HTP libraries log them: "Failed to find available PD for contextId N ... context size
    estimate E" (pytorch/executorch#14985).
    """
    texts = (line.text for step in transcript.steps if step.code for line in step.logs)
    return [int(found[1]) for text in texts for found in _ESTIMATE.finditer(text)]


def ort_figures(steps: Sequence[StepResult]) -> dict[str, object]:
    """The figures of one process; nothing if it did not use ORT.

    `sessions`, `runs` and `released` count successful steps; `create_us`, `run_us` and `release_us`
    have a duration for each. `placement` tells per execution provider how many nodes it got of the
    session asked last. `kept_bytes` is the memory of no file that is there after the last release
    and was not before the first session. `growth_bytes_per_session` is by how much it grows with
    most sessions, once the first few are over; `drift_bytes` is the growth over all of those
    together. Each has its noise: how far it may be off, and how much came back on the way.
    """
    if not any(step.verb.startswith("ort-") for step in steps):
        return {}
    created = _succeeded(steps, "ort-session")
    runs, released = _succeeded(steps, "ort-run"), _succeeded(steps, "ort-session-free")
    versions = (step.data.get("version") for step in _succeeded(steps, "ort-load"))
    figures: dict[str, object] = {
        "ort_version": next((one for one in versions if isinstance(one, str)), None),
        "sessions": len(created),
        "runs": len(runs),
        "released": len(released),
        "create_us": [step.duration_us for step in created],
        "run_us": [*map(typical_us, runs)],
        "release_us": [step.duration_us for step in released],
    }
    for step in steps:
        if step.verb == "ort-placement" and step.ended:
            figures["placement"] = _placement(step)
    levels = _levels(steps)
    before = _count(created[0], "anonymous_before_bytes") if created else None
    if levels and before is not None:
        figures["kept_bytes"] = levels[-1] - before
    growth = session_growth(steps)
    if growth is not None:
        figures["growth_bytes_per_session"] = growth.per_round
        figures["growth_noise_bytes"] = growth.noise
        figures["drift_bytes"] = growth.in_all
        figures["drift_noise_bytes"] = growth.came_back
    return figures


def session_growth(steps: Sequence[StepResult]) -> Growth | None:
    """What sessions left behind once the first few were over; None if there were too few."""
    return growth_of(_levels(steps)[WARM_ROUNDS:])


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


@dataclass(frozen=True)
class Growth:
    """How a process grew over rounds of the same work, in bytes.

    `per_round` is what most rounds left behind, `noise` how far that may be off. `in_all` is what
    all of them left, `came_back` the most that was given back on the way.
    """

    per_round: int
    noise: int
    in_all: int
    came_back: int


def growth_of(levels: Sequence[int]) -> Growth | None:
    """The growth shown by the levels behind each round; None if there are too few of them.

    Rounds are taken in threes, of which only the lowest level counts: what comes back within a few
    rounds was never lost. From one three to the next there is a rise. A leak is in all rises. A
    jump that happens once, such as a table that becomes larger, is in one rise, and their median
    does not count it. The median may be off by what the rises differ, and by what came back on the
    way: an allocator that keeps what is freed rises for many rounds and falls once.
    """
    first = len(levels) % ROUNDS_TOGETHER
    floors = [
        min(levels[at : at + ROUNDS_TOGETHER]) for at in range(first, len(levels), ROUNDS_TOGETHER)
    ]
    rises = [after - before for before, after in pairwise(floors)]
    if len(rises) < _FEWEST_RISES:
        return None
    middle = statistics.median(rises)
    spread = statistics.median(abs(rise - middle) for rise in rises)
    highest, came_back = floors[0], 0
    for floor in floors:
        highest = max(highest, floor)
        came_back = max(came_back, highest - floor)
    # a median of n values may be off by about twice their spread over the root of n
    differ = 2 * spread / len(rises) ** 0.5
    return Growth(
        per_round=round(middle / ROUNDS_TOGETHER),
        noise=round((differ + came_back / len(rises)) / ROUNDS_TOGETHER),
        in_all=floors[-1] - floors[0],
        came_back=came_back,
    )


def _succeeded(steps: Iterable[StepResult], *verbs: str) -> list[StepResult]:
    return [step for step in steps if step.verb in verbs and step.ok]


def _memory(steps: Iterable[StepResult], name: str) -> dict[str, int] | None:
    before = [getattr(step, f"{name}_before_bytes") for step in steps]
    after = [getattr(step, f"{name}_after_bytes") for step in steps]
    known = [value for value in (*before, *after) if value is not None]
    if not known or before[0] is None:
        return None
    ends = [value for value in after if value is not None]
    return {"start": before[0], "peak": max(known), "end": ends[-1] if ends else before[0]}


def _outputs(step: StepResult) -> list[dict[str, object]]:
    outputs = step.data.get("outputs")
    if not isinstance(outputs, list):
        return []
    return [output for output in outputs if isinstance(output, dict) and "max_abs" in output]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
