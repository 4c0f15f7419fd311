"""The record model: the contract's line, what is refused, and that it survives JSON."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.failure.error import ErrorRecord
from harness.results.json_value import as_json
from harness.results.record import (
    CaseRecord,
    are_figures,
    final_attempts,
    is_figure,
)
from tests.unit.results.records import DEVICE, error, json_values, record, records

# The example of the design, with what it leaves open filled in.
CONTRACT = """
{"schema": 1, "kind": "case", "run": "r", "case": "suites/test_x.py::test[a]",
 "suite": "context_count",
 "axes": {"backend": "htp", "qnn": "2.51.0", "ort": null, "compiler": "2.51.0", "contexts": 66,
          "residency": "resident"},
 "device": {"name": "a", "serial": "b", "soc": "c", "target": "linux-x64", "simulated": true},
 "outcome": "failed", "cause": "target",
 "expected": {"known_issue": "x"},
 "error": {"api": "QnnContext_createFromBinary", "code": 1002, "hex": "0x3ea",
           "symbol": "QNN_COMMON_ERROR_MEM_ALLOC", "component": "common", "message": "m",
           "step": 57, "context": 56, "ort": null, "signature": "s",
           "chain": [{"code": null, "hex": null, "symbol": null, "component": null,
                       "message": "no PD", "source": "log"}],
            "first_cause": {"code": null, "hex": null, "symbol": null, "component": null,
                            "message": "no PD", "source": "log"},
           "diagnosis": {"id": "x", "confidence": "known",
                         "words": "w", "fix": "f", "thread": null},
           "libraries": [{"name": "libQnnHtp.so", "path": "/vendor/it.so", "build_id": null,
                          "version": "2.28.2", "hides": "/ours/it.so"}]},
 "measurements": {"loaded": 56, "load_us": [1, 2], "rss_bytes": {"peak": 3}},
 "checks": [{"name": "io_given_back", "verdict": "broken", "reason": "r",
             "figures": {"x_bytes": 1}}],
 "started": "2026-11-21T06:00:00Z", "duration_s": 0.41, "attempt": 1,
 "logs": ["logs/x/probe.jsonl"]}
