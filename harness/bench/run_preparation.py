"""The shared preparation of a run.

Host work (fetch, build, compile) and device work (connect, deploy) are done once per run and
shared by its cases. Errors of the preparation are remembered per placement, so that a version
that cannot be fetched affects no other cases.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Final

from harness.bench.case_placement import Need, Placement
from harness.bench.prepared_devices import PreparedPlacement, ProvisionedDevice
from harness.bench.provisioner import Materials, PreflightMode, Provisioner, preflight_device
from harness.core.errors import (
    ConfigError,
    DeviceFull,
    HarnessError,
    InfraError,
    NotYet,
    VersionError,
)
from harness.core.state_folders import quarantine_root, simulated_root
from harness.deploy.deploy import Deployer, Push
from harness.deploy.layout import new_claim
from harness.deploy.simulated_storage import Instances
from harness.lab.device_watch import DeviceWatch
from harness.lab.health import DeviceEvent, EventHandler, KnownState, KnownStates, Quarantine
from harness.lab.inventory import Lab
from harness.lab.lab_device import AttachedDevice, LabDevice, OpenLab
from harness.lab.lease import DeviceHeld, Leases, Occupied
from harness.models.contexts import Source
from harness.probe.self_test import built_probe_problem, probe_problem
from harness.runtimes.catalog import Catalog
from harness.runtimes.preflight_findings import Finding

_ENDS_S: Final = 2.0


class BackgroundTasks:
    """Work on devices in threads, each of which keeps the lease of its device until it ends."""

    def __init__(self, give_back: Callable[[LabDevice], None]) -> None:
        """`give_back` releases a device that nobody waits for any more."""
        self._give_back = give_back
        self._abandoned: dict[LabDevice, bool] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._closed.is_set()

    def is_busy(self, device: LabDevice) -> bool:
        """Return whether work on a device goes on without anybody waiting for it."""
        return self._abandoned.get(device, False)

    def run(self, device: LabDevice, act: Callable[[], object], patience_s: float | None) -> None:
        """Call `act` for a device that is held; in this thread if `patience_s` is None.

        Raises what `act` raises, and NotYet if it takes longer: then it goes on, and the device is
        released when it ends.
        """
        if patience_s is None:
            act()
            return
        errors: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as error:  # raised in the waiting thread
                errors.append(error)
            with self._changed:
                if self._abandoned.pop(device) and not self.is_over:
                    self._give_back(device)
                self._changed.notify_all()

        with self._changed:
            self._abandoned[device] = False
            threading.Thread(target=run, daemon=True).start()
            if not self._changed.wait_for(lambda: device not in self._abandoned, patience_s):
                self._abandoned[device] = True
                raise NotYet(f"device {device.name} is still being prepared")
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Wait a moment for work to end; threads that wait for a lost device are left alone."""
        self._closed.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._abandoned, _ENDS_S)


_FRESH_S: Final = 60.0
"""The age after which the known state of a device is checked again."""


