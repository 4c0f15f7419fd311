"""Each behaviour of a memory pairing, judged from figures: every check both ways, by table."""

import dataclasses
from typing import Any

import pytest

from harness.core.error_codes import DOCUMENTED
from harness.experiments.latency import Latency, MemorySamples, settled
from harness.experiments.memory_type_pairing import (
    DISTURBED,
    LATENCY,
    Pairing,
    PairingFigures,
    Tolerances,
    judge_pairing,
    pairing_figures,
    untimed,
)
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, broken, conclusion, failure_text

IO = 4_000_000
TOLERANCES = Tolerances()
PAIRINGS = [Pairing(*memories) for memories in DOCUMENTED]
RAW_RAW = Pairing("raw", "raw")


def samples(load: int, first: int, tenth: int = 0, freed: int = 0) -> MemorySamples:
    """Growth of shared buffers in each phase; `freed` is what is left at the end."""
    shared = {"before": 100, "loaded": 100 + load, "bound": 100 + load}
    shared["first"] = shared["bound"] + first
    shared["tenth"] = shared["first"] + tenth
    shared["freed"] = 100 + freed
    rss = dict.fromkeys(shared, 7)
    return MemorySamples(shared, rss, {}, "rpcmem")


def figures(pairing: Pairing, **changed: Any) -> PairingFigures:
    """Return figures as documented, with some of them changed."""
    documented = pairing.documented
    figures_of_process = PairingFigures(
        io_bytes=IO,
        other_bytes=10_000,
        samples=samples(
            IO if documented.at_load else 0, IO if documented.at_first_inference else 0
        ),
        first_us=900,
        steady=Latency(tuple(1000 + i % 5 for i in range(30))),
        copies=2 if documented.copied else 0,
        digests=(42,),
    )
    return dataclasses.replace(figures_of_process, **changed)


def judged(pairing: Pairing, **changed: Any) -> list[Check]:
    twin, base = figures(pairing.twin), figures(RAW_RAW)
    return judge_pairing(pairing, figures(pairing, **changed), twin, base, TOLERANCES)


@pytest.mark.parametrize("pairing", PAIRINGS, ids=str)
def test_what_is_as_documented_holds(pairing: Pairing) -> None:
    checks = judged(pairing)
    assert len({check.name for check in checks}) == len(checks) == 7
    assert {check.verdict for check in checks} == {"held"}
    assert failure_text(checks) == ""


def wrong_of(pairing: Pairing) -> dict[str, dict[str, Any]]:
    """For each check what breaks it and nothing else."""
    documented = pairing.documented
    load, first = (IO if now else 0 for now in (documented.at_load, documented.at_first_inference))
    wrong: dict[str, dict[str, Any]] = {
        "io_allocated_at_load": {"samples": samples(IO - load, first)},
        "io_allocated_at_first_inference": {"samples": samples(load, IO - first)},
        "io_settled_by_tenth": {"samples": samples(load, first, tenth=IO)},
        "io_given_back": {"samples": samples(load, first, freed=IO)},
        "copies_per_inference": {"copies": 0 if documented.copied else 2},
    }
    wrong["steady_latency_same"] = {"steady": Latency((1600,) * 30)}
    wrong["outputs_equal"] = {"digests": (43,)}
    return wrong


@pytest.mark.parametrize(
    ("pairing", "name"),
    [(pairing, name) for pairing in PAIRINGS for name in wrong_of(pairing)],
    ids=str,
)
def test_each_wrong_figure_breaks_its_check_alone(pairing: Pairing, name: str) -> None:
    checks = judged(pairing, **wrong_of(pairing)[name])
    assert [check.name for check in broken(checks)] == [name]
    assert failure_text(checks).startswith(f"{name}: ")
    assert conclusion(checks).startswith(f"checks failed: {name}; checks passed: ")


