"""The words of a summary, and the ends of its lines."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st
from markdown_it import MarkdownIt

from harness.diagnosis.error import ChainLink, Diagnosis
from harness.report.document import as_code, shortened
from harness.report.summary import (
    cut_short,
    event_lines,
    failure_groups,
    outputs_lines,
    part_of,
    preflight_lines,
    section,
    totals,
)
from harness.results.record import CaseRecord, DeviceEvent, PreflightRecord
from tests.unit.report.test_summary import EXPECTED, lines_of
from tests.unit.results.records import error, record


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("abcdefghijk", 11, "abcdefghijk"),
        ("abcdefghijkl", 11, "abc ... jkl"),
        ("abcdefghijklm", 12, "abc ... klm"),
        ("", 11, ""),
    ],
)
def test_of_what_is_too_long_both_ends_are_shown(text: str, most: int, expected: str) -> None:
    assert shortened(text, most) == expected


def test_code_is_one_line_without_an_end_of_its_own() -> None:
    assert as_code("a `b`\n c ```d") == "`` a `b` c `d ``"
    assert as_code("") == "` `"
    assert as_code("x" * 200) == f"`{'x' * 200}`"
    assert as_code("x" * 201) == f"`{'x' * 97} ... {'x' * 97}`"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({}, None),
        ({"finished": "2026"}, None),
        ({"finished": None}, "it was ended before it could say why"),
        ({"finished": None, "problem": 7}, "7"),
        ({"finished": "2026", "problem": None}, None),
    ],
)
def test_why_a_run_may_lack_cases(info: dict[str, Any], why: str | None) -> None:
    assert cut_short(info) == why


def failing(case: str, **more: Any) -> CaseRecord:
    return record(**({"case": case, "outcome": "failed"} | more))


def test_what_fails_comes_first_and_of_it_what_is_most_frequent() -> None:
    other = error(message="another")
    records = [
        failing("a", outcome="unsupported", cause=None, error=error()),
        failing("b", outcome="unsupported", cause=None, error=None),
        failing("c", expected=EXPECTED),
        failing("d", outcome="error", cause="infra"),
        failing("e", error=other),
        failing("f"),
        failing("g"),
        failing("h", outcome="crashed"),
        record(case="i"),
        record(case="j", error=error()),
        failing("k", outcome="skipped", cause=None, error=error()),
        failing("l", outcome="error", cause="config", error=None),
    ]
    text = ["".join(group.cases) for group in failure_groups(records)]
    assert text == ["fg", "e", "h", "d", "l", "c", "a"]
    sections = [section(group.first) for group in failure_groups(records)]
    assert sections == ["failing"] * 3 + ["lab", "lab", "expected", "unsupported"]
    assert totals(records) == {
        "passed": 2,
        "failed": 3,
        "crashed": 1,
        "unsupported": 2,
        "skipped": 1,
        "error": 2,
        "expected": 1,
    }


def test_a_part_is_an_object_or_empty() -> None:
    case = record(measurements={"gate": {"a": 1}, "list": [1]})
    assert (part_of(case, "gate"), part_of(case, "list"), part_of(case, "none")) == (
        {"a": 1},
        {},
        {},
    )


def test_what_stands_behind_passed_is_told_where_it_is_no_reference() -> None:
    def ran(*outputs: str | None, outcome: str = "passed") -> list[CaseRecord]:
        return [
            record(case=f"{outcome}{index}", outputs=options, outcome=outcome)
            for index, options in enumerate(outputs)
        ]

    assert outputs_lines(ran("reference", None)) == []
    assert outputs_lines(ran("unverified", outcome="failed")) == []
    assert outputs_lines(ran("reference", "reference", "unverified")) == [
        "outputs of what passed: 2 as expected, 1 not verified"
    ]
    (line,) = outputs_lines(ran("agreement"))
    assert lines_of(ran("agreement"), "r")[1] == line
    assert line == "outputs of what passed: 1 the same each time, not compared with a reference"


def test_forty_signatures_have_a_line_and_as_many_are_no_more() -> None:
    records = [
        failing(f"{n:02}", error=error(message=chr(65 + n % 26) * (n + 1))) for n in range(41)
    ]
    assert not [record for record in lines_of(records[:40], "r") if "more signatures" in record]
    assert lines_of(records, "r")[-2] == "... and 1 more signature"


def test_retries_of_several_cases_are_counted() -> None:
    records = [record(case=name, attempt=2) for name in "ab"]
    assert lines_of(records, "r")[1:] == ["2 cases were tried more than once", "report: r"]


def test_a_line_is_as_wide_as_it_may_be_and_keeps_the_end_of_a_case() -> None:
    long = failing(
        "x" * 30 + "y" * 30, error=error(api=None, code=None, symbol=None, message="m" * 99)
    )
    line = lines_of([long], "r", width=60)[1]
    assert line == f"   1 x FAILED: {'m' * 11}...  [first: ...{'y' * 17}]"
    assert len(line) == 60
    short = failing("x" * 20, error=error(api=None, code=None, symbol=None, message="m" * 14))
    assert lines_of([short], "r", width=60)[1] == (
        f"   1 x FAILED: {'m' * 14}  [first: {'x' * 20}]"
    )
    wide = failing("x", error=error(message="m" * 999))
    assert len(lines_of([wide], "r")[1]) == 300
    tab = failing("x", error=error(api=None, code=None, symbol=None, message="a\tb \nc"))
    assert lines_of([tab], "r")[1] == "   1 x FAILED: a b   [first: x]"


@pytest.mark.parametrize(
    ("thread", "is_told"), [("o/r#12345678901234567", True), ("t" * 26, True), ("t" * 27, False)]
)
def test_a_thread_stays_if_it_takes_half_of_a_line_at_most(thread: str, is_told: bool) -> None:
    known = Diagnosis(id="x", confidence="known", words="w" * 90, thread=thread)
    record_of_error = error().model_copy(update={"diagnosis": known})
    line = lines_of([failing("a", error=record_of_error)], "r", width=60)[2]
    assert len(line) == 60
    assert line.endswith(f"...  [{thread}]" if is_told else "...")
    assert line.startswith("       x")


@given(st.text("`'<@[](!_*\\| a\n"))
def test_code_is_what_was_said_to_whoever_reads_markdown(text: str) -> None:
    (line,) = MarkdownIt().parseInline(f"- {as_code(text)}")
    before, *rest = line.children or []
    assert (before.content, [token.type for token in rest]) == ("- ", ["code_inline"])
    assert rest[0].content.strip() == re.sub("`+", "`", " ".join(text.split()))


@given(st.lists(st.text("ab[]'\" -:./$", min_size=1), min_size=1, max_size=4))
def test_a_command_that_a_message_names_stays_as_it_is(words: list[str]) -> None:
    command = shlex.join(words)
    assume(" ".join(command.split()) == command)
    text = as_code(f"not found; `{command}` looks for it", 500)
    assert shlex.split(re.split("(?<!`)`(?!`)", text)[1]) == words


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (None, "it broke"),
        (ChainLink(message="", source="log"), "it broke"),
        (ChainLink(message="it broke", source="log"), "it broke"),
        (ChainLink(message="before", source="call"), "it broke"),
        (ChainLink(message="before\nmore", source="log"), "before -> it broke"),
    ],
)
def test_a_first_cause_is_told_where_it_says_more(link: ChainLink | None, message: str) -> None:
    shown = error(api=None, code=None, symbol=None, message="it broke\nmore")
    shown = shown.model_copy(update={"first_cause": link})
    line = lines_of([failing("a", error=shown)], "r")[1]
    assert line == f"   1 x FAILED: {message}  [first: a]"


def event(name: str, detail: str, device: str = "phone") -> DeviceEvent:
    fields = {"run": "r", "device": device, "started": "2026-11-20T10:00:00Z", "duration_s": 1.0}
    return DeviceEvent(event=name, state="bad", detail=detail, **fields)


def test_steps_of_a_device_are_counted_in_one_line() -> None:
    events = [event("reboot", "a"), event("health", "b"), event("reboot", "c")]
    assert event_lines(events) == ["device phone: reboot x 2, health; at the end c"]
    (line,) = event_lines([event("health", "x" * 99)], width=60)
    assert line == f"device phone: health; at the end {'x' * 24}..."


def test_devices_that_one_adb_server_lost_share_a_line() -> None:
    problem, other = "no adb server at pc:5037: refused", "no adb server at pc:5038: refused"
    events = [
        event("health", f"bad: {problem}", "a"),
        event("quarantine", f"it does not answer: {problem}", "b"),
        event("health", f"bad: {other}", "c"),
        event("health", f"bad: {problem}", "b"),
        event("health", "bad: hot", "d"),
        event("health", "bad: hot", "e"),
    ]
    assert event_lines(events) == [
        f"devices a, b: health x 2, quarantine; at the end bad: {problem}",
        f"device c: health; at the end bad: {other}",
        "device d: health; at the end bad: hot",
        "device e: health; at the end bad: hot",
    ]


def test_preflight_counts_a_case_once_and_says_how_many_more_there_are() -> None:
    def finding(words: str) -> PreflightRecord:
        return PreflightRecord(code="mix", severity="error", explanation=words, fix="f")

    records = [
        record(case="a", outcome="failed", preflight=(finding("x"), finding("y"), finding("z"))),
        record(case="b", preflight=(finding("x"),)),
        record(case="c", preflight=(finding("x"),)),
    ]
    assert preflight_lines(records) == [
        "preflight error mix: x (and 2 more like it)  [then: 2 passed, 1 failed]"
    ]
    assert preflight_lines(records[1:]) == ["preflight error mix: x  [then: 2 passed]"]
    (line,) = preflight_lines([record(preflight=(finding("x" * 99),))], width=60)
    assert line == f"preflight error mix: {'x' * 18}...  [then: 1 passed]"


FORESEEN = "as foreseen, the runtime is {}.0: it is refused: the layout is another's"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a: b", "a: b"], "a: b"),
        (
            [FORESEEN.format("2.47"), FORESEEN.format("2.51")],
            "it is refused: the layout is another's",
        ),
        (["of one", "of the other kind"], "of the first: of one"),
        ([], None),
    ],
)
def test_what_a_diagnosis_says_of_one_case_is_not_said_of_all(
    words: list[str], message: str | None
) -> None:
    diagnoses = [Diagnosis(id="x", confidence="known", words=word) for word in words]
    cases = [
        failing("a", error=error().model_copy(update={"diagnosis": entry})) for entry in diagnoses
    ]
    (group,) = failure_groups([*cases, failing("b")])
    assert (group.diagnosis and group.diagnosis.words) == message


def test_what_preflight_foresaw_is_not_said_once_more_behind_the_failure() -> None:
    known = Diagnosis(id="x", confidence="known", words="as foreseen, it is refused: w")
    finding = PreflightRecord(code="mix", severity="error", explanation="it is refused", fix="f")
    case = failing("a", error=error().model_copy(update={"diagnosis": known}), preflight=(finding,))
    (line,) = preflight_lines([case])
    assert line == "preflight error mix: it came true, as the failure says  [then: 1 failed]"
