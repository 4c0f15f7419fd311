"""Conditions for bad: records of every outcome against every form of --match."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from harness.bisect.match import (
    ANY_FAILURE,
    Unmeasured,
    figure,
    parse_comparison,
    parse_match,
)
from harness.core.errors import ConfigError
from harness.results.drift import changes
from harness.results.record import CaseRecord
from tests.properties import damaged, reached, reaches
from tests.unit.results.records import error, record

FAILED = record(outcome="failed")
OTHER = record(outcome="failed", error=error(code=1008, symbol=None, message="Stub lib mismatch"))
CRASHED = record(outcome="crashed", error=error(code=None, symbol=None))


@pytest.mark.parametrize(
    ("failed_record", "why"),
    [
        (FAILED, f"failed: {error().call}"),
        (record(outcome="failed", error=error(api=None, code=None, symbol=None)), "failed: Fail"),
        (record(outcome="crashed", error=None), "crashed"),
    ],
)
def test_what_counts_as_bad_is_told_with_its_call(failed_record: CaseRecord, why: str) -> None:
    assert ANY_FAILURE.judge(failed_record).why.startswith(why)


@pytest.mark.parametrize(
    ("match", "run_record", "answer"),
    [
        (None, record(), "good"),
        (None, FAILED, "bad"),
        (None, record(outcome="failed", expected={"known_issue": "x"}), "bad"),
        (None, CRASHED, "bad"),
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
        ("code=1002", CRASHED, "untestable"),
        ("code=1002", record(outcome="crashed", error=None), "untestable"),
        ("code=1002", record(), "good"),
        ("code=1002", record(outcome="error", cause="infra"), "unknown"),
        ("symbol=QNN_COMMON_ERROR_MEM_ALLOC", FAILED, "bad"),
        ("symbol=*_MEM_ALLOC", FAILED, "bad"),
        ("symbol=MEM_ALLOC", FAILED, "untestable"),
        ("symbol=*", CRASHED, "untestable"),
        (f"signature={error().signature}", FAILED, "bad"),
        ("signature=*|1002|Failed to find*", FAILED, "bad"),
        ("signature=*[*]*", FAILED, "untestable"),
        # where older versions fail otherwise, that is their good
        ("code=1002 else good", FAILED, "bad"),
        ("code=1002 else good", OTHER, "good"),
        ("code=1002 else good", CRASHED, "good"),
        ("code=1002 else good", record(outcome="error", cause="infra"), "unknown"),
        ("code=1002 else good", record(outcome="unsupported"), "untestable"),
        ("symbol=*_MEM_ALLOC  else good", FAILED, "bad"),
        (f"signature={error().signature} else good", FAILED, "bad"),
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
        (0, (A, A), "good", "the outputs of the good end"),
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
    assert differences is not None
    judged = match.judge(with_outputs(*digests), changes=differences)
    assert (judged.answer, judged.why[: len(why)]) == (answer, why)
    assert match.judge(FAILED, changes=differences).answer == "untestable"


def test_outputs_of_other_contexts_are_not_compared() -> None:
    for other in (with_outputs(A, sha256="01"), with_outputs(A, B), with_outputs(), record()):
        assert changes(with_outputs(A), other, KEPT.get) is None
        assert changes(other, with_outputs(A), KEPT.get) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "none of its forms"),
        ("code=", "none of its forms"),
        ("code=12x", "is not a code"),
        ("code= else good", "none of its forms"),
        ("symbol= else good", "none of its forms"),
        ("measurement loaded < 60 else good", "compares no measurement"),
        ("colour=red", "none of its forms"),
        ("drift", "none of its forms"),
        ("drift:-1", "none of its forms"),
        ("drift:1 else good", "none of its forms"),
        *(
            (f"measurement {text}", "compares no measurement with a number")
            for text in (
                "",
                "loaded",
                "loaded <",
                "loaded < * 3",
                "loaded < 3 < 4",
                "3 < loaded",
                "good > 3",
                "loaded > (3",
                "loaded in many",
                "loaded > 2 ** 9",
                "loaded > 2 * good * 2",
                "loaded > True",
                "loaded > other",
                "loaded > 1e999",
                "loaded > __import__('os')",
                "loaded > 3; 4",
                "loaded > 3 # 4",
                '"loaded < 60',
                '"',
                '""',
                "-" * 400,
            )
        ),
        ("code=" + "1," * 1000, "at most 1000 characters"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_match(text)


def test_a_thousand_characters_can_be_read() -> None:
    signature = "signature=" + "x" * 990
    assert parse_match(signature).text == signature
    with pytest.raises(ConfigError, match="at most 1000 characters"):
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
        ("a > 5", True),
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


@pytest.mark.parametrize(
    ("path", "value"),
    [("x.y.median", 2), ("x.y", 2), ("z", 7)],
)
def test_a_figure_by_its_path(path: str, value: float) -> None:
    assert figure({"x": {"y": [1, 5, 2]}, "z": 7}, path) == value


def test_a_case_that_could_not_be_set_up_says_why() -> None:
    setup_error = error(code=None, symbol=None, message="RuntimeError: user's own bug")
    judged = ANY_FAILURE.judge(record(outcome="error", cause="config", error=setup_error))
    assert judged.answer == "untestable"
    assert judged.why.endswith("RuntimeError: user's own bug")


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


def test_an_op_that_is_not_there_is_said_with_those_that_are() -> None:
    match = parse_match("op-slower:a:b c:2.5%")
    assert match.comparison is not None
    assert match.comparison.number == 1.025
    why = match.judge(profiled(conv=7, relu=9), good=1.0).why
    assert why == "no op a:b c was profiled: the largest are relu, conv"
    assert match.judge(record(), good=1.0).why == "no op a:b c was profiled, nor any other"


@pytest.mark.parametrize(
    "text", ["op-slower:a", "op-slower:a:20", "op-slower::20%", "op-slower:a:0%"]
)
def test_an_op_needs_a_name_and_by_how_much(text: str) -> None:
    with pytest.raises(ConfigError, match="none of its forms"):
        parse_match(text)
