"""Profiling of slow ops: the contexts or the session of a case, run again in another process.

The case's own process is not profiled, so that its times are unaffected. First come the plans,
which are pure, then the measurements.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import NotPassed, Observation
from harness.core.error_codes import ProfileAsked, same_code
from harness.core.errors import DeviceError
from harness.core.outgoing_text import counted
from harness.models.onnx_model import read_model
from harness.probe.ort_plan import ort_session_free
from harness.probe.plan import Plan, ProfileLevel, Step, context_free, texts
from harness.probe.transcript import StepResult, Transcript
from harness.results.op_events import (
    ProfiledRun,
    csv_events,
    phases_in,
    probe_events,
    profile_of,
    runs_in,
)
from harness.results.record import whole_numbers

ROUNDS: Final = 5
_CONTEXTS_MOST: Final = 16
_CSV_MOST_BYTES: Final = 16 << 20
_TIMEOUT_S: Final = 900.0
_CSV: Final = "profile.csv"
_NO_PROFILE: Final = 6006
"""QNN_GRAPH_ERROR_SET_PROFILE."""


@dataclass(frozen=True)
class Profiling:
    """A plan that profiles the contexts of another one, and how many of them it leaves out."""

    plan: Plan
    left_out: int = 0


def profiling_of(ran: Plan, requested: ProfileAsked, folder: str) -> Profiling | None:
    """Return a plan that profiles the contexts or the session of another; None without (pure).

    Each graph is executed alternately without and with a profile, so that its overhead is known
    independently of other load. ONNX Runtime writes its profile into `folder`.
    """
    level: ProfileLevel = "basic" if requested == "basic" else "detailed"
    if any(step.verb == "ort-run" for step in ran.steps):
        return _of_session(ran, level, f"{folder}/{_CSV}")
    return _of_contexts(ran, level)


def _of_contexts(ran: Plan, level: ProfileLevel) -> Profiling | None:
    loads: dict[str, Step] = {}
    graphs: dict[str, dict[str, Step]] = {}
    for step in ran.steps:
        number = step.fields.get("context", "")
        if step.verb == "context-load":
            if step.fields["file"] not in (load.fields["file"] for load in loads.values()):
                loads[number] = step
        elif step.verb == "execute" and number in loads:
            graphs.setdefault(number, {}).setdefault(step.fields["graph"], step)
    numbers = list(graphs)[:_CONTEXTS_MOST]
    if not numbers:
        return None
    steps = [*takewhile(lambda step: step.verb != "context-load", ran.steps)]
    for number in numbers:
        steps.append(_with(loads[number], profile=level))
        for step in graphs[number].values():
            once = _with(step, repeat=1)
            steps += [once, *[once, _with(once, profile=level)] * ROUNDS]
        steps.append(context_free(int(number)))
    frees = [context_free(int(number)) for number in numbers]
    return Profiling(_ended(ran, steps, frees), len(graphs) - len(numbers))


def _of_session(ran: Plan, level: ProfileLevel, csv: str) -> Profiling:
    opened = [*takewhile(lambda step: step.verb != "ort-session", ran.steps)]
    # logging everything costs as much as a small graph
    steps = [Step("ort-env") if step.verb == "ort-env" else step for step in opened]
    session = next(step for step in ran.steps if step.verb == "ort-session")
    run = next(step for step in ran.steps if step.verb == "ort-run")
    count = sum(key.startswith("provider.") for key in session.fields)
    profiling = {"profiling_level": level, "profiling_file_path": csv}
    options = {f"provider.{i}": f"{k}={v}" for i, (k, v) in enumerate(profiling.items(), count)}
    for number, more in (("0", {}), ("1", options)):
        steps.append(_with(session, context=number, **more))
    steps += [_with(run, context=number, repeat=1) for number in (0, 1)] * (ROUNDS + 1)
    return Profiling(_ended(ran, steps, [ort_session_free(number) for number in (0, 1)]))


def _with(step: Step, **fields: object) -> Step:
    dropped = ("warmup", "budget_ms", "least_ms", "cooling", "save.")
    remaining = {key: value for key, value in step.fields.items() if not key.startswith(dropped)}
    return Step(step.verb, remaining | texts(**fields))


def _ended(ran: Plan, steps: Iterable[Step], frees: Iterable[Step]) -> Plan:
    behind = list(ran.steps)[[step.verb for step in ran.steps].index("cleanup") + 1 :]
    ends = [step for step in behind if step.verb not in ("context-free", "ort-session-free")]
    return replace(ran, steps=(*steps, Step("cleanup"), *frees, *ends))


@dataclass(frozen=True)
class Profiled:
    """The results of a profiling process: runs by graph, phases, and overhead.

    `added_us` is the increase of the median execution time by the profile.
    """

    graphs: Mapping[str, Sequence[ProfiledRun]]
    phases: Sequence[Mapping[str, object]]
    added_us: int | None
    cut: int = 0


def read_profile(transcript: Transcript, csv: bytes) -> Profiled:
    """Read the profile from a process that ran `profiling_of`, and from its file (pure)."""
    steps = [step for step in transcript.steps if step.ok]
    graphs: dict[str, list[ProfiledRun]] = {}
    phases: list[Mapping[str, object]] = []
    times: dict[str, list[int]] = {}
    profiled: list[int] = []
    for step in steps:
        if step.verb == "context-load":
            phases += phases_in(probe_events(step.data))
        elif step.verb == "execute":
            name, times_us = f"{step.context}.{step.data.get('graph')}", _run_times(step)
            if "profile_events" in step.data:
                graphs.setdefault(name, []).append(probe_events(step.data))
                profiled += times_us
            else:
                times.setdefault(name, []).extend(times_us)
    plain = [time for series in times.values() for time in series[1:]]  # the first is a warm-up
    both = [time_us for step in steps if step.verb == "ort-run" for time_us in _run_times(step)][2:]
    if events := csv_events(csv):
        runs = runs_in(events)
        # one execution has an event for each partition of the session, in order
        each = max(1, len(runs) // (ROUNDS + 1))
        graphs |= {f"partition {i}": [*runs[each + i :: each]] for i in range(each)}
        phases += phases_in(events)
        plain, profiled = both[::2], both[1::2]
    cut = sum(whole_numbers([step.data.get("profile_cut") for step in steps]))
    added = None
    if plain and profiled:
        added = round(statistics.median(profiled) - statistics.median(plain))
    return Profiled(graphs, phases, added, cut)


def _run_times(step: StepResult) -> list[int]:
    return whole_numbers(step.data.get("run_us"))


def profile_case(
    bench: Bench, ran: Plan, requested: ProfileAsked | None, models: Iterable[Path] = ()
) -> None:
    """Profile what a case ran, if requested, and record it as `profile`.

    Ops are joined with the nodes of `models`. A failure of profiling fails no case: the record says
    why. Raises DeviceError or NoVerdict if the lab failed.
    """
    if requested is None:
        return
    notes: list[str] = []
    with bench.scratch() as folder:
        result, level = _run(bench, ran, requested, folder, notes)
        csv = b""
        if result is not None and any(step.verb == "ort-run" for step in ran.steps):
            try:
                csv = bench.fetch(f"{folder}/{_CSV}", max_bytes=_CSV_MOST_BYTES)
            except DeviceError as error:
                notes.append(f"ONNX Runtime's profile cannot be read: {error}")
    profile = read_profile(Transcript() if result is None else result.run.transcript, csv)
    if profile.cut:
        notes.append(f"left out: at least {counted(profile.cut, 'event')}")
    record = profile_of(
        level,
        profile.graphs,
        phases=profile.phases,
        nodes={
            node.name or f"{node.op_type}{i}"  # ONNX Runtime's name for a nameless node
            for path in models
            for i, node in enumerate(read_model(path, weights=False).graph.node)
        },
        added_us=profile.added_us,
        notes=notes,
    )
    if level != "basic" and result is not None and not (notes or record["ops"]):
        record["notes"] = ["the backend reports no ops"]
    bench.measure(profile=record | {"rounds": ROUNDS})


def _run(
    bench: Bench, ran: Plan, requested: ProfileAsked, folder: str, notes: list[str]
) -> tuple[Observation | None, ProfileAsked]:
    """Return the result and the level that the library accepted; add problems to `notes`."""
    profiling = profiling_of(ran, requested, folder)
    if profiling is None:
        notes.append("no part of this case can be profiled")
        return None, requested
    if profiling.left_out:
        further = counted(profiling.left_out, "further context is", "further contexts are")
        notes.append(f"{further} not profiled")
    try:
        result = bench.attempt(profiling.plan, timeout_s=_TIMEOUT_S)
    except NotPassed as error:
        if error.verdict.cause == "infra":
            raise
        bench.accept_refusal()
        notes.append(f"profiling failed: {error}")
        return None, requested
    failure = result.run.transcript.first_failure
    if failure is None and result.verdict.outcome == "passed":
        return result, requested
    if failure is not None and same_code(failure.code, _NO_PROFILE) and requested != "basic":
        notes.append(
            f"the library refuses a detailed profile of these contexts ({_NO_PROFILE}, "
            "QNN_GRAPH_ERROR_SET_PROFILE); this is the basic profile, without ops"
        )
        return _run(bench, ran, "basic", folder, notes)
    notes.append(f"profiling failed: {result.verdict.explanation()}")
    return None, requested
