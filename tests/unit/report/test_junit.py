"""junit.xml: how outcomes appear, properties, and that any record gives XML that can be read."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from junitparser import JUnitXml

from harness.diagnosis.diagnosis import diagnosed
from harness.probe.transcript import LoadedLibrary
from harness.report.junit import junit_parts, legal
from harness.results.coverage import NO_CAUSE, coverage_of
from harness.results.record import CaseRecord
from tests.integration.hostile_words import CANARY
from tests.unit.results.records import error, final_attempts, record

SCHEMA = xmlschema.XMLSchema10(Path(__file__).with_name("junit.xsd"))


def junit_bytes(records: Sequence[CaseRecord], *, run: str) -> bytes:
    return b"".join(junit_parts(final_attempts(records), coverage_of(records), run=run))


def test_a_problem_of_the_run_is_an_error() -> None:
    content = b"".join(junit_parts([], coverage_of([]), run="r", problem="not run: 1 test"))
    assert [error.get("message") for error in valid(content).iter("error")] == ["not run: 1 test"]


def valid(content: bytes) -> ElementTree.Element:
    """The document, which the schema takes, and without what Jenkins' own does not know."""
    root = ElementTree.fromstring(content)
    SCHEMA.validate(root)
    strict = ElementTree.fromstring(content)
    for case in strict.iter("testcase"):
        for part in case.findall("properties"):
            case.remove(part)
        for name in ("file", "line"):
            case.attrib.pop(name, None)
    SCHEMA.validate(strict)
    return root


def only_case(tested: CaseRecord) -> ElementTree.Element:
    root = valid(junit_bytes([tested], run="r"))
    (case,) = root.iter("testcase")
    return case


def properties(case: ElementTree.Element) -> dict[str, str]:
    return {item.attrib["name"]: item.attrib["value"] for item in case.iter("property")}


CODE = "QnnContext_createFromBinary 1002 QNN_COMMON_ERROR_MEM_ALLOC"


@pytest.mark.parametrize(
    ("outcome", "changed", "tag", "kind", "message"),
    [
        ("failed", {"error": error()}, "failure", "failed.target", CODE),
        ("crashed", {"error": error()}, "failure", "crashed.target", CODE),
        ("hung", {"error": error()}, "failure", "hung.target", CODE),
        ("error", {"error": error(), "cause": "infra"}, "error", "error.infra", CODE),
        ("unsupported", {"error": error()}, "skipped", "unsupported", CODE),
        ("skipped", {"error": error()}, "skipped", "skipped", CODE),
        ("failed", {"expected": {"known_issue": "pd"}}, "skipped", "pytest.xfail", "pd: "),
        ("skipped", {"measurements": {"skip_reason": "no DSP"}}, "skipped", "skipped", "no DSP"),
    ],
)
def test_outcomes(outcome: str, changed: dict[str, Any], tag: str, kind: str, message: str) -> None:
    bad = {} if outcome in NO_CAUSE else {"cause": "target"}
    case = only_case(record(outcome=outcome, **bad | changed))
    (result,) = (child for child in case if child.tag != "properties")
    assert (result.tag, result.get("type")) == (tag, kind)
    assert message in str(result.get("message"))


def test_a_pass_has_no_result() -> None:
    case = only_case(record())
    assert [child.tag for child in case] == ["properties"]
    assert case.get("classname") == "suites.test_context_count"
    assert case.get("name") == "test_contexts[66-resident]"


def test_measurements_become_properties() -> None:
    measured = {
        "loaded": 56,
        "load_us": [30, 10, 20],
        "mixed": [1, "a"],
        "rss_bytes": {"peak": 7, "by": {"x": None}},
    }
    hidden = LoadedLibrary(name="libQnnHtp.so", path="/vendor/libQnnHtp.so", hides="/ours/it.so")
    known = diagnosed("failed", error()).model_copy(update={"libraries": (hidden,)})
    case = only_case(record(outcome="failed", measurements=measured, error=known))
    assert (
        properties(case).items()
        >= {
            "measurements.loaded": "56",
            "measurements.load_us.count": "3",
            "measurements.load_us.min": "10",
            "measurements.load_us.median": "20",
            "measurements.load_us.max": "30",
            "measurements.mixed.count": "2",
            "measurements.rss_bytes.peak": "7",
            "measurements.rss_bytes.by.x": "",
            "axes.contexts": "66",
            "error.code": "1002",
            "error.hex": "0x3ea",
            "error.diagnosis.id": "pd-exhausted",
            "error.diagnosis.confidence": "known",
            "error.library.libQnnHtp.so": "/vendor/libQnnHtp.so hides /ours/it.so",
            "device.soc": "QCS8550",
            "cause": "target",
        }.items()
    )
    assert "measurements.mixed.min" not in properties(case)


def test_what_is_true_is_not_one_whatever_other_cases_measured() -> None:
    values = [True, 1, False, 0, 1.0]
    records = [
        record(case=f"a.py::{n}", measurements={"x": value}) for n, value in enumerate(values)
    ]
    root = valid(junit_bytes(records, run="r"))
    texts = [properties(case)["measurements.x"] for case in root.iter("testcase")]
    assert texts == ["true", "1", "false", "0", "1.0"]


def test_counts_and_the_last_attempt() -> None:
    records = [
        record(case="a", outcome="error", cause="infra"),
        record(case="a", attempt=2),
        record(case="b", outcome="failed", suite="other"),
    ]
    document = JUnitXml.fromstring(junit_bytes(records, run="r"))
    assert (document.tests, document.failures, document.errors) == (2, 1, 0)
    assert [suite.name for suite in document] == ["context_count", "other"]


def test_characters_that_xml_cannot_hold() -> None:
    assert legal("a\x00b\x1fc\ud800d\ufffee\tf\ng") == "abcde\tf\ng"
    case = only_case(record(case="x::y\x08", outcome="failed", error=error(message="\x1b[31m<&>")))
    assert case.get("name") == "y"
    assert "[31m<&>" in str(case.find("failure").text)  # type: ignore[union-attr]


def test_where_a_test_stands_and_what_it_left() -> None:
    tested = record(case="suites/test_a.py::Nice::test_b[x::y]", line=12, logs=("logs/x/a.jsonl",))
    case = only_case(tested)
    assert (case.get("file"), case.get("line")) == ("suites/test_a.py", "12")
    assert case.get("name") == "Nice::test_b[x::y]"
    assert properties(case)["log"] == "logs/x/a.jsonl"


def test_hostile_words_of_any_length_give_a_small_valid_document() -> None:
    message = f"<b>&{CANARY}\ud800" + "x" * 2_000_000
    case = record(
        case=f"{message}::{message}",
        suite=message,
        outcome="failed",
        error=error(message="m").model_copy(update={"message": message, "signature": message}),
        axes={message: message},
        measurements={str(n) + message[:2000]: message for n in range(50)},
        logs=tuple(f"logs/{n}" for n in range(5000)),
    )
    other = case.model_copy(update={"case": f"{case.case}y"})
    content = junit_bytes([case, other], run=message)
    assert len(content) < 1_000_000
    names = [case.get("name") for case in valid(content).iter("testcase")]
    assert len(set(names)) == 2
