"""Conditions for bad: records of every outcome against every form of --match."""

from typing import Any

import pytest
from hypothesis import given

from harness.bisect.bad_condition import (
    ANY_FAILURE,
    Unmeasured,
    parse_comparison,
    parse_match,
)
from harness.core.errors import ConfigError
from harness.diagnosis.error_record import OrtCode
from harness.results.output_drift import changes
from harness.results.record import CaseRecord
from tests.properties import damaged, reached, reaches
from tests.snapshots import Snapshot
from tests.unit.results.records import error, record

FAILED = record(outcome="failed")
OTHER = record(outcome="failed", error=error(code=1008, symbol=None, message="Stub lib mismatch"))
ORT = OrtCode(code=1, name="ORT_FAIL")
REFUSED = record(outcome="failed", error=error(code=None, symbol=None, ort=ORT))
CRASHED = record(outcome="crashed", error=error(code=None, symbol=None))


@pytest.mark.parametrize(
    ("match", "run_record", "answer"),
    [
        (None, record(), "good"),
        (None, FAILED, "bad"),
        (None, record(outcome="failed", expected={"known_issue": "x"}), "bad"),
        (None, record(outcome="hung"), "bad"),
        (None, record(outcome="unsupported"), "untestable"),
        (None, record(outcome="skipped"), "untestable"),
        (None, record(outcome="error", cause="infra"), "unknown"),
        (None, record(outcome="error", cause="harness"), "unknown"),
        (None, record(outcome="error", cause="config"), "untestable"),
        (None, record(outcome="failed", cause="infra"), "unknown"),
        (None, record(outcome="error", cause="target"), "unknown"),
        ("code=1002", FAILED, "bad"),
        ("code = 0x3EA, 7", FAILED, "bad"),
        ("code=1002", OTHER, "untestable"),
        ("code=1002", record(outcome="crashed", error=None), "untestable"),
        ("code=1002", record(), "good"),
        ("code=1002", record(outcome="error", cause="infra"), "unknown"),
        ("symbol=QNN_COMMON_ERROR_MEM_ALLOC", FAILED, "bad"),
        ("symbol=*_MEM_ALLOC", FAILED, "bad"),
        ("symbol=MEM_ALLOC", FAILED, "untestable"),
        ("symbol=*", CRASHED, "untestable"),
        ("code=1", REFUSED, "bad"),
        ("code=2", REFUSED, "untestable"),
        ("symbol=ORT_FAIL", REFUSED, "bad"),
        (f"signature={error().signature}", FAILED, "bad"),
        ("signature=*|1002|Failed to find*", FAILED, "bad"),
        ("signature=*[*]*", FAILED, "untestable"),
        # where older versions fail otherwise, that is their good
        ("code=1002 else good", FAILED, "bad"),
        ("code=1002 else good", OTHER, "good"),
        ("code=1002 else good", record(outcome="error", cause="infra"), "unknown"),
        ("code=1002 else good", record(outcome="unsupported"), "untestable"),
        (f"signature={error().signature} else good", OTHER, "good"),
        ("measurement loaded < 60", record(), "bad"),
        ("measurement loaded < 56", record(), "good"),
        ("measurement=load_us.median > 400", record(), "good"),
        ("measurement nothing > 400", record(), "untestable"),
        ("measurement loaded < 60", FAILED, "untestable"),
        ("measurement loaded < good", record(), "untestable"),
    ],
)
def test_answers(match: str | None, run_record: Any, answer: str) -> None:
    chosen = ANY_FAILURE if match is None else parse_match(match)
    assert chosen.judge(run_record).answer == answer


def test_a_measurement_is_compared_with_the_good_end() -> None:
    match = parse_match("measurement load_us > 1.2 * good")
    assert match.needs_good
    runs = [record(measurements={"load_us": [value]}) for value in (90, 100, 130)]
    good = match.reference([*runs, FAILED, record(measurements={})])
    assert good == 100
    slow, fast = ({"load_us": [121, 121, 900]}, {"load_us": [119, 100, 130]})
    assert match.judge(record(measurements=slow), good=good).answer == "bad"
    assert match.judge(record(measurements=fast), good=good).answer == "good"
    assert match.judge(record(measurements=fast), good=good, earlier=[122, 125]).answer == "bad"
    assert match.reference([]) is None
    assert parse_match("code=1002").reference(runs) is None
    assert not parse_match("measurement loaded < 60").needs_good


