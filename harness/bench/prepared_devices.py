"""Devices that a run has prepared, and the placements on them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.bench.case_placement import Need, Placement
from harness.bench.provisioner import (
    Materials,
    Provisioner,
    context_set,
    deployed_context,
    deployed_model,
    model_set,
    preflight_context,
    preflight_file,
    probe_set,
)
from harness.core.engine import ENGINES, EngineProgram
from harness.core.errors import ConfigError, DeviceError, DeviceFull, HarnessError, InfraError
from harness.deploy.deploy import Deployer
from harness.diagnosis.verdict import Verdict
from harness.evidence.case_evidence import take_baseline
from harness.evidence.device_replies import Baseline
from harness.lab.device_watch import DeviceWatch
from harness.lab.lab_device import AttachedDevice, LabDevice
from harness.models.builtin_models import Model
from harness.models.context_cache import compile_together
from harness.models.context_metadata import named_build
from harness.models.contexts import Source, SourceContexts, require_contexts
from harness.models.session_plan import Context, DeployedContext, DeployedModel, Reference
from harness.probe.build import PROBE_NAME
from harness.probe.self_test import probe_problem
from harness.results.record import DeviceRecord, RuntimeRecord
from harness.runtimes.preflight import ContextFacts
from harness.runtimes.runtime import DeployedRuntime, Runtime, deploy_runtime

_BASELINE_S: Final = 10.0


class ProvisionedDevice:
    """A device with the files that a run has deployed there; replaced by a new one after a fault.

    The device is queried only when needed, and never for what devices.yaml specifies.
    """

    def __init__(
        self,
        lab_device: LabDevice,
        watch: DeviceWatch,
        provisioner: Provisioner,
        open_deployer: Callable[[AttachedDevice], Deployer],
    ) -> None:
        self.lab_device = lab_device
        self.watch = watch
        self.failed: dict[Placement, HarnessError] = {}
        self.ready: dict[Placement, PreparedPlacement] = {}
        self.refusals: dict[Placement, Verdict] = {}
        """The refusals of placements for which the device lacks a processor."""
        self.deployed: frozenset[str] = frozenset()
        """The names of placements whose files some process of the run has deployed."""
        self._recorded: tuple[AttachedDevice, DeviceRecord] | None = None
        self._provisioner = provisioner
        self._open_deployer = open_deployer

    @property
    def device(self) -> AttachedDevice:
        """The device. Raises like `LabDevice.attach`, and InfraError for one in quarantine."""
        self.watch.require(self.lab_device)
        return self.lab_device.attach()

    @property
    def target(self) -> str:
        return self.lab_device.config.target or self.device.target

    @property
    def htp_arch(self) -> int | None:
        return self.lab_device.config.htp_arch or self.device.htp_arch

    @property
    def record(self) -> DeviceRecord:
        device = self.device
        if self._recorded is None or self._recorded[0] is not device:
            self._recorded = device, DeviceRecord.model_validate(device.identity())
        return self._recorded[1]

    @cached_property
    def baseline(self) -> Baseline | None:
        """The state before its cases, to compare evidence with; None if unknown."""
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
        if "deployer" in self.__dict__:
            self.deployer.release()

    @property
    def probe(self) -> Path:
        return self._provisioner.probe(self.target)

    def with_placement(self, placement: Placement) -> PreparedPlacement:
        """Return a placement on it, without deploying anything."""
        return PreparedPlacement(self, placement, self._provisioner)

    def deploy(self, placement: Placement, materials: Materials) -> None:
        """Deploy what a placement needs; a full device loses the run's other files first."""
        try:
            self.deployer.deploy_sets(materials.file_sets(self.deployer))
        except DeviceFull:
            self.ready.clear()
            self.deployer.release(of_run=True)
            self.lab_device.fitness.epoch = secrets.token_hex(8)
            self.deployed = frozenset()
            self.deployer.deploy_sets(materials.file_sets(self.deployer))
        self.prepare(placement)
        self.deployed |= {placement.deployment_key}

    def prepare(self, placement: Placement) -> PreparedPlacement:
        """Deploy runtime and probe, and check once that the probe runs."""
        if placement not in self.ready:
            prepared = self.with_placement(placement)
            _ = prepared.runtime, prepared.probe
            _ = self.baseline  # now, so that the first case does not pay for it
            self.ready[placement] = prepared
        return self.ready[placement]


