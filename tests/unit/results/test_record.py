"""The record model: the contract's line, what is refused, and that it survives JSON."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from pydantic import TypeAdapter, ValidationError

from harness.diagnosis.error_record import ErrorRecord
from harness.lab.facts import Vitals
from harness.lab.health import DeviceEvent
from harness.results.record import (
    CaseRecord,
    JournalLine,
    are_figures,
    as_json,
    is_figure,
    named_figures,
)
from tests.unit.results.records import error, final_attempts, json_values, record, records

# The example of the design, with what it leaves open filled in.
CONTRACT = """
{"schema": 2, "kind": "case", "run": "r",
 "case": "suites/test_x.py::test[a-htp-2.51.0-66]", "test": "suites/test_x.py::test[66]",
 "placement": {"device": "a", "engine": "qnn", "backend": "htp", "qnn": "2.51.0", "ort": null,
               "compiler": null, "power": null},
 "engine": "qnn", "suite": "context_count",
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
    more |= {"asked": None, "files_sha256": None, "emulated": []}
    assert parsed.model_dump(mode="json") == line | more
    assert json.loads(parsed.model_dump_json()) == line | more
    passed = json.loads(record().model_dump_json())
    assert set(passed) == {*line, *more}, "also what is null"


@given(records())
def test_json_and_record_are_two_forms_of_the_same(case: CaseRecord) -> None:
    assert CaseRecord.model_validate_json(case.model_dump_json()) == case
    assert CaseRecord.model_validate(json.loads(json.dumps(case.model_dump(mode="json")))) == case


def test_an_error_is_filled_in_from_its_code() -> None:
    record_of_error = error(symbol=None)
    assert (record_of_error.hex, record_of_error.symbol, record_of_error.component) == (
        "0x3ea",
        "QNN_COMMON_ERROR_MEM_ALLOC",
        "common",
    )
    assert record_of_error.signature.startswith(
        "QnnContext_createFromBinary|1002|Failed to find available PD"
    )
    for wrong in ({"code": "1002"}, {"code": 1002.0}, {"code": True}, {"code": 1, "hex": "0x3"}):
        with pytest.raises(ValidationError):
            ErrorRecord.model_validate({"signature": "s"} | wrong)
    assert error(symbol="QNN_OTHER").symbol == "QNN_OTHER"
    without = error(code=None, symbol=None)
    assert (without.hex, without.symbol, without.component) == (None, None, None)


def test_long_messages_keep_both_ends() -> None:
    record_of_error = error(message="begin" + "x" * 100_000 + "end")
    assert len(record_of_error.message) < 16_001
    assert record_of_error.message.startswith("begin")
    assert record_of_error.message.endswith("end")
    assert "[... cut ...]" in record_of_error.message


def test_halves_of_surrogate_pairs_do_not_stop_a_record() -> None:
    case = record(outcome="failed", error=error(message="\ud800 x"), axes={"\udfff": "\ud801"})
    assert json.loads(case.model_dump_json())["error"]["message"] == "? x"
    assert case.axes == {"?": "?"}


@given(json_values)
def test_json_stays_as_it_is(value: object) -> None:
    assert as_json(value) == value


def test_the_last_attempt_counts() -> None:
    records = [
        record(case="a", attempt=1, outcome="error", cause="infra"),
        record(case="b"),
        record(case="a", attempt=2),
    ]
    assert [(r.case, r.attempt) for r in final_attempts(records)] == [("a", 2), ("b", 1)]
    first = [record(case="a", attempt=2, run="new"), record(case="a", attempt=1, run="old")]
    assert [record.run for record in final_attempts(first)] == ["new"]
    resumed = [record(case="a", attempt=1, duration_s=2), record(case="a", attempt=1, duration_s=3)]
    assert [r.duration_s for r in final_attempts(resumed)] == [3]


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({"attempt": 1}, True),
        ({"attempt": 2**31 - 1}, True),
        ({"attempt": 2**31}, False),
        ({"attempt": 0}, False),
        ({"line": 1}, True),
        ({"line": 0}, False),
        ({"duration_s": 0}, True),
        ({"duration_s": 1e7}, True),
        ({"duration_s": 1e7 + 0.5}, False),
        ({"duration_s": float("inf")}, False),
        ({"duration_s": float("nan")}, False),
        ({"started": "0001-01-01T00:00:00+14:00"}, False),
        ({"logs": ["logs/a"]}, True),
        ({"logs": ["/logs/a"]}, False),
        ({"logs": ["logs/../../x"]}, False),
        ({"started": "2026-11-21T06:00:00"}, False),
        ({"outcome": "failed", "cause": None}, False),
        ({"outcome": "passed", "cause": "target"}, False),
        ({"outcome": "skipped", "cause": "config"}, False),
        ({"outcome": "broken", "cause": "target"}, False),
        ({"measurements": {"x": object()}}, False),
        ({"colour": "red"}, False),
    ],
)
def test_what_bounds_the_fields_of_a_record(changed: dict[str, object], fits: bool) -> None:
    if fits:
        case = record(**changed).model_dump(mode="json")
        assert changed.items() <= case.items()
    else:
        with pytest.raises(ValidationError) as caught:
            record(**changed)
        assert caught.value.error_count() == 1


