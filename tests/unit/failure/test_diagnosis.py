"""Diagnoses: what each known failure is recognised as, and that no rule of the table is idle.

The mutation checks take the table apart: without any one rule, sign or condition, and with any two
rules that compete in the wrong order, a row must get another diagnosis.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.failure.chain import BENIGN
from harness.failure.diagnosis import EARLIER, decide, diagnosed, is_unrelated, symptoms_of
from harness.failure.error import ErrorRecord
from harness.failure.rules import RULES, Rule, Sign, Symptoms
from harness.failure.verdict import judge
from harness.qnn.codes import RANGE_ENDS, describe
from tests.unit.failure import failure_rows
from tests.unit.failure.failure_rows import EXECUTE, LOAD, NO_PD, PRECEDENCE, ROWS, Row
from tests.unit.failure.probe_runs import DONE, START, begin, end, log, run

ROOT = Path(__file__).parents[3]
IDS = [rule.diagnosis.id for rule in RULES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.expected}-{row.api}-{row.code}")
def test_what_a_failure_is_recognised_as(row: Row) -> None:
    assert row.diagnosis() == row.expected


def changed(rules: tuple[Rule, ...]) -> bool:
    """Whether another table judges any row otherwise."""
    return any(row.diagnosis(rules) != row.expected for row in ROWS)


@pytest.mark.parametrize("index", range(len(RULES)), ids=IDS)
def test_without_a_rule_a_row_fails(index: int) -> None:
    assert changed(RULES[:index] + RULES[index + 1 :])


SIGNS = [(index, place) for index, rule in enumerate(RULES) for place, _ in enumerate(rule.signs)]
CONDITIONS = [
    (index, place, field.name)
    for index, place in SIGNS
    for field in fields(Sign)
    if getattr(RULES[index].signs[place], field.name)
]


def with_sign(index: int, place: int, *signs: Sign) -> tuple[Rule, ...]:
    rule = RULES[index]
    kept = (*rule.signs[:place], *signs, *rule.signs[place + 1 :])
    return (*RULES[:index], replace(rule, signs=kept), *RULES[index + 1 :])


@pytest.mark.parametrize(("index", "place"), SIGNS, ids=[f"{IDS[i]}-{p}" for i, p in SIGNS])
def test_without_a_sign_a_row_fails(index: int, place: int) -> None:
    assert changed(with_sign(index, place))


@pytest.mark.parametrize(
    ("index", "place", "condition"), CONDITIONS, ids=[f"{IDS[i]}-{p}-{c}" for i, p, c in CONDITIONS]
)
def test_without_a_condition_a_row_fails(index: int, place: int, condition: str) -> None:
    sign = RULES[index].signs[place]
    empty = replace(sign, **{condition: type(getattr(sign, condition))()})
    assert changed(with_sign(index, place, empty))


@pytest.mark.parametrize(
    ("front", "behind", "row"), PRECEDENCE, ids=[f"{a}-before-{b}" for a, b, _ in PRECEDENCE]
)
def test_the_order_of_two_rules_decides(front: str, behind: str, row: Row) -> None:
    first, second = IDS.index(front), IDS.index(behind)
    assert first < second
    assert row.expected == front == row.diagnosis()
    swapped = list(RULES)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    assert row.diagnosis(tuple(swapped)) == behind


def test_every_pair_that_competes_for_a_row_has_its_order_tested() -> None:
    competing = set()
    for row in (*ROWS, *(row for _, _, row in PRECEDENCE)):
        verdict = judge(row.probe_run())
        assert verdict.error is not None
        symptoms = symptoms_of(verdict.outcome, verdict.error, row.evidence)
        fitting = [rule.diagnosis.id for rule in RULES if rule.fits(symptoms)]
        # only the first of them decides
        competing |= {pair for pair in combinations(fitting, 2) if pair[0] == fitting[0]}
    assert competing - {(front, behind) for front, behind, _ in PRECEDENCE} == set()


def test_rules_have_names_of_their_own_and_say_something() -> None:
    assert len(set(IDS)) == len(IDS)
    for rule in RULES:
        known = rule.diagnosis
        assert known.words
        assert known.fix
        assert rule.signs
        assert all(sign != Sign() for sign in rule.signs)
        assert known.thread is None or known.thread.startswith("https://github.com/")


def test_a_sign_without_conditions_fits_nothing() -> None:
    assert not Sign().fits(Symptoms("failed", LOAD, (1002,), ("x",), ("x",)))


@pytest.mark.parametrize("code", RANGE_ENDS)
def test_the_end_of_every_range_carries_no_cause(code: int) -> None:
    verdict = judge(run(START, begin(api="QnnGraph_finalize"), end(code=code), DONE))
    assert verdict.error is not None
    known = verdict.error.diagnosis
    assert known is not None
    assert known.id == "undefined-code"
    component = describe(code).component
    assert known.words.startswith(f"end of the {component} range, carries no cause")


@pytest.mark.parametrize("line", [failure_rows.BENIGN, failure_rows.NO_PLATFORM_INFO])
def test_benign_lines_are_never_a_failure(line: str) -> None:
    assert len(BENIGN) == 2
    passed = judge(run(START, begin(), log(line), end(), DONE))
    assert (passed.outcome, passed.error) == ("passed", None)
    failed = judge(run(START, begin(), log(line), end(code=1100), DONE)).error
    assert failed is not None
    assert line not in failed.message
    assert all(link.message != line for link in failed.chain)


def test_a_line_as_benign_explains_nothing_even_if_a_rule_would_take_it() -> None:
    row = Row(None, EXECUTE, 6031, evidence=(f"SSR detected {failure_rows.BENIGN}",))
    assert row.diagnosis() is None


def test_an_earlier_failure_does_not_explain_a_crash() -> None:
    events = (START, begin(3), log(NO_PD), end(3, code=1002), begin(4, "QnnContext_free"))
    error = judge(run(*events, signal=11, exit_code=None)).error
    assert error is not None
    assert EARLIER in error.message
    assert NO_PD in error.message
    assert error.diagnosis is None


def test_what_libraries_print_on_stderr_counts_as_evidence() -> None:
    found = judge(run(START, begin(), end(code=6031), DONE, stderr=b"x\nSSR detected\n")).error
    assert found is not None
    assert found.diagnosis is not None
    assert found.diagnosis.id == "dsp-restarted"


def test_errors_of_the_lab_get_no_diagnosis() -> None:
    error = judge(run(exit_code=1, stderr=b"SSR detected")).error
    assert error is not None
    assert error.diagnosis is None


def test_evidence_changes_a_diagnosis_only_if_it_says_more() -> None:
    error = ErrorRecord.of(api=EXECUTE, code=6999, message="")
    first = diagnosed("failed", error)
    assert first.diagnosis is not None
    assert first.diagnosis.id == "failed-without-cause"
    assert diagnosed("failed", first, ["nothing"]).diagnosis == first.diagnosis
    second = diagnosed("failed", first, [failure_rows.RESTARTED]).diagnosis
    assert second is not None
    assert second.id == "dsp-restarted"


@given(
    st.text(max_size=30),
    st.integers(0, 2**64 - 1),
    st.text(max_size=300),
    st.lists(st.text(max_size=80), max_size=5),
)
def test_any_text_is_taken(api: str, code: int, message: str, evidence: list[str]) -> None:
    error = ErrorRecord.of(api=api, code=code, message=message)
    made = diagnosed("failed", error, evidence)
    assert made.model_copy(update={"diagnosis": None}) == error
    found = decide(symptoms_of("failed", error, evidence), RULES)
    assert (found is None) == (made.diagnosis is None)


def test_the_documentation_lists_every_rule_in_its_order() -> None:
    text = (ROOT / "docs" / "results.md").read_text("utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    listed = {row[1].strip().strip("`"): row[2:-1] for row in rows}
    assert [name for name in listed if name in IDS] == IDS
    for rule in RULES:
        words, fix, thread = (part.strip() for part in listed[rule.diagnosis.id])
        known = rule.diagnosis
        assert words == known.words.replace("{note}", "end of the ... range, carries no cause")
        assert fix == known.fix
        assert thread == (f"[{_short(known.thread)}]({known.thread})" if known.thread else "")


def _short(link: str) -> str:
    owner, repository, *rest = link.removeprefix("https://github.com/").split("/")
    return f"{owner}/{repository}" + (f"#{rest[-1]}" if rest else "")


def test_few_kinds_of_failures_may_answer_what_was_asked() -> None:
    answers = {
        *("op-unsupported", "graph-prepare-failed", "vtcm-overflow", "opencl-program"),
        *("skel-refused-context", "no-memory", "invalid-config", "unreadable-context"),
        *("cpu-fallback", "no-such-graph", "tensor-mismatch", "stale-handle", "wrong-outputs"),
    }
    assert {rule.diagnosis.id for rule in RULES if not rule.unrelated} == answers


def test_what_nobody_knows_may_answer_what_was_asked() -> None:
    unknown = ErrorRecord.of(api="Run", code=4711, message="odd")
    assert not is_unrelated(None)
    assert not is_unrelated(diagnosed("failed", unknown))
    assert is_unrelated(diagnosed("failed", ErrorRecord.of(api="Run", code=1007, message="")))
