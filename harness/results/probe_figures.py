"""Figures of a record made from the probe's reports: times, memory, graphs (pure)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from harness.models.context_metadata import entries
from harness.probe.transcript import StepResult, Transcript
from harness.results.latency import PERCENTILES, is_steady, nearest_rank, percentile, steady_start
from harness.results.record import whole_numbers

_VERBS: Final = ("execute", "io-run", "ort-run", "executorch-run")
MOST_GRAPHS: Final = 256
"""The number of graphs of a case with their own figures, those that executed first."""


def round_times(step: StepResult) -> list[int]:
    """Return the times of a step's rounds that count (us), or of some, evenly spaced."""
    known = whole_numbers(step.data.get("run_us"))
    return known or ([step.duration_us] if step.duration_us is not None else [])


def typical_us(step: StepResult) -> float | None:
    """Return the time of an execution (us); of several rounds the median of the steady state."""
    times = round_times(step)
    return nearest_rank(times[steady_start(times) :], 0.5) if times else None


def graph_figures(
    steps: Iterable[StepResult], contexts: Sequence[str], on: str
) -> list[dict[str, Any]]:
    """Return a row for each graph of each context that executed; times in microseconds.

    `contexts` are the names of the contexts, in turn; `on` is what they executed on. Steps of one
    graph are put together. `first_us` is its very first execution, `warmup_count` the number of
    rounds before its steady state, `rounds` of those in it. `p50_us`, `p90_us` and `p99_us` are
    percentiles of the latter, each with a 95 % interval as in `p50_interval_us` (null: no bound).
    `steady` is false if it was never stable (null: too few rounds), `throttled_share` the part of
    the rounds in which the device throttled (null: it does not say).
    """
    by_graph: dict[tuple[int, str | None], list[StepResult]] = {}
    for step in steps:
        if step.verb in _VERBS and step.ok:
            graph = step.data.get("graph")
            number = step.context or 0
            # a context that is listed twice is one
            same = contexts.index(contexts[number]) if number < len(contexts) else number
            key = same, graph if isinstance(graph, str) else None
            by_graph.setdefault(key, []).append(step)
    figures = []
    for (context, graph), executed in [*by_graph.items()][:MOST_GRAPHS]:
        if any(map(round_times, executed)):
            name = contexts[context % len(contexts)] if contexts else None
            figures.append({"graph": graph, "context": name, **_times_of(executed), "on": on})
    return figures


