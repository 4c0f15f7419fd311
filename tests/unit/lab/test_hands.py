"""A manual action is named with its reason, and only where nothing else helps."""

from __future__ import annotations

import pytest

from harness.lab.health import HealthFinding, State
from harness.lab.recovery import needs_hands
from harness.transport.adb_device import UNPLUGGED
from harness.transport.adb_server import STATE_ADVICE, state_advice


@pytest.mark.parametrize(
    ("state", "code", "why", "advice"),
    [
        ("bad", "low-battery", "its battery has 3 %", "charge it: another cable"),
        ("suspect", "low-battery", "its battery has 14 % and is charging", None),
        ("bad", "hot", "101 C", "let it cool down"),
        ("suspect", "throttled", "severe", None),
        ("suspect", "developer-off", "are off", "switch its developer options"),
        ("suspect", "doze", "does not wake", "unlock it"),
        ("suspect", "update-pending", "waits", None),
        ("bad", "dsp-down", "cdsp is crashed", "`qnn-harness doctor desk`"),
        ("bad", "keeps-failing", "whatever was done", "`qnn-harness doctor desk`"),
        ("bad", "unreachable", f"device 1a {UNPLUGGED}: not attached", "plug it in, switch it on"),
        ("bad", "unreachable", "device 1a is unauthorized: x", STATE_ADVICE["unauthorized"]),
        ("bad", "unreachable", "device 1a is no permissions: x", "udev rule"),
        ("bad", "unreachable", "device 1.2.3.4:5 is offline: x", "qnn-harness devices heal"),
        ("bad", "unreachable", "1.2.3.4:5 did not become ready: it is offline", "devices heal"),
        ("bad", "unreachable", "1.2.3.4:5 cannot be connected: refused", "correct its address"),
        ("bad", "unreachable", "nobody knows", "screen, cable, power"),
        ("bad", "unreachable", "no adb server answers at x", "see why its adb server"),
    ],
)
def test_what_hands_must_do(state: State, code: str, why: str, advice: str | None) -> None:
    other = HealthFinding("suspect", "low-memory", "little")
    action = needs_hands("desk", [other, HealthFinding(state, code, why)])
    if advice is None:
        assert action is None
        return
    assert action is not None
    assert action.why == why
    assert advice in action.do
    assert "\n" not in action.do


@pytest.mark.parametrize("code", ["unreachable", "dsp-down", "low-battery"])
def test_a_simulated_device_has_no_cable(code: str) -> None:
    action = needs_hands("sim-v73", [HealthFinding("bad", code, "why")], simulated=True)
    assert action is not None
    assert "qnn-harness devices heal sim-v73" in action.do
    assert "cable" not in action.do


@pytest.mark.parametrize(
    ("state", "serial", "expected"),
    [
        ("offline", "1a2b", "reconnect its cable"),
        ("offline", "127.0.0.1:5555", "qnn-harness devices heal"),
        ("unauthorized", "127.0.0.1:5555", "accept this computer's key"),
        ("asleep", "1a2b", "nobody knows"),
    ],
)
def test_only_what_hangs_on_a_cable_is_told_of_one(state: str, serial: str, expected: str) -> None:
    advice = state_advice(state, serial, "nobody knows")
    assert expected in advice
    assert ("cable" in advice) == (expected == "reconnect its cable")


def test_a_device_that_is_well_needs_none() -> None:
    assert needs_hands("desk", []) is None