MEASURED = record(measurements={"load_us": [90]})


@pytest.mark.parametrize(
    ("match", "runs", "can"),
    [
        ("measurement load_us > 1.2 * good", [], False),
        ("measurement load_us > 1.2 * good", [record(measurements={})], False),
        ("measurement load_us > 1.2 * good", [FAILED], False),
        ("measurement load_us > 1.2 * good", [FAILED, MEASURED], True),
        ("drift:1", [], False),
        ("drift:1", [FAILED, record(outcome="error", cause="infra")], False),
        ("drift:1", [FAILED, record(measurements={})], True),
    ],
)
def test_others_wait_until_the_good_end_tells_what_they_are_compared_with(
    match: str, runs: list[CaseRecord], can: bool
) -> None:
    assert parse_match(match).can_compare(runs) is can


A, B, GONE = "000000000000000a-2", "000000000000000b-2", "000000000000000c-2"
KEPT = {A: b"\x01\x02", B: b"\x01\x05"}


def with_outputs(*digests: str, sha256: str = "00", **more: Any) -> CaseRecord:
    outputs = [
        {"name": f"y{index}", "data_type": "ufixed8", "scale": None, "digest": digest}
        for index, digest in enumerate(digests)
    ]
    measurements = {"kept_outputs": {"m.bin": {"sha256": sha256, "outputs": outputs}}}
    return record(measurements=measurements, **more)


@pytest.mark.parametrize(
    ("steps", "digests", "answer", "why"),
    [
        (0, (A, A), "good", "the outputs equal"),
        (0, (A, B), "bad", "m.bin, output y1: 1 of 2 elements, 3 steps at most"),
        (2, (B, B), "bad", "m.bin, output y0: "),
        (3, (A, B), "good", "m.bin, output y1: "),
        (0, (A, GONE), "bad", "m.bin, output y1: differs, and was not kept"),
        (3, (A, GONE), "untestable", "m.bin, output y1: differs, and was not kept"),
        (3, (B, GONE), "untestable", "m.bin, output y1: differs, and was not kept"),
        (2, (GONE, B), "bad", "m.bin, output y1: "),
    ],
)
def test_outputs_are_compared_with_those_of_the_good_end(
    steps: int, digests: tuple[str, str], answer: str, why: str
) -> None:
    match = parse_match(f"drift:{steps}")
    assert match.needs_good
    differences = changes(with_outputs(*digests), with_outputs(A, A), KEPT.get)
    judged = match.judge(with_outputs(*digests), changes=differences)
    assert (judged.answer, judged.why[: len(why)]) == (answer, why)
    assert match.judge(FAILED, changes=differences).answer == "untestable"


def test_outputs_of_other_contexts_are_not_compared() -> None:
    for other in (with_outputs(A, sha256="01"), with_outputs(A, B), with_outputs(), record()):
        assert changes(with_outputs(A), other, KEPT.get) is None
        assert changes(other, with_outputs(A), KEPT.get) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "code=",
        "code=12x",
        "symbol= else good",
        "measurement loaded < 60 else good",
        "colour=red",
        "drift",
        "drift:-1",
        "drift:1 else good",
        "measurement loaded",
        "measurement loaded < * 3",
        "measurement loaded < 3 < 4",
        "measurement 3 < loaded",
        "measurement loaded > (3",
        "measurement loaded in many",
        "measurement loaded > 2 ** 9",
        "measurement loaded > 2 * good * 2",
        "measurement loaded > True",
        "measurement loaded > 1e999",
        "measurement loaded > __import__('os')",
        "measurement loaded > 3; 4",
        'measurement "loaded < 60',
        'measurement ""',
        "measurement " + "-" * 400,
        "code=" + "1," * 1000,
        "op-slower:a",
        "op-slower::20%",
        "op-slower:a:0%",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_match(text)


