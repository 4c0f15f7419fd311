"""One device as the doctor sees it, and how its checks are worded (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.doctor.device_script import DeviceAnswers
from harness.lab.checks import Check, Status
from harness.lab.facts import DeviceFacts
from harness.lab.health import Finding, HealthRules, judge_health
from harness.lab.inventory import DeviceConfig
from harness.qnn.platforms import PLATFORMS, Platform
from harness.qnn.socs import SOCS

_MAX_SHOWN: Final = 4


@dataclass(frozen=True)
class Patient:
    """One device as the doctor sees it; `skew_s` is how far its clock is ahead of the host's."""

    config: DeviceConfig
    facts: DeviceFacts
    target: str
    workdir: str
    answers: DeviceAnswers
    rules: HealthRules
    skew_s: float | None

    @property
    def platform(self) -> Platform:
        """What its system is like."""
        return PLATFORMS[self.target]

    @property
    def no_dsp(self) -> str | None:
        """Why it has no DSP to look for; None if it should have one."""
        if not self.platform.has_dsp:
            return "the HTP is a simulator inside libQnnHtp.so"
        return "a simulated board has no DSP and no GPU" if self.config.simulated else None

    @property
    def htp_arch(self) -> int | None:
        """As configured, else that of its SoC."""
        known = SOCS.get(self.config.soc or self.facts.soc or "")
        return self.config.htp_arch or (known.htp_arch if known else None)

    @property
    def findings(self) -> dict[str, Finding]:
        """What its health rules object to, by code."""
        health = judge_health(self.answers.vitals, self.rules, has_dsp=False)
        return {finding.code: finding for finding in health.findings}

    def check(self, name: str, status: Status, found: str, advice: str = "") -> Check:
        """A check of this device."""
        return Check("device", self.config.name, name, status, found, advice)


def listed(items: list[str]) -> str:
    """The first of several things, and how many more there are."""
    shown = ", ".join(items[:_MAX_SHOWN])
    more = len(items) - _MAX_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
