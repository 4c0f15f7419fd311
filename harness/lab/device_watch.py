"""Health of a run's devices: checks them, recovers them, or takes them out of use."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceHot, InfraError
from harness.core.notices import progress_reporter
from harness.lab.facts import ask_load, ask_vitals
from harness.lab.health import (
    AROUND,
    DeviceEvent,
    EventHandler,
    EventKind,
    Health,
    HealthFinding,
    Offline,
    Quarantine,
    Until,
    gate_problem,
    unreachable,
)
from harness.lab.lab_device import LabDevice
from harness.lab.lease import DeviceHeld
from harness.lab.recovery import (
    ProbeProblem,
    Recovery,
    RecoveryStep,
    check,
    is_worth_trying,
    recovery_steps,
)

# a device that does not answer may be back at any time, others wait for a person
_LOOK_AGAIN_S: Final[Mapping[Until, float]] = {"answers": 15.0, "healed": 60.0}
# checks of a lost device take at most a fifth of the run's time
_LOOKS_SHARE: Final = 0.2
_CASES_IN_A_ROW: Final = 3
# the number of failures in a row that recovery is tried after; without retries each ends a case
_STEPS: Final = 4
_GATE_POLL_S: Final = 5.0
# a device that a power cycle did not bring back is switched again after 10, 20 ... 160 minutes
_SWITCH_AGAIN_S: Final = 600.0
_PAUSE_S: Final = (0.5, 10.0)
# a simulated device comes back when it is started, or not at all
_ROUNDS_OF_OURS: Final = 2
_log = logging.getLogger(__name__)


class DeviceWatch:
    """The health of a run's devices.

    A device is checked before its first use and after each failure of the lab on it. When it is
    bad, or fails again and again, the recovery steps are taken; where they do not help it ends in
    quarantine, which outlasts the run and ends with a check that finds the device healthy.
    """

    def __init__(
        self,
        quarantine: Quarantine,
        *,
        probe_problem: ProbeProblem,
        on_event: EventHandler,
        thorough: ProbeProblem | None = None,
        clock: Callable[[], float] = time.time,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`thorough` deploys the probe first; it is called before a quarantine ends.

        Once the run `is_over`, devices are neither recovered nor given up.
        """
        self._quarantine = quarantine
        self._thorough = thorough or probe_problem
        self._probe_problem = probe_problem
        self._on_event = on_event
        self._clock = clock
        self._is_over = is_over
        # simulated devices share one adb server, which is restarted for all of them
        self._ours = threading.Lock()

    def require(self, device: LabDevice) -> None:
        """Make sure that a device may be used; return at once if it was found healthy before.

        A device that was given up is checked again once in a while. Raises InfraError saying why
        it may not be used.
        """
        if device.fitness.is_fit:
            return
        if (offline := device.fitness.offline) is not None:
            if not self.is_due(device):
                raise offline.error
            device.release()
        try:
            device.acquire()
            self._make_fit(device)
        except DeviceHeld as error:
            # nothing is wrong with it, so it is not put into quarantine
            self.keep_out(device, error)
            raise

    def is_due(self, device: LabDevice) -> bool:
        """Return whether a device that was given up should be checked again."""
        offline = device.fitness.offline
        return offline is not None and self._clock() >= offline.look_at

    def _make_fit(self, device: LabDevice) -> None:
        start, health = self._clock(), self._check(device, even_good=True)
        entry, is_offline = self._quarantine.find(device.key), device.is_offline
        if health.state == "bad" and not is_offline and (entry is None or device.was_reached):
            health = self._recover(device, health, strikes=1)
        elif health.state == "bad" and is_offline:
            recovery = Recovery(device, Deadline(0), self._is_over)
            health = self._switch(device, health, recovery)
        was_unwell = is_offline or (entry is not None and entry.until != "answers")
        if health.state != "bad" and was_unwell:
            health = self._look(device, self._thorough)
        if health.state == "bad":
            raise self._give_up(device, health, look_s=self._clock() - start if is_offline else 0.0)
        self._take_back(device, health)

    def failed(self, device: LabDevice, *, case_over: bool) -> bool:
        """Handle a failure of the lab on a device. Return whether it can be used again.

        `case_over`: the case is not tried again on it. A device that was reached before gets
        `come_back_s` to be reached again. One that is bad and stays so is given up, and so is one
        that looks healthy but gave no verdict to several cases in a row, whatever was done.
        """
        fitness = device.fitness
        if device.is_offline:
            return False
        fitness.is_fit = False
        fitness.strikes += 1
        fitness.cases_lost += case_over
        try:
            health = self._look(device)
            # where it is not reached, nothing that helped before has been tried in vain
            strikes = 1 if _is_gone(health) else fitness.strikes
            with self._ours if device.is_simulated_here else contextlib.nullcontext():
                health = self._recover(device, health, strikes=strikes)
        except DeviceHeld as error:
            self.keep_out(device, error)
            return False
        in_vain = fitness.strikes > _STEPS and fitness.cases_lost >= _CASES_IN_A_ROW
        if health.state != "bad" and in_vain:
            why = f"the last {fitness.cases_lost} cases on it got no verdict, despite recovery"
            health = Health(
                (*health.findings, HealthFinding("bad", "keeps-failing", why)), health.vitals
            )
        if health.state == "bad":
            self._give_up(device, health)
            return False
        fitness.is_fit, fitness.checked = True, self._clock()
        return True

    def keep_out(
        self, device: LabDevice, error: InfraError, *, until: Until = "answers", look_s: float = 0.0
    ) -> None:
        """Keep cases off a device until it is checked again."""
        pause_s = max(_LOOK_AGAIN_S[until], look_s * (1 / _LOOKS_SHARE - 1))
        device.fitness.is_fit = False
        device.fitness.offline = Offline(error, self._clock() + pause_s)

    def heal(self, device: LabDevice) -> Health:
        """Check a device, recover it if it is bad, and put it back into use if it is healthy.

        Raises DeviceHeld if another process uses it.
        """
        health = self._check(device)
        if health.state == "bad":
            health = self._recover(device, health, strikes=1)
        if health.state != "bad":
            health = self._look(device, self._thorough)
        if health.state != "bad":
            self._take_back(device, health)
        return health

    def wait_until_idle(self, device: LabDevice, *, may_move: bool = False) -> dict[str, object]:
        """Wait until a device is cool and idle enough for a timed case. Return its state then.

        Returns {} for a device without a gate. Raises InfraError after `wait_s` of the gate. A case
        that `may_move` to another device does not wait until it is cool: raises DeviceHot.
        """
        name, gate = device.name, device.gate
        if gate is None:
            return {}
        start, started = self._clock(), datetime.now(UTC)
        with progress_reporter(name) as report:
            while True:
                attached = device.attach()
                vitals = ask_vitals(attached.transport, attached.workdir)
                device.fitness.vitals = self._clock(), vitals
                if may_move and (heat := gate_problem(vitals, None, gate)) is not None:
                    raise DeviceHot(f"device {name} is too hot for a timed case: {heat}")
                busy = ask_load(attached.transport)
                why = gate_problem(vitals, busy, gate)
                waited_s = round(self._clock() - start, 1)
                if why is None:
                    return {"waited_s": waited_s, "hottest_c": vitals.hottest_c, "busy": busy}
                report(f"waiting: {why}")
                if waited_s >= gate.wait_s:
                    text = f"device {name} is not fit for a timed case after {waited_s:g} s: {why}"
                    self._on_event(
                        DeviceEvent(
                            device=name,
                            event="gate",
                            state="suspect",
                            findings=("gate",),
                            detail=text,
                            started=started,
                            duration_s=waited_s,
                        )
                    )
                    raise InfraError(text)
                time.sleep(min(_GATE_POLL_S, max(0.1, gate.wait_s - waited_s)))

    def environment(self, device: LabDevice) -> dict[str, object]:
        """Return the environment of a case that starts on a device, from the last check (no I/O).

        `cases_before` is the number of cases started there before it. The figures are of the
        last check, `seen_s` ago.
        """
        shown: dict[str, object] = {"cases_before": device.fitness.cases}
        device.fitness.cases += 1
        if device.fitness.vitals is not None:
            checked, vitals = device.fitness.vitals
            shown |= {key: value for key in AROUND if (value := getattr(vitals, key)) is not None}
            shown["seen_s"] = round(self._clock() - checked, 1)
        return shown

    def _recover(self, device: LabDevice, health: Health, *, strikes: int) -> Health:
        """Take steps until the device is healthy. Return its health after the last one.

        A device that was reached and is gone, if only since the last step, is waited for; a host
        that is gone is waited for only once, however many devices it has.
        """
        rules, ours = device.recovery_rules, device.is_simulated_here
        patient = not ours and device.was_reached and not _host_is_out(device)
        come_back = Deadline(rules.come_back_s if patient else 0)
        recovery = Recovery(device, come_back, self._is_over)
        if come_back.seconds and _is_gone(health):
            name, limit = device.name, f"{rules.come_back_s} s"
            _log.warning(f"device {name} does not answer: waiting up to {limit} for it")
        pause_s, most_s = _PAUSE_S
        for number in itertools.count(1):
            codes = _codes(health)
            is_full = any(finding.code == "storage-full" for finding in health.findings)
            for step in recovery_steps(
                codes,
                strikes,
                own_server=ours and not _others_run(device),
                may_reboot=device.may_reboot and not is_full,
            ):
                if self._is_over():
                    raise InfraError(f"device {device.name} was not recovered: the run has ended")
                if is_worth_trying(step, _codes(health)):
                    health = self._take_step(device, step, health, recovery)
                    if health.state != "bad":
                        return health
            is_last = number >= _ROUNDS_OF_OURS if ours else come_back.expired
            if is_last or not _is_gone(health):
                break
            time.sleep(min(pause_s, come_back.remaining()))
            pause_s, strikes = min(2 * pause_s, most_s), 1
        return self._switch(device, health, recovery)

    def _switch(self, device: LabDevice, health: Health, recovery: Recovery) -> Health:
        """Power-cycle a bad device where that may help, ever less often. Return its health."""
        fitness, now = device.fitness, self._clock()
        is_allowed = device.may_reboot or device.config.power is not None
        helps = health.state == "bad" and is_worth_trying("power-cycle", _codes(health))
        is_due = now >= fitness.switch_at and not self._is_over()
        if not (is_allowed and helps and is_due and device.can_power_cycle):
            return health
        fitness.switch_at = now + _SWITCH_AGAIN_S * 2 ** min(fitness.switches, 4)
        fitness.switches += 1
        return self._take_step(device, "power-cycle", health, recovery)

    def _take_step(
        self, device: LabDevice, step: RecoveryStep, health: Health, recovery: Recovery
    ) -> Health:
        start, problem = self._clock(), None
        with progress_reporter(device.name) as report:
            report(f"recovering: {step}")
            try:
                recovery.run(step)
                health = self._look(device)
            except DeviceHeld:
                raise
            except InfraError as error:
                problem = str(error)
                # a step that waited for the device in vain has shown that it is unreachable
                waited = step in ("reconnect", "power-cycle")
                lost = (each for each in health.findings if each.code == "unreachable")
                findings = [each for each in lost if problem.partition("; ")[0] not in each.text]
                findings += unreachable(problem).findings
                health = Health(tuple(findings)) if waited else self._look(device)
        self._say(device, step, health, start, problem)
        return health

    def _look(self, device: LabDevice, probe_problem: ProbeProblem | None = None) -> Health:
        health = check(device, probe_problem or self._probe_problem)
        if health.vitals is not None:
            device.fitness.vitals = self._clock(), health.vitals
        return health

    def _check(self, device: LabDevice, *, even_good: bool = False) -> Health:
        start, health = self._clock(), self._look(device)
        if health.state != "good" or even_good:
            self._say(device, "health", health, start)
        return health

    def _say(
        self,
        device: LabDevice,
        event: EventKind,
        health: Health,
        start: float | None = None,
        problem: str | None = None,
    ) -> None:
        detail = str(health)
        if problem is not None and problem not in detail:
            detail = f"{problem}; {detail}"
        took_s = 0.0 if start is None else round(max(0.0, self._clock() - start), 3)
        started = datetime.now(UTC) - timedelta(seconds=took_s)
        self._on_event(
            DeviceEvent(
                device=device.name,
                event=event,
                state=health.state,
                findings=tuple(finding.code for finding in health.findings),
                detail=detail,
                started=started,
                duration_s=took_s,
                vitals=health.vitals,
            )
        )

    def _give_up(self, device: LabDevice, health: Health, *, look_s: float = 0.0) -> InfraError:
        """Take a device out of use, and report it if that is news."""
        why = "; ".join(finding.text for finding in health.findings)
        # a simulated device has no cable that somebody might plug in
        is_gone = _is_gone(health) and not device.is_simulated_here
        if is_gone:
            why = f"it does not answer: {why}"
        entry = self._quarantine.find(device.key)
        if entry is None or (entry.until == "answers" and not is_gone):
            until: Until = "answers" if is_gone else "healed"
            entry = self._quarantine.put(device.key, why, until=until)
            self._say(device, "quarantine", health)
        status = "is in quarantine" if entry.until == "healed" else "is not used"
        error = InfraError(f"device {device.name} {status}: {why}. {entry.end(device.name)}")
        self.keep_out(device, error, until=entry.until, look_s=look_s)
        device.release()
        return error

    def _take_back(self, device: LabDevice, health: Health) -> None:
        fitness = device.fitness
        if self._quarantine.lift(device.key) or device.is_offline:
            self._say(device, "healed", health)
        fitness.offline = None
        fitness.succeeded()
        fitness.is_fit, fitness.checked = True, self._clock()


def _others_run(device: LabDevice) -> bool:
    devices = map(device.lab.device, (each.name for each in device.lab.described.enabled_devices()))
    others = (other for other in devices if other is not device)
    return any(other.is_simulated_here and other.fitness.is_fit for other in others)


def _host_is_out(device: LabDevice) -> bool:
    host, known = device.lost_host, device.lab.devices
    return host is not None and any(d.fitness.offline and d.lost_host == host for d in known)


def _is_gone(health: Health) -> bool:
    return "unreachable" in _codes(health)


def _codes(health: Health) -> set[str]:
    return {finding.code for finding in health.findings if finding.state == "bad"}
