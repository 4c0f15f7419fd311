"""Diagnoses: what each known failure is recognised as, and that no rule of the table is idle.

The mutation checks take the table apart: without any one rule, sign or condition, with another
confidence, and with any two rules that compete in the wrong order, a row must get another
diagnosis. Rows are failures of our own cases, and logs of anybody.
"""

import re
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property

import pytest
from hypothesis import given, strategies as st

from harness.core.error_codes import RANGE_ENDS, describe
from harness.diagnosis.diagnosis import EARLIER, Foreseen, diagnosed, is_unrelated, symptoms_of
from harness.diagnosis.error_record import ChainLink, Diagnosis, ErrorRecord
from harness.diagnosis.explain_log import symptoms_in
from harness.diagnosis.rule import CONFIDENCES, FittingRule, Rule, Sign, Symptoms, findings
from harness.diagnosis.rule_sources import own_rules
from harness.diagnosis.verdict import judge
from harness.probe.transcript import LoadedLibrary
from harness.runtimes.preflight_findings import CODES as PREFLIGHT, finding
from tests.properties import damaged, reached, reaches
from tests.unit.diagnosis.failure_page import PAGE, page
from tests.unit.diagnosis.failure_rows import LOG_ROWS, NO_PD, RESTARTED, ROWS, Row, lines_of
from tests.unit.diagnosis.probe_runs import DONE, LOAD, START, begin, end, log, run

RULES = own_rules()
EXECUTE = "QnnGraph_execute"

IDS = [rule.id for rule in RULES]
RULE_SET = {id(rule) for rule in RULES}


@dataclass(frozen=True)
class Shown:
    """A row of either kind, as rules see it."""

    expected: str | None
    symptoms: Symptoms

    def answer(self, rules: tuple[Rule, ...]) -> str | None:
        """The answer of a table; of rules that are those of RULES it is known what they find."""
        known = self.fits
        fits_of_rules = [
            known[rule.id] if id(rule) in RULE_SET else rule.finding(self.symptoms)
            for rule in rules
        ]
        fits = [entry for entry in fits_of_rules if entry is not None]
        best = min(fits, key=lambda fit: CONFIDENCES.index(fit.confidence), default=None)
        return None if best is None else f"{best.rule.id} {best.confidence}"

    @cached_property
    def fits(self) -> dict[str, FittingRule | None]:
        return {rule.id: rule.finding(self.symptoms) for rule in RULES}


@cache
def shown() -> tuple[Shown, ...]:
    rows_of_cases = (
        Shown(row.expected, symptoms_of(*row.undiagnosed, row.evidence, row.preflight))
        for row in ROWS
    )
    logs = (Shown(expected, symptoms_in(lines_of(text))) for expected, text in LOG_ROWS)
    return (*rows_of_cases, *logs)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.expected}-{row.api}-{row.code}")
def test_what_a_failure_is_recognised_as(row: Row) -> None:
    assert row.diagnosis() == row.expected


@pytest.mark.parametrize(
    ("index", "expected"), list(enumerate(row[0] for row in LOG_ROWS)), ids=str
)
def test_what_a_log_is_explained_by(index: int, expected: str | None) -> None:
    assert shown()[len(ROWS) + index].answer(RULES) == expected


def changed(rules: tuple[Rule, ...]) -> bool:
    """Return the rows that another table judges otherwise."""
    return any(row.answer(rules) != row.expected for row in shown())


NO_REASON = {"version-label", "ort-unknown", "emulator-floats", "context-floats"}
"""What preflight says that nothing need fail for: what an emulator lacks is `unsupported`."""


