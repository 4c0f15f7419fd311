"""Text and JSON of comparisons, with any text in names and messages."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest
from jsonschema import Draft202012Validator

from harness.cli.schema import schemas
from harness.history.attempts import Attempt
from harness.history.comparison import Bisectable, compare
from harness.history.comparison_text import ComparisonView, lines, markdown, page, view_of
from harness.results.record import CaseRecord
from tests.integration.hostile_words import CANARY, steering
from tests.report_page import without_code
from tests.unit.history.runs import attempt, comparison_report, with_speed

HOSTILE = (
    f"{CANARY} <script>alert(1)</script> `x` ``` <!-- @everyone | [a](javascript:b) "
    "![i](http://x/y.png) \n# head\r\n\t</code> &amp; \ud7ff \U0001f600"
)
LONG = "x" * 1_000_000


def told_of(before: list[CaseRecord], after: list[CaseRecord]) -> ComparisonView:
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


def test_lines_begin_with_the_verdict_and_what_is_new() -> None:
    comparison = told_of(
        [attempt("a passed"), attempt("b passed"), attempt("c failed"), attempt("d passed")],
        [attempt("a failed id=x"), attempt("b failed id=x"), attempt("c failed")],
    )
    assert list(lines(comparison)) == [
        "Devices: failed",
        "3 of 3 cases have a verdict: 3 failed; 2 new, 1 vanished; 1 still failing, "
        "0 still passing.",
        "Run run beside base.",
        "With run: qnn 2.51.0; base: qnn 2.51.0.",
        "this limit of memory is the simulator's, one protection domain; a device has its own.",
        "Fails because of: new.",
        "New",
        "- 2 cases: failed (x): call 1002 it broke",
        "    do this",
        "    suites/test_a.py::test_b[sim-htp-2.51.0-a]",
        "    and 1 more",
        "Vanished",
        "- 1 case: not run",
        "    suites/test_a.py::test_b[sim-htp-2.51.0-d]",
        "Still failing",
        "- 1 case: failed: call 1002 it broke",
        "    suites/test_a.py::test_b[sim-htp-2.51.0-c]",
    ]


def test_beside_nothing_no_case_is_called_not_run() -> None:
    comparison = compare([], map(Attempt.of, [attempt("a passed"), attempt("b failed")]))
    first = view_of(comparison, ["new"], base=None, run="run")
    text = markdown(first)
    assert "Run `run`." in text
    assert ("not run" in text, "beside" in text, "Judged now" in text) == (False,) * 3
    assert "1 passed, 1 failed; the first run" in text
    assert "test_b[sim-htp-2.51.0-b]" in text


def test_beside_nothing_nothing_is_named() -> None:
    after = [Attempt.of(attempt(name)) for name in ("a failed", "b passed", "c error")]
    view = view_of(*(compare([], after), []), base=None, run="r")
    for text in ("\n".join(lines(view)), markdown(view), page(view), view.name):
        assert not re.search(r"\bNone\b", text), text
    assert "<title>Verdicts are missing: r</title>" in page(view)


def test_where_no_speed_was_measured_no_heading_says_so() -> None:
    bare = told_of([attempt("a passed")], [attempt("a passed")])
    told_one = with_speed(bare, [])
    assert isinstance(told_one, ComparisonView)
    assert told_one.speed is not None
    assert "Speed" not in markdown(told_one) + page(told_one)


def test_a_comment_has_what_is_new_first() -> None:
    text = markdown(told_of([attempt("a passed"), attempt("b failed")], [attempt("a failed")]))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == ["### Devices: failed", "#### New", "#### Vanished"]
    assert "- **1 case**: `failed: call 1002 it broke`\n  - `do this`\n" in text
    assert "Run `run` beside `base`." in text


def test_nothing_new_is_said_so() -> None:
    same = told_of([attempt("a passed")], [attempt("a passed")])
    assert list(lines(same)) == [
        "Devices: passed",
        "1 of 1 case has a verdict: 1 passed; no difference; 0 still failing, 1 still passing.",
        "Run run beside base.",
        "With run: qnn 2.51.0; base: qnn 2.51.0.",
    ]
    assert "### Devices: passed\n\n1 of 1 case has a verdict: 1 passed; no difference" in markdown(
        same
    )


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (
            [],
            ["a passed"],
            "1 of 1 case has a verdict: 1 passed; the base has no cases, "
            "1 judged now, not before; 0",
        ),
        (
            [],
            ["a failed", "b passed", "c failed", "d failed known=k"],
            "4 of 4 cases have a verdict: 1 passed, 2 failed, 1 expected; the base has no cases, "
            "4 judged now, not before (2 of them fail); 0",
        ),
        ([], ["a skipped"], "0 of 1 case has a verdict, 1 skipped; the base has no cases; 0"),
        (["a passed"], [], "no case was run; 1 vanished; 0"),
        (["a skipped"], [], "no case was run; no difference; 0"),
        ([], [], "no case was run; the base has no cases; 0"),
    ],
)
def test_a_run_without_cases_is_not_called_the_same(
    before: list[str], after: list[str], verdict: str
) -> None:
    comparison = told_of([*map(attempt, before)], [*map(attempt, after)])
    assert comparison.verdict.startswith(verdict)


def test_what_no_known_issue_expects_any_more_is_told_so() -> None:
    comparison = told_of(
        [attempt("a failed known=old-bug"), attempt("b passed"), attempt("c failed known=other")],
        [attempt("a failed"), attempt("b failed"), attempt("c failed known=other")],
    )
    assert "- 2 cases: failed: call 1002 it broke, expected until now by old-bug" in [
        *lines(comparison)
    ]
    assert ", `expected until now by old-bug`\n" in markdown(comparison)
    assert "<code>expected until now by old-bug</code>" in page(comparison)
    assert "by other" not in markdown(comparison)


def test_of_what_was_something_else_before_each_is_told_apart() -> None:
    comparison = told_of(
        [
            *(attempt(f"{name} failed message=one") for name in "ab"),
            *(attempt(f"{name} crashed message=other") for name in "cd"),
            attempt("e error cause=config"),
            attempt("f passed"),
        ],
        [attempt(f"{name} passed") for name in "abcdefg"],
    )
    text = markdown(comparison)
    assert text.count("**2 cases**: `passed`; before: ") == 2
    assert "- **1 case**: `passed`; before: `lost to a wrong test or input`" in text
    assert "- **1 case**: `passed`; before: `not run`" in text
    assert "no whole context binary" not in text
    told_lines = list(lines(comparison))
    assert any("- 2 cases: passed; before: call other" in line for line in told_lines), told_lines
    assert any("- 1 case: passed; before: lost to a wrong" in line for line in told_lines)
    assert "2 judged now, not before" in comparison.verdict
    assert (
        "in the base, 5 of 6 cases have a verdict, 1 lost to a wrong test or input"
        in comparison.verdict
    )


def test_what_is_missing_stands_first_and_is_no_pass() -> None:
    lost = [attempt("a passed"), attempt("b error cause=config")]
    comparison = told_of([attempt("a passed"), attempt("b passed")], lost)
    assert (comparison.mark, comparison.exit_code, comparison.is_good) == (
        "verdicts are missing",
        2,
        False,
    )
    assert comparison.verdict.startswith(
        "1 of 2 cases has a verdict, 1 lost to a wrong test or input: 1 passed; "
    )
    assert next(lines(comparison)) == "Devices: verdicts are missing"
    again = told_of(lost, lost)
    assert (again.mark, again.exit_code) == ("verdicts are missing", 2)
    assert "no other difference" in again.verdict
    worse = told_of([attempt("a passed"), attempt("b passed")], [attempt("a failed"), lost[1]])
    assert (worse.mark, worse.exit_code) == ("failed, verdicts are missing", 1)
    old = told_of([attempt("a failed")], [attempt("a failed")])
    assert (old.mark, old.exit_code) == ("nothing new fails", 0)
    none = told_of([attempt("a skipped")], [attempt("a skipped")])
    assert (none.mark, none.exit_code, none.is_good) == ("nothing was tested", 0, False)


def test_what_fails_as_before_is_told_once_and_whether_it_is_known() -> None:
    comparison = told_of(
        [attempt("a failed known=old-bug"), attempt("b failed"), attempt("c failed message=other")],
        [attempt("a failed known=old-bug"), attempt("b failed"), attempt("c failed")],
    )
    assert comparison.verdict == (
        "3 of 3 cases have a verdict: 2 failed, 1 expected; 1 fails otherwise; "
        "2 still failing (1 as known), "
        "0 still passing"
    )
    assert markdown(comparison).count("; before: `") == 1
    assert "; before: `call 1002 other`" in markdown(comparison)
    assert page(comparison).count("; before: <code>") == 1


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


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
    return told_of(before, named)


@pytest.mark.parametrize("text", [HOSTILE, LONG, LONG + HOSTILE], ids=["hostile", "long", "both"])
def test_words_stay_words(text: str) -> None:
    comparison = hostile(text)
    comment = markdown(comparison)
    assert len(comment) <= 65_536
    assert steering(comment.encode()) == []
    for line in comment.splitlines():
        assert not set(without_code(line)) & set("`<@|["), line
    whole = page(comparison)
    plain = page(told_of([attempt("a passed")], [attempt("a failed")]))
    assert tags(whole) == tags(plain), "no word became a tag"
    assert len(whole) < 100_000
    report = comparison_report(comparison, lambda *_: Bisectable())
    dumped = json.dumps(report.model_dump(mode="json"))
    assert len(json.loads(dumped)["new"]) == len(comparison.groups["new"][0].pairs) > 0


def tags(text: str) -> set[str]:
    parser = Tags()
    parser.feed(text)
    return parser.tags - {"p"}


def test_a_comment_of_very_many_failures_fits() -> None:
    before = [attempt(f"c{number} passed") for number in range(2000)]
    after = [
        attempt(f"c{number} failed message={'xy'[number % 2] * (number // 2 + 1)}")
        for number in range(2000)
    ]
    text = markdown(told_of(before, after))
    assert len(text) <= 65_536
    assert text.splitlines()[-1].endswith(" more")


def test_json_keeps_to_its_schema() -> None:
    comparison = told_of(
        [attempt("a passed"), attempt("b failed"), attempt("e skipped")],
        [attempt("a failed id=x known=k"), attempt("c passed"), attempt("d error")],
    )
    report = comparison_report(comparison, lambda *_: Bisectable(changed=("qnn",), hindrance="so"))
    told_as = report.model_dump(mode="json", by_alias=True)
    Draft202012Validator(json.loads(schemas()["compare.schema.json"])).validate(told_as)
    assert told_as["known"][0]["after"] == {
        "case": "suites/test_a.py::test_b[sim-htp-2.51.0-a]",
        "outcome": "failed",
        "signature": "call|1002|it broke",
        "diagnosis": "x",
        "known_issue": "k",
        "attempts": 1,
        "engine": "qnn",
        "versions": "qnn 2.51.0",
    }
    assert (told_as["vanished"][0]["after"], told_as["untested"]) == (None, 1)


@pytest.mark.parametrize(
    ("before", "after", "simulated", "expected"),
    [
        (attempt("a@2.47.0 passed"), attempt("a@2.51.0 failed"), True, "only simulators from 2.49"),
        (attempt("a@2.47.0 passed"), attempt("a@2.51.0 crashed"), True, "it ran on Qualcomm's"),
        (attempt("a@2.47.0 failed"), attempt("a@2.51.0 passed"), True, "only simulators from 2.49"),
        (attempt("a@2.47.0 passed"), attempt("a@2.51.0 failed"), False, None),
        (attempt("a passed"), attempt("a failed"), True, "this limit of memory is the simulator's"),
        (attempt("a passed"), attempt("a crashed"), True, None),
        (attempt("a@2.47.0 passed"), attempt("a@2.51.0 passed"), True, None),
    ],
)
def test_a_change_between_versions_of_a_simulator_is_told_as_that(
    before: CaseRecord, after: CaseRecord, simulated: bool, expected: str | None
) -> None:
    sides = (
        [dataclasses.replace(Attempt.of(record), simulated="linux-x64" if simulated else None)]
        for record in (before, after)
    )
    comparison = compare(*sides)
    whole = view_of(comparison, [], base="base", run="run")
    begin = expected or "no such line"
    assert any(line.startswith(begin) for line in lines(whole)) is (expected is not None)
    assert (begin in markdown(whole)) is (expected is not None)
