"""Links disturbed by day: a few cases, the same each time; by night there are always new ones."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.chaos import EXPECTED, Chaos, run_many
from tests.faults.conftest import daemon_parameters
from tests.faults.table import REAL, SIMULATED, SSH
from tests.integration.lab.ssh_host import SSHD

CASES = 12
AT_ONCE = 2  # six cases in each run: plans of all kinds
FIRST = int(os.environ.get("QNN_CHAOS_FIRST") or 2537)
"""The first seed; from this one on each way to disturb comes, at each kind of moment."""


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Chaos]:
    """The results of the cases on each daemon; all at once, since they mostly wait."""
    daemons = [SIMULATED]
    daemons += [REAL] * bool(os.environ.get("QNN_HARNESS_ADBD_ROOT"))
    daemons += [SSH] * bool(shutil.which(SSHD))
    folder = tmp_path_factory.mktemp("chaos")
    seeds = range(FIRST, FIRST + CASES)
    with ThreadPoolExecutor() as pool:
        runs = pool.map(
            lambda daemon: run_many(folder / daemon, daemon, seeds, at_once=AT_ONCE), daemons
        )
        return dict(zip(daemons, runs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("daemon", daemon_parameters((SIMULATED, REAL, SSH)))
def test_no_disturbance_makes_a_wrong_verdict(chaos: dict[str, Chaos], daemon: str) -> None:
    run = chaos[daemon]
    assert {kind: verdict[:2] for kind, verdict in run.truth.items()} == EXPECTED
    problems = run.problems()
    assert not problems, "\n".join([f"QNN_CHAOS_FIRST={FIRST}", *problems])
    # each case is disturbed once and tried up to three times: hardly any ends without a verdict
    assert run.outcomes()["error"] <= CASES // 4, f"QNN_CHAOS_FIRST={FIRST}: {run.outcomes()}"
