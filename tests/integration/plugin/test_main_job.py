"""The main job on the simulated lab: the report of pytorch/executorch#14985, seen for real."""

import json
from xml.etree import ElementTree

import jsonschema
import pytest

from tests.integration.device_runs import ROOT, DeviceRuns, Finished

WORKLOAD = "io-heavy-56mb"
PAIR = f"(context_count and {WORKLOAD} and (resident or sequential) and 66) or test_limit"

# The budget of QNN 2.51.0's HTP simulator, found two ways: docs/explanation/concepts.md says how.
TRUE_BUDGET_BYTES = 3_650_722_201


@pytest.fixture(scope="module")
def newest(module_lab: DeviceRuns) -> Finished:
    return module_lab.run("-k", PAIR, "--qnn", "2.51.0")


@pytest.mark.slow
def test_it_ends_well_though_the_known_failure_happens(newest: Finished) -> None:
    assert newest.code == 0, newest.output
    assert "1 xfailed" in newest.output


def test_the_journal_tells_how_the_device_was_and_what_was_sent_to_it(newest: Finished) -> None:
    sizes = [push["pushed_bytes"] for push in newest.pushes]
    assert sum(sizes) > 50_000_000
    assert all("QNN" in push["detail"] or push["duration_s"] > 0 for push in newest.pushes)
    (first,) = (row for row in newest.journal if row.get("event") == "health")
    assert first["vitals"]["free_ram_bytes"] > 0
    assert newest.events == []


def test_66_resident_contexts_fail_for_want_of_a_protection_domain(newest: Finished) -> None:
    case = newest.case(contexts=66, residency="resident")
    assert case["outcome"] == "failed"
    assert case["cause"] == "target"
    assert case["expected"]["known_issue"]
    error = case["error"]
    assert error["code"] == 1002
    assert error["hex"] == "0x3ea"
    assert error["symbol"] == "QNN_COMMON_ERROR_MEM_ALLOC"
    assert error["api"] == "QnnContext_createFromBinary"
    assert "Failed to find available PD" in error["message"]
    assert 50 <= case["measurements"]["loaded"] <= 65
    assert error["context"] == case["measurements"]["loaded"]


def test_the_same_66_run_one_after_the_other(newest: Finished) -> None:
    case = newest.case(contexts=66, residency="sequential")
    assert case["outcome"] == "passed"
    measured = case["measurements"]
    assert measured["executed"] == measured["freed"] == 66
    assert measured["outputs"] == {"compared": 66, "max_abs": 0.0, "beyond_tolerance": 0}


def test_the_limit_is_bytes_and_within_one_percent_of_the_true_budget(newest: Finished) -> None:
    (case,) = (case for case in newest.cases if "test_limit" in case["case"])
    measured = case["measurements"]
    assert measured["limit_kind"] == "bytes"
    assert abs(measured["budget_bytes"] - TRUE_BUDGET_BYTES) < 0.01 * TRUE_BUDGET_BYTES
    assert measured["budget_uncertainty_bytes"] < 0.01 * TRUE_BUDGET_BYTES


def test_the_reports_agree_with_the_journal_and_its_schema(newest: Finished) -> None:
    folder = newest.folder / "latest"
    schema = json.loads((ROOT / "docs/schema/results.schema.json").read_text())
    for case in newest.cases:
        jsonschema.validate(case, schema)
        assert case["logs"]
        assert all((folder / log).is_file() for log in case["logs"])
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    assert len(suite.findall(".//testcase")) == len(newest.cases)
    assert "14985" in (folder / "report.html").read_text()
    assert json.loads((folder / "run.json").read_text())["exit_code"] == 0