@pytest.mark.parametrize(
    ("growth", "is_held"),
    [(IO // 2, False), (IO * 3 // 4, True), (IO * 5 // 4, True), (IO * 3 // 2, False)],
)
def test_how_much_counts_as_the_io(growth: int, is_held: bool) -> None:
    (check, *_) = judged(RAW_RAW, samples=samples(growth, 0))
    assert (check.verdict == "held") == is_held
    assert check.figures["growth_bytes"] == growth


def test_weights_that_come_with_the_load_are_not_taken_for_io() -> None:
    pairing = Pairing("memhandle", "memhandle")
    (check, *_) = judged(pairing, samples=samples(50_000_000, 0), other_bytes=50_000_000)
    assert check.verdict == "held"


@pytest.mark.parametrize(("growth", "is_held"), [(IO // 4, True), (IO // 4 + 1, False)])
def test_how_much_counts_as_nothing(growth: int, is_held: bool) -> None:
    # what a context needs besides comes at its load, and is no excuse later
    grown = samples(IO, growth)
    (_, check, *_) = judged(RAW_RAW, samples=grown, other_bytes=50_000_000)
    assert (check.verdict == "held") == is_held


def test_what_may_be_noise_is_measured_again() -> None:
    wrong = wrong_of(RAW_RAW)
    right, slow = judged(RAW_RAW), judged(RAW_RAW, **wrong["steady_latency_same"])
    leak, other = (judged(RAW_RAW, **wrong[name]) for name in ("io_given_back", "outputs_equal"))

    def after(*rounds: list[Check]) -> list[str]:
        remaining = list(rounds)
        checks = settled(lambda before: remaining.pop(0), DISTURBED)
        assert not remaining
        return [check.name for check in broken(checks)]

    assert after(right) == after(leak, right) == after(slow, slow, right) == []
    assert after(other) == after(leak, other) == ["outputs_equal"]
    assert after(leak, leak) == ["io_given_back"]
    assert after(*[slow] * 5) == ["steady_latency_same"]


def test_outputs_that_nobody_saw_are_not_equal() -> None:
    none = figures(RAW_RAW, digests=())
    checks = judge_pairing(RAW_RAW, none, none, none, TOLERANCES)
    assert [check.name for check in broken(checks)] == ["outputs_equal"]


@pytest.mark.parametrize("pairing", PAIRINGS, ids=str)
def test_nothing_is_concluded_from_buffers_that_nobody_can_see(pairing: Pairing) -> None:
    blind = samples(0, 0)
    nothing = dict.fromkeys(blind.rss_bytes, 0)
    blind = dataclasses.replace(blind, shared_bytes=nothing, allocator="memfd")
    process, other = figures(pairing, samples=blind), figures(pairing.twin, samples=blind)
    checks = judge_pairing(pairing, process, other, other, TOLERANCES)
    assert [check.verdict for check in checks[:4]] == ["unseen"] * 4
    assert not broken(checks)
    # if another pairing shows buffers there, this one has none
    checks = judged(pairing, samples=blind)
    assert {check.verdict for check in checks[:4]} <= {"held", "broken"}


def test_no_copies_are_seen_where_no_profile_tells_of_any() -> None:
    silent = figures(RAW_RAW, copies=None)
    pairing = Pairing("raw", "memhandle")
    process, twin = figures(pairing, copies=None), figures(pairing.twin)
    checks = judge_pairing(pairing, process, twin, silent, TOLERANCES)
    assert {check.name for check in checks if check.verdict == "unseen"} == {"copies_per_inference"}
    # what raw memory shows and a memory handle does not is an answer
    checks = judge_pairing(pairing, process, twin, figures(RAW_RAW), TOLERANCES)
    assert {check.verdict for check in checks} == {"held"}


@pytest.mark.parametrize("pairing", PAIRINGS, ids=str)
def test_only_what_is_executed_alike_must_be_as_fast(pairing: Pairing) -> None:
    slow = figures(RAW_RAW, steady=Latency((9000,) * 30))
    checks = judge_pairing(pairing, figures(pairing), figures(pairing.twin), slow, TOLERANCES)
    assert not broken(checks)
    assert (pairing.twin.execute, pairing.twin.twin) == (pairing.execute, pairing)
    assert pairing.twin != pairing


def test_what_has_nothing_to_be_compared_with_is_unseen() -> None:
    checks = judge_pairing(RAW_RAW, figures(RAW_RAW), None, None, TOLERANCES)
    unseen = [check.name for check in checks if check.verdict == "unseen"]
    assert unseen == ["steady_latency_same", "outputs_equal"]


def step(verb: str, **data: Any) -> StepResult:
    return StepResult(0, verb, begun=True, ended=True, code=0, data=data)


def test_figures_out_of_a_transcript() -> None:
    tensors = [{"bytes": 100}, {"bytes": 20}]
    metadata = {"graphs": [{"inputs": tensors, "outputs": [{"bytes": 3}]}]}
    events = [
        {"name": "Accelerator (execute) time", "unit": 1, "value": 5},
        {"name": "Copies of inputs and outputs", "unit": 4, "value": 3},
        {"name": "copy to VTCM", "unit": 2, "value": 999},
        {"name": "copied", "unit": 1, "value": 0},
        "no event",
    ]
    transcript = Transcript(
        steps=[
            step("io-run", run_us=[7], digests=[1]),
            step("io-run", run_us=[1] * 9, digests=[1]),
            step("io-run", run_us=[4, 5, 9, "x"], digests=[1]),
            step("io-run", run_us=[6], digests=[2], profile_events=events),
        ]
    )
    read = pairing_figures(transcript, metadata, 200)
    assert (read.io_bytes, read.other_bytes) == (123, 77)
    assert (read.first_us, read.steady.times_us, read.steady.p50_us) == (7, (4, 5, 9), 5)
    assert (read.copies, read.digests) == (4, (2,))
    empty = pairing_figures(Transcript(), {}, 0)
    assert (empty.first_us, empty.steady.times_us) == (None, ())
    assert (empty.copies, empty.digests) == (None, ())
    assert {check.name for check in judge_pairing(RAW_RAW, empty, None, None, TOLERANCES)}


def test_times_of_an_emulated_dsp_decide_nothing() -> None:
    slow = Check(name=LATENCY, verdict="broken", reason="twice as slow")
    other = Check(name="outputs_equal", verdict="broken", reason="differ")
    assert untimed(slow).verdict == "unseen"
    assert not untimed(slow).figures, "or it is measured again"
    assert untimed(other) is other