"""


def test_the_line_of_the_contract_is_read_and_written_as_it_is() -> None:
    line = json.loads(CONTRACT)
    parsed = CaseRecord.model_validate_json(CONTRACT)
    more = {"line": None, "runtime": None, "preflight": [], "fixed": None, "outputs": None}
    assert parsed.model_dump(mode="json") == line | more
    assert json.loads(parsed.model_dump_json()) == line | more


def test_a_record_of_before_confidence_was_said_is_read() -> None:
    old = CONTRACT.replace('"confidence": "known",', "")
    parsed = CaseRecord.model_validate_json(old)
    assert parsed.error is not None
    assert parsed.error.diagnosis is not None
    assert parsed.error.diagnosis.confidence is None
    assert parsed.error.diagnosis.text() == "x: w; f"


def test_a_record_of_before_libraries_were_told_is_read() -> None:
    line = json.loads(CONTRACT)
    del line["error"]["libraries"]
    parsed = CaseRecord.model_validate(line)
    assert parsed.error is not None
    assert parsed.error.libraries == ()


def test_every_key_is_there_even_if_null() -> None:
    line = json.loads(record().model_dump_json())
    more = {"line", "runtime", "preflight", "fixed", "outputs"}
    assert set(line) == {*json.loads(CONTRACT), *more}
    assert (line["cause"], line["expected"], line["error"]) == (None, None, None)


@given(records())
def test_json_and_record_are_two_forms_of_the_same(made: CaseRecord) -> None:
    assert CaseRecord.model_validate_json(made.model_dump_json()) == made
    assert CaseRecord.model_validate(json.loads(json.dumps(made.model_dump(mode="json")))) == made


@pytest.mark.parametrize(
    "changed",
    [
        {"outcome": "failed", "cause": None},
        {"outcome": "passed", "cause": "target"},
        {"outcome": "unsupported", "cause": "target"},
        {"outcome": "skipped", "cause": "config"},
        {"outcome": "broken", "cause": "target"},
        {"outcome": "failed", "cause": "weather"},
        {"attempt": 0},
        {"duration_s": -1},
        {"duration_s": float("nan")},
        {"started": "2026-11-21T06:00:00"},
        {"logs": ["/etc/passwd"]},
        {"logs": ["logs/../../x"]},
        {"measurements": {"x": object()}},
        {"measurements": [1]},
        {"axes": {"x": {1, 2}}},
        {"colour": "red"},
        {"device": {"name": "a"}},
    ],
)
def test_what_is_no_record(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        record(**changed)


@pytest.mark.parametrize("code", ["1002", 1002.0, True])
def test_codes_stay_whole_numbers(code: object) -> None:
    with pytest.raises(ValidationError):
        ErrorRecord(code=code, signature="s")  # type: ignore[arg-type]


def test_hex_must_be_the_code() -> None:
    with pytest.raises(ValidationError, match="is not code"):
        ErrorRecord(code=1002, hex="0x3eb", signature="s")


def test_an_error_is_filled_in_from_its_code() -> None:
    made = error(symbol=None)
    assert (made.hex, made.symbol, made.component) == (
        "0x3ea",
        "QNN_COMMON_ERROR_MEM_ALLOC",
        "common",
    )
    assert made.signature.startswith("QnnContext_createFromBinary|1002|Failed to find available PD")
    assert error(symbol="QNN_OTHER").symbol == "QNN_OTHER"
    without = error(code=None, symbol=None)
    assert (without.hex, without.symbol, without.component) == (None, None, None)


def test_long_messages_keep_both_ends() -> None:
    made = error(message="begin" + "x" * 100_000 + "end")
    assert len(made.message) < 16_001
    assert made.message.startswith("begin")
    assert made.message.endswith("end")
    assert "[... cut ...]" in made.message


def test_halves_of_surrogate_pairs_do_not_stop_a_record() -> None:
    made = record(outcome="failed", error=error(message="\ud800 x"), axes={"\udfff": "\ud801"})
    assert json.loads(made.model_dump_json())["error"]["message"] == "? x"
    assert made.axes == {"?": "?"}


def test_measured_values_become_json() -> None:
    assert as_json(
        {
            "a": np.float32(1.5),
            "b": np.int64(7),
            "c": (1, 2),
            "d": np.array([[1, 2], [3, 4]]),
            "e": float("nan"),
            "f": float("inf"),
            "g": PurePosixPath("/x"),
            3: True,
        }
    ) == {
        "a": 1.5,
        "b": 7,
        "c": [1, 2],
        "d": [[1, 2], [3, 4]],
        "e": None,
        "f": None,
        "g": "/x",
        "3": True,
    }
    assert record(measurements={"x": np.float64(2)}).measurements == {"x": 2.0}


def test_endless_nesting_is_no_json() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        as_json(loop)


@given(json_values)
def test_json_stays_as_it_is(value: object) -> None:
    assert as_json(value) == value


def test_a_device_may_say_more() -> None:
    assert record().model_dump(mode="json")["device"] == DEVICE


def test_the_last_attempt_counts() -> None:
    made = [
        record(case="a", attempt=1, outcome="error", cause="infra"),
        record(case="b"),
        record(case="a", attempt=2),
    ]
    assert [(r.case, r.attempt) for r in final_attempts(made)] == [("a", 2), ("b", 1)]
    resumed = [record(case="a", attempt=1, duration_s=2), record(case="a", attempt=1, duration_s=3)]
    assert [r.duration_s for r in final_attempts(resumed)] == [3]


def test_bad_and_unexpected() -> None:
    assert not record(outcome="unsupported").is_bad
    assert record(outcome="hung").is_unexpected
    known = record(outcome="failed", expected={"known_issue": "x"})
    assert known.is_bad
    assert not known.is_unexpected


@given(
    st.lists(
        st.one_of(
            st.integers(),
            st.floats(allow_nan=False),
            st.sampled_from([True, None, "1", 10**301, -(10**301), 1e300, -1e300]),
        ),
        max_size=4,
    )
)
def test_many_figures_are_told_as_each_is(values: list[object]) -> None:
    assert are_figures(values) == all(is_figure(one) for one in values)


def test_last_attempts_are_looked_for_once() -> None:
    found = final_attempts([record(attempt=1), record(attempt=2)])
    assert final_attempts(found) is found
    assert [one.attempt for one in found] == [2]
