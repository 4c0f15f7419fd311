"""The record model: the contract's line, what is refused, and that it survives JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from harness.diagnosis.error import ErrorRecord
from harness.lab.facts import Vitals
from harness.lab.health import LabEvent
from harness.results.record import (
    CaseRecord,
    DeviceEvent,
    JournalLine,
    are_figures,
    as_json,
    is_figure,
    named_figures,
)
from tests.unit.results.records import (
    DEVICE,
    error,
    final_attempts,
    json_values,
    record,
    records,
)

# The example of the design, with what it leaves open filled in.
CONTRACT = """
{"schema": 2, "kind": "case", "run": "r",
 "case": "suites/test_x.py::test[a-htp-2.51.0-66]", "test": "suites/test_x.py::test[66]",
 "placement": {"device": "a", "engine": "qnn", "backend": "htp", "qnn": "2.51.0", "ort": null,
               "compiler": null},
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


def test_every_key_is_there_even_if_null() -> None:
    line = json.loads(record().model_dump_json())
    more = {"line", "asked", "files_sha256", "runtime", "preflight", "fixed", "outputs", "emulated"}
    assert set(line) == {*json.loads(CONTRACT), *more}
    assert (line["cause"], line["expected"], line["error"]) == (None, None, None)


@given(records())
def test_json_and_record_are_two_forms_of_the_same(case: CaseRecord) -> None:
    assert CaseRecord.model_validate_json(case.model_dump_json()) == case
    assert CaseRecord.model_validate(json.loads(json.dumps(case.model_dump(mode="json")))) == case


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
    record_of_error = error(symbol=None)
    assert (record_of_error.hex, record_of_error.symbol, record_of_error.component) == (
        "0x3ea",
        "QNN_COMMON_ERROR_MEM_ALLOC",
        "common",
    )
    assert record_of_error.signature.startswith(
        "QnnContext_createFromBinary|1002|Failed to find available PD"
    )
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
    records = [
        record(case="a", attempt=1, outcome="error", cause="infra"),
        record(case="b"),
        record(case="a", attempt=2),
    ]
    assert [(r.case, r.attempt) for r in final_attempts(records)] == [("a", 2), ("b", 1)]
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
    assert are_figures(values) == all(is_figure(value) for value in values)


def test_the_last_attempt_counts_whatever_run_it_is_of() -> None:
    last = final_attempts([record(attempt=1), record(attempt=2)])
    assert [entry.attempt for entry in last] == [2]
    first = [record(case="a", attempt=2, run="new"), record(case="a", attempt=1, run="old")]
    assert [record.run for record in final_attempts(first)] == ["new"]


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({"attempt": 1}, True),
        ({"attempt": 2**31 - 1}, True),
        ({"attempt": 2**31}, False),
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
    ],
)
def test_what_bounds_the_numbers_of_a_record(changed: dict[str, object], fits: bool) -> None:
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
    assert case.device is not None
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
    assert not case.breaks_strictness


@pytest.mark.parametrize("fails", [True, False])
def test_a_pass_that_was_to_fail_breaks_strictness_where_the_run_is_strict(fails: bool) -> None:
    case = record(fixed={"known_issues": ["x"], "fails": fails})
    assert case.breaks_strictness is fails


@pytest.mark.parametrize(
    ("measured", "conclusion", "grid"),
    [
        ({}, None, None),
        ({"conclusion": "56 fit", "grid": ["contexts", 7]}, "56 fit", ("contexts", "7")),
        ({"conclusion": 56, "grid": "ab"}, None, None),
        ({"grid": ["a"]}, None, None),
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


@pytest.mark.parametrize(
    ("kind", "state", "routine"),
    [
        ("push", "good", True),
        ("push", "suspect", True),
        ("health", "good", True),
        ("health", "bad", False),
        ("reboot", "good", False),
    ],
)
def test_pushes_and_checks_that_found_nothing_are_routine(
    kind: str, state: str, routine: bool
) -> None:
    assert event(event=kind, state=state).is_routine is routine


@pytest.mark.parametrize(
    ("size", "fits"), [(0, True), (2**64 - 1, True), (-1, False), (2**64, False)]
)
def test_how_much_was_pushed_has_64_bits(size: int, fits: bool) -> None:
    if fits:
        assert event(pushed_bytes=size).pushed_bytes == size
    else:
        with pytest.raises(ValidationError):
            event(pushed_bytes=size)


def test_what_the_lab_tells_of_a_device_becomes_a_line() -> None:
    started = datetime(2026, 11, 21, 6, tzinfo=UTC)
    lab_event = LabEvent("d", "reboot", "bad", ("a",), "\ud800" + "x" * 20_000, started, 2.5)
    line = DeviceEvent.of(lab_event, run="r")
    assert (line.findings, line.vitals, line.pushed_bytes) == (("a",), None, None)
    assert line.detail.startswith("?xxx")
    assert len(line.detail) <= 16_000
    whole = DeviceEvent.of(replace(lab_event, vitals=Vitals(boot_id="b"), pushed_bytes=7), run="r")
    assert whole.vitals is not None
    assert (whole.vitals["boot_id"], whole.pushed_bytes) == ("b", 7)


def test_a_line_is_of_a_case_unless_it_says_that_it_is_of_a_device() -> None:
    line: TypeAdapter[CaseRecord | DeviceEvent] = TypeAdapter(JournalLine)
    for content in (event(), record()):
        assert line.validate_python(content) == content
        assert line.validate_json(content.model_dump_json()) == content
    with pytest.raises(ValidationError, match="case"):
        line.validate_python({"run": "r"})
