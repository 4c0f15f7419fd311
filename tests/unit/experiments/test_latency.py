"""Same latency or not: by table, and whatever the noise never wrong by more than it says."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.experiments.latency import (
    GrowthTolerance,
    Latency,
    MemorySamples,
    judge_growth,
    memory_samples,
    quickest,
    same_latency,
    settled,
)
from harness.probe.transcript import StepResult, Transcript
from harness.results.probe_figures import Growth
from harness.results.record import Check, held, undecided
from tests.properties import reached, reaches


def verdict(first: tuple[int, ...], other: tuple[int, ...] | None) -> str:
    compared = None if other is None else Latency(other)
    check = same_latency("latency", Latency(first), compared, "the other")
    return check.verdict


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ((1000,) * 30, (1000,) * 30, "held"),
        ((1251,) * 30, (1000,) * 30, "broken"),
        # the floor, and that it never hides more than half
        ((160,) * 30, (100,) * 30, "broken"),
        # just as far apart as is allowed, by the part, the floor and the most
        ((1250,) * 30, (1000,) * 30, "held"),
        ((700,) * 30, (500,) * 30, "held"),
        ((701,) * 30, (500,) * 30, "broken"),
        ((150,) * 30, (100,) * 30, "held"),
        # twice the spread hides what is no further apart, and half of it, everything
        ((750, 1000, 1250) * 10, (1000,) * 30, "held"),
        ((740, 1000, 1260) * 10, (1000,) * 30, "unseen"),
        ((1100, 1300, 1500) * 10, (1000,) * 30, "unseen"),
        ((1200, 1400, 1600) * 10, (1000,) * 30, "unseen"),
        ((1201, 1401, 1601) * 10, (1000,) * 30, "broken"),
        # what was once taken for the same: half as long, within four times the spread
        ((1257,) * 30, (1400, 2418, 3438) * 10, "unseen"),
        ((1000, 2000, 3000) * 10, (1000, 2000, 3000) * 10, "unseen"),
        ((9000, 9300, 9600) * 10, (1000, 1300, 1600) * 10, "broken"),
        ((), (1000,), "unseen"),
        ((1000,), (), "unseen"),
        ((1000,), None, "unseen"),
    ],
)
def test_medians_are_compared(
    first: tuple[int, ...], other: tuple[int, ...] | None, expected: str
) -> None:
    assert verdict(first, other) == expected


# around one time, as what is measured is: of 30 times at random nothing can be said
TIMES = st.tuples(
    st.integers(1, 10**7), st.lists(st.integers(-20, 20), min_size=30, max_size=30)
).map(lambda pair: tuple(pair[0] + pair[0] * percent // 100 for percent in pair[1]))


@reaches(0.3)
@given(TIMES, TIMES)
def test_what_is_held_is_never_half_as_much_again(
    first: tuple[int, ...], other: tuple[int, ...]
) -> None:
    outcome = verdict(first, other)
    assert outcome == verdict(other, first)
    medians = sorted(Latency(times_us).p50_us or 0 for times_us in (first, other))
    if outcome != "unseen":
        reached()
    if outcome == "held":
        assert medians[1] <= 1.5 * medians[0]
    if outcome == "broken":
        assert medians[1] > 1.25 * medians[0]


def test_times_their_spread_and_the_quickest_process() -> None:
    latency, none = Latency((5, 1, 2, 9)), Latency(())
    assert (latency.p50_us, latency.spread_us) == (2, 2)
    assert (none.p50_us, none.spread_us) == (None, 0)
    slow, quick = Latency((2000, 2000, 2000)), Latency((1000, 1010))
    assert quickest([slow, none, quick]) == Latency(quick.times_us, repeated_us=1000)
    assert quickest([none, quick]) is quick
    assert quickest([]) == none


def test_processes_of_two_speeds_are_too_noisy_to_tell() -> None:
    once = [Latency((316,) * 30), Latency((507,) * 30), Latency((506,) * 30)]
    other = [Latency((504,) * 30), Latency((519,) * 30)]
    check = same_latency("latency", quickest(once), quickest(other), "the other")
    assert check.verdict == "unseen"
    check = same_latency("latency", quickest(once[:1] * 2), quickest(other), "the other")
    assert check.verdict == "broken"


@pytest.mark.parametrize(
    ("figures", "verdicts"),
    [
        ((10, 10, 100, 100), ["held", "held"]),
        ((-10, 0, 0, 0), ["held", "held"]),
        ((11, 0, 100, 0), ["broken", "held"]),
        ((10, 0, 101, 0), ["held", "broken"]),
        # more than what is tolerated comes and goes: less is no proof, and more only if much more
        ((0, 11, 0, 101), ["unseen", "unseen"]),
        ((12, 1, 102, 1), ["broken", "broken"]),
        ((11, 1, 101, 1), ["unseen", "unseen"]),
        # a device that does not tell
        (None, ["unseen", "unseen"]),
    ],
)
def test_what_is_left(figures: tuple[int, ...] | None, verdicts: list[str]) -> None:
    growth = None if figures is None else Growth(*figures)
    checks = judge_growth(growth, GrowthTolerance(10, 100))
    assert [check.verdict for check in checks] == verdicts
    assert [bool(check.figures) for check in checks] == [figures is not None] * 2


def sample(label: object, code: int = 0, verb: str = "memory-sample", **data: Any) -> StepResult:
    return StepResult(1, verb, begun=True, ended=True, code=code, data={"label": label} | data)


def test_the_samples_of_a_process_by_their_labels() -> None:
    steps = [
        sample("start", shared_bytes=0, rss_bytes=100, pss_bytes=60, allocator="rpcmem"),
        sample("end", shared_bytes=70, rss_bytes=90),
        sample("start", verb="execute", shared_bytes=1),
        sample("end", code=3, shared_bytes=2),
        sample(7, shared_bytes=3),
        sample("odd", shared_bytes=-1, rss_bytes=True, pss_bytes="9", allocator=None),
    ]
    read = memory_samples(Transcript(steps=steps))
    assert read.record() == {
        "shared_buffer_bytes": {"start": 0, "end": 70},
        "sample_rss_bytes": {"start": 100, "end": 90},
        "sample_pss_bytes": {"start": 60},
        "allocator": "rpcmem",
    }
    assert (read.growth("start", "end"), read.growth("end", "start")) == (70, -70)
    assert read.growth("start", "odd") is read.growth("odd", "start") is None


@pytest.mark.parametrize(
    ("allocator", "shared", "visible"),
    [
        ("rpcmem", {}, True),
        ("dma-heap", {"start": 0}, True),
        ("memfd", {"start": 0, "end": 0}, False),
        ("memfd", {"start": 0, "end": 1}, True),
        (None, {}, False),
    ],
)
def test_shared_buffers_are_seen_where_there_is_a_dsp_or_were_some(
    allocator: str | None, shared: dict[str, int], visible: bool
) -> None:
    assert MemorySamples(shared, {}, {}, allocator).visible is visible


def check(name: str, verdict: str, number: int) -> Check:
    if verdict == "unseen":
        return undecided(name, f"round {number}")
    if verdict == "noisy":
        return undecided(name, f"round {number}", noise=1)
    return held(name, verdict == "held", f"round {number}", left_bytes=number)


@pytest.mark.parametrize(
    ("verdicts", "most", "rounds", "expected"),
    [
        (["held"], 2, 1, "held"),
        (["unseen"], 2, 1, "unseen"),
        (["broken", "held"], 2, 2, "held"),
        (["broken", "unseen"], 2, 2, "unseen"),
        (["broken", "broken"], 2, 2, "broken"),
        (["broken"] * 3, 3, 3, "broken"),
        (["noisy", "held"], 2, 2, "held"),
        (["noisy", "broken"], 2, 2, "broken"),
        (["broken"], None, 1, "broken"),
        (["noisy"], None, 1, "unseen"),
    ],
)
def test_a_check_in_doubt_is_measured_again(
    verdicts: list[str], most: int | None, rounds: int, expected: str
) -> None:
    rounds_before: list[int] = []

    def measure(before: int) -> list[Check]:
        rounds_before.append(before)
        return [check("memory", verdicts[before], before)]

    (combined,) = settled(measure, {} if most is None else {"memory": most})
    assert (rounds_before, combined.verdict) == (list(range(rounds)), expected)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (("broken", "held"), "broken"),
        (("held", "unseen"), "held"),
        (("unseen", "unseen"), "unseen"),
    ],
)
def test_a_check_that_nobody_disturbs_is_broken_by_one_round(
    outputs: tuple[str, str], expected: str
) -> None:
    def measure(before: int) -> list[Check]:
        memory = check("memory", ("broken", "held")[before], before)
        return [memory, check("outputs", outputs[before], before)]

    memory, exact = settled(measure, {"memory": 2})
    assert (memory.verdict, memory.reason) == ("held", "round 1")
    assert (exact.name, exact.verdict) == ("outputs", expected)
