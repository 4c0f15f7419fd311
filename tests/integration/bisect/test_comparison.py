"""From a comparison of two runs to the bisection that it advises."""

import json
import sys

import pytest

from harness.bisect.new_failures import NewFailure
from harness.core.versions import QNN_WHEELS
from harness.history.attempts import Attempt
from harness.history.comparison import compare
from harness.results.record import CaseRecord
from tests.integration.device_runs import DeviceRuns
from tests.integration.forked import run_module
from tests.unit.bisect.scripted_runs import record
from tests.unit.results.placed import placed

QNN = list(QNN_WHEELS)
SUITE = """import pytest

@pytest.mark.device(backend="htp")
def test_mine(bench):
    pass
"""


def call(lab: DeviceRuns, *words: object) -> tuple[int, str]:
    arguments = [*map(str, words), "--lab", str(lab.file)]
    completed = run_module(arguments, lab.folder, lab.environment, 400)
    sys.stderr.write(completed.stderr)
    return completed.returncode, completed.stdout


def at_placement(record: CaseRecord, placement: str) -> CaseRecord:
    """Return the record under the name of another placement."""
    case = f"test_mine.py::test_mine[{placement}]"
    test, place = placed(case)
    names = {"case": case, "test": test, "placement": place, "axes": {}}
    return CaseRecord.model_validate(record.model_dump(mode="json") | names)


@pytest.mark.parametrize("old", ["2.47.0", "2.47.0-ort-1.27.0-by-2.47.0"])
def test_what_a_comparison_says_to_run_can_be_run(lab: DeviceRuns, old: str) -> None:
    (lab.folder / "test_mine.py").write_text(SUITE)
    new = old.replace("2.47.0", QNN[-1], 1).replace("1.27.0", "1.31.1").replace("2.47.0", QNN[1])
    before, after = (
        at_placement(record(outcome, device="sim-v73"), f"sim-v73-htp-{versions}")
        for versions, outcome in ((old, "passed"), (new, "failed"))
    )
    (pair,) = compare([Attempt.of(before)], [Attempt.of(after)])["new"]
    command = NewFailure.of(pair).command(str(lab.file), str(lab.reports))
    limit = ("--timeout", "0s")
    code, output = call(lab, "harness.cli.main", *command, *limit, "--json")
    document = json.loads(output)
    assert code == 3, output
    log = lab.folder / document["folder"] / "log.jsonl"
    spec = json.loads(log.read_text().splitlines()[0])["spec"]
    search = spec["search"]
    axes = ["qnn", "ort"] if "ort" in old else ["qnn"]
    assert (search["axes"] if "ort" in old else [search["axis"]]) == axes
    assert (search["candidates"][0] if "ort" in old else search["candidates"]) == QNN
    if "-by-" in old:
        assert spec["held"]["compiler"] == QNN[0]
