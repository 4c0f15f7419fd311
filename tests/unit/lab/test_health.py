"""Devices are judged by the lab's rules; what is wrong tells which steps may help."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.lab.facts import Vitals
from harness.lab.health import (
    Health,
    HealthRules,
    TimedGate,
    gate_problem,
    judge_health,
    unreachable,
)
from harness.lab.lab_device import LabDevice
from harness.lab.recovery import check, is_worth_trying, recovery_steps
from tests.snapshots import Snapshot

ALL = ("reconnect", "end-leftovers", "restart-server", "reboot")


@pytest.mark.parametrize(
    ("reported", "state", "code"),
    [
        ({}, "good", None),
        ({"booted": True, "uptime_s": 500.0, "battery_percent": 15}, "good", None),
        ({"booted": False}, "bad", "booting"),
        ({"write_problem": "Read-only file system"}, "bad", "not-writable"),
        ({"write_problem": "No space left on device"}, "suspect", "storage-full"),
        ({"free_storage_bytes": 49_000_000}, "suspect", "low-storage"),
        ({"free_ram_bytes": 99_000_000}, "suspect", "low-memory"),
        ({"battery_percent": 14, "battery_charging": True}, "suspect", "low-battery"),
        ({"battery_percent": 14, "battery_charging": False}, "bad", "low-battery"),
        ({"remoteprocs": {"cdsp": "crashed"}}, "bad", "dsp-down"),
        ({"remoteprocs": {"cdsp0": "attached", "cdsp1": "ONLINE"}}, "good", None),
        ({"thermal_status": 2, "doze": "INACTIVE"}, "good", None),
        ({"thermal_status": 3}, "suspect", "throttled"),
        ({"thermal_status": 5}, "bad", "throttled"),
        ({"doze": "IDLE"}, "suspect", "doze"),
        # what is exactly at a limit is good
        ({"free_storage_bytes": 50_000_000, "free_ram_bytes": 100_000_000}, "good", None),
        ({"hottest_c": 90.0, "uptime_s": 60.0}, "good", None),
        ({"uptime_s": 59.9}, "suspect", "just-booted"),
        ({"hottest_c": 100.0}, "suspect", "hot"),
        ({"hottest_c": 100.1}, "bad", "hot"),
    ],
)
def test_one_thing_at_a_time(reported: dict[str, Any], state: str, code: str | None) -> None:
    health = judge_health(Vitals(**reported), HealthRules(), has_dsp=False)
    assert health.state == state
    assert [finding.code for finding in health.findings] == ([code] if code else [])
    assert str(health).startswith(state)


@pytest.mark.parametrize(("free", "code"), [(999_999, "storage-full"), (1_000_000, "not-writable")])
def test_what_cannot_be_written_where_nothing_is_free_is_full(free: int, code: str) -> None:
    vitals = Vitals(write_problem="I/O error", free_storage_bytes=free)
    findings = judge_health(vitals, HealthRules(), has_dsp=False).findings
    assert [finding.code for finding in findings] == [code, "low-storage"]


def test_a_dsp_that_cannot_be_reached(snapshot: Snapshot) -> None:
    nothing = judge_health(Vitals(), HealthRules(), has_dsp=True)
    refused = judge_health(Vitals(fastrpc={"fastrpc-cdsp": ""}), HealthRules(), has_dsp=True)
    assert (nothing.state, refused.state) == ("suspect", "suspect")
    assert list(map(str, (nothing, refused))) == snapshot
    fine = judge_health(Vitals(fastrpc={"fastrpc-cdsp": "r"}), HealthRules(), has_dsp=True)
    assert fine.state == "good"


def test_the_worst_finding_counts() -> None:
    vitals = Vitals(uptime_s=1.0, write_problem="I/O error", free_ram_bytes=1)
    health = judge_health(vitals, HealthRules(), has_dsp=False)
    assert (health.state, len(health.findings)) == ("bad", 3)
    assert Health().state == "good"
    assert str(unreachable("unplugged")) == "bad: unplugged"
    assert health.vitals is vitals


@pytest.mark.parametrize(
    ("codes", "strikes", "own_server", "may_reboot", "expected"),
    [
        ((), 1, True, True, ALL),
        ((), 2, True, True, ALL[1:]),
        ((), 4, True, True, ("reboot",)),
        ((), 5, True, True, ()),
        ((), 1, False, True, ("reconnect", "end-leftovers", "reboot")),
        ((), 1, True, False, ALL[:3]),
        (("unreachable",), 1, True, True, ALL),
        (("hot",), 1, True, True, ()),
        (("hot", "low-battery"), 1, True, True, ()),
        (("hot", "dsp-down"), 1, True, True, ALL),
    ],
)
def test_which_steps_may_bring_a_device_back(
    codes: tuple[str, ...],
    strikes: int,
    own_server: bool,
    may_reboot: bool,
    expected: tuple[str, ...],
) -> None:
    assert recovery_steps(codes, strikes, own_server=own_server, may_reboot=may_reboot) == expected


def test_what_needs_a_connection_is_not_tried_without_one() -> None:
    assert [step for step in ALL if is_worth_trying(step, {"unreachable"})] == [
        "reconnect",
        "restart-server",
    ]
    assert not is_worth_trying("reboot", {"hot"})
    assert is_worth_trying("reboot", {"dsp-down"})


@pytest.mark.parametrize(
    ("hottest_c", "busy", "problem"),
    [(None, None, None), (50.0, 0.25, None), (50.1, 0.0, "50.1"), (30.0, 0.9, "90%")],
)
def test_the_gate(hottest_c: float | None, busy: float | None, problem: str | None) -> None:
    text = gate_problem(Vitals(hottest_c=hottest_c, hottest="cpu"), busy, TimedGate())
    assert text is None if problem is None else problem in (text or "")


ANSWER = "@qnn-harness:writable\nok\n@qnn-harness:doze\n{}\n@qnn-harness:end\n"


class MockPhone:
    """A shell that tells the states of doze one after the other."""

    serial = "mock"

    def __init__(self, *states: str) -> None:
        self.states = list(states)
        self.asked: list[str] = []

    def shell(self, script: str, *, doing: str, **_: Any) -> SimpleNamespace:
        self.asked.append(doing)
        if "deviceidle disable" in script:
            assert script.index("deviceidle disable") < script.index("deviceidle enable")
            return SimpleNamespace(stdout=b"")
        return SimpleNamespace(stdout=ANSWER.format(self.states.pop(0)).encode())


@pytest.mark.parametrize(
    ("states", "codes", "queries"),
    [
        (("ACTIVE",), [], 1),
        (("",), [], 1),
        (("IDLE", "ACTIVE"), ["woken"], 3),
        (("IDLE", "IDLE_MAINTENANCE"), ["doze"], 3),
    ],
)
def test_a_phone_in_doze(states: tuple[str, ...], codes: list[str], queries: int) -> None:
    phone = MockPhone(*states)
    attached = SimpleNamespace(transport=phone, workdir="/w", has_dsp=False)
    device = SimpleNamespace(attach=lambda: attached, health_rules=HealthRules(), name="mock")
    health = check(cast("LabDevice", device), lambda _: None)
    assert [finding.code for finding in health.findings] == codes
    assert len(phone.asked) == queries
