"""The deadline of a plan, and the proof that a process was alive then."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import LOOK_S, alive_at_deadline, with_deadline
from harness.probe.transcript import Accepted, Done, Start, Transcript
from harness.transport.shell import RemoteProcesses

NOTHING = Plan((Step("noop"),))


@given(st.floats(0.0001, 10_000), st.booleans())
def test_a_probe_can_tell_of_its_deadline_before_it_is_told(
    timeout_s: float, inspects: bool
) -> None:
    """A look is beyond all deadlines, so it takes nothing from the plan's own time either."""
    settings = with_deadline(NOTHING, timeout_s, lingers=inspects).settings
    assert settings.deadline_ms is not None
    assert settings.deadline_ms == with_deadline(NOTHING, timeout_s).settings.deadline_ms
    kept_s = min(timeout_s / 4, 2)  # for what comes behind
    assert settings.deadline_ms == pytest.approx((timeout_s - kept_s) * 1000, abs=2)
    assert settings.linger_ms == (LOOK_S * 1000 if inspects else Settings().linger_ms)


def test_a_plans_own_deadline_stays() -> None:
    plan = Plan(NOTHING.steps, Settings(deadline_ms=77, linger_ms=5))
    assert with_deadline(plan, 20, lingers=True) == plan


ALIVE: dict[str, Any] = {"pid": 7, "accepted": 100_000_000, "finished": None}
FOUND = RemoteProcesses(105.0, {7: "S", 8: "R"})


@pytest.mark.parametrize(
    ("events", "processes", "late_bytes", "alive"),
    [
        ({}, FOUND, 0, True),
        ({}, FOUND, None, False),
        ({}, RemoteProcesses(105.0, {7: "D"}), None, True),
        ({}, RemoteProcesses(105.0, {7: "S", 8: "D"}), None, False),
        ({}, RemoteProcesses(104.99, {7: "D"}), None, False),
        ({}, RemoteProcesses(105.0, {7: "D"}), 4096, False),
        ({"pid": None}, RemoteProcesses(105.0, {8: "D"}), None, False),
        ({}, RemoteProcesses(105.0, {7: "T"}, ended=True), 0, True),
        ({}, RemoteProcesses(104.99, {7: "S"}), 0, False),
        ({}, RemoteProcesses(105.0, {8: "R"}), 0, False),
        ({}, RemoteProcesses(105.0, {}, ended=True), 0, False),
        ({}, RemoteProcesses(), 0, False),
        # as much as a pipe takes at the least, one page
        ({}, FOUND, 4095, True),
        ({}, FOUND, 4096, False),
        ({"accepted": None}, FOUND, 0, False),
        ({"accepted": 100_000_001}, FOUND, 0, False),
        ({"finished": Done(1, 0)}, FOUND, 0, False),
        ({"pid": None}, RemoteProcesses(105.0, {8: "R"}), 0, True),
        ({"pid": None}, RemoteProcesses(105.0, {}), 0, False),
    ],
)
def test_what_proves_that_a_process_was_alive(
    events: dict[str, Any], processes: RemoteProcesses, late_bytes: int | None, alive: bool
) -> None:
    """`late_bytes` is None where the stream was not read to its end."""
    fields = ALIVE | events
    start = Start(source="x", pid=fields.pop("pid"), target="t")
    at_us = fields.pop("accepted")
    accepted = None if at_us is None else Accepted(checksum=1, steps=1, boot_us=at_us)
    transcript = Transcript(start=start, accepted=accepted, **fields)
    late = {"late_bytes": late_bytes or 0, "read_to_end": late_bytes is not None}
    assert alive_at_deadline(transcript, processes, 5.0, **late) is alive  # type: ignore[arg-type]


def test_without_a_start_nothing_is_proven() -> None:
    transcript = Transcript(accepted=Accepted(1, 1, 100_000_000))
    assert not alive_at_deadline(transcript, FOUND, 5.0)
    assert alive_at_deadline(replace(transcript, start=Start("x", 7, "t")), FOUND, 5.0)