@pytest.mark.parametrize("code", [code for code in PREFLIGHT if code not in NO_REASON])
def test_what_preflight_foresaw_is_the_diagnosis(code: str) -> None:
    rows = [row for row in ROWS if row.foreseen == (code,) and row.lines != (NO_PD,)]
    assert rows, f"no row foresees {code}"
    meaning, named = PREFLIGHT[code].meaning, 0
    for row in rows:
        outcome, error = row.undiagnosed
        diagnosis = diagnosed(outcome, error, foreseen=row.preflight).diagnosis
        assert diagnosis.confidence in ("known", "likely")
        named += f"{meaning}: " in diagnosis.words
        # what is told of harmlessly is no reason
        info = row.preflight.findings[0].model_copy(update={"severity": "info"})
        assert diagnosed(outcome, error, foreseen=Foreseen((info,))) == diagnosed(outcome, error)
    assert named


def test_what_preflight_says_of_other_contexts_is_no_reason() -> None:
    newer = finding("context-newer", "m#1", compiler="2.51.0", runtime="2.47.0")
    for number, code_of_finding in (
        (0, "unreadable-context"),
        (1, "newer-context"),
        (3, "newer-context"),
    ):
        error = ErrorRecord.of(api=LOAD, code=5000, message="", context=number)
        diagnosis = diagnosed(
            "failed", error, foreseen=Foreseen((newer,), ("m#0", "m#1"))
        ).diagnosis
        assert diagnosis.id == code_of_finding
    # nobody knows how the contexts are taken
    error = ErrorRecord.of(api=LOAD, code=5000, message="", context=0)
    diagnosis = diagnosed("failed", error, foreseen=Foreseen((newer,))).diagnosis
    assert diagnosis.id == "newer-context"


@pytest.mark.parametrize("index", range(len(RULES)), ids=IDS)
def test_without_a_rule_a_row_fails(index: int) -> None:
    assert changed(RULES[:index] + RULES[index + 1 :])


SIGNS = [(index, place) for index, rule in enumerate(RULES) for place, _ in enumerate(rule.signs)]
CONDITIONS = [
    (index, place, field.name)
    for index, place in SIGNS
    for field in fields(Sign)
    if field.name not in ("confidence", "note") and getattr(RULES[index].signs[place], field.name)
]
CODES = [
    (index, place, code)
    for index, place in SIGNS
    if IDS[index] != "undefined-code"
    for code in RULES[index].signs[place].codes
]


def with_sign(index: int, place: int, *signs: Sign) -> tuple[Rule, ...]:
    rule = RULES[index]
    signs_of_rule = (*rule.signs[:place], *signs, *rule.signs[place + 1 :])
    return (*RULES[:index], replace(rule, signs=signs_of_rule), *RULES[index + 1 :])


@pytest.mark.parametrize(("index", "place"), SIGNS, ids=[f"{IDS[i]}-{p}" for i, p in SIGNS])
def test_without_a_sign_a_row_fails(index: int, place: int) -> None:
    assert changed(with_sign(index, place))


@pytest.mark.parametrize(("index", "place"), SIGNS, ids=[f"{IDS[i]}-{p}" for i, p in SIGNS])
def test_with_another_confidence_a_row_fails(index: int, place: int) -> None:
    sign = RULES[index].signs[place]
    for other in set(CONFIDENCES) - {sign.confidence}:
        assert changed(with_sign(index, place, replace(sign, confidence=other)))


@pytest.mark.parametrize(
    ("index", "place", "condition"), CONDITIONS, ids=[f"{IDS[i]}-{p}-{c}" for i, p, c in CONDITIONS]
)
def test_without_a_condition_a_row_fails(index: int, place: int, condition: str) -> None:
    sign = RULES[index].signs[place]
    empty = replace(sign, **{condition: type(getattr(sign, condition))()})
    assert changed(with_sign(index, place, empty))


@pytest.mark.parametrize(
    ("index", "place", "code"), CODES, ids=[f"{IDS[i]}-{p}-{c:x}" for i, p, c in CODES]
)
def test_without_a_code_a_row_fails(index: int, place: int, code: int) -> None:
    sign = RULES[index].signs[place]
    fewer = tuple(other for other in sign.codes if other != code)
    assert changed(with_sign(index, place, *([replace(sign, codes=fewer)] if fewer else [])))


