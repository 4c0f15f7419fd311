"""Builders and strategies of result records for the tests of this folder."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from harness.diagnosis.error_record import ErrorRecord
from harness.results.coverage import NO_CAUSE, Tally
from harness.results.record import CaseRecord, Check
from tests.unit.results.placed import placed

LOAD = "QnnContext_createFromBinary"
NO_PD = (
    "Failed to find available PD for contextId 56 on deviceId 0 coreId 0with context size "
    "estimate 74989568\nFail to create context from binary with err 1002"
)
DEVICE = {
    "name": "sim-v73",
    "serial": "127.0.0.1:40001",
    "soc": "QCS8550",
    "htp_arch": 73,
    "target": "linux-x64",
    "simulated": True,
}


def final_attempts(records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Return the last attempt at each case, in the order in which the cases first appeared."""
    return [records[index] for index in Tally(records).last]


def error(**changed: Any) -> ErrorRecord:
    fields: dict[str, Any] = {
        "api": LOAD,
        "code": 1002,
        "message": NO_PD,
        "symbol": "QNN_COMMON_ERROR_MEM_ALLOC",
        "step": 57,
        "context": 56,
    }
    return ErrorRecord.of(**(fields | changed))


checks = st.builds(
    Check,
    name=st.text(max_size=20),
    verdict=st.sampled_from(["held", "broken", "unseen"]),
    reason=st.text(max_size=40),
    figures=st.dictionaries(st.text(max_size=9), st.integers(-(2**53), 2**53), max_size=2),
)


def record(**changed: Any) -> CaseRecord:
    """A passed case; changing the outcome alone also sets a cause and an error that fit."""
    outcome = changed.get("outcome", "passed")
    bad = outcome not in NO_CAUSE
    fields: dict[str, Any] = {
        "run": "20261121T060000Z-00ff",
        "case": "suites/test_context_count.py::test_contexts[66-resident]",
        "engine": "qnn",
        "suite": "context_count",
        "axes": {
            "backend": "htp",
            "qnn": "2.51.0",
            "ort": None,
            "compiler": "2.51.0",
            "contexts": 66,
            "residency": "resident",
            "workload": "io-heavy-56mb",
        },
        "device": DEVICE,
        "outcome": "passed",
        "cause": "target" if bad else None,
        "error": error() if bad else None,
        "measurements": {"loaded": 56, "load_us": [300, 310, 305]},
        "started": datetime(2026, 11, 21, 6, 0, tzinfo=UTC),
        "duration_s": 0.41,
        "logs": ["logs/x/probe.jsonl"],
    }
    fields |= changed
    test, placement = placed(fields["case"], fields["engine"])
    return CaseRecord(**({"test": test, "placement": placement} | fields))


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=10),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)
outcomes = st.sampled_from(
    ["passed", "failed", "crashed", "hung", "unsupported", "error", "skipped"]
)


names = st.text(max_size=12)
placements = st.fixed_dictionaries(
    {
        **dict.fromkeys(("device", "engine", "backend", "qnn"), names),
        **dict.fromkeys(("ort", "compiler"), st.none() | names),
    }
)


@st.composite
def records(draw: st.DrawFn) -> CaseRecord:
    outcome = draw(outcomes)
    bad = outcome not in NO_CAUSE
    return record(
        case=draw(st.text(min_size=1, max_size=30)),
        test=draw(st.text(max_size=30)),
        placement=draw(st.none() | placements),
        suite=draw(st.sampled_from(["context_count", "backends", "ü & <>"])),
        axes=draw(json_objects),
        measurements=draw(json_objects),
        checks=draw(st.lists(checks, max_size=2).map(tuple)),
        outcome=outcome,
        cause=draw(st.sampled_from(["target", "infra", "config", "harness"])) if bad else None,
        expected=draw(st.sampled_from([None, {"known_issue": "some-issue"}])) if bad else None,
        error=error(
            message=draw(st.text(max_size=60)),
            code=draw(st.one_of(st.none(), st.integers(0, 2**64 - 1))),
            api=draw(st.one_of(st.none(), st.text(max_size=20))),
        )
        if bad
        else None,
        attempt=draw(st.integers(1, 3)),
        duration_s=draw(st.floats(0, 1e6)),
        device=draw(st.one_of(st.none(), st.just(DEVICE))),
    )
