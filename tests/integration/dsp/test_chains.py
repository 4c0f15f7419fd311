"""Failures that are made with the real skel behind FastRPC: what is logged, what a case says."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.diagnosis.verdict import judge
from harness.dsp.dsp import DspPrograms
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import ContextFor
from tests.integration.dsp.chains import (
    HANGS,
    MADE,
    QNN,
    Chains,
    DspChain,
    chain_of,
    recorded,
)
from tests.unit.diagnosis.test_recorded_chains import expected_of_dsp

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]

# A case has errors alone; what tells this cause is logged as a warning.
CASE_SAYS = dict.fromkeys(
    (
        "no unsigned domain is given",
        "the skel is not there, and no unsigned domain is given",
    ),
    "fastrpc-denied possible",
)
BY_DAY = ("the domain dies as it executes", "the skel is another arch's", "no session is left")


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param(one, marks=[] if one.label in BY_DAY else pytest.mark.nightly, id=one.label)
        for one in recorded()
    ],
)
def test_what_is_logged_is_as_recorded_and_a_case_says_the_same(
    chain: DspChain,
    programs: DspPrograms,
    catalog: Catalog,
    context_for: ContextFor,
    tmp_path: Path,
) -> None:
    chains = Chains(programs, catalog, context_for("io-heavy-4mb", QNN))
    outcome = chains.run(MADE[chain.label], tmp_path / "board")
    made = chain_of(chain.label, outcome)
    # behind these the library's own threads recover, side by side
    assert (made.step, made.ended, made.lines[:3]) == (chain.step, chain.ended, chain.lines[:3])
    verdict = judge(outcome.run)
    assert verdict.outcome == ("hung" if chain.ended == HANGS else "failed")
    assert verdict.error is not None
    known = verdict.error.diagnosis
    diagnosis = f"{known.id} {known.confidence}" if known else None
    assert diagnosis == CASE_SAYS.get(chain.label, expected_of_dsp(chain.label))