def test_the_order_of_rules_that_compete_decides() -> None:
    """Each pair of equally sure rules that fit a row: the other way round, the row changes."""
    swaps: dict[tuple[int, int], Shown] = {}
    for row in shown():
        fitting = findings(row.symptoms, RULES)
        for behind in fitting[1:]:
            if behind.confidence == fitting[0].confidence:
                swaps[IDS.index(fitting[0].rule.id), IDS.index(behind.rule.id)] = row
    assert len(swaps) >= 15
    for (first, second), row in swaps.items():
        swapped = [*RULES]
        swapped[first], swapped[second] = swapped[second], swapped[first]
        assert first < second
        assert row.answer(tuple(swapped)) != row.expected


def test_a_code_alone_is_never_better_than_possible() -> None:
    for rule in RULES:
        for sign in rule.signs:
            if not (sign.text or sign.evidence or sign.foreseen or sign.api == "dlopen"):
                assert sign.confidence == "possible", rule.id


def test_rules_have_names_of_their_own_and_say_something() -> None:
    assert len(set(IDS)) == len(IDS)
    for rule in RULES:
        assert all((rule.cause, rule.fix, rule.distinction, rule.signs))
        assert all(link.startswith("https://github.com/") for link in rule.urls)
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+)?", thread) for thread in rule.links)


def test_a_sign_without_conditions_fits_nothing() -> None:
    everything = Symptoms("failed", (LOAD,), (1002,), ("x",), ("x",))
    assert all(Sign(confidence).match(everything) is None for confidence in CONFIDENCES)


@pytest.mark.parametrize("code", RANGE_ENDS)
def test_the_end_of_every_range_carries_no_cause(code: int) -> None:
    verdict = judge(run(START, begin(api="QnnGraph_finalize"), end(code=code), DONE))
    known = verdict.error.diagnosis
    assert known.id == "undefined-code"
    assert describe(code).component in known.words


BENIGN_LINE = "QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 0x2000000"


@pytest.mark.parametrize(
    "line",
    [
        BENIGN_LINE,
        "Unable to get platform info: Only support getting platform info for HTP backend.",
        "Error 0x8000043e: fastrpc_enable_kernel_optimizations failed for domain 3 (Success)",
        "Using existing ADSP_LIBRARY_PATH setting of /data/x;/dsp, which may cause the HTP backend "
        "to fail",
        "Error 0x80000414: remote_handle64_invoke failed for module libdspqueue_rpc_skel.so, "
        "handle 0x1",
        "[Qnn ExecuTorch]:  <W> This META does not have Alloc2 Support",
        "cdsprpcd: fastrpc_apps_user.c:1214: Error 0x80000414: remote_handle64_invoke failed for "
        "handle 0xbf7328d0, method 4 on domain 3 (sc 0x4010100) (errno Success)",
        "Error 45: fopen failed for libadspmsgd_adsp_skel.so. (No such file or directory)",
        "adbd    : service shell,v2,raw:grep 'CONN Reset'",
        "cat: /dev/adsprpc-smd: Permission denied",
        'avc: denied { getattr } for comm="ls" path="/dev/adsprpc-smd" permissive=0',
    ],
)
def test_benign_lines_are_never_a_failure(line: str) -> None:
    passed = judge(run(START, begin(), log(line), end(), DONE))
    assert (passed.outcome, passed.error) == ("passed", None)
    failed = judge(run(START, begin(), log(line), end(code=1100), DONE)).error
    assert line not in failed.message
    assert all(link.message != line for link in failed.chain)


def test_a_line_as_benign_explains_nothing_even_if_a_rule_would_take_it() -> None:
    row = Row(None, EXECUTE, 6031, evidence=(f"SSR detected {BENIGN_LINE}",))
    assert row.diagnosis() is None


def test_what_libraries_print_on_stderr_counts_as_evidence() -> None:
    error_record = judge(
        run(START, begin(), end(code=6031), DONE, stderr=b"x\nSSR detected\n")
    ).error
    assert error_record.diagnosis.id == "dsp-restarted"


