"""Which op is slow: what a case ran, once more in a process of its own, profiled.

The case's own process is not touched, so that profiling costs it nothing. First what is run, which
is pure, then how it is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import NotPassed, Observation
from harness.core.codes import ProfileAsked, same_code
from harness.core.errors import DeviceError
from harness.core.outgoing_text import counted
from harness.models.onnx_model import read_model
from harness.probe.ort_plan import ort_session_free
from harness.probe.plan import Plan, ProfileLevel, Step, context_free, given
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
    """A plan that profiles what another one ran, and how many of its contexts it leaves out."""

    plan: Plan
    left_out: int = 0


def profiling_of(ran: Plan, asked: ProfileAsked, folder: str) -> Profiling | None:
    """What profiles the contexts or the session of a plan; None if it executes neither (pure).

    Each graph is executed in turn without a profile and with one, so that what that adds is known,
    whatever else the computer does.
    ONNX Runtime writes into `folder`.
    """
    level: ProfileLevel = "basic" if asked == "basic" else "detailed"
    if any(step.verb == "ort-run" for step in ran.steps):
        return _of_session(ran, level, f"{folder}/{_CSV}")
    return _of_contexts(ran, level)


def _of_contexts(ran: Plan, level: ProfileLevel) -> Profiling | None:
    loads: dict[str, Step] = {}
    graphs: dict[str, dict[str, Step]] = {}
    for step in ran.steps:
        number = step.fields.get("context", "")
        if step.verb == "context-load":
            if step.fields["file"] not in (one.fields["file"] for one in loads.values()):
                loads[number] = step
        elif step.verb == "execute" and number in loads:
            graphs.setdefault(number, {}).setdefault(step.fields["graph"], step)
    taken = list(graphs)[:_CONTEXTS_MOST]
    if not taken:
        return None
    steps = [*takewhile(lambda one: one.verb != "context-load", ran.steps)]
    for number in taken:
        steps.append(_with(loads[number], profile=level))
        for step in graphs[number].values():
            once = _with(step, repeat=1)
            steps += [once, *[once, _with(once, profile=level)] * ROUNDS]
        steps.append(context_free(int(number)))
    frees = [context_free(int(number)) for number in taken]
    return Profiling(_ended(ran, steps, frees), len(graphs) - len(taken))


def _of_session(ran: Plan, level: ProfileLevel, csv: str) -> Profiling:
    opened = [*takewhile(lambda one: one.verb != "ort-session", ran.steps)]
    # logging all costs as much as a small graph does
    steps = [Step("ort-env") if one.verb == "ort-env" else one for one in opened]
    session = next(one for one in ran.steps if one.verb == "ort-session")
    run = next(one for one in ran.steps if one.verb == "ort-run")
    there = sum(key.startswith("provider.") for key in session.fields)
    told = {"profiling_level": level, "profiling_file_path": csv}
    options = {f"provider.{at}": f"{k}={v}" for at, (k, v) in enumerate(told.items(), there)}
    for number, more in (("0", {}), ("1", options)):
        steps.append(_with(session, context=number, **more))
    steps += [_with(run, context=number, repeat=1) for number in (0, 1)] * (ROUNDS + 1)
    return Profiling(_ended(ran, steps, [ort_session_free(number) for number in (0, 1)]))


def _with(step: Step, **fields: object) -> Step:
    gone = ("warmup", "budget_ms", "save.")
    kept = {key: value for key, value in step.fields.items() if not key.startswith(gone)}
    return Step(step.verb, kept | given(**fields))


def _ended(ran: Plan, steps: Iterable[Step], frees: Iterable[Step]) -> Plan:
    behind = list(ran.steps)[[one.verb for one in ran.steps].index("cleanup") + 1 :]
    ends = [one for one in behind if one.verb not in ("context-free", "ort-session-free")]
    return replace(ran, steps=(*steps, Step("cleanup"), *frees, *ends))


@dataclass(frozen=True)
class Profiled:
    """What a profiling process showed: runs by graph, phases, and what profiling added.

    `added_us`: by how much the median execution took longer with a profile than without.
    """

    graphs: Mapping[str, Sequence[ProfiledRun]]
    phases: Sequence[Mapping[str, object]]
    added_us: int | None
    cut: int = 0


def read_profile(transcript: Transcript, csv: bytes) -> Profiled:
    """Takes the profile out of a process that ran `profiling_of`, and of its file (pure)."""
    done = [step for step in transcript.steps if step.ok]
    graphs: dict[str, list[ProfiledRun]] = {}
    phases: list[Mapping[str, object]] = []
    times: dict[str, list[int]] = {}
    profiled: list[int] = []
    for step in done:
        if step.verb == "context-load":
            phases += phases_in(probe_events(step.data))
        elif step.verb == "execute":
            name, took = f"{step.context}.{step.data.get('graph')}", _took(step)
            if "profile_events" in step.data:
                graphs.setdefault(name, []).append(probe_events(step.data))
                profiled += took
            else:
                times.setdefault(name, []).extend(took)
    plain = [one for seen in times.values() for one in seen[1:]]  # the first one is a warm-up
    both = [one for step in done if step.verb == "ort-run" for one in _took(step)][2:]
    if events := csv_events(csv):
        runs = runs_in(events)
        # one execution has an event for each partition of the session, in their order
        each = max(1, len(runs) // (ROUNDS + 1))
        graphs |= {f"partition {at}": [*runs[each + at :: each]] for at in range(each)}
        phases += phases_in(events)
        plain, profiled = both[::2], both[1::2]
    cut = sum(whole_numbers([step.data.get("profile_cut") for step in done]))
    added = None
    if plain and profiled:
        added = round(statistics.median(profiled) - statistics.median(plain))
    return Profiled(graphs, phases, added, cut)


def _took(step: StepResult) -> list[int]:
    return whole_numbers(step.data.get("run_us"))


def profile_case(
    bench: Bench, ran: Plan, asked: ProfileAsked | None, models: Iterable[Path] = ()
) -> None:
    """Profiles what a case ran, and records it as `profile`; nothing unless that is asked for.

    Ops are joined with the nodes of `models`. What cannot be profiled fails no case: the record
    says why. Raises DeviceError or NoVerdict if the lab failed on the way.
    """
    if asked is None:
        return
    notes: list[str] = []
    with bench.scratch() as folder:
        seen, level = _run(bench, ran, asked, folder, notes)
        csv = b""
        if seen is not None and any(step.verb == "ort-run" for step in ran.steps):
            try:
                csv = bench.fetch(f"{folder}/{_CSV}", max_bytes=_CSV_MOST_BYTES)
            except DeviceError as error:
                notes.append(f"ONNX Runtime's profile cannot be read: {error}")
    found = read_profile(Transcript() if seen is None else seen.run.transcript, csv)
    if found.cut:
        notes.append(f"left out: at least {counted(found.cut, 'event')}")
    told = profile_of(
        level,
        found.graphs,
        phases=found.phases,
        nodes={name for path in models for name in _names_in(path)},
        added_us=found.added_us,
        notes=notes,
    )
    if level != "basic" and seen is not None and not (notes or told["ops"]):
        told["notes"] = ["the backend tells of no ops"]
    bench.measure(profile=told | {"rounds": ROUNDS})


def _run(
    bench: Bench, ran: Plan, asked: ProfileAsked, folder: str, notes: list[str]
) -> tuple[Observation | None, ProfileAsked]:
    """The process, and the level that the library took; why it took no other goes into `notes`."""
    profiling = profiling_of(ran, asked, folder)
    if profiling is None:
        notes.append("nothing of what ran can be profiled")
        return None, asked
    if profiling.left_out:
        further = counted(profiling.left_out, "further context is", "further contexts are")
        notes.append(f"{further} not profiled")
    try:
        seen = bench.attempt(profiling.plan, timeout_s=_TIMEOUT_S)
    except NotPassed as error:
        if error.verdict.cause == "infra":
            raise
        bench.accept_refusal()
        notes.append(f"it could not be profiled: {error}")
        return None, asked
    failure = seen.run.transcript.first_failure
    if failure is None and seen.verdict.outcome == "passed":
        return seen, asked
    if failure is not None and same_code(failure.code, _NO_PROFILE) and asked != "basic":
        notes.append(
            f"the library refuses a detailed profile of these contexts ({_NO_PROFILE}, "
            "QNN_GRAPH_ERROR_SET_PROFILE): this is the basic one, without ops"
        )
        return _run(bench, ran, "basic", folder, notes)
    notes.append(f"it could not be profiled: {seen.verdict.explanation()}")
    return None, asked


def _names_in(path: Path) -> Iterator[str]:
    for at, node in enumerate(read_model(path, weights=False).graph.node):
        yield node.name or f"{node.op_type}{at}"  # so ONNX Runtime calls what has no name
