"""Text and JSON of comparisons, with any text in names and messages."""

import dataclasses
import json
import re

import pytest
from jsonschema import Draft202012Validator

from harness.cli.schema import schemas
from harness.history.attempts import Attempt
from harness.history.comparison import Bisectable, compare
from harness.history.comparison_text import (
    ComparisonView,
    lines,
    markdown,
    page,
    report_of,
    view_of,
)
from harness.results.record import CaseRecord
from tests.integration.hostile_words import CANARY, steering
from tests.report_page import Page, without_code
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, with_speed

HOSTILE = (
    f"{CANARY} <script>alert(1)</script> `x` ``` <!-- @everyone | [a](javascript:b) "
    "![i](http://x/y.png) \n# head\r\n\t</code> &amp; \ud7ff \U0001f600"
)
LONG = "x" * 1_000_000


def view_of_records(before: list[CaseRecord], after: list[CaseRecord]) -> ComparisonView:
    comparison = compare(map(Attempt.of, before), map(Attempt.of, after))
    return view_of(
        comparison,
        ["new"] if comparison["new"] else [],
        base="base",
        run="run",
        bisectable=lambda category, _: Bisectable(
            bisect=("do", "this") if category == "new" else None
        ),
    )


def compared(before: str, after: str) -> ComparisonView:
    """Attempts divided by semicolons."""
    sides = ([attempt(words) for words in side.split(";") if words] for side in (before, after))
    return view_of_records(*sides)


MANY = (
    "a passed;b passed;c failed;d passed;k failed known=old-bug;e failed message=one;f failed;"
    "g crashed message=other;h error cause=config",
    "a failed id=x;b failed id=x;c failed;k failed;e failed;f passed;g passed;h passed;i passed;"
    "j error cause=config",
)


def test_a_comparison_in_a_terminal_and_as_a_comment(snapshot: Snapshot) -> None:
    whole = compared(*MANY)
    assert list(lines(whole)) == snapshot
    assert "old-bug" in page(whole)
    before = "a passed;b failed;c failed known=old-bug"
    assert markdown(compared(before, "a failed;c failed")) == snapshot


def test_a_group_shows_the_message_of_its_first_case() -> None:
    view = compared("a passed;b passed", "a failed message=float32;b failed message=float16")
    assert [line for line in lines(view) if "float" in line] == [
        "- 2 cases: failed: call 1002 QNN_COMMON_ERROR_MEM_ALLOC: float32"
    ]
    again = compared("a failed message=n1;b failed message=n2", "a crashed;b crashed")
    assert "before: call 1002 QNN_COMMON_ERROR_MEM_ALLOC: n1" in "\n".join(lines(again))
    assert len(again.groups["changed"]) == 1


def test_beside_nothing_nothing_is_named(snapshot: Snapshot) -> None:
    after = [Attempt.of(attempt(name)) for name in ("a failed", "b passed", "c error")]
    view = view_of(*(compare([], after), []), base=None, run="r")
    for text in ("\n".join(lines(view)), markdown(view), page(view), view.name):
        assert not re.search(r"\bNone\b", text), text
    assert list(lines(view)) == snapshot


def test_where_no_speed_was_measured_no_heading_says_so() -> None:
    view = with_speed(compared("a passed", "a passed"), [])
    assert view.speed is not None
    assert "Speed" not in markdown(view) + page(view)


def test_verdicts(snapshot: Snapshot) -> None:
    sides = [
        ("a passed", "a passed"),
        ("", "a passed"),
        ("", "a failed;b passed;c failed;d failed known=k"),
        ("", "a skipped"),
        ("a passed", ""),
        ("a skipped", ""),
        ("", ""),
        (
            "a failed known=old-bug;b failed;c failed message=other",
            "a failed known=old-bug;b failed;c failed",
        ),
    ]
    assert [compared(*side).verdict for side in sides] == snapshot


@pytest.mark.parametrize(
    ("before", "after", "exit_code", "is_good"),
    [
        ("a passed;b passed", "a passed;b error cause=config", 2, False),
        ("a passed;b error cause=config", "a passed;b error cause=config", 2, False),
        ("a passed;b passed", "a failed;b error cause=config", 1, False),
        ("a failed", "a failed", 0, True),
        ("a skipped", "a skipped", 0, False),
    ],
)
def test_what_is_missing_stands_first_and_is_no_pass(
    before: str, after: str, exit_code: int, is_good: bool, snapshot: Snapshot
) -> None:
    view = compared(before, after)
    assert (view.exit_code, view.is_good) == (exit_code, is_good)
    assert next(lines(view)).endswith(view.mark)
    assert f"{view.mark}: {view.verdict}" == snapshot