class Workbench:
    """The shared preparation of a run; `close` ends everything it started."""

    def __init__(
        self,
        lab: Lab,
        *,
        cache: Path,
        on_event: EventHandler = lambda event: None,
        leases: Leases | None = None,
        lease_wait_s: float = 0.0,
        catalog: Catalog | None = None,
        preflight: PreflightMode = "warn",
        run: str | None = None,
        process: str = "",
        builds: Mapping[str, Path] = {},
    ) -> None:
        """`run` and `process` are as in `Instances`; by default nobody shares its devices.

        `on_event` is called for events of devices apart from cases; leases are as in `OpenLab`.

        `catalog` is by default that of the lab. With `preflight` "strict" its errors stop the
        preparation of a placement. `builds` are as in `Provisioner`.
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
        self._provisioner = Provisioner(self.catalog, cache, builds)
        self._preflight: PreflightMode = preflight
        self._findings: dict[Placement, tuple[Finding, ...]] = {}
        self._known = KnownStates(cache / "devices", run or "")
        self._tasks = BackgroundTasks(self._release)
        probes = self._provisioner.probes
        self._watch = DeviceWatch(
            Quarantine(quarantine_root(cache)),
            probe_problem=_probe_problem,
            thorough=lambda device: built_probe_problem(probes, device.attach()),
            on_event=on_event,
            is_over=lambda: self._tasks.is_over,
        )
        self._on_event = on_event
        self._devices: dict[LabDevice, ProvisionedDevice] = {}
        self._deployed: dict[LabDevice, frozenset[str]] = {}
        # one claim for all, so that a device is not claimed twice after a fault
        self._claim = new_claim(run or "")

    def close(self) -> None:
        """Remove the run's claims from its devices and end everything it started.

        Safe to call twice; a device that does not answer delays it by seconds at most.
        """
        self._tasks.close()
        for device, provisioned in self._devices.items():
            with contextlib.suppress(InfraError):
                if device.fitness.is_fit and not self.is_busy(device) and not device.try_acquire():
                    provisioned.release()
                    device.give_back()
        self._devices.clear()
        self.lab.close()

    def acquire(self, device: LabDevice) -> Occupied | None:
        """Acquire a device for a case; return who has it if it is not free.

        The state that others have found is adopted, and checked again if it is old. Raises
        DeviceHeld if its source refuses the device.
        """
        if self.is_busy(device):
            assert self.lab.leases is not None
            return Occupied(device.name, device.lease_key, self.lab.leases.own_holding())
        if (occupied := device.try_acquire()) is not None or device.is_simulated_here:
            return occupied
        known = self._known.pop(device.key)
        is_old = not 0 <= time.time() - known.fitness.checked <= _FRESH_S
        if not known.fitness.epoch or known.fitness.epoch != device.fitness.epoch:
            self._forget(device)
            known.fitness.epoch = known.fitness.epoch or secrets.token_hex(8)
        elif is_old:
            device.detach()
        known.fitness.is_fit &= not is_old
        mine, device.fitness = device.fitness, known.fitness
        if mine.vitals is not None and device.fitness.vitals is not None:
            device.fitness.vitals = max(mine.vitals, device.fitness.vitals, key=itemgetter(0))
        self._deployed[device] = known.deployed
        device.identity = max(device.identity, known.identity, key=len)
        device.device_id.known |= known.device_ids
        return None

    def give_back(self, device: LabDevice) -> None:
        """Release a device and publish its known state, unless work on it goes on."""
        if not self.is_busy(device):
            self._release(device)

    def _release(self, device: LabDevice) -> None:
        if device.is_held and not device.is_simulated_here:
            provisioned = self._devices.get(device)
            here = provisioned.deployed if provisioned else frozenset()
            deployed = here | self._deployed.get(device, frozenset())
            ids = frozenset(device.device_id.known)
            state = KnownState(device.fitness, deployed, device.identity, ids)
            self._known.save(device.key, state)
        device.give_back()

    def is_busy(self, device: LabDevice) -> bool:
        return self._tasks.is_busy(device)

    def has_files(self, placement: Placement) -> bool:
        device = self.lab.device(placement.device)
        if device in self._devices and placement in self._devices[device].ready:
            return True
        return (
            not device.is_simulated_here
            and placement.deployment_key in self._known.read(device.key).deployed
        )

    def is_ours(self, occupied: Occupied) -> bool:
        """Return whether a process of this run uses an occupied device."""
        return self.lab.leases is not None and self.lab.leases.is_ours(occupied.holding)

    def wait_for(self, attempt: Callable[[], Sequence[Occupied]], *, wait: bool = True) -> None:
        """Wait until a device is free, as `Leases.wait_for`."""
        self.lab.wait_for(attempt, wait_s=self.lab.lease_wait_s if wait else None)

    def wrong_input(self, need: Need) -> ConfigError | None:
        """Return the error in the contexts of a case; None without one, or if unknown."""
        places = (need.placement.on(name) for name in need.placement.candidates)
        known = (self._device_for(place).ready.get(place) for place in places)
        ready = next(filter(None, known), None)
        contexts = ready.compile_contexts(need.contexts).values() if ready is not None else ()
        return next((context for context in contexts if isinstance(context, ConfigError)), None)

    def ready(self, placement: Placement, patience_s: float | None = None) -> PreparedPlacement:
        """Return a placement with all that its cases need, prepared now if that was not tried.

        Its device must be held, unless it has a `problem`. Raises HarnessError at each call if the
        preparation failed; NotYet if the device takes longer than `patience_s`, and goes on with
        it. Work on this computer has no such limit.
        """
        self.make_fit(placement, patience_s)
        device = self.lab.device(placement.device)
        device.acquire()
        provisioned = self._device_for(placement)
        if placement not in provisioned.ready and placement not in provisioned.failed:
            try:
                need = Need(placement, tuple(self.needs.get(placement, ())))
                materials = provisioned.with_placement(placement).materials(need, strict=False)
                self._run_preflight(need, materials)
            except HarnessError as error:
                provisioned.failed[placement] = error
            else:
                deploy = partial(self._deploy, provisioned, placement, materials)
                self._tasks.run(device, deploy, patience_s)
        if placement in provisioned.failed:
            raise provisioned.failed[placement]
        return provisioned.ready[placement]

    @staticmethod
    def _deploy(provisioned: ProvisionedDevice, placement: Placement, materials: Materials) -> None:
        try:
            provisioned.deploy(placement, materials)
        except HarnessError as error:
            provisioned.failed[placement] = error

    def problem(self, placement: Placement) -> HarnessError | None:
        """Return why a device was given up, or is full; None if usable, or due for a check."""
        device = self.lab.device(placement.device)
        if (offline := device.fitness.offline) is not None:
            return None if self._watch.is_due(device) else offline.error
        error = self._devices[device].failed.get(placement) if device in self._devices else None
        return error if isinstance(error, DeviceFull) else None

    def make_fit(self, placement: Placement, patience_s: float | None) -> None:
        """Make sure that a device is usable; one that was given up is checked now and then.

        The files on such a device are determined again. Raises InfraError; NotYet if that takes
        longer than `patience_s`, and goes on with it.
        """
        device = self.lab.device(placement.device)
        if not device.fitness.is_fit:
            if device.is_offline:
                self._forget(device)
            self._tasks.run(device, partial(self._watch.require, device), patience_s)

    def _forget(self, device: LabDevice) -> None:
        self._devices.pop(device, None)
        device.detach()

    def provisioned(self, device: LabDevice) -> ProvisionedDevice:
        if device not in self._devices:
            self._devices[device] = ProvisionedDevice(
                device, self._watch, self._provisioner, self._open_deployer
            )
        return self._devices[device]

    def _device_for(self, placement: Placement) -> ProvisionedDevice:
        return self.provisioned(self.lab.device(placement.device))

    def findings(self, placement: Placement) -> tuple[Finding, ...]:
        return self._findings.get(placement, ())

    def refuse(self, placement: Placement, findings: Sequence[Finding]) -> None:
        """Raise VersionError if one of these is an error and preflight is strict."""
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors and self._preflight == "strict":
            errors_text = "; ".join(str(error) for error in errors)
            raise VersionError(f"{placement}: {errors_text}", field="qnn_preflight=strict")

    def keep_out(self, device: LabDevice, error: DeviceHeld) -> None:
        """Keep cases from waiting again for a device, for some time after a vain wait."""
        self._watch.keep_out(device, error)

    def distrust(self, device: LabDevice) -> None:
        """Forget the state of a device for all users, after a fault of the lab on it."""
        self._devices.pop(device, None)
        device.fitness.is_fit, device.fitness.epoch = False, secrets.token_hex(8)

    def recover(self, device: LabDevice, *, case_over: bool, background: bool) -> None:
        """Recover a device after a fault of the lab, or give it up.

        `case_over`: the case is not tried again on it. `background`: do not wait for the recovery.
        """
        self.distrust(device)
        bring_back = partial(self._watch.failed, device, case_over=case_over)
        try:
            self._tasks.run(device, bring_back, 0.0 if background else None)
        except InfraError:
            if not background:
                raise

    def materials(self, need: Need) -> Materials:
        """Make all files that a case needs on its device, as `PreparedPlacement.materials`."""
        prepared = self._device_for(need.placement).with_placement(need.placement)
        return prepared.materials(need, strict=True)

    def _run_preflight(self, need: Need, materials: Materials) -> None:
        if self._preflight == "off":
            return
        placement, provisioned = need.placement, self._device_for(need.placement)
        contexts = provisioned.with_placement(placement).context_facts(need.sources, materials)
        device = preflight_device(provisioned.device)
        findings = self._provisioner.findings(placement, device, contexts)
        self._findings[placement] = findings
        files = [str(source) for source in need.sources if not source.compiled]
        # errors in a file concern only the cases that use it
        self.refuse(placement, [finding for finding in findings if finding.context not in files])

    def _open_deployer(self, device: AttachedDevice) -> Deployer:
        def on_push(push: Push) -> None:
            self._on_event(
                DeviceEvent(
                    device=device.name,
                    event="push",
                    state="suspect" if push.problem else "good",
                    detail=f"{push.title}: {push.problem}" if push.problem else push.title,
                    started=push.started,
                    duration_s=push.duration_s,
                    pushed_bytes=push.size,
                )
            )

        return Deployer(
            device.transport,
            device.workdir,
            cap_bytes=device.config.store_limit_bytes,
            claim=self._claim,
            on_push=on_push,
        )


def _probe_problem(device: LabDevice) -> str | None:
    return None if device.probe is None else probe_problem(device.attach().transport, device.probe)
