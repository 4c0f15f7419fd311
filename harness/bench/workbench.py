"""The shared preparation of a run.

Host work (fetch, build, compile) and device work (connect, deploy) are done once per run and
shared by its cases. What cannot be made ready is remembered per placement, so that one version
that cannot be fetched spoils its own cases and no other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from harness.bench.placement import Need, Placement
from harness.bench.provisioner import (
    Materials,
    PreflightMode,
    Provisioner,
    preflight_device,
)
from harness.bench.target import HeldDevice, Target
from harness.core.cache import known_root, quarantine_root, simulated_root
from harness.core.errors import (
    ConfigError,
    DeviceFull,
    HarnessError,
    InfraError,
    NotYet,
    VersionError,
)
from harness.deploy.deploy import Deployer, Push
from harness.deploy.instances import Instances
from harness.deploy.layout import own_claim
from harness.lab.attach import AttachedDevice, LabDevice, OpenLab
from harness.lab.device_watch import DeviceWatch
from harness.lab.health import KnownState, KnownStates, LabEvent, Quarantine, State, Tell
from harness.lab.inventory import Lab
from harness.lab.lease import DeviceHeld, Leases, Missed
from harness.models.contexts import Source
from harness.probe.fitness import built_probe_problem, probe_problem
from harness.runtimes.catalog import Catalog
from harness.runtimes.findings import Finding

_ENDS_S: Final = 2.0


class Aside:
    """Sees to devices in threads, each of which keeps the lease of its device until it is done."""

    def __init__(self, give_back: Callable[[LabDevice], None]) -> None:
        """`give_back` lets others have a device that nobody waits for any more."""
        self._give_back = give_back
        self._left: dict[LabDevice, bool] = {}
        self._changed = threading.Condition()
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def has(self, device: LabDevice) -> bool:
        """Whether a device is seen to, and nobody waits for it."""
        return self._left.get(device, False)

    def do(self, device: LabDevice, act: Callable[[], object], patience_s: float | None) -> None:
        """Does `act` to a device that is held; here and now with no patience given.

        Raises what it raises, and NotYet if it takes longer: then it goes on, and the device is
        given back at its end.
        """
        if patience_s is None:
            act()
            return
        errors: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as error:  # it is raised where somebody waits for it
                errors.append(error)
            with self._changed:
                if self._left.pop(device) and not self.is_over:
                    self._give_back(device)
                self._changed.notify_all()

        with self._changed:
            self._left[device] = False
            threading.Thread(target=run, daemon=True).start()
            if not self._changed.wait_for(lambda: device not in self._left, patience_s):
                self._left[device] = True
                raise NotYet(f"device {device.name} is still being made ready")
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Ends what can be ended: what waits for a device that does not come is left."""
        self._over.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._left, _ENDS_S)


_FRESH_S: Final = 60.0
"""What is known of a device is looked at anew after so long."""


