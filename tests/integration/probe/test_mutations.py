"""Real transcripts with lines lost, repeated, swapped or changed: none of them passes any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from harness.diagnosis.verdict import Verdict, judge
from harness.probe import plan
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.probe.transcript import Transcript, misfit
from tests.integration.probe.conftest import StandIn
from tests.stand_in.build import build_backend
from tests.stand_in.events import parse_transcript

FOUR = np.array([1.5, -2.0, 0.25, 1e6], np.float32)
# what the stand-in backend does, and what that is
BEHAVIOURS = {
    "plain": "passed",
    "fail": "failed",
    "drift": "failed",
    "refuse": "failed",
    "crash": "crashed",
}
Lines = list[bytes]


class Recorded(dict[str, ProbeRun]):
    """Runs by behaviour."""

    def __repr__(self) -> str:
        return "recorded"


@pytest.fixture(scope="module")
def recorded(plain_probe: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Output of real probes in a session with two contexts, by the backend's behaviour."""
    folder = tmp_path_factory.mktemp("recorded")
    backend = StandIn(build_backend(folder), folder)
    four = backend.file("four", FOUR)

    def record(behaviour: str) -> ProbeRun:
        steps = backend.opened(
            plan.context_load(0, backend.binary("plain")),
            plan.context_load(1, backend.binary(behaviour)),
            *(plan.execute(number, inputs=[four], expected=[four], repeat=4) for number in (0, 1)),
            Step("cleanup"),
            plan.context_free(0),
            plan.context_free(1),
            *map(Step, ("device-free", "backend-free", "log-free")),
        )
        completed = run_plan_locally(plain_probe, Plan(steps), env={}, timeout_s=60)
        assert judge(completed).outcome == BEHAVIOURS[behaviour]
        return completed

    return Recorded({behaviour: record(behaviour) for behaviour in BEHAVIOURS})


def meaning(transcript: Transcript) -> dict[str, object]:
    """All that a verdict, a figure or a report can be made of."""
    return {key: value for key, value in asdict(transcript).items() if key != "noise"}


def delete(lines: Lines, place: int, _other: int, _flip: int) -> Lines:
    return lines[:place] + lines[place + 1 :]


def repeat(lines: Lines, place: int, other: int, _flip: int) -> Lines:
    return [*lines[:other], lines[place], *lines[other:]]


def swap(lines: Lines, place: int, other: int, _flip: int) -> Lines:
    changed = list(lines)
    changed[place], changed[other] = changed[other], changed[place]
    return changed


def edit(lines: Lines, place: int, other: int, flip: int) -> Lines:
    line = bytearray(lines[place])
    line[other % len(line)] ^= flip
    return [*lines[:place], bytes(line), *lines[place + 1 :]]


MUTATIONS = (delete, repeat, swap, edit)
Mutation = tuple[Callable[[Lines, int, int, int], Lines], int, int, int]
NUMBERS = st.integers(0, 10_000)


def mutated(run: ProbeRun, mutations: list[Mutation]) -> ProbeRun:
    lines = run.raw_events.splitlines(keepends=True)
    for change, place, other, flip in mutations:
        if lines:
            places = len(lines) if change is not edit else 1 << 20
            changed = change(lines, place % len(lines), other % places, flip)
            lines = [line for line in changed if line]
    raw = b"".join(lines)
    return replace(run, transcript=parse_transcript(raw), raw_events=raw)


def ends_early(run: ProbeRun, changed: ProbeRun) -> bool:
    """Return whether nothing is wrong with the output but that its end is missing."""
    lines = run.raw_events.splitlines(keepends=True)
    beginnings = (parse_transcript(b"".join(lines[:count])) for count in range(len(lines)))
    meant = meaning(changed.transcript) | {"cut_off": False}
    return any(meaning(transcript) == meant for transcript in beginnings)


def wrong(run: ProbeRun, changed: ProbeRun) -> str | None:
    """Why the verdict on a changed transcript is wrong, None if it is not."""
    before, after = judge(run), judge(changed)
    if after == before and meaning(changed.transcript) == meaning(run.transcript):
        return None
    if (after.outcome, after.cause) == ("error", "infra"):
        return None
    # only where it did not end as a probe ends can what it said last be missing in silence
    if before.outcome == after.outcome == "crashed" and ends_early(run, changed):
        return None
    return (
        f"{before.outcome} became {after.outcome}: {after.error.message if after.error else None}"
    )


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(MUTATIONS), NUMBERS, NUMBERS, st.integers(1, 255)),
        min_size=1,
        max_size=3,
    )
)
def test_no_mutation_passes_and_means_something_else(
    recorded: Recorded, behaviour: str, mutations: list[Mutation]
) -> None:
    run = recorded[behaviour]
    problem = wrong(run, mutated(run, mutations))
    assert problem is None


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(one, marks=() if one in ("plain", "crash", "fail") else pytest.mark.slow)
        for one in BEHAVIOURS
    ],
)
def test_each_line_counts(recorded: Recorded, behaviour: str) -> None:
    """Every single deletion and repetition, and every swap of neighbours."""
    run = recorded[behaviour]
    count = len(run.raw_events.splitlines())
    single = [(delete, place, 0, 1) for place in range(count)]
    single += [
        (repeat, place, other, 1) for place in range(count) for other in (place, place + 1, count)
    ]
    single += [(swap, place, place + 1, 1) for place in range(count - 1)]
    results = [
        (mutation[0].__name__, mutation[1], wrong(run, mutated(run, [mutation])))
        for mutation in single
    ]
    assert [result for result in results if result[2]] == []
    assert any(misfit(mutated(run, [mutation]).transcript, run.plan) for mutation in single)


def test_the_exit_code_counts(recorded: Recorded) -> None:
    for code in (1, 2, 66, 125):
        verdict = judge(replace(recorded["plain"], exit_code=code))
        assert (verdict.outcome, verdict.cause) == ("crashed", "target")
    assert judge(recorded["plain"]) == Verdict("passed")


def test_another_runs_words_do_not_count(recorded: Recorded) -> None:
    """Each of them whole, but not of this plan."""
    for behaviour in ("fail", "refuse", "crash"):
        other = replace(recorded["plain"], plan=recorded[behaviour].plan)
        assert judge(other).cause == "infra"