@dataclass(frozen=True)
class PreparedPlacement:
    """A placement on a device, with the files of its cases on this computer and on the device.

    Everything raises HarnessError if it cannot be made here or deployed there.
    """

    provisioned: ProvisionedDevice
    placement: Placement
    provisioner: Provisioner

    @property
    def libraries(self) -> Runtime:
        arch = self.provisioned.htp_arch if self.placement.backend == "htp" else None
        return self.provisioner.runtime(self.placement, self.provisioned.target, arch)

    @cached_property
    def runtime(self) -> DeployedRuntime:
        """The libraries on the device; deployed on first access."""
        return deploy_runtime(self.provisioned.deployer, self.libraries)

    @cached_property
    def probe(self) -> str:
        """The path of the probe on the device; deployed and tried on first access."""
        deployer, device = self.provisioned.deployer, self.provisioned.device
        (folder,) = deployer.deploy_sets([probe_set(deployer, self.provisioned.probe)])
        path = f"{folder}/{PROBE_NAME}"
        known, self.provisioned.lab_device.probe = self.provisioned.lab_device.probe, path
        if known != path and (why := probe_problem(device.transport, path)):
            problem = f"the probe does not run on {self.placement.device}: {why}"
            raise DeviceError(problem, serial=device.transport.serial)
        return path

    @cached_property
    def record(self) -> RuntimeRecord:
        return self.provisioner.identity(self.placement, self.provisioned.target)

    @property
    def program(self) -> EngineProgram | None:
        return ENGINES[self.placement.engine].program(self)

    @property
    def htp_arch(self) -> int:
        if (arch := self.provisioned.htp_arch) is None:
            raise self.provisioned.lab_device.unknown_arch()
        return arch

    @property
    def compiler(self) -> str:
        known, catalog = self.placement.compiler, self.provisioner.catalog
        return known or catalog.compiler_for(self.placement.qnn, self.provisioned.target)

    def compile_contexts(self, sources: Sequence[Source]) -> SourceContexts:
        """Return the contexts of these sources, or their errors; like `Contexts.of`."""
        compiled = any(source.compiled for source in sources)
        compiler, arch = (self.compiler, self.htp_arch) if compiled else (None, None)
        return self.provisioner.contexts.of(sources, compiler, arch)

    def compile_together(
        self, models: Sequence[Model], folder: Path
    ) -> tuple[Path, Mapping[str, Any]]:
        host = self.provisioner.catalog.compiler_host(self.compiler)
        return compile_together(models, host, self.htp_arch, self.provisioner.probes, folder)

    def contexts(self, sources: Sequence[Source]) -> dict[Source, DeployedContext]:
        """Deploy the contexts of these sources. Raises the first of their errors."""
        contexts, deployer = (
            require_contexts(self.compile_contexts(sources)),
            self.provisioned.deployer,
        )
        folders = deployer.deploy_sets([context_set(deployer, *pair) for pair in contexts.items()])
        return {
            source: deployed_context(context, folder)
            for (source, context), folder in zip(contexts.items(), folders, strict=True)
        }

    def models(self, models: Sequence[Model]) -> list[DeployedModel]:
        """Deploy the ONNX files of these models, their inputs and references."""
        onnx_files, deployer = self._onnx(models), self.provisioned.deployer
        folders = deployer.deploy_sets([model_set(deployer, *pair) for pair in onnx_files.values()])
        return [
            deployed_model(model, reference, folder)
            for (model, (_, reference)), folder in zip(onnx_files.items(), folders, strict=True)
        ]

    def _onnx(self, models: Sequence[Model]) -> dict[Model, tuple[Path, Reference]]:
        onnx, references = self.provisioner.onnx, self.references(models)
        return {model: (onnx.path(model), reference) for model, reference in references.items()}

    def references(self, models: Sequence[Model]) -> dict[Model, Reference]:
        if not models:
            return {}
        references = self.provisioner.contexts.references(models, self.compiler)
        return dict(zip(models, references, strict=True))

    def builds(self, sources: Sequence[Source]) -> list[str]:
        metadata = self.provisioner.contexts.metadata(sources).values()
        return [build for entry in metadata if (build := named_build(entry)) is not None]

    def context_facts(self, sources: Sequence[Source], materials: Materials) -> list[ContextFacts]:
        if self.placement.takes_contexts:
            pairs = materials.contexts.items()
            return [preflight_context(str(source), context) for source, context in pairs]
        inside = self.provisioner.contexts.metadata(sources)
        return [preflight_file(str(source), metadata) for source, metadata in inside.items()]

    def materials(self, need: Need, *, strict: bool) -> Materials:
        """Make all files that a case of the placement needs on its device.

        Files that only some cases use are left out if they cannot be made or are wrong: such a
        case gets the error when it asks for them. With `strict` the error is raised here. Files of
        the engine are always required. What the compiler refuses is always left out: its own case
        reports that as a result about the compiler.
        """
        libraries, probe = self.libraries, self.provisioned.probe
        contexts: dict[Source, Context] = {}
        for source, context in self.compile_contexts(need.contexts).items():
            if isinstance(context, Context):
                contexts[source] = context
            elif strict and isinstance(context, ConfigError):
                raise context
        models: dict[Model, tuple[Path, Reference]] = {}
        program: EngineProgram | None = None
        with contextlib.nullcontext() if strict else contextlib.suppress(HarnessError):
            models = self._onnx(need.models)
        with contextlib.nullcontext() if strict else contextlib.suppress(ConfigError):
            program = self.program
        return Materials(libraries, probe, contexts, models, program, need.files)
