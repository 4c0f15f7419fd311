"""Devices that a run holds, and placements on them: what is made for one, and what lies there."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from harness.bench.placement import Need, Placement
from harness.bench.provisioner import (
    EngineProgram,
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
from harness.core.axes import ENGINES
from harness.core.errors import ConfigError, DeviceError, DeviceFull, HarnessError, InfraError
from harness.deploy.deploy import Deployer
from harness.evidence.answers import Baseline
from harness.evidence.case_evidence import take_baseline
from harness.lab.attach import AttachedDevice, LabDevice
from harness.lab.device_watch import DeviceWatch
from harness.models.contexts import Made, Source, required
from harness.models.litert import litert_host
from harness.models.metadata import named_build
from harness.models.models import Model
from harness.models.source import Context, DeployedContext, DeployedModel, Reference
from harness.probe.build import PROBE_NAME
from harness.probe.fitness import probe_problem
from harness.results.record import DeviceRecord, RuntimeRecord
from harness.runtimes.preflight import ContextFacts
from harness.runtimes.runtime import DeployedRuntime, Runtime, deploy_runtime

_BASELINE_S: Final = 10.0


class HeldDevice:
    """What a run knows of one device, and has put there. After a fault it is made anew.

    The device is asked for nothing before it is needed, and never for what devices.yaml tells.
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
        self.ready: dict[Placement, Target] = {}
        self.lies: frozenset[str] = frozenset()
        """What the run has put there, by any of its processes."""
        self._provisioner = provisioner
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
        return self._provisioner.probe(self.target, self.android_api)

    def on(self, placement: Placement) -> Target:
        """A placement on it; nothing is put there."""
        return Target(self, placement, self._provisioner)

    def deploy(self, placement: Placement, materials: Materials) -> None:
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
        self.place(placement)
        self.lies |= {placement.what}

    def place(self, placement: Placement) -> Target:
        """Puts runtime and probe there, and sees once that the probe runs."""
        if placement not in self.ready:
            target = self.on(placement)
            _ = target.runtime, target.probe
            _ = self.baseline  # before its first case, whose time it would be
            self.ready[placement] = target
        return self.ready[placement]


@dataclass(frozen=True)
class Target:
    """A placement on a device: what this computer has for its cases, and what they have there.

    Everything raises HarnessError if it cannot be made here, or not put there.
    """

    held: HeldDevice
    placement: Placement
    provisioner: Provisioner

    @property
    def libraries(self) -> Runtime:
        arch = self.held.htp_arch if self.placement.backend == "htp" else None
        return self.provisioner.runtime(self.placement, self.held.target, arch)

    @cached_property
    def runtime(self) -> DeployedRuntime:
        """The libraries, put on the device."""
        return deploy_runtime(self.held.deployer, self.libraries)

    @cached_property
    def probe(self) -> str:
        """The path of the probe, put on the device, where it is tried once."""
        deployer, device = self.held.deployer, self.held.device
        (folder,) = deployer.deploy_sets([probe_set(deployer, self.held.probe)])
        path = f"{folder}/{PROBE_NAME}"
        known, self.held.lab_device.probe = self.held.lab_device.probe, path
        if known != path and (why := probe_problem(device.transport, path)):
            problem = f"the probe does not run on {self.placement.device}: {why}"
            raise DeviceError(problem, serial=device.transport.serial)
        return path

    @cached_property
    def record(self) -> RuntimeRecord:
        return self.provisioner.identity(self.placement, self.held.target)

    @property
    def program(self) -> EngineProgram | None:
        return self.provisioner.program(self.placement.engine, self.held.target)

    @property
    def htp_arch(self) -> int:
        if (arch := self.held.htp_arch) is None:
            raise self.held.lab_device.unknown_arch()
        return arch

    @property
    def compiler(self) -> str:
        known, catalog = self.placement.compiler, self.provisioner.catalog
        return known or catalog.compiler_for(self.placement.qnn, self.held.target)

    def made(self, sources: Sequence[Source]) -> Made:
        """The contexts of these sources, or why there is none; as `Contexts.of`."""
        compiled = any(one.compiled for one in sources)
        compiler, arch = (self.compiler, self.htp_arch) if compiled else (None, None)
        return self.provisioner.contexts.of(sources, compiler, arch)

    def contexts(self, sources: Sequence[Source]) -> dict[Source, DeployedContext]:
        """Puts the contexts of these sources there. Raises the first of their errors."""
        made, deployer = required(self.made(sources)), self.held.deployer
        folders = deployer.deploy_sets([context_set(deployer, *one) for one in made.items()])
        return {
            source: deployed_context(context, folder)
            for (source, context), folder in zip(made.items(), folders, strict=True)
        }

    def models(self, models: Sequence[Model]) -> list[DeployedModel]:
        """Puts the ONNX files of these models, their inputs and references there."""
        made, deployer = self._onnx(models), self.held.deployer
        folders = deployer.deploy_sets([model_set(deployer, *one) for one in made.values()])
        return [
            deployed_model(model, reference, folder)
            for (model, (_, reference)), folder in zip(made.items(), folders, strict=True)
        ]

    def _onnx(self, models: Sequence[Model]) -> dict[Model, tuple[Path, Reference]]:
        onnx, references = self.provisioner.onnx, self.references(models)
        return {model: (onnx.path(model), made) for model, made in references.items()}

    def references(self, models: Sequence[Model]) -> dict[Model, Reference]:
        """The inputs and expected outputs of these models."""
        if not models:
            return {}
        made = self.provisioner.contexts.references(models, self.compiler)
        return dict(zip(models, made, strict=True))

    def builds(self, sources: Sequence[Source]) -> list[str]:
        """The QNN builds that files name as theirs, as far as they can be read."""
        metadata = self.provisioner.contexts.metadata(sources).values()
        return [build for told in metadata if (build := named_build(told)) is not None]

    def context_facts(self, sources: Sequence[Source], made: Materials) -> list[ContextFacts]:
        """What preflight wants to know of the contexts that a case takes, whatever loads them."""
        if self.placement.takes_contexts:
            return [preflight_context(str(source), one) for source, one in made.contexts.items()]
        inside = self.provisioner.contexts.metadata(sources)
        return [preflight_file(str(source), told) for source, told in inside.items()]

    def materials(self, need: Need, *, strict: bool) -> Materials:
        """All that a case of the placement has on its device, made on this computer.

        What only some cases take and cannot be had is left out, and so is wrong input: such a case
        is told when it asks for it. With `strict` that is raised. What the engine of all of them
        takes must be had. What a compiler refuses is left out in any case: that is an answer about
        the compiler, which its own case gives.
        """
        libraries, probe = self.libraries, self.held.probe
        contexts: dict[Source, Context] = {}
        for source, made in self.made(need.contexts).items():
            if isinstance(made, Context):
                contexts[source] = made
            elif strict and isinstance(made, ConfigError):
                raise made
        models: dict[Model, tuple[Path, Reference]] = {}
        program: EngineProgram | None = None
        with contextlib.nullcontext() if strict else contextlib.suppress(HarnessError):
            models = self._onnx(need.models)
        with contextlib.nullcontext() if strict else contextlib.suppress(ConfigError):
            program = self.program
            if ENGINES[need.placement.engine].compiles is not None:
                litert_host(self.provisioner.catalog, self.compiler)
        return Materials(libraries, probe, contexts, models, program, need.files)
