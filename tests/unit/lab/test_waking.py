"""A phone in doze is woken before it is judged, and told where that does not help."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.lab.attach import LabDevice
from harness.lab.health import HealthRules
from harness.lab.recovery import check

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
