"""Health checks of devices, and the steps that may recover one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from harness.core.deadline import Deadline
from harness.core.errors import DeviceTimeout, InfraError
from harness.lab.facts import DOZING, VITALS_S, ask_vitals
from harness.lab.health import Health, HealthFinding, judge_health, unreachable
from harness.lab.lab_device import LabDevice
from harness.lab.lease import DeviceHeld
from harness.transport.device import Transport

_LEFTOVERS_S: Final = 8.0
_LEAST_S: Final = 5.0
_GOING_DOWN_S: Final = 30.0
_POLL_S: Final = 0.25
_WAKE: Final = (
    "dumpsys deviceidle unforce;dumpsys deviceidle disable;dumpsys deviceidle enable;"
    "input keyevent KEYCODE_WAKEUP"
)

RecoveryStep = Literal["reconnect", "end-leftovers", "restart-server", "reboot", "power-cycle"]

# Only time or a person helps against these.
_BEYOND_OUR_POWER: Final = frozenset({"hot", "low-battery"})
_NEED_A_CONNECTION: Final[frozenset[RecoveryStep]] = frozenset({"end-leftovers", "reboot"})

ProbeProblem = Callable[[LabDevice], str | None]
"""Says why the probe does not run on a device that answers, None if it does or is not there yet."""


def wake(way: Transport) -> None:
    """Wake a phone from doze by means of adb's shell, whose effects end by themselves.

    Switching the screen on ends doze only if it is not locked; disabling doze ends it at once
    (DeviceIdleController, its command `disable`). Raises DeviceError.
    """
    way.shell(_WAKE, timeout_s=_LEFTOVERS_S, max_output_bytes=4096, doing="wake it from doze")


def check(device: LabDevice, probe_problem: ProbeProblem) -> Health:
    """Attach a device if necessary, and judge its health.

    Raises ConfigError, and DeviceHeld if another process turns out to use it.
    """
    try:
        attached = device.attach()
        vitals = ask_vitals(attached.transport, attached.workdir)
        if dozed := vitals.doze in DOZING:
            wake(attached.transport)
            vitals = ask_vitals(attached.transport, attached.workdir)
        health = judge_health(vitals, device.health_rules, has_dsp=attached.has_dsp)
        if dozed and vitals.doze not in DOZING:
            woken = HealthFinding("suspect", "woken", "it was in doze, and was woken")
            health = Health((*health.findings, woken), vitals)
        why = probe_problem(device) if health.state != "bad" else None
    except DeviceHeld:
        raise
    except InfraError as error:
        return unreachable(str(error))
    if why is None:
        return health
    finding = HealthFinding("bad", "probe-fails", f"the probe does not run: {why}")
    return Health((*health.findings, finding), vitals)


def recovery_steps(
    codes: Collection[str], strikes: int, *, own_server: bool, may_reboot: bool
) -> tuple[RecoveryStep, ...]:
    """Return the steps to try in turn until the device is healthy; none: only quarantine helps.

    `codes` are what is wrong with it (none: it looks healthy), `strikes` counts the failures of the
    lab on it since a case last went well, this one included: a step that a device looked healthy
    after, and then failed again, is not taken twice.
    """
    if codes and _BEYOND_OUR_POWER.issuperset(codes):
        return ()
    steps: list[RecoveryStep] = ["reconnect", "end-leftovers"]
    if own_server:
        steps.append("restart-server")
    if may_reboot:
        steps.append("reboot")
    return tuple(steps[max(0, strikes - 1) :])


def is_worth_trying(step: RecoveryStep, codes: Collection[str]) -> bool:
    """Return whether a step may help a device with these findings."""
    if codes and _BEYOND_OUR_POWER.issuperset(codes):
        return False
    return not ("unreachable" in codes and step in _NEED_A_CONNECTION)


@dataclass(frozen=True)
class Recovery:
    """The recovery steps, taken on one device.

    `come_back` is the deadline for a device that is gone to come back; once the run `is_over`,
    nothing is waited for.
    """

    device: LabDevice
    come_back: Deadline
    is_over: Callable[[], bool] = lambda: False

    def run(self, step: RecoveryStep) -> None:
        """Take one step, within a bound of its own. Raises InfraError if it cannot be done."""
        device, rules = self.device, self.device.recovery_rules
        match step:
            case "reconnect":
                self._wait_for(self.come_back)
            case "end-leftovers":
                if not device.attach().transport.end_leftovers(timeout_s=_LEFTOVERS_S):
                    problem = (
                        f"processes of earlier runs on device {device.name} could not be ended"
                    )
                    raise InfraError(problem)
            case "restart-server":
                device.lab.restart_server()
                device.attach()
            case "reboot":
                self._reboot(Deadline(rules.reboot_timeout_s))
            case "power-cycle":
                device.release()
                device.power_cycle()
                self._wait_for(Deadline(rules.reboot_timeout_s))

    def _wait_for(self, deadline: Deadline, before: str | None = None) -> None:
        """Wait until it has booted and answers; its boot id must differ from `before`."""
        device, is_lost = self.device, True
        while True:
            try:
                if is_lost:  # a device that is booting is left alone
                    device.release()
                    device.reconnect(within_s=max(_LEAST_S, deadline.remaining()))
                device.detach()
                is_lost, up = True, device.attach()
                within_s = min(VITALS_S, max(_LEAST_S, deadline.remaining()))
                vitals = ask_vitals(up.transport, up.workdir, timeout_s=within_s)
                is_lost, again = False, before is not None and vitals.boot_id == before
                if vitals.booted is not False and not again:
                    return
                why = "has not rebooted" if again else "has not finished booting"
                raise InfraError(f"device {device.name} {why}")
            except DeviceHeld:
                raise
            except InfraError:
                if deadline.expired or self.is_over():
                    raise
            time.sleep(min(2 * _POLL_S, deadline.remaining()))

    def _reboot(self, deadline: Deadline) -> None:
        device = self.device.attach()
        way, before = device.transport, None
        with contextlib.suppress(InfraError):
            before = ask_vitals(way, device.workdir, timeout_s=5).boot_id
        way.reboot(timeout_s=deadline.at_most(15).seconds)
        self._wait_until_down(way, deadline.at_most(_GOING_DOWN_S))
        try:
            self._wait_for(deadline, before)
        except DeviceHeld:
            raise
        except InfraError as error:
            text = f"it did not come back within {deadline.seconds:g} s of a reboot: {error}"
            raise DeviceTimeout(text, serial=way.serial, command="reboot") from error

    def _wait_until_down(self, way: Transport, deadline: Deadline) -> None:
        while not deadline.expired:
            try:
                if not way.is_there(timeout_s=deadline.at_most(5).seconds):
                    return
            except InfraError:
                return
            time.sleep(min(_POLL_S / 5, deadline.remaining()))