def test_the_forms_are_told_to_who_uses_none(snapshot: Snapshot) -> None:
    for text in ("colour=red", "code=12x", "measurement loaded in many"):
        with snapshot.raises(ConfigError):
            parse_match(text)


def test_a_thousand_characters_can_be_read() -> None:
    signature = "signature=" + "x" * 990
    assert parse_match(signature).text == signature
    with pytest.raises(ConfigError):
        parse_match(f"{signature}x")


FIGURES = {
    "a": 6,
    "Upper": {"Case": 7},
    "b": {"peak": 2.5},
    "many": [3, 1, 8],
    "text": "x",
    "flag": True,
    "none": [],
    "mixed": [1, True],
    "said": [1, "x"],
    "huge": 10**400,
}


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("Upper.Case == 7", True),
        ("b.peak >= 25e-1", True),
        ("many == 3", True),
        ("many.median > 3", False),
        ("a > -3", True),
        ("a  >5", True),
    ],
)
def test_comparisons(text: str, is_met: bool) -> None:
    comparison = parse_comparison(text)
    assert comparison.is_met(comparison.value(FIGURES)) is is_met


@pytest.mark.parametrize(
    "text",
    ["c > 1", "b > 1", "text > 1", "flag > 0", "none > 1", "many.sum > 1",
     "mixed > 0", "mixed.median > 0", "said > 0", "a.median > 1",
     "huge > 1", "b.peak.x > 1", "a > 2 * good"],
)  # fmt: skip
def test_what_was_not_measured_has_no_answer(text: str) -> None:
    comparison = parse_comparison(text)
    with pytest.raises(Unmeasured):
        comparison.is_met(comparison.value(FIGURES))


@reaches(0.01)
@given(damaged("measurement a > 1.2 * good"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        match = parse_match(text)
    except ConfigError:
        return
    reached()
    judged = match.judge(record(measurements=FIGURES | {"huge": 1}))
    assert judged.answer in ("good", "bad", "untestable")


def profiled(**cycles: int) -> CaseRecord:
    ops = [
        {"op": f"{name}:OpId_{index}", "cycles": n}
        for index, (name, n) in enumerate(cycles.items())
    ]
    return record(measurements={"profile": {"ops": ops}})


@pytest.mark.parametrize(
    ("run", "answer"),
    [
        (profiled(conv=120, relu=9), "good"),
        (profiled(conv=121, relu=9), "bad"),
        # fused into the next one, its time is there
        (profiled(conv=0, relu=130), "bad"),
        (profiled(relu=9), "untestable"),
        (record(), "untestable"),
        (FAILED, "untestable"),
    ],
)
def test_an_op_is_compared_with_the_good_end(run: CaseRecord, answer: str) -> None:
    match = parse_match("op-slower:conv:20%")
    assert match.profiles
    assert match.needs_good
    good = match.reference([profiled(conv=100, relu=5)])
    assert good == 100
    assert match.judge(run, good=good).answer == answer


def test_reasons_of_answers(snapshot: Snapshot) -> None:
    setup_error = error(code=None, symbol=None, message="RuntimeError: user's own bug")
    judged = [
        ANY_FAILURE.judge(FAILED),
        ANY_FAILURE.judge(record(outcome="failed", error=error(api=None, code=None, symbol=None))),
        ANY_FAILURE.judge(record(outcome="crashed", error=None)),
        ANY_FAILURE.judge(record(outcome="error", cause="config", error=setup_error)),
        parse_match("op-slower:a:b c:2.5%").judge(profiled(conv=7, relu=9), good=1.0),
        parse_match("op-slower:a:b c:2.5%").judge(record(), good=1.0),
    ]
    assert [f"{answer.answer}: {answer.why}" for answer in judged] == snapshot


def test_an_op_may_have_a_colon_and_a_space_in_its_name() -> None:
    match = parse_match("op-slower:a:b c:2.5%")
    assert match.comparison.number == 1.025
