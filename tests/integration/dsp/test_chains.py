"""Failures of FastRPC, with a real skel or by a script: what is logged, and what a case says."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.diagnosis.verdict import judge
from harness.dsp.simulated_dsp import DspPrograms
from harness.probe.plan_runner import ProbeRun
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import ContextFor
from tests.integration.dsp.chains import (
    HANGS,
    MADE,
    QNN,
    SCRIPTED,
    WITH_SKEL,
    Chain,
    Chains,
    chain_of,
    recorded,
    scripted_chain_of,
)
from tests.unit.diagnosis.test_recorded_chains import expected_of_dsp, expected_of_fastrpc

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]

# A case has errors alone; what tells this cause is logged as a warning.
CASE_SAYS = dict.fromkeys(
    ("no unsigned domain is given", "the skel is not there, and no unsigned domain is given"),
    "fastrpc-denied possible",
)
BY_DAY = (
    "the domain dies as it executes",
    "the skel is another arch's",
    "no session is left",
    "the stub is not there",
    "open: AEE_EUNABLETOLOAD",
    "unsigned: AEE_EUNSUPPORTED",
    "crash in open",
)


def chains_of(file: Path) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "chain",
        [
            pytest.param(
                chain, marks=[] if chain.label in BY_DAY else pytest.mark.nightly, id=chain.label
            )
            for chain in recorded(file)
        ],
    )


def diagnosis_of(run: ProbeRun, outcome: str) -> str | None:
    verdict = judge(run)
    assert verdict.outcome == outcome
    assert verdict.error is not None
    known = verdict.error.diagnosis
    return f"{known.id} {known.confidence}" if known else None


@pytest.fixture
def chains(programs: DspPrograms, catalog: Catalog, context_for: ContextFor) -> Chains:
    return Chains(programs, catalog, context_for("io-heavy-4mb", QNN))


@chains_of(WITH_SKEL)
def test_what_is_logged_with_a_skel_is_as_recorded_and_a_case_says_the_same(
    chain: Chain, chains: Chains, tmp_path: Path
) -> None:
    outcome = chains.run(MADE[chain.label], tmp_path / "board")
    made = chain_of(chain.label, outcome)
    # behind these the library's own threads recover, side by side
    assert replace(made, lines=made.lines[:3]) == replace(chain, lines=chain.lines[:3])
    diagnosis = diagnosis_of(outcome.run, "hung" if chain.ended == HANGS else "failed")
    assert diagnosis == CASE_SAYS.get(chain.label, expected_of_dsp(chain.label))


@chains_of(SCRIPTED)
def test_what_is_logged_by_a_script_is_as_recorded_and_a_case_says_the_same(
    chain: Chain, chains: Chains, tmp_path: Path
) -> None:
    outcome = chains.run_script(chain.script_or_step, tmp_path / "board")
    assert scripted_chain_of(chain.label, chain.script_or_step, outcome) == chain
    diagnosis = diagnosis_of(outcome.run, "crashed" if int(chain.ended) < 0 else "failed")
    assert diagnosis == expected_of_fastrpc(chain.label)
