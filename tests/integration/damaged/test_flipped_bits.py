"""400 context binaries with one flipped bit each, as cases of their own, on two devices at once.

Measured with QNN 2.51.0 on x86-64, twice the same, 100 s on two cores: 369 unnoticed and right, 3
wrong outputs with code 0, 24 refused, 3 ended by SIGSEGV, 1 endless loop. Of the 27 failures 23 are
diagnosed as a damaged binary, 3 as wrong outputs, 1 as a context without the graph; none as another
kind.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.results.journal import read_journal
from tests.integration.damaged.damaged_contexts import CASES, DAMAGED, TIMEOUT_S
from tests.integration.device_runs import DeviceRuns, Finished
from tests.processes import processes_of
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

HERE = Path(__file__).parent
LAB = """schema: 1
devices:
  - {name: sim-even, simulated: true, soc: QCS8550, target: linux-x64, tags: [even]}
  - {name: sim-odd, simulated: true, soc: QCS8550, target: linux-x64, tags: [odd]}
"""
DAMAGE = {
    "damaged-binary",
    "unreadable-context",
    "no-such-graph",
    "wrong-outputs",
    "tensor-mismatch",
}


@pytest.fixture(scope="module")
def finished(module_lab: DeviceRuns) -> Finished:
    module_lab.file.write_text(LAB)
    return module_lab.run("-n", "2", suites=HERE / "damaged_contexts.py")


def classified(case: dict[str, Any]) -> str:
    """Passed, wrong outputs, refused, crashed or hung; anything else is not classified."""
    error = case["error"]
    match case["outcome"]:
        case "passed":
            return "passed" if error is None else "unclassified"
        case "failed" if error["code"] == 0:
            return "wrong" if error["api"] == "QnnGraph_execute" else "unclassified"
        case "failed" if error["code"] or error["api"] == "QnnSystemContext_getMetadata":
            return "refused"
        case "crashed" | "hung" if error["step"] is not None and error["api"]:
            return str(case["outcome"])
    return "unclassified"


def test_every_outcome_is_classified(finished: Finished) -> None:
    counts = Counter(map(classified, finished.cases))
    assert counts["unclassified"] == 0, finished.output
    assert counts.total() == CASES
    assert counts["passed"] > CASES * 0.8
    assert counts["refused"] > 10
    assert finished.code == 1


def test_none_is_lost_and_the_journal_is_whole(finished: Finished) -> None:
    contents = read_journal(finished.folder / "latest/results.jsonl")
    assert contents.damage == ()
    assert {record.axes["seed"] for record in contents.records} == set(range(CASES))
    assert len(contents.records) == CASES
    assert {record.attempt for record in contents.records} == {1}
    on = Counter(record.device.name for record in contents.records if record.device)
    assert on == {"sim-even": CASES // 2, "sim-odd": CASES // 2}
    for name in ("junit.xml", "report.html", "run.json"):
        assert (finished.folder / "latest" / name).exists()
    assert "INTERNALERROR" not in finished.output


def test_the_device_is_fit_for_every_next_case(finished: Finished) -> None:
    # each case ran the whole binary first
    bad = [case for case in finished.cases if case["outcome"] != "passed"]
    assert {case["error"]["context"] for case in bad} == {DAMAGED}
    assert {case["cause"] for case in bad} == {"target"}
    assert finished.events == []


def test_a_crash_or_an_endless_loop_names_its_step(finished: Finished) -> None:
    bad = [case for case in finished.cases if case["outcome"] in ("crashed", "hung")]
    assert bad
    for case in bad:
        error = case["error"]
        assert f"in step {error['step']} ({error['api']}, context {DAMAGED})" in error["message"]
        assert case["duration_s"] < TIMEOUT_S + 10
        assert any(log.endswith("evidence.json") for log in case["logs"])


def test_damage_is_diagnosed_as_nothing_else(finished: Finished) -> None:
    failed = [case["error"] for case in finished.cases if case["outcome"] == "failed"]
    diagnoses = Counter(error["diagnosis"]["id"] for error in failed if error["diagnosis"])
    assert set(diagnoses) <= DAMAGE
    assert diagnoses["damaged-binary"] > 10


def test_no_process_is_left(finished: Finished) -> None:
    wait_for(lambda: not processes_of(finished.folder.parent), "nothing is left", 10)