def test_evidence_changes_a_diagnosis_only_if_it_says_more() -> None:
    error = ErrorRecord.of(api=EXECUTE, code=6999, message="")
    first = diagnosed("failed", error)
    assert first.diagnosis.id == "failed-without-cause"
    assert diagnosed("failed", first, ["nothing"]).diagnosis == first.diagnosis
    second = diagnosed("failed", first, [RESTARTED]).diagnosis
    assert second.id == "dsp-restarted"


@reaches(0.03)
@given(
    st.text(max_size=30),
    st.integers(0, 2**64 - 1),
    st.text(max_size=300) | damaged("Failed to find available PD for contextId 56 on deviceId 0"),
    st.lists(st.text(max_size=80), max_size=5),
)
def test_any_text_is_taken(api: str, code: int, message: str, evidence: list[str]) -> None:
    error = ErrorRecord.of(api=api, code=code, message=message)
    diagnosed_error = diagnosed("failed", error, evidence)
    assert diagnosed_error.model_copy(update={"diagnosis": None}) == error
    fitting = findings(symptoms_of("failed", error, evidence), RULES)
    if fitting:
        reached()
    assert bool(fitting) == (diagnosed_error.diagnosis is not None)


def test_the_page_of_causes_is_that_of_the_table() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tests.unit.diagnosis.failure_page`"


def test_few_kinds_of_failures_may_answer_what_was_asked() -> None:
    answers = (
        "op-unsupported graph-prepare-failed vtcm-overflow opencl-program skel-refused-context "
        "no-memory invalid-config unreadable-context context-refused arch-not-set "
        "float-unsupported op-not-executable prepared-on-device fallback-wanted nodes-not-taken "
        "prompt-too-long cpu-fallback no-such-graph tensor-mismatch stale-handle tensor-refused "
        "wrong-outputs outputs-too-far spill-fill-too-small graph-too-large too-many-graphs "
        "adapter-mismatch buffer-too-small index-out-of-bounds signal-in-use graph-timeout "
        "op-package-twice op-type-unsupported too-many-partitions"
    )
    assert {rule.id for rule in RULES if not rule.unrelated} == set(answers.split())


def test_what_nobody_knows_may_answer_what_was_asked() -> None:
    unknown = ErrorRecord.of(api="Run", code=4711, message="odd")
    assert not is_unrelated(None)
    assert not is_unrelated(diagnosed("failed", unknown))
    assert is_unrelated(diagnosed("failed", ErrorRecord.of(api="Run", code=1007, message="")))
    for rule in RULES:
        known = unknown.model_copy(
            update={"diagnosis": Diagnosis(id=rule.id, confidence="known", words="w")}
        )
        assert is_unrelated(known) is rule.unrelated


def test_symptoms_are_what_a_record_says_within_bounds() -> None:
    chain = (
        ChainLink(code=4000, message="a", source="log"),
        ChainLink(message="b", source="log"),
        ChainLink(code=1002, message="a", source="call"),
    )
    hidden = LoadedLibrary(name="l", path="/l", hides="/ours/l")
    error = ErrorRecord.of(
        api=LOAD, code=1002, message=f"c\n{EARLIER}step 1 failed\nb", context=7, chain=chain
    ).model_copy(update={"libraries": (hidden, LoadedLibrary(name="m", path="/m"))})
    symptoms = symptoms_of("crashed", error, ["x", "y"])
    assert symptoms == Symptoms(
        "crashed", (LOAD,), (1002, 4000), ("a", "b", "c", hidden.text()), ("x", "y")
    )
    bare = symptoms_of("failed", ErrorRecord.of(message="", code=0))
    assert bare == Symptoms("failed")
    many = ErrorRecord.of(message="\n".join(f"line {number}" for number in range(900)))
    symptoms = symptoms_of("failed", many, [str(number) for number in range(3000)])
    assert symptoms.messages == tuple(f"line {number}" for number in range(400))
    assert symptoms.evidence == tuple(str(number) for number in range(1000, 3000))
