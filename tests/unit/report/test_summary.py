"""Summary in a terminal: groups by signature, bounded lines, and their words."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st
from markdown_it import MarkdownIt

from harness.core.outgoing_text import shortened
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ChainLink, Diagnosis, ErrorRecord
from harness.lab.health import DeviceEvent
from harness.report.document import as_code
from harness.report.summary import (
    event_lines,
    failure_groups,
    outputs_lines,
    preflight_lines,
    section,
    summary_lines,
    totals,
)
from harness.results.coverage import coverage_of
from harness.results.record import CaseRecord
from harness.runtimes.preflight_findings import Finding
from tests.snapshots import Snapshot
from tests.unit.results.records import error, final_attempts, record

EXPECTED = {"known_issue": "pd"}


def lines_of(records: Sequence[CaseRecord], report: str, **more: Any) -> list[str]:
    """Of a run that has these cases and no others."""
    return summary_lines(final_attempts(records), coverage_of(records), report, **more)


def failing(case: str, **more: Any) -> CaseRecord:
    return record(**({"case": case, "outcome": "failed"} | more))


def plain(message: str, **more: Any) -> ErrorRecord:
    """An error that has a message only."""
    return error(**({"api": None, "code": None, "symbol": None, "message": message} | more))


def lost(case: str, message: str, cause: str) -> CaseRecord:
    record_of_error = plain(message, symbol="device-lost")
    return failing(case, outcome="error", cause=cause, error=record_of_error)


def finding(code: str, explanation: str, severity: str = "error") -> Finding:
    fields = {"code": code, "severity": severity, "explanation": explanation, "fix": "f"}
    return Finding.model_validate(fields)


def test_the_lines_say_what_happened(snapshot: Snapshot) -> None:
    server = "no adb server at localhost:5037: refused"
    records = [
        record(case="a"),
        failing("b", expected=EXPECTED),
        failing("c", expected=EXPECTED),
        failing("d", outcome="crashed", error=error(code=None, message="SIGSEGV 0x1f")),
        failing("e", outcome="crashed", error=error(code=None, message="SIGSEGV 0x2e")),
        lost("f", f"x: {server}", "infra"),
        lost("g", f"y is not used: {server}; start it", "infra"),
        lost("h", "gone", "infra"),
        lost("i", "/here/one.bin: is none", "config"),
        lost("j", "/here/two.bin: is none", "config"),
        lost("k", "/here/two.bin: is none", "config"),
        record(
            case="l", outcome="unsupported", error=plain("no", api="QnnMem_register", code=1000)
        ),
    ]
    assert lines_of(records, "reports/x") == snapshot
    assert lines_of(records, "reports/x", brief=True) == snapshot


def test_lines_of_small_runs(snapshot: Snapshot) -> None:
    runs = [
        [],
        [failing("x", error=None)],
        [record(outcome="error", cause="infra"), record(attempt=2)],
        [record(case=name, attempt=2) for name in "ab"],
        [record(fixed={"known_issues": ("x",), "fails": True}), record(case="s/t.py::t[d]")],
        [record(case="x", outcome="unsupported"), record(case="y", outcome="skipped")],
    ]
    assert [line for records in runs for line in lines_of(records, "r")] == snapshot


def test_the_conclusions_of_cases(snapshot: Snapshot) -> None:
    cases = ["m.pte::test_contexts[a]", "m.pte::test_contexts[b]", "n.pte::test_contexts[a]"]
    alike = {"conclusion": "only its 3 contexts ran"}
    records = [record(case=f"own/{case}", measurements=alike) for case in cases]
    records.append(record(case="suites/t.py::t[x]", measurements={"conclusion": "a\n b\nc"}))
    assert lines_of(records, "r")[1:-1] == snapshot


def test_what_is_known_of_a_failure_stands_below_it_unless_it_was_expected() -> None:
    known = diagnosed("failed", error())
    failed = record(outcome="failed", error=known)
    lines = lines_of([failed], "r", width=400)[2:-1]
    assert [line.strip() for line in lines] == [*known.diagnosis.lines()]
    assert all(len(line) <= 60 for line in lines_of([failed], "r", width=60))
    expected = record(outcome="failed", error=known, expected={"known_issue": "x"})
    assert len(lines_of([expected], "r")) == 3
    assert len(lines_of([record(outcome="unsupported", error=known)], "r")) == 7
    above = {failed.case: "diagnosis: pd-exhausted (known)"}
    assert lines_of([failed], "r", above=above) == ["1 failure", "report: r"]
    assert len(lines_of([failed], "r", above={failed.case: "it failed"})) == 6
    assert len(lines_of([failed, failing("b", error=known)], "r", above=above)) == 3


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
    assert as_code("x" * 201) == f"`{'x' * 97} ... {'x' * 97}`"


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


def test_what_stands_behind_passed_is_told_where_it_is_no_reference(snapshot: Snapshot) -> None:
    def ran(*outputs: str | None, outcome: str = "passed") -> list[CaseRecord]:
        return [
            record(case=f"{outcome}{index}", outputs=options, outcome=outcome)
            for index, options in enumerate(outputs)
        ]

    assert outputs_lines(ran("reference", None)) == []
    assert outputs_lines(ran("unverified", outcome="failed")) == []
    (line,) = outputs_lines(ran("agreement"))
    assert lines_of(ran("agreement"), "r")[1] == line
    assert [line, *outputs_lines(ran("reference", "reference", "unverified"))] == snapshot


def test_forty_signatures_have_a_line_and_as_many_are_no_more() -> None:
    records = [
        failing(f"{n:02}", error=error(message=chr(65 + n % 26) * (n + 1))) for n in range(41)
    ]
    assert len(lines_of(records[:40], "r")) == 42
    assert lines_of(records, "r")[-2] == "... and 1 more signature"


def test_a_line_is_as_wide_as_it_may_be_and_keeps_the_end_of_a_case() -> None:
    long = failing("x" * 30 + "y" * 30, error=plain("m" * 99))
    line = lines_of([long], "r", width=60)[1]
    assert line.endswith(f"[first: {'x' * 7} ... {'y' * 7}]")
    assert 58 <= len(line) <= 60
    wide = failing("x", error=error(message="m" * 999))
    assert 298 <= len(lines_of([wide], "r")[1]) <= 300
    tab = failing("x", error=plain("a\tb \nc"))
    assert lines_of([tab], "r")[1] == "   1 x FAILED: a b   [first: x]"


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
    shown = plain("it broke\nmore").model_copy(update={"first_cause": link})
    line = lines_of([failing("a", error=shown)], "r")[1]
    assert line == f"   1 x FAILED: {message}  [first: a]"


def event(name: str, detail: str, device: str = "phone", **more: Any) -> DeviceEvent:
    fields = {"run": "r", "device": device, "started": "2026-11-20T10:00:00Z", "duration_s": 1.0}
    return DeviceEvent(event=name, detail=detail, **(fields | {"state": "bad"} | more))


def test_only_what_was_wrong_with_a_device_gets_a_line() -> None:
    well = event("health", "good", state="good")
    sent = event("push", "QNN", state="good", pushed_bytes=5)
    assert event_lines([well, sent]) == []
    assert len(event_lines([well, sent, event("reboot", "well again", state="good")])) == 1
    (line,) = event_lines([event("health", "x" * 99)], width=60)
    assert line.endswith(f" ... {'x' * 27}")


def test_devices_that_one_adb_server_lost_share_a_line(snapshot: Snapshot) -> None:
    problem, other = "no adb server at pc:5037: refused", "no adb server at pc:5038: refused"
    events = [
        event("health", f"bad: {problem}", "a"),
        event("quarantine", f"it does not answer: {problem}", "b"),
        event("health", f"bad: {other}", "c"),
        event("health", f"bad: {problem}", "b"),
        event("health", "bad: hot", "d"),
        event("health", "bad: hot", "e"),
    ]
    assert event_lines(events) == snapshot


def test_preflight_is_one_line_per_code_with_what_came_of_it(snapshot: Snapshot) -> None:
    foreseen = Diagnosis(id="x", confidence="known", words="as preflight warned, it is refused: w")
    mixes = (finding("mix", "x"), finding("mix", "y"), finding("mix", "z"))
    records = [
        failing("a", preflight=mixes),
        record(case="b", preflight=(finding("mix", "x"), finding("q", "quiet", "info"))),
        record(case="c", preflight=(finding("mix", "x"),)),
        record(case="d", preflight=(finding("soc-unknown", "three", "warning"),)),
        failing(
            "e",
            error=error().model_copy(update={"diagnosis": foreseen}),
            preflight=(finding("foreseen", "it is refused"),),
        ),
    ]
    assert preflight_lines(records) == snapshot
    (line,) = preflight_lines([record(preflight=(finding("mix", "x" * 999),))])
    assert line.endswith("x  [then: 1 passed]")
    assert 298 <= len(line) <= 300


FORESEEN = "as preflight warned, the runtime is {}.0: it is refused: the layout is another's"


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
