"""Keeps the devices of a run fit: checks them, brings them back, or takes them out of use."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from harness.errors import InfraError
from harness.lab.attach import OpenLab
from harness.lab.events import EventKind, LabEvent, Tell
from harness.lab.health import Finding, Health, gate_problem, unreachable
from harness.lab.ladder import is_worth_trying, rungs
from harness.lab.lease import DeviceHeld
from harness.lab.quarantine import Quarantine
from harness.lab.recovery import ProbeProblem, Recovery, ask_load, ask_vitals, check

_LOOK_AGAIN_S: Final = 60.0
_CASES_IN_A_ROW: Final = 3
_GATE_POLL_S: Final = 5.0


class DeviceCare:
    """What a run knows about the health of its devices.

    A device is checked before its first use and after each failure of the lab on it. When it is
    bad, or fails again and again, the ladder is climbed; what does not help ends in quarantine,
    which outlasts the run and ends with a check that finds the device well.
    """

    def __init__(
        self,
        lab: OpenLab,
        quarantine: Quarantine,
        *,
        probe_problem: ProbeProblem,
        tell: Tell,
        thorough: ProbeProblem | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`thorough` puts the probe there first; it is asked before a quarantine ends."""
        self._lab = lab
        self._quarantine = quarantine
        self._thorough = thorough or probe_problem
        self._probe_problem = probe_problem
        self._tell = tell
        self._clock = clock
        self._fit: set[str] = set()
        self._strikes: dict[str, int] = {}
        self._cases: dict[str, int] = {}
        self._known: set[str] = set()
        self._out: dict[str, tuple[InfraError, float]] = {}

    def is_out(self, name: str) -> bool:
        """Whether a device takes no cases now."""
        return name in self._out

    def require(self, name: str) -> None:
        """Makes sure that a device may be used; at once if it was found well before.

        A device that was given up is looked at again when a minute has passed since. Raises
        InfraError saying why it may not be used.
        """
        if name in self._fit:
            return
        if name in self._out:
            error, at = self._out[name]
            if self._clock() - at < _LOOK_AGAIN_S:
                raise error
            self._lab.release(name)
        try:
            self._lab.hold(name)
        except DeviceHeld as held:
            # nothing is wrong with it, so it is not put into quarantine
            self._out[name] = held, self._clock()
            raise
        health = self._check(name, "health")
        entry = self._quarantine.find(self._lab.key(name))
        if health.state == "bad" and name not in self._out and entry is None:
            health = self._climb(name, health, strikes=self._first_strike(name, health))
        if health.state != "bad" and (entry is not None or name in self._out):
            health = self._look(name, self._thorough)
        if health.state == "bad":
            raise self._give_up(name, health, earlier=entry.why if entry else None)
        self._take_back(name, health)

    def failed(self, name: str, *, case_over: bool) -> bool:
        """To be called after each failure of the lab on a device; whether it can be used again.

        `case_over`: the case is not tried again on it. A device that is bad and stays so is given
        up, and so is one that looks well but gave no verdict to several cases in a row.
        """
        if name in self._out:
            return False
        self._fit.discard(name)
        self._strikes[name] = self._strikes.get(name, 0) + 1
        self._cases[name] = self._cases.get(name, 0) + case_over
        health = self._look(name)
        # where it is not reached, nothing that helped before has been tried in vain
        strikes = 1 if "unreachable" in _codes(health) else self._strikes[name]
        health = self._climb(name, health, strikes=strikes)
        if health.state != "bad" and self._cases[name] >= _CASES_IN_A_ROW:
            why = f"the last {self._cases[name]} cases on it came to no verdict, whatever was done"
            health = Health((*health.findings, Finding("bad", "keeps-failing", why)), health.vitals)
        if health.state == "bad":
            self._give_up(name, health)
            return False
        self._fit.add(name)
        return True

    def succeeded(self, name: str) -> None:
        """To be called after each case that the lab survived."""
        self._strikes.pop(name, None)
        self._cases.pop(name, None)

    def heal(self, name: str) -> Health:
        """Checks a device, climbs the whole ladder if it is bad, and takes it back if it is not."""
        health = self._check(name, "health")
        if health.state == "bad":
            health = self._climb(name, health, strikes=self._first_strike(name, health))
        if health.state != "bad":
            health = self._look(name, self._thorough)
        if health.state != "bad":
            self._take_back(name, health)
        return health

    def settle(self, name: str) -> dict[str, object]:
        """Waits until a device is cool and idle enough for a timed case; what it was like then.

        Returns {} for a device without a gate. Raises InfraError if it does not become so.
        """
        gate = self._lab.lab.gate_of(name)
        if gate is None:
            return {}
        began, started = self._clock(), datetime.now(UTC)
        while True:
            device = self._lab.device(name)
            vitals = ask_vitals(device.adb, device.workdir)
            busy = ask_load(device.adb)
            why = gate_problem(vitals, busy, gate)
            waited_s = round(self._clock() - began, 1)
            if why is None:
                return {"waited_s": waited_s, "hottest_c": vitals.hottest_c, "busy": busy}
            if waited_s >= gate.wait_s:
                text = f"device {name} is not fit for a timed case after {waited_s:g} s: {why}"
                self._tell(LabEvent(name, "gate", "suspect", ("gate",), text, started, waited_s))
                raise InfraError(text)
            time.sleep(min(_GATE_POLL_S, max(0.1, gate.wait_s - waited_s)))

    def _climb(self, name: str, health: Health, *, strikes: int) -> Health:
        """Takes steps until the device is well; its health after the last one."""
        rules = self._lab.lab.recovery_of(name)
        own_server = self._lab.owns_server(name)
        recovery = Recovery(self._lab, rules, patient=name in self._known and not own_server)
        steps = rungs(_codes(health), strikes, own_server=own_server, may_reboot=rules.reboot)
        for step in steps:
            if not is_worth_trying(step, _codes(health)):
                continue
            began, started = self._clock(), datetime.now(UTC)
            problem = None
            try:
                recovery.climb(name, step)
                health = self._look(name)
            except InfraError as error:
                problem = str(error)
                # out of reach is what it is after a step that had waited for it
                waited = step in ("reconnect", "restart-server")
                health = _still(health, problem) if waited else self._look(name)
            self._say(name, step, health, began, started, problem)
            if health.state != "bad":
                break
        return health

    def _first_strike(self, name: str, health: Health) -> int:
        """Where to begin with a device that was bad at first sight.

        What could not be connected just now is not connected again.
        """
        in_vain = "unreachable" in _codes(health) and self._lab.connects_when_asked(name)
        return 2 if in_vain else 1

    def _look(self, name: str, probe_problem: ProbeProblem | None = None) -> Health:
        rules = self._lab.lab.health_of(name)
        return check(self._lab, name, rules, probe_problem or self._probe_problem)

    def _check(self, name: str, event: EventKind) -> Health:
        began, started = self._clock(), datetime.now(UTC)
        health = self._look(name)
        if health.state != "good":
            self._say(name, event, health, began, started)
        return health

    def _say(
        self,
        name: str,
        event: EventKind,
        health: Health,
        began: float,
        started: datetime,
        problem: str | None = None,
    ) -> None:
        codes = tuple(finding.code for finding in health.findings)
        detail = str(health)
        if problem is not None and problem not in detail:
            detail = f"{problem}; {detail}"
        took_s = round(max(0.0, self._clock() - began), 3)
        self._tell(
            LabEvent(name, event, health.state, codes, detail, started, took_s, health.vitals)
        )

    def _give_up(self, name: str, health: Health, *, earlier: str | None = None) -> InfraError:
        began, started = self._clock(), datetime.now(UTC)
        known = name in self._out or earlier is not None
        why = "; ".join(finding.text for finding in health.findings)
        if not known:
            self._quarantine.put(self._lab.key(name), why)
            self._say(name, "quarantine", health, began, started)
        error = InfraError(
            f"device {name} is in quarantine: {why}. When it is mended: "
            f"qnn-harness devices heal {name}"
        )
        self._fit.discard(name)
        self._out[name] = error, self._clock()
        self._lab.release(name)
        return error

    def _take_back(self, name: str, health: Health) -> None:
        began, started = self._clock(), datetime.now(UTC)
        lifted = self._quarantine.lift(self._lab.key(name))
        if lifted or name in self._out:
            self._say(name, "healed", health, began, started)
        self._out.pop(name, None)
        self.succeeded(name)
        self._fit.add(name)
        self._known.add(name)


def _still(health: Health, problem: str) -> Health:
    """Out of reach, with the words of before, which may have told what to do about it."""
    before = [finding for finding in health.findings if finding.code == "unreachable"]
    return Health(tuple(dict.fromkeys((*before, *unreachable(problem).findings))))


def _codes(health: Health) -> set[str]:
    return {finding.code for finding in health.findings if finding.state == "bad"}