def test_a_record_is_a_first_attempt_in_utc_and_stays_as_it_is() -> None:
    case = record(started=datetime(2026, 11, 21, 8, tzinfo=timezone(timedelta(hours=2))))
    assert (case.started, case.started.tzinfo) == (datetime(2026, 11, 21, 6, tzinfo=UTC), UTC)
    assert (case.attempt, case.line) == (1, None)
    for part in (case, case.device):
        with pytest.raises(ValidationError, match="frozen"):
            part.__setattr__("name", "x")


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        *((value, True) for value in (1, -1.5, 1e299)),
        *((value, False) for value in (1e300, -1e300, 10**400, float("inf"), True, None, "1")),
    ],
)
def test_a_figure_is_a_number_that_can_be_told_in_digits(value: Any, is_one: bool) -> None:
    assert is_figure(value) is is_one
    assert are_figures([1, value]) is is_one
    assert are_figures([])


@pytest.mark.parametrize(
    ("changed", "state", "bad", "unexpected"),
    [
        ({}, "passed", False, False),
        ({"outcome": "unsupported"}, "unsupported", False, False),
        ({"outcome": "skipped"}, "skipped", False, False),
        ({"outcome": "hung"}, "hung", True, True),
        ({"outcome": "failed", "expected": {"known_issue": "x"}}, "expected", True, False),
        # nothing explains what has no verdict
        (
            {"outcome": "error", "cause": "infra", "expected": {"known_issue": "x"}},
            "error",
            True,
            True,
        ),
    ],
)
def test_what_a_case_is_shown_as(
    changed: dict[str, Any], state: str, bad: bool, unexpected: bool
) -> None:
    case = record(**changed)
    assert (case.state, case.is_bad, case.is_unexpected) == (state, bad, unexpected)
    assert case.known_issue == ("x" if "expected" in changed else None)
    assert case.file == "suites/test_context_count.py"
    for fails in (True, False):
        strict = record(fixed={"known_issues": ["x"], "fails": fails})
        assert strict.breaks_strictness is fails


@pytest.mark.parametrize(
    ("measured", "conclusion", "grid"),
    [
        ({}, None, None),
        ({"conclusion": "56 fit", "grid": ["contexts", 7]}, "56 fit", ("contexts", "7")),
        ({"conclusion": 56, "grid": "ab"}, None, None),
        ({"grid": ["a", "b", "c"]}, None, None),
    ],
)
def test_measurements_with_a_meaning_are_read(
    measured: dict[str, object], conclusion: str | None, grid: tuple[str, str] | None
) -> None:
    case = record(measurements=measured)
    assert (case.conclusion, case.grid) == (conclusion, grid)


