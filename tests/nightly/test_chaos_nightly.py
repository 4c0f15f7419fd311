"""Links disturbed at random, 2,000 times: no wrong verdict, nothing missing, nothing left."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.chaos import EXPECTED, run_many
from tests.faults.conftest import daemon_parameters
from tests.faults.table import REAL, SIMULATED, SSH

CASES = int(os.environ.get("QNN_CHAOS_CASES", "1000"))
AT_ONCE = 8

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("daemon", daemon_parameters((SIMULATED, REAL, SSH)))
def test_no_disturbance_makes_a_wrong_verdict(
    tmp_path: Path, daemon: str, show_figures: Callable[..., None]
) -> None:
    first = int(os.environ.get("QNN_CHAOS_FIRST") or random.SystemRandom().randrange(10**6))
    run = run_many(tmp_path / daemon, daemon, range(first, first + CASES), at_once=AT_ONCE)
    assert {kind: verdict[:2] for kind, verdict in run.truth.items()} == EXPECTED
    problems = run.problems()
    show_figures(f"{CASES} disturbed cases, {daemon}", seed=first, wrong=len(problems))
    assert not problems, "\n".join([f"QNN_CHAOS_FIRST={first}", *problems])
    outcomes = run.outcomes()
    show_figures("outcomes", **outcomes)
    assert outcomes["error"] <= CASES // 10, f"QNN_CHAOS_FIRST={first}: {outcomes}"
