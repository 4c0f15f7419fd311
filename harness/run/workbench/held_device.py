"""A device that a run holds, and the placements made ready on it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from harness.contexts.compiler.models import Model
from harness.contexts.context.session_plan import DeployedContext, DeployedModel
from harness.contexts.sources.contexts import Source, required
from harness.device.evidence.answers import Baseline
from harness.device.evidence.case_evidence import take_baseline
from harness.device.lab.attach import AttachedDevice, LabDevice
from harness.device.lab.device_watch import DeviceWatch
from harness.device.store.deploy import Deployer
from harness.ground.errors import ConfigError, DeviceError, DeviceFull, HarnessError, InfraError
from harness.libraries.runtimes.deployed import DeployedRuntime, deploy_runtime
from harness.probe.build import PROBE_NAME
from harness.probe.fitness import probe_problem
from harness.run.workbench.materials import (
    Materials,
    context_set,
    deployed_context,
    deployed_model,
    model_set,
    probe_set,
)
from harness.run.workbench.placement import Placement
from harness.run.workbench.supplies import Stock, Supplies
from harness.verdict.results.record import DeviceRecord

_BASELINE_S: Final = 10.0


class HeldDevice:
    """What a run knows of one device, and has put there. After a fault it is made anew.

    The device is asked for nothing before it is needed, and never for what devices.yaml tells.
    """

    def __init__(
        self,
        lab_device: LabDevice,
        watch: DeviceWatch,
        supplies: Supplies,
        open_deployer: Callable[[AttachedDevice], Deployer],
    ) -> None:
        self.lab_device = lab_device
        self.watch = watch
        self.failed: dict[Placement, HarnessError] = {}
        self.ready: dict[Placement, ReadyPlacement] = {}
        self.lies: frozenset[str] = frozenset()
        """What the run has put there, by any of its processes."""
        self._supplies = supplies
        self._open_deployer = open_deployer

    @property
    def device(self) -> AttachedDevice:
        """The device, connected and well.

        Raises as `LabDevice.attach`, and InfraError for a device in quarantine.
        """
        self.watch.require(self.lab_device)
        return self.lab_device.attach()

    @property
    def target(self) -> str:
        return self.lab_device.config.target or self.device.target

    @property
    def htp_arch(self) -> int | None:
        return self.lab_device.config.htp_arch or self.device.htp_arch

    def unknown_arch(self) -> ConfigError:
        """As that of the device of the lab."""
        return self.lab_device.unknown_arch()

    @property
    def android_api(self) -> int | None:
        return self.device.facts.android_api if "android" in self.target else None

    @cached_property
    def record(self) -> DeviceRecord:
        return DeviceRecord.model_validate(self.device.identity())

    @cached_property
    def baseline(self) -> Baseline | None:
        """What it was like before its cases, for evidence to be compared with; None if unknown."""
        try:
            return take_baseline(self.device.transport, timeout_s=_BASELINE_S)
        except InfraError:
            return None

    @cached_property
    def deployer(self) -> Deployer:
        device = self.device
        self.lab_device.device_id.look(device.transport, device.workdir)
        return self._open_deployer(device)

    def release(self) -> None:
        """Says on the device that it is not in use any more, if that was ever said."""
        if "deployer" in self.__dict__:
            self.deployer.release()

    @property
    def probe(self) -> Path:
        return self._supplies.probe(self.target, self.android_api)

    def stock(self, placement: Placement) -> Stock:
        """What this computer has for cases of a placement on it."""
        return Stock(self._supplies, placement, self)

    def deploy(self, placement: Placement, materials: Materials) -> ReadyPlacement:
        """Puts all that cases of a placement have there in one go.

        Where there is no room, what other placements of this run have there goes first.
        """
        try:
            self.deployer.deploy_sets(materials.sets(self.deployer))
        except DeviceFull:
            self.ready.clear()
            self.deployer.release(of_run=True)
            self.lab_device.fitness.epoch = secrets.token_hex(8)
            self.lies = frozenset()
            self.deployer.deploy_sets(materials.sets(self.deployer))
        made = self.place(placement)
        self.lies |= {placement.what}
        return made

    def place(self, placement: Placement) -> ReadyPlacement:
        """Puts runtime and probe there, and sees once that the probe runs."""
        if placement not in self.ready:
            stock = self.stock(placement)
            runtime = deploy_runtime(self.deployer, stock.runtime)
            (folder,) = self.deployer.deploy_sets([probe_set(self.deployer, self.probe)])
            path = f"{folder}/{PROBE_NAME}"
            device = self.device
            # tried once at each path
            known, self.lab_device.probe = self.lab_device.probe, path
            if known != path and (why := probe_problem(device.transport, path)):
                problem = f"the probe does not run on {placement.device}: {why}"
                raise DeviceError(problem, serial=device.transport.serial)
            _ = self.baseline  # before its first case, whose time it would be
            self.ready[placement] = ReadyPlacement(self, stock, runtime, path)
        return self.ready[placement]


@dataclass(frozen=True)
class ReadyPlacement:
    """What the cases of a placement find on their device, and may have put there besides.

    `held` is that device, `stock` what this computer has for them, `probe` a path on the device.
    What puts something there raises HarnessError if it cannot be made here, or not put there.
    """

    held: HeldDevice
    stock: Stock
    runtime: DeployedRuntime
    probe: str

    def contexts(self, sources: Sequence[Source]) -> dict[Source, DeployedContext]:
        """Puts the contexts of these sources there. Raises the first of their errors."""
        made, deployer = required(self.stock.contexts(sources)), self.held.deployer
        folders = deployer.deploy_sets([context_set(deployer, *one) for one in made.items()])
        return {
            source: deployed_context(context, folder)
            for (source, context), folder in zip(made.items(), folders, strict=True)
        }

    def models(self, models: Sequence[Model]) -> list[DeployedModel]:
        """Puts the ONNX files of these models, their inputs and references there."""
        made, deployer = self.stock.models(models), self.held.deployer
        folders = deployer.deploy_sets([model_set(deployer, *one) for one in made.values()])
        return [
            deployed_model(model, reference, folder)
            for (model, (_, reference)), folder in zip(made.items(), folders, strict=True)
        ]