def test_measurements_with_a_meaning_are_written_where_there_are_any() -> None:
    assert named_figures(conclusion=None, grid=None, probe_us=0) == {}
    named = named_figures(conclusion="c", grid=("a", "b"), probe_us=7)
    assert named == {"conclusion": "c", "grid": ("a", "b"), "probe_us": 7}


def event(**changed: Any) -> DeviceEvent:
    fields = {"run": "r", "device": "d", "event": "push", "state": "good", "duration_s": 1}
    return DeviceEvent(**(fields | {"started": "2026-11-21T06:00:00Z"} | changed))


def test_what_the_lab_tells_of_a_device_becomes_a_line() -> None:
    line = event(detail="\ud800" + "x" * 20_000)
    for size in (-1, 2**64):
        with pytest.raises(ValidationError):
            event(pushed_bytes=size)
    assert line.detail.startswith("?xxx")
    assert len(line.detail) <= 16_000
    whole = event(vitals=Vitals(boot_id="b"), pushed_bytes=2**64 - 1)
    assert DeviceEvent.model_validate_json(whole.model_dump_json()) == whole


def test_a_line_is_of_a_case_unless_it_says_that_it_is_of_a_device() -> None:
    line: TypeAdapter[CaseRecord | DeviceEvent] = TypeAdapter(JournalLine)
    for content in (event(), record()):
        assert line.validate_python(content) == content
        assert line.validate_json(content.model_dump_json()) == content
    with pytest.raises(ValidationError, match="case"):
        line.validate_python({"run": "r"})


class Number(IntEnum):
    SEVEN = 7


class Odd:
    """An object whose `tolist` returns no list."""

    def tolist(self) -> Odd:
        return self


class NoList:
    """An object whose `tolist` cannot be called."""

    tolist = 7


class Boxed:
    """An object that becomes the value in it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def tolist(self) -> object:
        return self._value


class Marked(str):
    """A text of another type."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (Number.SEVEN, 7),
        ("\ud800 \u00fc", "? \u00fc"),
        (Marked("\udfff"), "?"),
        (PurePosixPath("/x"), "/x"),
        (np.float64(2.5), 2.5),
        (np.bool_(True), True),
        # counters of 64 bits stay, and what floating numbers hold becomes one
        (2**64 - 1, 2**64 - 1),
        (2**64, 2.0**64),
        (1 - 2**64, 1 - 2**64),
        (10**300 - 1, 1e300),
        (10**300, None),
        ([None, 3, True], [None, 3, True]),
        ([None, -(2**64), 0], [None, -(2.0**64), 0]),
        ([1, "\ud800"], [1, "?"]),
        ([float("nan"), 1.5], [None, 1.5]),
        (OrderedDict({3: (1,), "\ud800": 2**64}), {"3": [1], "?": 2.0**64}),
        (np.array([[1.0, np.inf]]), [[1.0, None]]),
    ],
)
def test_a_measured_value_becomes_json(value: object, expected: object) -> None:
    converted = as_json(value)
    assert converted == expected
    assert json.dumps(converted, allow_nan=False) == json.dumps(expected)


def nested(depth: int, wrap: Any) -> object:
    value: object = "\u00fc"
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, Boxed])
def test_values_are_nested_twenty_levels_deep_at_most(wrap: Any) -> None:
    assert as_json(nested(20, wrap)) == ("\u00fc" if wrap is Boxed else nested(20, wrap))
    loop: list[object] = []
    loop.append(loop)
    for endless in (nested(21, wrap), loop, Odd()):
        with pytest.raises(ValueError, match="nested deeper"):
            as_json(endless)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j, [object()], NoList()])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="JSON cannot hold"):
        as_json(value)
