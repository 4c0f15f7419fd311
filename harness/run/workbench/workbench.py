"""The shared preparation of a run.

Host work (fetch, build, compile) and device work (connect, deploy) are done once per run and
shared by its cases. What cannot be made ready is remembered per placement, so that one version
that cannot be fetched spoils its own cases and no other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.contexts import Source
from harness.device import (
    AttachedDevice,
    Deployer,
    DeviceWatch,
    Lab,
    LabDevice,
    LabEvent,
    Leases,
    OpenLab,
    Quarantine,
    State,
)
from harness.device.lab.health import Tell
from harness.device.store.claims import own_claim
from harness.device.store.delivery import Push
from harness.device.store.instances import Instances
from harness.ground import HarnessError, InfraError, VersionError
from harness.ground.files.cache import quarantine_root, simulated_root
from harness.libraries import Catalog, Finding
from harness.probe import ProbeFitness, probe_problem
from harness.run.workbench.held_device import HeldDevice, ReadyPlacement
from harness.run.workbench.libraries import PreflightMode, preflight_device
from harness.run.workbench.materials import Materials
from harness.run.workbench.placement import Need, Placement, by_placement
from harness.run.workbench.supplies import Supplies


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
        executorch: Path | None = None,
    ) -> None:
        """Processes of the same `run` share its simulated devices; by default nobody does.

        `tell` is told what happens to devices besides cases; leases are as in `OpenLab`.

        `catalog` is by default that of the lab. With `preflight` at strict, an error that it finds
        keeps a placement from being made ready. `executorch` is as in `Supplies`.
        """
        self.lab = OpenLab(
            lab,
            key_folder=cache / "keys",
            storage_root=simulated_root(cache),
            instances=Instances(simulated_root(cache), run),
            leases=leases,
            lease_wait_s=lease_wait_s,
        )
        self.catalog = catalog or Catalog.of(lab, os.environ, cache)
        self.needs: Mapping[Placement, Sequence[Source]] = {}
        self._supplies = Supplies(self.catalog, cache, executorch)
        self._preflight: PreflightMode = preflight
        self._findings: dict[Placement, tuple[Finding, ...]] = {}
        fitness = ProbeFitness(self._supplies.probes)
        self._watch = DeviceWatch(
            Quarantine(quarantine_root(cache)),
            probe_problem=_probe_problem,
            thorough=lambda device: fitness.problem(device.attach()),
            tell=tell,
        )
        self._tell = tell
        self._held: dict[LabDevice, HeldDevice] = {}
        # one for all: after a fault the same device is claimed anew, not twice
        self._claim = own_claim()

    def close(self) -> None:
        """Says on each device that it is not in use any more, and ends what we started.

        Safe to call twice; a device that does not answer delays it by seconds at most.
        """
        for held in self._held.values():
            if not held.lab_device.is_out:
                held.release()
        self._held.clear()
        self.lab.close()

    def prepare(self, needs: Sequence[Need]) -> Mapping[Placement, HarnessError]:
        """Makes everything ready that the cases will want; returns what could not be, and why.

        A placement that failed keeps failing with the same error in `ready`, without being tried
        again before its device is held anew.
        """
        wanted = by_placement(needs)
        self.needs = {**self.needs, **wanted}
        self.lab.hold_all(placement.device for placement in wanted)
        together = [Need(placement, sources) for placement, sources in wanted.items()]
        made: dict[Placement, Materials] = {}

        def make(need: Need) -> None:
            held = self._held_for(need.placement)
            made[need.placement] = self._supplies.materialise(need, held, strict=False)

        def make_ready(need: Need) -> None:
            self._look_ahead(need, made[need.placement])
            self._held_for(need.placement).deploy(need.placement, made[need.placement])

        # all host work first: starting a compiler costs more than having it compile
        for act in (make, make_ready):
            for need in together:
                failed = self._held_for(need.placement).failed
                if need.placement not in failed:
                    try:
                        act(need)
                    except HarnessError as error:
                        failed[need.placement] = error
        found = {place: self._held_for(place).failed.get(place) for place in wanted}
        return {place: error for place, error in found.items() if error is not None}

    def ready(self, placement: Placement) -> ReadyPlacement:
        """A placement with all that its cases need, made ready now if that was not tried.

        Raises HarnessError, as often as it is asked, for one that could not be made ready.
        """
        held = self._held_for(placement)
        if placement not in held.ready and placement not in held.failed:
            self.prepare([Need(placement, tuple(self.needs.get(placement, ())))])
        if placement in held.failed:
            raise held.failed[placement]
        return held.ready[placement]

    def held(self, device: LabDevice) -> HeldDevice:
        """What the run has of a device of its lab."""
        if device not in self._held:
            self._held[device] = HeldDevice(
                device, self._watch, self._supplies, self._open_deployer
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

    def look_again(self, device: LabDevice) -> None:
        """Has a device that was given up looked at once in a while, and takes it back if well.

        What lies on it is found out anew. Raises InfraError that says why it takes no cases.
        """
        self._watch.require(device)
        self._held.pop(device, None)

    def recover(self, device: LabDevice, *, case_over: bool) -> bool:
        """To be called after each fault of the lab on a device; whether it can be used again.

        `case_over`: the case is not tried again on it.
        What was known about the device is forgotten, and it is brought back or given up.
        """
        self._held.pop(device, None)
        return self._watch.failed(device, case_over=case_over)

    def lend_asked(self) -> None:
        """Hands over the devices that persons ask for; they are looked at anew when they are back.

        To be called between cases.
        """
        for device in tuple(self.lab.devices):
            if device.lease is not None and (asks := device.lease.asked_for()) is not None:
                if (held := self._held.pop(device, None)) is not None and not device.is_out:
                    with contextlib.suppress(InfraError):
                        held.release()
                self._watch.lend(device, asks)

    def materials(self, need: Need) -> Materials:
        """All that a case has on its device, made on this computer; nothing is put there.

        Raises HarnessError for what cannot be had, as `Supplies.materialise` does.
        """
        return self._supplies.materialise(need, self._held_for(need.placement), strict=True)

    def _look_ahead(self, need: Need, made: Materials) -> None:
        if self._preflight == "off":
            return
        placement, held = need.placement, self._held_for(need.placement)
        contexts = held.stock(placement).context_facts(need.sources, made)
        device = preflight_device(held.device)
        found = self._supplies.libraries.findings(placement, device, contexts)
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
    """Why our probe does not run on a device; None if it does, or is not there yet."""
    return None if device.probe is None else probe_problem(device.attach().transport, device.probe)


def _pushed(device: str, push: Push) -> LabEvent:
    detail = f"{push.what}: {push.problem}" if push.problem else push.what
    state: State = "suspect" if push.problem else "good"
    took_s = push.duration_s
    return LabEvent(device, "push", state, (), detail, push.started, took_s, pushed_bytes=push.size)