class Workbench:
    """The shared preparation of a run; `close` ends what it started."""

    def __init__(
        self,
        lab: Lab,
        *,
        cache: Path,
        tell: Tell = lambda event: None,
        leases: Leases | None = None,
        lease_wait_s: float = 0.0,
        catalog: Catalog | None = None,
        preflight: PreflightMode = "warn",
        run: str | None = None,
        process: str = "",
        executorch: Path | None = None,
    ) -> None:
        """`run` and `process` are as in `Instances`; by default nobody shares its devices.

        `tell` is told what happens to devices besides cases; leases are as in `OpenLab`.

        `catalog` is by default that of the lab. With `preflight` at strict, an error that it finds
        keeps a placement from being made ready. `executorch` is as in `Provisioner`.
        """
        self.lab = OpenLab(
            lab,
            key_folder=cache / "keys",
            storage_root=simulated_root(cache),
            instances=Instances(simulated_root(cache), run, process),
            leases=leases,
            lease_wait_s=lease_wait_s,
        )
        self.catalog = catalog or Catalog.of(lab, os.environ, cache)
        self.needs: Mapping[Placement, Sequence[Source]] = {}
        self._provisioner = Provisioner(self.catalog, cache, executorch)
        self._preflight: PreflightMode = preflight
        self._findings: dict[Placement, tuple[Finding, ...]] = {}
        self._known = KnownStates(known_root(cache), run or "")
        self._aside = Aside(self._given_back)
        probes = self._provisioner.probes
        self._watch = DeviceWatch(
            Quarantine(quarantine_root(cache)),
            probe_problem=_probe_problem,
            thorough=lambda device: built_probe_problem(probes, device.attach()),
            tell=tell,
            is_over=lambda: self._aside.is_over,
        )
        self._tell = tell
        self._held: dict[LabDevice, HeldDevice] = {}
        self._lies: dict[LabDevice, frozenset[str]] = {}
        # one for all: after a fault the same device is claimed anew, not twice
        self._claim = own_claim(run or "")

    def close(self) -> None:
        """Says on each device that it is not in use any more, and ends what we started.

        Safe to call twice; a device that does not answer delays it by seconds at most.
        """
        self._aside.close()
        for device, held in self._held.items():
            with contextlib.suppress(InfraError):
                if device.fitness.is_fit and not self.is_aside(device) and not device.try_hold():
                    held.release()
                    device.give_back()
        self._held.clear()
        self.lab.close()

    def take(self, device: LabDevice) -> Missed | None:
        """Takes a device for a case, if it is free; who has it otherwise.

        What others found out of it counts from now on, and is looked at anew if that was long ago.
        Raises DeviceHeld if labgrid does not let us have it.
        """
        if self.is_aside(device):
            return self._missed(device)
        if (missed := device.try_hold()) is not None or device.is_ours:
            return missed
        known = self._known.take(device.key)
        is_old = time.time() - known.fitness.checked > _FRESH_S
        if not known.fitness.epoch or known.fitness.epoch != device.fitness.epoch:
            self._forget(device)
            known.fitness.epoch = known.fitness.epoch or secrets.token_hex(8)
        elif is_old:
            device.detach()
        known.fitness.is_fit &= not is_old
        mine, device.fitness = device.fitness, known.fitness
        if mine.vitals is not None and device.fitness.vitals is not None:
            device.fitness.vitals = max(mine.vitals, device.fitness.vitals, key=lambda one: one[0])
        self._lies[device] = known.lies
        device.identity = max(device.identity, known.identity, key=len)
        device.device_id.known |= known.device_ids
        return None

    def give_back(self, device: LabDevice) -> None:
        """Lets others have a device, and know what is known of it; not one that is seen to."""
        if not self.is_aside(device):
            self._given_back(device)

    def _given_back(self, device: LabDevice) -> None:
        if device.is_held and not device.is_ours:
            held = self._held.get(device)
            lies = self._lies.get(device, frozenset()) | (held.lies if held else frozenset())
            ids = frozenset(device.device_id.known)
            state = KnownState(device.fitness, lies, device.identity, ids)
            self._known.keep(device.key, state)
        device.give_back()

    def is_aside(self, device: LabDevice) -> bool:
        """Whether a device is brought back, or looked at, by a thread that has its lease."""
        return self._aside.has(device)

    def has_files(self, placement: Placement) -> bool:
        """Whether what a placement needs lies on its device, as far as that can be told."""
        device = self.lab.device(placement.device)
        if device in self._held and placement in self._held[device].ready:
            return True
        return not device.is_ours and placement.what in self._known.look(device.key).lies

    def wait_for(self, attempt: Callable[[], Sequence[Missed]], *, wait: bool = True) -> None:
        """Waits until a device can be had, as `Leases.wait_for`."""
        leases = self.lab.leases
        if leases is None:
            attempt()
        else:
            leases.wait_for(attempt, wait_s=self.lab.lease_wait_s if wait else None)

    def wrong_input(self, need: Need) -> ConfigError | None:
        """What is wrong with the contexts of a case; None if nothing is, or if it is not known."""
        places = (need.placement.on(name) for name in need.placement.candidates)
        known = (self._held_for(place).ready.get(place) for place in places)
        ready = next(filter(None, known), None)
        made = ready.made(need.contexts).values() if ready is not None else ()
        return next((one for one in made if isinstance(one, ConfigError)), None)

    def ready(self, placement: Placement, patience_s: float | None = None) -> Target:
        """A placement with all that its cases need, made ready now if that was not tried.

        Its device is to be held, unless it has a `problem`. Raises HarnessError, as often as it is
        asked, for one that could not be made ready; NotYet if its device takes longer than
        `patience_s`, which then goes on. What this computer does is waited for.
        """
        self.make_fit(placement, patience_s)
        device = self.lab.device(placement.device)
        device.hold()
        held = self._held_for(placement)
        if placement not in held.ready and placement not in held.failed:
            try:
                need = Need(placement, tuple(self.needs.get(placement, ())))
                made = held.on(placement).materials(need, strict=False)
                self._look_ahead(need, made)
            except HarnessError as error:
                held.failed[placement] = error
            else:
                self._aside.do(device, partial(self._deploy, held, placement, made), patience_s)
        if placement in held.failed:
            raise held.failed[placement]
        return held.ready[placement]

    @staticmethod
    def _deploy(held: HeldDevice, placement: Placement, made: Materials) -> None:
        try:
            held.deploy(placement, made)
        except HarnessError as error:
            held.failed[placement] = error

    def problem(self, placement: Placement) -> HarnessError | None:
        """Why cases of a placement cannot be run on its device now: it was given up, or is full.

        None if it is time to look at the device again.
        """
        device = self.lab.device(placement.device)
        if (out := device.fitness.out) is not None:
            return None if self._watch.is_due(device) else out.error
        found = self._held[device].failed.get(placement) if device in self._held else None
        return found if isinstance(found, DeviceFull) else None

    def make_fit(self, placement: Placement, patience_s: float | None) -> None:
        """Sees that a device may be used; one that was given up is looked at once in a while.

        What lies on that is found out anew. Raises InfraError; NotYet if that takes longer than
        `patience_s`, and then goes on with it.
        """
        device = self.lab.device(placement.device)
        if not device.fitness.is_fit:
            if device.is_out:
                self._forget(device)
            self._aside.do(device, partial(self._watch.require, device), patience_s)

    def _forget(self, device: LabDevice) -> None:
        """Believes nothing any more of what was found out of a device."""
        self._held.pop(device, None)
        device.detach()

    def _missed(self, device: LabDevice) -> Missed:
        assert self.lab.leases is not None
        return Missed(device.name, device.lease_key, self.lab.leases.held_here())

    def held(self, device: LabDevice) -> HeldDevice:
        """What the run has of a device of its lab."""
        if device not in self._held:
            self._held[device] = HeldDevice(
                device, self._watch, self._provisioner, self._open_deployer
            )
        return self._held[device]

    def _held_for(self, placement: Placement) -> HeldDevice:
        return self.held(self.lab.device(placement.device))

    def findings(self, placement: Placement) -> tuple[Finding, ...]:
        """What preflight had to say about a placement when it was last made ready."""
        return self._findings.get(placement, ())

    def refuse(self, placement: Placement, findings: Sequence[Finding]) -> None:
        """Raises VersionError if one of these is an error that keeps a case from being run."""
        errors = [one for one in findings if one.severity == "error"]
        if errors and self._preflight == "strict":
            told = "; ".join(str(one) for one in errors)
            raise VersionError(f"{placement}: {told}", field="--preflight strict")

    def keep_out(self, device: LabDevice, held: DeviceHeld) -> None:
        """Has no case wait for a device for some time that was waited for in vain."""
        self._watch.keep_out(device, held)

    def distrust(self, device: LabDevice) -> None:
        """To be called after each fault of the lab on a device that is held.

        What was known about it is forgotten, here and by whoever has it next.
        """
        self._held.pop(device, None)
        device.fitness.is_fit, device.fitness.epoch = False, secrets.token_hex(8)

    def recover(self, device: LabDevice, *, case_over: bool, aside: bool) -> None:
        """Brings a device back after a fault of the lab, or gives it up.

        `case_over`: the case is not tried again on it. `aside`: nobody waits for that.
        """
        self.distrust(device)
        bring_back = partial(self._watch.failed, device, case_over=case_over)
        try:
            self._aside.do(device, bring_back, 0.0 if aside else None)
        except InfraError:
            if not aside:
                raise

    def materials(self, need: Need) -> Materials:
        """All that a case has on its device, made on this computer; nothing is put there.

        Raises HarnessError for what cannot be had, as `Target.materials` does.
        """
        return self._held_for(need.placement).on(need.placement).materials(need, strict=True)

    def _look_ahead(self, need: Need, made: Materials) -> None:
        if self._preflight == "off":
            return
        placement, held = need.placement, self._held_for(need.placement)
        contexts = held.on(placement).context_facts(need.sources, made)
        device = preflight_device(held.device)
        found = self._provisioner.findings(placement, device, contexts)
        self._findings[placement] = found
        files = [str(source) for source in need.sources if not source.compiled]
        # what is wrong with a file is a matter of the cases that take it
        self.refuse(placement, [one for one in found if one.context not in files])

    def _open_deployer(self, device: AttachedDevice) -> Deployer:
        return Deployer(
            device.transport,
            device.workdir,
            cap_bytes=device.config.store_limit_bytes,
            claim=self._claim,
            tell=lambda push: self._tell(_pushed(device.name, push)),
        )


def _probe_problem(device: LabDevice) -> str | None:
    return None if device.probe is None else probe_problem(device.attach().transport, device.probe)


def _pushed(device: str, push: Push) -> LabEvent:
    detail = f"{push.what}: {push.problem}" if push.problem else push.what
    state: State = "suspect" if push.problem else "good"
    took_s = push.duration_s
    return LabEvent(device, "push", state, (), detail, push.started, took_s, pushed_bytes=push.size)