def hostile(text: str) -> ComparisonView:
    """The same words as name, axis, message and diagnosis."""
    before_words = ("a passed", "b failed", "c passed", "d passed n=2")
    before, after = (
        [
            attempt(word, file=f"{text}.py").model_copy(update={"axes": {text: text}})
            for word in (before_words if side else ("a failed", "b crashed", "d failed"))
        ]
        for side in (1, 0)
    )
    named = [
        record.model_copy(update={"error": record.error.model_copy(update={"signature": text})})
        if record.error
        else record
        for record in after
    ]
    return view_of_records(before, named)


@pytest.mark.parametrize("text", [HOSTILE, LONG, LONG + HOSTILE], ids=["hostile", "long", "both"])
def test_words_stay_words(text: str) -> None:
    comparison = hostile(text)
    comment = markdown(comparison)
    assert len(comment) <= 65_536
    assert steering(comment.encode()) == []
    for line in comment.splitlines():
        assert not set(without_code(line)) & set("`<@|["), line
    whole = page(comparison)
    plain = page(compared("a passed", "a failed"))
    assert {*Page(whole).tags} - {"p"} == {*Page(plain).tags} - {"p"}, "no word became a tag"
    assert len(whole) < 100_000
    report = report_of(comparison, lambda *_: Bisectable())
    dumped = json.dumps(report.model_dump(mode="json"))
    assert len(json.loads(dumped)["new"]) == len(comparison.groups["new"][0].pairs) > 0


def test_a_comment_of_very_many_failures_fits() -> None:
    before = [attempt(f"c{number} passed") for number in range(2000)]
    after = [
        attempt(f"c{number} failed message={'xy'[number % 2] * (number // 2 + 1)}")
        for number in range(2000)
    ]
    text = markdown(view_of_records(before, after))
    assert len(text) <= 65_536
    assert text.splitlines()[-1].endswith(" more")


def test_json_keeps_to_its_schema() -> None:
    comparison = compared("a passed;b failed;e skipped", "a failed id=x known=k;c passed;d error")
    report = report_of(comparison, lambda *_: Bisectable(changed=("qnn",), hindrance="so"))
    document = report.model_dump(mode="json", by_alias=True)
    Draft202012Validator(json.loads(schemas()["compare.schema.json"])).validate(document)
    assert document["known"][0]["after"] == {
        "case": "suites/test_a.py::test_b[sim-htp-2.51.0-a]",
        "outcome": "failed",
        "signature": "call|1002|it broke",
        "diagnosis": "x",
        "known_issue": "k",
        "attempts": 1,
        "engine": "qnn",
        "versions": "qnn 2.51.0",
    }
    assert (document["vanished"][0]["after"], document["untested"]) == (None, 1)


LIMITS = "simulators have", "it ran on Qualcomm's", "this memory limit"


@pytest.mark.parametrize(
    ("before", "after", "simulated", "expected"),
    [
        ("a@2.47.0 passed", "a@2.51.0 failed", True, LIMITS[0]),
        ("a@2.47.0 passed", "a@2.51.0 crashed", True, LIMITS[1]),
        ("a@2.47.0 failed", "a@2.51.0 passed", True, LIMITS[0]),
        ("a@2.47.0 passed", "a@2.51.0 failed", False, None),
        ("a passed", "a failed", True, LIMITS[2]),
        ("a passed", "a crashed", True, None),
        ("a@2.47.0 passed", "a@2.51.0 passed", True, None),
    ],
)
def test_a_change_between_versions_of_a_simulator_is_told_as_that(
    before: str, after: str, simulated: bool, expected: str | None
) -> None:
    target = "linux-x64" if simulated else None
    sides = (
        [dataclasses.replace(Attempt.of(attempt(words)), simulated=target)]
        for words in (before, after)
    )
    whole = view_of(compare(*sides), [], base="base", run="run")
    for limit in LIMITS:
        assert any(line.startswith(limit) for line in lines(whole)) is (limit == expected)
        assert (limit in markdown(whole)) is (limit == expected)
