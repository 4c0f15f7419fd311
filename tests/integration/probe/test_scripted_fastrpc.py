"""The real arm64 libraries over FastRPC that fails as it is told: what they log, and what a case
then says.
"""

from __future__ import annotations

import pytest

from harness.diagnosis.verdict import judge
from tests.integration.conftest import RuntimeFor
from tests.integration.probe.scripted_fastrpc import Board, Chain, chain_of, recorded
from tests.unit.diagnosis.test_recorded_chains import expected_of_fastrpc

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]

BY_DAY = (
    "the stub is not there",
    "open: AEE_EUNABLETOLOAD",
    "unsigned: AEE_EUNSUPPORTED",
    "crash in open",
)


@pytest.fixture(scope="module")
def board(runtime_for: RuntimeFor, tmp_path_factory: pytest.TempPathFactory) -> Board:
    runtime = runtime_for("2.51.0", "linux-arm64")
    libraries = [file.path for file in runtime.files if file.path.name.startswith("libQnn")]
    return Board(libraries, tmp_path_factory.mktemp("scripted"))


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param(one, marks=[] if one.label in BY_DAY else pytest.mark.nightly, id=one.label)
        for one in recorded()
    ],
)
def test_what_is_logged_is_as_recorded_and_a_case_says_the_same(board: Board, chain: Chain) -> None:
    run = board.run(chain.script)
    assert chain_of(chain.label, chain.script, run) == chain
    verdict = judge(run)
    assert verdict.error is not None
    assert verdict.outcome == ("crashed" if chain.ended < 0 else "failed")
    known = verdict.error.diagnosis
    assert (f"{known.id} {known.confidence}" if known else None) == expected_of_fastrpc(chain.label)
