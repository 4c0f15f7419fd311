"""Every check of a memory pairing both ways: what is right passes, one wrong breaks it alone."""

import dataclasses
from collections.abc import Callable

import pytest

from harness.core.error_codes import DOCUMENTED
from harness.diagnosis.verdict import judge
from harness.experiments import latency
from harness.experiments.memory_type_pairing import (
    Pairing,
    PairingFigures,
    Tolerances,
    judge_pairing,
    pairing_figures,
    pairing_plan,
    prepared_memory,
)
from harness.models.session_plan import DeployedContext
from harness.probe.build import ProbeBuilder
from harness.probe.plan_runner import EXIT_DONE, EXIT_STEP_FAILED
from harness.results.record import Check, broken
from tests.integration.experiments.conftest import Target
from tests.integration.probe.conftest import sanitizing

Deployed = Callable[[str], DeployedContext]
MODELS = {"raw": "io-heavy-4mb", "memhandle": "io-heavy-4mb-by-memhandle"}
RIGHT = "memory=1,quick=1"

PAIRINGS = RAW_RAW, RAW_MEM, MEM_RAW, MEM_MEM = [Pairing(*names) for names in DOCUMENTED]
TOLERANCES = Tolerances()


@pytest.fixture(autouse=True)
def wide_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests run on the same cores and may make an execution ten times as slow.

    What is slow here is so by twice the tolerance.
    """
    monkeypatch.setattr(latency, "FLOOR_US", 20_000.0)
    monkeypatch.setattr(latency, "MOST_PART", 1000.0)


def measured(target: Target, deployed: Deployed, pairing: Pairing, settings: str) -> PairingFigures:
    context = deployed(MODELS[pairing.prepare])
    assert prepared_memory(context) == pairing.prepare
    run = target.run(pairing_plan(target.libraries, context, pairing.execute), settings=settings)
    verdict = judge(run)
    assert verdict.outcome == "passed", verdict.explanation()
    return pairing_figures(run.transcript, context.context.metadata, context.context.memory_bytes)


RIGHT_FIGURES: dict[Pairing, PairingFigures] = {}


def right(target: Target, deployed: Deployed, pairing: Pairing) -> PairingFigures:
    """Return the figures of a pairing as documented, measured once for all others."""
    if pairing not in RIGHT_FIGURES:
        RIGHT_FIGURES[pairing] = measured(target, deployed, pairing, RIGHT)
    return RIGHT_FIGURES[pairing]


def checked(target: Target, deployed: Deployed, pairing: Pairing, settings: str) -> list[Check]:
    figures = measured(target, deployed, pairing, settings)
    twin, base = (right(target, deployed, other) for other in (pairing.twin, RAW_RAW))
    return judge_pairing(pairing, figures, twin, base, TOLERANCES)


@pytest.mark.parametrize("pairing", PAIRINGS, ids=str)
def test_what_is_as_documented_holds(
    stand_in: Target, deployed: Deployed, pairing: Pairing
) -> None:
    checks = checked(stand_in, deployed, pairing, RIGHT)
    assert [check.verdict for check in checks] == ["held"] * 7, checks


@pytest.mark.parametrize(
    ("pairing", "wrong", "name"),
    [
        *((pairing, "at_load=wrong", "io_allocated_at_load") for pairing in PAIRINGS),
        *((pairing, "at_first=wrong", "io_allocated_at_first_inference") for pairing in PAIRINGS),
        *((pairing, "copies=wrong", "copies_per_inference") for pairing in PAIRINGS),
        pytest.param(RAW_MEM, "slow_us=40000", "steady_latency_same", marks=pytest.mark.slow),
        pytest.param(RAW_RAW, "leak=1", "io_given_back", marks=pytest.mark.slow),
        *((pairing, "grow_execute=500000", "io_settled_by_tenth") for pairing in PAIRINGS),
    ],
)
def test_one_wrong_behaviour_breaks_its_check_and_no_other(
    stand_in: Target, deployed: Deployed, pairing: Pairing, wrong: str, name: str
) -> None:
    checks = checked(stand_in, deployed, pairing, f"{RIGHT},{wrong}")
    assert [check.name for check in broken(checks)] == [name], checks


@pytest.mark.parametrize("pairing", [RAW_RAW, MEM_RAW], ids=str)
def test_what_a_late_thread_gives_back_is_not_lost(
    stand_in: Target, deployed: Deployed, pairing: Pairing
) -> None:
    assert not broken(checked(stand_in, deployed, pairing, f"{RIGHT},late_ms=300"))


@pytest.mark.parametrize("settings", [RIGHT, "memory=0"])
@pytest.mark.parametrize("pairing", PAIRINGS, ids=str)
def test_sanitizers_find_nothing_in_the_probe(
    stand_in: Target, builder: ProbeBuilder, deployed: Deployed, pairing: Pairing, settings: str
) -> None:
    sanitized = dataclasses.replace(
        stand_in,
        probe=sanitizing(builder).build(),
        # what the real libraries keep at their end is not the probe's
        environment=stand_in.environment | {"ASAN_OPTIONS": "exitcode=66:detect_leaks=0"},
    )
    plan = pairing_plan(stand_in.libraries, deployed(MODELS[pairing.prepare]), pairing.execute)
    completed = sanitized.run(plan, settings=settings)
    assert completed.transcript.done, completed.stderr.decode()
    assert completed.exit_code in (EXIT_DONE, EXIT_STEP_FAILED), completed.stderr.decode()
    assert b"runtime error" not in completed.stderr


@pytest.mark.parametrize("pairing", PAIRINGS, ids=str)
def test_the_simulator_itself(real: Target, deployed: Deployed, pairing: Pairing) -> None:
    context = deployed(MODELS[pairing.prepare])
    run = real.run(pairing_plan(real.libraries, context, pairing.execute))
    verdict = judge(run)
    if pairing.execute == "raw":
        assert verdict.outcome == "passed", verdict.explanation()
        figures = pairing_figures(
            run.transcript, context.context.metadata, context.context.memory_bytes
        )
        assert 15 <= len(figures.steady.times_us) <= 30
        assert not figures.samples.visible
        checks = judge_pairing(pairing, figures, None, figures, Tolerances())
        assert not broken(checks)
        unseen = {check.name for check in checks if check.verdict == "unseen"}
        assert {"io_allocated_at_load", "copies_per_inference"} <= unseen
        return
    assert verdict.outcome == "unsupported"
    assert verdict.error is not None
    assert (verdict.error.api, verdict.error.code) == ("QnnMem_register", 1000)
    assert "QnnMem API is not supported" in verdict.error.message
