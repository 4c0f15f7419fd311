"""Real transcripts with lines lost, repeated or swapped: none of them passes any more."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

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


Recorded = dict[str, ProbeRun]


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

    return {behaviour: record(behaviour) for behaviour in BEHAVIOURS}


def meaning(transcript: Transcript) -> dict[str, object]:
    """All that a verdict, a figure or a report can be made of."""
    return {key: value for key, value in asdict(transcript).items() if key != "noise"}


def mutations(lines: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Every deletion and repetition of a line, and every swap of neighbours."""
    for place, line in enumerate(lines):
        yield f"deleted {place}", lines[:place] + lines[place + 1 :]
        for other in (place, place + 1, len(lines)):
            yield f"repeated {place} at {other}", [*lines[:other], line, *lines[other:]]
    for place in range(1, len(lines)):
        first, second = lines[place - 1 : place + 1]
        yield f"swapped {place}", [*lines[: place - 1], second, first, *lines[place + 1 :]]


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


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(one, marks=() if one in ("plain", "crash", "fail") else pytest.mark.slow)
        for one in BEHAVIOURS
    ],
)
def test_each_line_counts(recorded: Recorded, behaviour: str) -> None:
    run = recorded[behaviour]
    changed = {
        name: replace(run, transcript=parse_transcript(b"".join(lines)), raw_events=b"".join(lines))
        for name, lines in mutations(run.raw_events.splitlines(keepends=True))
    }
    problems = {name: wrong(run, mutated) for name, mutated in changed.items()}
    assert {name: problem for name, problem in problems.items() if problem} == {}
    assert any(misfit(mutated.transcript, run.plan) for mutated in changed.values())


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
