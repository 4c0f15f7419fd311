"""The shared preparation of a run.

Host work (fetch, build, compile) and device work (connect, deploy) are done once per run and
shared by its cases. What cannot be made ready is remembered per placement, so that one version
that cannot be fetched spoils its own cases and no other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from harness.contexts.sources.contexts import Source
from harness.device.lab.attach import AttachedDevice, LabDevice, OpenLab
from harness.device.lab.device_watch import DeviceWatch
from harness.device.lab.health import LabEvent, State, Tell
from harness.device.lab.inventory import Lab
from harness.device.lab.lease import Leases
from harness.device.lab.quarantine import Quarantine
from harness.device.store.claims import own_claim
from harness.device.store.delivery import Push
from harness.device.store.deploy import Deployer
from harness.device.store.instances import Instances
from harness.ground.errors import (
    ConfigError,
    DeviceFull,
    HarnessError,
    InfraError,
    NotYet,
    VersionError,
)
from harness.ground.files.cache import quarantine_root, simulated_root
from harness.ground.host.deadline import Deadline
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.findings import Finding
from harness.probe.fitness import ProbeFitness, probe_problem
from harness.run.workbench.beside import Beside, Stands
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
        stands: Callable[[LabDevice, Stands], None] = lambda device, standing: None,
    ) -> None:
        """Processes of the same `run` share its simulated devices; by default nobody does.

        `tell` is told what happens to devices besides cases; leases are as in `OpenLab`.

        `catalog` is by default that of the lab. With `preflight` at strict, an error that it finds
        keeps a placement from being made ready. `executorch` is as in `Supplies`,
        `stands` as `tell` in `Beside`.
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
        self._beside = Beside(lambda device: self._watch.require(device), stands)
        self._watch = DeviceWatch(
            Quarantine(quarantine_root(cache)),
            probe_problem=_probe_problem,
            thorough=lambda device: fitness.problem(device.attach()),
            tell=tell,
            is_over=lambda: self._beside.is_over,
        )
        self._tell = tell
        self._held: dict[LabDevice, HeldDevice] = {}
        # one for all: after a fault the same device is claimed anew, not twice
        self._claim = own_claim()

    def close(self) -> None:
        """Says on each device that it is not in use any more, and ends what we started.

        Safe to call twice; a device that does not answer delays it by seconds at most.
        """
        self._beside.close()
        for held in self._held.values():
            if held.lab_device.fitness.is_fit:
                held.release()
        self._held.clear()
        self.lab.close()

    def prepare(
        self, needs: Sequence[Need], within: Deadline | None = None
    ) -> Mapping[Placement, HarnessError]:
        """Makes everything ready that the cases will want; returns what could not be, and why.

        A placement that failed keeps failing with the same error in `ready`, without being tried
        again before its device is held anew. With a deadline, what a device takes longer for goes
        on, and has NotYet for its error; what this computer does is waited for.
        """
        wanted = by_placement(needs)
        self.needs = {**self.needs, **wanted}
        self.lab.hold_all(placement.device for placement in wanted)
        together = [Need(placement, sources) for placement, sources in wanted.items()]
        made: dict[Placement, Materials] = {}
        later: dict[Placement, HarnessError] = {}

        def make(need: Need) -> None:
            try:
                self._make_fit(need.placement, within)
            except InfraError as error:  # it is asked again in `ready`
                later[need.placement] = error
                return
            held = self._held_for(need.placement)
            made[need.placement] = self._supplies.materialise(need, held, strict=False)

        def make_ready(need: Need) -> None:
            self._look_ahead(need, made[need.placement])
            held = self._held_for(need.placement)
            deploy = partial(self._deploy, held, need.placement, made[need.placement])
            self._beside.do(held.lab_device, deploy, within)

        # all host work first: starting a compiler costs more than having it compile
        for act in (make, make_ready):
            for need in together:
                failed = self._held_for(need.placement).failed
                if need.placement not in failed and need.placement not in later:
                    try:
                        act(need)
                    except NotYet as error:
                        later[need.placement] = error
                    except HarnessError as error:
                        failed[need.placement] = error
        found = {place: self._held_for(place).failed.get(place) for place in wanted}
        return later | {place: error for place, error in found.items() if error is not None}

    def wrong_input(self, need: Need) -> ConfigError | None:
        """What is wrong with the contexts of a case; None if nothing is, or if it is not known."""
        ready = self._held_for(need.placement).ready.get(need.placement)
        made = ready.stock.contexts(need.contexts).values() if ready is not None else ()
        return next((one for one in made if isinstance(one, ConfigError)), None)

    def ready(self, placement: Placement, within: Deadline | None = None) -> ReadyPlacement:
        """A placement with all that its cases need, made ready now if that was not tried.

        Raises HarnessError, as often as it is asked, for one that could not be made ready; NotYet
        if its device takes longer than the deadline, which then goes on with it.
        """
        self._make_fit(placement, within)
        held = self._held_for(placement)
        failed: Mapping[Placement, HarnessError] = held.failed
        if placement not in held.ready and placement not in failed:
            sources = tuple(self.needs.get(placement, ()))
            failed = self.prepare([Need(placement, sources)], within)
        if placement in failed:
            raise failed[placement]
        return held.ready[placement]

    def problem(self, placement: Placement) -> HarnessError | None:
        """Why cases of a placement cannot be run on its device now: it was given up, or is full.

        None if it is time to look at the device again.
        """
        device = self.lab.device(placement.device)
        if (out := device.fitness.out) is not None:
            due = not self._beside.has(device) and self._watch.is_due(device)
            return None if due else out.error
        found = self._held[device].failed.get(placement) if device in self._held else None
        return found if isinstance(found, DeviceFull) else None

    def is_busy(self, placement: Placement) -> bool:
        """Whether its device is being made ready, or brought back."""
        return self._beside.is_busy(self.lab.device(placement.device))

    def wait_for_any(self, placements: Collection[Placement]) -> None:
        """Waits until a device of these is not being seen to any more."""
        self._beside.wait_for_any([self.lab.device(one.device) for one in placements])

    def _make_fit(self, placement: Placement, within: Deadline | None) -> None:
        """Sees that a device may be used; one that was given up is looked at once in a while.

        What lies on that is found out anew.
        """
        device = self.lab.device(placement.device)
        if not device.fitness.is_fit or self._beside.is_busy(device):
            if device.is_out:
                self._held.pop(device, None)
            self._beside.do(device, partial(self._watch.require, device), within)

    def _deploy(self, held: HeldDevice, placement: Placement, made: Materials) -> None:
        try:
            held.deploy(placement, made)
        except HarnessError as error:
            held.failed[placement] = error
            raise

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

    def recover(self, device: LabDevice, *, case_over: bool, within: Deadline | None) -> None:
        """To be called after each fault of the lab on a device.

        `case_over`: the case is not tried again on it. What was known about the device is
        forgotten, and it is brought back or given up, which with a deadline is not waited for
        longer than that.
        """
        self._held.pop(device, None)
        device.fitness.is_fit = False
        bring_back = partial(self._watch.failed, device, case_over=case_over)
        try:
            self._beside.do(device, bring_back, within)
        except InfraError:
            if within is None:
                raise

    def lend_asked(self) -> None:
        """Hands over the devices that persons ask for; they are looked at anew when they are back.

        To be called between cases.
        """
        for device in tuple(self.lab.devices):
            if self._beside.has(device):  # also while it is looked at, which takes its lease
                continue
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
    return None if device.probe is None else probe_problem(device.attach().transport, device.probe)


def _pushed(device: str, push: Push) -> LabEvent:
    detail = f"{push.what}: {push.problem}" if push.problem else push.what
    state: State = "suspect" if push.problem else "good"
    took_s = push.duration_s
    return LabEvent(device, "push", state, (), detail, push.started, took_s, pushed_bytes=push.size)
