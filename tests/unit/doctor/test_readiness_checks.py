"""Checks of a phone's settings: unknown where the phone says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from harness.doctor.check import Answer
from harness.doctor.device_checks import readiness_answers
from harness.lab.facts import Readiness, Vitals
from harness.lab.health import HealthRules, judge_health

WELL = {
    "is_plugged": True,
    "charge_limit": "protect_battery=1",
    "doze": "ACTIVE",
    "thermal_status": 0,
    "users": (0,),
    "user": 0,
    "developer": True,
    "key_days": 0.0,
}


def answers(percent: int | None = 80, **ready: Any) -> dict[str, Answer]:
    vitals = Vitals(battery_percent=percent, ready=Readiness(**ready))
    findings = judge_health(vitals, HealthRules(), has_dsp=False).findings
    return dict(readiness_answers(vitals, {finding.code: finding for finding in findings}))


def test_a_phone_that_is_ready() -> None:
    other_answers = answers(**WELL)
    assert {answer.status for answer in other_answers.values()} == {"ok"}
    assert {answer.advice for answer in other_answers.values()} == {""}
    assert other_answers["charging"].found == "protect_battery=1, 80 %"
    assert other_answers["users"].found == "0"
    assert other_answers["thermal status"].found == "none"
    assert other_answers["doze"].found == "ACTIVE"
    vitals = Vitals(screen_on=False, ready=Readiness(doze="ACTIVE"))
    assert dict(readiness_answers(vitals, {}))["doze"].found == "ACTIVE, screen off"


def test_what_a_phone_does_not_say_is_unknown() -> None:
    other_answers = answers()
    unknown = {name for name, answer in other_answers.items() if answer.status == "unknown"}
    assert unknown == set(other_answers) - {"figures set by hand"}
    assert "charging" not in answers(percent=None)
    assert "adb keys" not in other_answers


@pytest.mark.parametrize(
    ("changes", "name", "status", "text"),
    [
        (
            {"percent": 95, "charge_limit": None},
            "charging",
            "warn",
            "no known limit, 95 %",
        ),
        ({"percent": 94, "charge_limit": None}, "charging", "ok", "no known limit, 94 %"),
        ({"percent": 100, "is_plugged": False}, "charging", "ok", "100 %"),
        ({"thermal_status": 3}, "thermal status", "warn", "severe"),
        ({"thermal_status": 5}, "thermal status", "fail", "emergency"),
        ({"doze": "IDLE"}, "doze", "warn", "doze (IDLE)"),
        ({"battery_held": True}, "figures set by hand", "warn", "battery reset"),
        ({"update": "16.1"}, "system update", "warn", "16.1"),
        ({"developer": False}, "developer options", "warn", "are off"),
        ({"user": 10, "users": (0, 10)}, "users", "warn", "user 10"),
        ({"key_days": 7.0}, "adb keys", "warn", "forgotten after 7 days without adb"),
    ],
)
def test_what_is_in_the_way(changes: dict[str, Any], name: str, status: str, text: str) -> None:
    check = answers(**(WELL | changes))[name]
    assert check.status == status
    assert text in check.found
    assert bool(check.advice) == (status != "ok")