def _times_of(steps: Sequence[StepResult]) -> dict[str, object]:
    every = [max(1, _whole(step.data.get("run_every"))) for step in steps]
    times = [
        time
        for step, own in zip(steps, every, strict=True)
        for time in round_times(step)[:: max(every) // own]
    ]
    made = sum(max(1, _whole(step.data.get("runs"))) for step in steps)
    start = steady_start(times)
    dropped, steady = round(start * made / len(times)), times[start:]
    first = steps[0].data.get("first_us")
    throttled = [number for step in steps if (number := _count(step, "throttled")) is not None]
    parts = {name: percentile(steady, part) for name, part in PERCENTILES.items()}
    return {
        "warmup_count": sum(_whole(step.data.get("warmup")) for step in steps) + dropped,
        "rounds": made - dropped,
        "first_us": first if type(first) is int else times[0],
        **{f"{name}_us": part.value for name, part in parts.items()},
        **{f"{name}_interval_us": [part.low, part.high] for name, part in parts.items()},
        "steady": is_steady(steady),
        "throttled_share": sum(throttled) / made if throttled else None,
    }


_LIST: Final = "context-load-list"
_OF_CONTEXTS: Final = ("context-", "execute", "executorch-")
_VOTED: Final = re.compile(
    r"(?:Failed to set powerConfig with error|htpPerfInfrastructureSetPowerConfig done\. status) "
    r"0x([0-9a-f]{1,8})\b"
)
_ESTIMATE: Final = re.compile(r"context size estimate\s+(\d{1,15})")
WARM_ROUNDS: Final = 8
"""The number of sessions after which a library has allocated most of what it keeps for good."""
ROUNDS_TOGETHER: Final = 3
_FEWEST_RISES: Final = 3


def measure(transcript: Transcript) -> dict[str, object]:
    """Return the figures of one probe process; only what it really did appears.

    `loaded`, `executed` and `freed` count what succeeded (the contexts of a list, the executions of
    a step with kept buffers). `load_us` and `execute_us` have a duration for each, in order,
    without lists; the p50 of an execution in several rounds. `load_rss_bytes` is the memory of
    the process after each of several loads. `rss_bytes` and `pss_bytes` are its memory at the
    start, at its peak and at the end. `outputs` sums up the comparison with the reference.
    `ort_figures` has the figures of ONNX Runtime.
    """
    steps = transcript.steps
    loads = _succeeded(steps, "context-load", "executorch-context")
    executions = _succeeded(steps, "execute", "executorch-run")
    bound = _succeeded(steps, "io-run")
    kept_times = [time for step in bound for time in whole_numbers(step.data.get("run_us"))]
    figures: dict[str, object] = {}
    if any(step.verb.startswith(_OF_CONTEXTS) for step in steps):
        figures |= {
            "loaded": loaded_contexts(steps),
            "executed": len(executions) + len(kept_times),
            "freed": len(_succeeded(steps, "context-free")),
            "load_us": [step.duration_us for step in loads],
            "execute_us": [*map(typical_us, executions), *kept_times],
        }
    resident = [step.rss_after_bytes for step in loads]
    if len(resident) > 1 and None not in resident:
        figures["load_rss_bytes"] = resident
    for name in ("rss", "pss"):
        memory = _memory(steps, name)
        if memory:
            figures[f"{name}_bytes"] = memory
    figures |= ort_figures(steps)
    compared = [*executions, *bound, *_succeeded(steps, "ort-run")]
    all_outputs = (output for step in compared for output in entries(step.data, "outputs"))
    outputs = [output for output in all_outputs if "max_abs" in output]
    if outputs:
        # NaN where NaN is expected is no difference
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


def power_figures(profile: str, engine: str, transcript: Transcript) -> dict[str, Any]:
    """Return a power profile, who voted for it, the library's answers, and these in words.

    The probe votes once it has a device; then the library's answers to each vote are known. Of the
    votes of other engines only what the library logs is.
    """
    votes = power_votes(transcript)
    by_probe = bool(votes) or any(step.verb == "device-create" for step in transcript.steps)
    if not by_probe:
        votes = _logged_votes(transcript)
    if refused := refused_votes(votes):
        answer = f"the library refused {refused}"
    elif "dcvs" in votes or (votes and not by_probe):
        answer = "the library accepted all votes"
    elif by_probe:
        answer = "the device has no power interface"
    else:
        answer = f"the library logged no refusal, and {engine} does not say what it answered"
    if "dcvs" in votes and "released" not in votes:
        answer += "; its votes ended with the process"
    voter = "probe" if by_probe else engine
    return {"profile": profile, "votes_by": voter, "votes": votes, "answer": answer}


def refused_votes(votes: Mapping[str, int]) -> str:
    """Return the votes that a library refused, with its codes; empty if it refused none."""
    return ", ".join(f"{name} ({code})" for name, code in votes.items() if code)


def power_votes(transcript: Transcript) -> dict[str, int]:
    """Return the library's answer (0: accepted) to each vote for power, by name.

    `released` is the answer to the votes that take them back, the first that is not 0; without it
    they ended with the process.
    """
    votes: dict[str, int] = {}
    for step in transcript.steps:
        answers = step.data.get("power_votes")
        if isinstance(answers, dict):
            known = {str(name): code for name, code in answers.items() if type(code) is int}
            released = {"released": next(filter(None, known.values()), 0)}
            votes |= released if "dcvs" in votes and "dcvs" in known else known
    return votes


def _logged_votes(transcript: Transcript) -> dict[str, int]:
    """Return the answer that the library logged, the first that is not 0; empty without any.

    Refusals are errors in its log; what it accepts is there only from level info on.
    """
    lines = (line.text for step in transcript.steps for line in step.logs)
    codes = [int(code, 16) for text in lines for code in _VOTED.findall(text)]
    return {"setPowerConfig": next(filter(None, codes), 0)} if codes else {}


def loaded_contexts(steps: Sequence[StepResult]) -> int:
    """Return the number of contexts that were loaded, one by one or as a list."""
    listed = (_count(step, "contexts") for step in _succeeded(steps, _LIST))
    alone = _succeeded(steps, "context-load", "executorch-context")
    return len(alone) + sum(number or 0 for number in listed)


def context_estimate(transcript: Transcript) -> list[int]:
    """Return the sizes (bytes) that the library itself estimated for contexts it refused.

    HTP libraries log them: "Failed to find available PD for contextId N ... context size
    estimate E" (pytorch/executorch#14985).
    """
    texts = (line.text for step in transcript.steps if step.code for line in step.logs)
    return [int(match[1]) for text in texts for match in _ESTIMATE.finditer(text)]


def ort_figures(steps: Sequence[StepResult]) -> dict[str, object]:
    """Return the figures of ONNX Runtime in one process; empty if it did not use it.

    `sessions`, `runs` and `released` count successful steps; `create_us`, `run_us` and `release_us`
    have a duration for each. `placement` has the number of nodes per execution provider, of the
    session queried last.
    """
    if not any(step.verb.startswith("ort-") for step in steps):
        return {}
    created = _succeeded(steps, "ort-session")
    runs, released = _succeeded(steps, "ort-run"), _succeeded(steps, "ort-session-free")
    versions = (step.data.get("version") for step in _succeeded(steps, "ort-load"))
    figures: dict[str, object] = {
        "ort_version": next((version for version in versions if isinstance(version, str)), None),
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
    return figures


def session_growth(steps: Iterable[StepResult]) -> Growth | None:
    """Return the memory growth over all but the first sessions; None if there were too few.

    Its levels are the anonymous memory after each release that left no session.
    """
    alive, levels = 0, []
    for step in steps:
        alive += step.verb == "ort-session" and step.ok
        if step.verb == "ort-session-free" and step.ok:
            alive -= 1
            level = _count(step, "anonymous_bytes")
            if alive == 0 and level is not None:
                levels.append(level)
    return growth_of(levels[WARM_ROUNDS:])


def _count(step: StepResult, key: str) -> int | None:
    value = step.data.get(key)
    return value if type(value) is int and value >= 0 else None


def _placement(step: StepResult) -> dict[str, int]:
    """Return the number of nodes per execution provider, of well-formed entries."""
    parts = step.data.get("placement")
    if not isinstance(parts, list):
        return {}
    return {
        part["ep"]: part["nodes"]
        for part in parts
        if isinstance(part, dict)
        and isinstance(part.get("ep"), str)
        and type(part.get("nodes")) is int
    }


@dataclass(frozen=True)
class Growth:
    """The memory growth of a process over rounds of the same work, in bytes.

    `per_round` is the growth of most rounds, `noise` how far that may be off. `in_all` is the
    growth over all rounds, `came_back` the most that was given back on the way.
    """

    per_round: int
    noise: int
    in_all: int
    came_back: int


def growth_of(levels: Sequence[int]) -> Growth | None:
    """Return the growth shown by the levels after each round; None if there are too few.

    Rounds are taken in threes, of which only the lowest level counts: what comes back within a few
    rounds was never lost. From one three to the next there is a rise. A leak is in all rises. A
    jump that happens once, such as a table that is enlarged, is in one rise, which their median
    ignores. The median may be off by as much as the rises differ, and by what came back on the way:
    an allocator that keeps freed memory rises for many rounds and falls once.
    """
    first = len(levels) % ROUNDS_TOGETHER
    floors = [
        min(levels[start : start + ROUNDS_TOGETHER])
        for start in range(first, len(levels), ROUNDS_TOGETHER)
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


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _whole(value: object) -> int:
    return value if type(value) is int else 0
