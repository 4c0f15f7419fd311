"""A device that a run holds, and the placements made ready on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from harness.contexts.contexts import Source
from harness.contexts.models import Model
from harness.contexts.schedule import Schedule
from harness.contexts.session_plan import DeployedContext, DeployedModel
from harness.contexts.source import Context, Reference
from harness.errors import DeviceError, HarnessError, InfraError
from harness.evidence.answers import Baseline
from harness.evidence.case_evidence import take_baseline
from harness.lab.attach import AttachedDevice, LabDevice
from harness.lab.device_watch import DeviceWatch
from harness.probe.build import PROBE_NAME
from harness.probe.fitness import probe_problem
from harness.qnn.engines import EXECUTORCH
from harness.results.record import DeviceRecord, RuntimeRecord
from harness.runtimes.deployed import DeployedRuntime, deploy_runtime, runtime_set
from harness.runtimes.executorch import EXECUTORCH_VERSION, OWN_BUILD, RUNNER
from harness.store.deploy import Deployer
from harness.store.layout import FileSet
from harness.workbench.placement import Need, Placement, PushedFile
from harness.workbench.pushed import (
    context_set,
    deployed_context,
    deployed_model,
    model_set,
    pushed_files,
)
from harness.workbench.refusals import Refusals
from harness.workbench.supplies import Supplies, arch_of

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
        self.supplies = supplies
        self.refusals = Refusals()
        self.failed: dict[Placement, HarnessError] = {}
        self.ready: dict[Placement, ReadyPlacement] = {}
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
        """What its libraries are built for."""
        return self.lab_device.config.target or self.device.target

    @property
    def htp_arch(self) -> int | None:
        """Its HTP architecture, 73 for v73."""
        return self.lab_device.config.htp_arch or self.device.htp_arch

    @cached_property
    def baseline(self) -> Baseline | None:
        """What it was like before its cases, for evidence to be compared with; None if unknown."""
        try:
            return take_baseline(self.device.transport, timeout_s=_BASELINE_S)
        except InfraError:
            return None

    @cached_property
    def deployer(self) -> Deployer:
        """Puts files there."""
        device = self.device
        self.lab_device.device_id.look(device.transport, device.workdir)
        return self._open_deployer(device)

    def release(self) -> None:
        """Says on the device that it is not in use any more, if that was ever said."""
        if "deployer" in self.__dict__:
            self.deployer.release()

    def deploy(self, need: Need) -> ReadyPlacement:
        """Puts all that a case needs there in one go."""
        runtime = self.supplies.runtime(need.placement, self)
        contexts = self.supplies.expected_contexts(need, self)
        sets = [runtime_set(runtime), self._probe_set()]
        sets += [context_set(self.deployer, *made) for made in contexts.items()]
        self.deployer.deploy_sets(sets)
        return self.place(need.placement)

    def place(self, placement: Placement) -> ReadyPlacement:
        """Puts runtime and probe there, and sees once that the probe runs."""
        if placement not in self.ready:
            runtime = deploy_runtime(self.deployer, self.supplies.runtime(placement, self))
            (folder,) = self.deployer.deploy_sets([self._probe_set()])
            path = f"{folder}/{PROBE_NAME}"
            device = self.device
            # tried once at each path
            known, self.lab_device.probe = self.lab_device.probe, path
            if known != path and (why := probe_problem(device.transport, path)):
                problem = f"the probe does not run on {placement.device}: {why}"
                raise DeviceError(problem, serial=device.transport.serial)
            _ = self.baseline  # before its first case, whose time it would be
            self.ready[placement] = ReadyPlacement(placement, self, runtime, path)
        return self.ready[placement]

    def files(self, need: Need) -> list[PushedFile]:
        """The files that a case needs there, made on this computer. Raises HarnessError."""
        placement, supplies = need.placement, self.supplies
        files = pushed_files(
            supplies.runtime(placement, self),
            self.probe,
            supplies.required_contexts(need, self),
            supplies.models(placement, self, need.models) if placement.takes_models else {},
        )
        if placement.engine == EXECUTORCH.name:
            own = supplies.executor_runner(self.target)
            made = supplies.executorch(self.target) if own is None else own
            origin = f"ExecuTorch {EXECUTORCH_VERSION if own is None else OWN_BUILD}"
            files += [PushedFile(origin, one, path.stat().st_size) for one, path in made.items()]
        return files + [
            PushedFile(path.name, path.name, path.stat().st_size) for path in need.files
        ]

    @property
    def probe(self) -> Path:
        """The probe that is built for it, on this computer."""
        api = self.device.facts.android_api if "android" in self.target else None
        return self.supplies.probe(self.target, api)

    def _probe_set(self) -> FileSet:
        files = {PROBE_NAME: self.probe}
        return self.deployer.file_set("probe", files, programs=files)


@dataclass(frozen=True)
class ReadyPlacement:
    """What the cases of a placement find on their device, and can have put there besides.

    `probe` is a path on the device.
    """

    placement: Placement
    held: HeldDevice
    runtime: DeployedRuntime
    probe: str

    @property
    def device(self) -> AttachedDevice:
        """The device, connected and well. Raises as `HeldDevice.device`."""
        return self.held.device

    @cached_property
    def runtime_record(self) -> RuntimeRecord:
        """What its libraries are: the `runtime` of a record. Raises HarnessError."""
        return self.held.supplies.libraries.identity(self.placement, self.held.target)

    @cached_property
    def device_record(self) -> DeviceRecord:
        """What its device says it is: the `device` of a record. Raises as `device`."""
        return DeviceRecord.model_validate(self.device.identity())

    def htp_arch(self) -> int:
        """The HTP architecture of its device (73 for v73). Raises ConfigError if unknown."""
        return arch_of(self.placement, self.held)

    def contexts(self, sources: Sequence[Source]) -> dict[Source, Context]:
        """The contexts of these sources, on this computer. Raises as `Supplies.contexts`."""
        return self.held.supplies.contexts(self.placement, self.held, sources)

    def deploy_contexts(self, sources: Sequence[Source]) -> dict[Source, DeployedContext]:
        """Puts the contexts of these sources, for the placement, on its device."""
        held, made = self.held, self.contexts(sources)
        sets = [context_set(held.deployer, *one) for one in made.items()]
        folders = held.deployer.deploy_sets(sets)
        return {
            source: deployed_context(context, folder)
            for (source, context), folder in zip(made.items(), folders, strict=True)
        }

    def forecast(self, contexts: Sequence[Context], steps: Schedule) -> dict[str, object] | None:
        """What is forecast for a schedule over contexts. Raises as `Forecasts.of`."""
        supplies = self.held.supplies
        runtime = supplies.runtime(self.placement, self.held)
        return supplies.forecasts.of(runtime, contexts, steps.moves)

    @property
    def executor_runner(self) -> Mapping[str, Path] | None:
        """A runner of the user's and its libraries, by name; None where ExecuTorch's wheel serves.

        Raises ConfigError for a folder that has none, or for another kind of device.
        """
        return self.held.supplies.executor_runner(self.held.target)

    def deploy_executorch(self) -> str:
        """Puts that on the device, else the probe with ExecuTorch in it; its path there.

        Raises ConfigError for a device that ExecuTorch's wheel has no libraries for.
        """
        runner = self.executor_runner
        if runner is not None:
            return f"{self.deploy_files('executorch-build', runner, [RUNNER])}/{RUNNER}"
        files = self.held.supplies.executorch(self.held.target)
        return f"{self.deploy_files('executorch', files, [PROBE_NAME])}/{PROBE_NAME}"

    def deploy_files(
        self, name: str, files: Mapping[str, Path], programs: Sequence[str] = ()
    ) -> str:
        """Puts files into a folder of their own on the device; its path there."""
        return self.held.deployer.deploy_files(name, files, programs)

    def deploy_models(self, models: Sequence[Model]) -> list[DeployedModel]:
        """Puts the ONNX files of these models, their inputs and references on the device."""
        deployer = self.held.deployer
        made = self.held.supplies.models(self.placement, self.held, models)
        sets = [model_set(deployer, onnx, reference) for onnx, reference in made.values()]
        folders = deployer.deploy_sets(sets)
        return [
            deployed_model(model, reference, folder)
            for (model, (_, reference)), folder in zip(made.items(), folders, strict=True)
        ]

    def reference(self, model: Model) -> Reference:
        """A model's inputs and expected outputs on this computer. Raises HarnessError."""
        return self.held.supplies.references(self.placement, self.held, [model])[model]

    def check(self) -> str:
        """Shell text that exits where another device answers than the one made ready."""
        return self.held.lab_device.device_id.check()
