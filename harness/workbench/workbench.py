"""The shared preparation of a run.

Host work (fetch, build, compile) and device work (connect, deploy) are done once per run and
shared by its cases. What cannot be made ready is remembered per placement, so that one version
that cannot be fetched spoils its own cases and no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from harness.cache import quarantine_root, simulated_root
from harness.contexts.compile import Context, ContextStore, Reference
from harness.contexts.models import ModelSpec
from harness.contexts.onnx_files import OnnxFiles
from harness.contexts.session_plan import DeployedContext, DeployedModel
from harness.errors import ConfigError, HarnessError, InfraError, VersionError
from harness.lab.attach import AttachedDevice, OpenLab
from harness.lab.care import DeviceCare
from harness.lab.events import Tell
from harness.lab.identity import Badges
from harness.lab.inventory import Lab
from harness.lab.lease import Leases
from harness.lab.quarantine import Quarantine
from harness.probe.build import PROBE_NAME, ProbeBuilder
from harness.probe.check import probe_problem
from harness.probe.fitness import ProbeFitness
from harness.runtimes.catalog import Catalog
from harness.runtimes.deploy import DeployedRuntime, Deployer, DeployFile, runtime_set
from harness.runtimes.device_store import FileSet
from harness.runtimes.findings import Finding
from harness.runtimes.notices import on_stderr
from harness.runtimes.preflight import ContextFacts
from harness.runtimes.runtime import Runtime
from harness.runtimes.use_marks import own_mark
from harness.workbench.baselines import Baselines
from harness.workbench.libraries import Libraries, PreflightMode, preflight_device
from harness.workbench.placement import Need, Placement, PushedFile, by_placement
from harness.workbench.pushed import (
    context_set,
    deployed_context,
    deployed_model,
    model_set,
    pushed_files,
)

# Context binaries are made for the HTP: elsewhere a case gets one if it asks, but none is expected.
_WITH_CONTEXTS = ("htp",)


class Workbench:
    """The shared preparation of a run; `close` ends what it started."""

    def __init__(
        self,
        lab: Lab,
        *,
        cache: Path,
        notify: Callable[[str], None],
        warn: Callable[[str], None] = on_stderr,
        tell: Tell = lambda event: None,
        leases: Leases | None = None,
        lease_wait_s: float = 0.0,
        catalog: Catalog | None = None,
        preflight: PreflightMode = "warn",
    ) -> None:
        """`tell` is told what happens to devices besides cases; leases are as in `OpenLab`.

        `catalog` is by default that of the lab. With `preflight` at strict, what is an error there
        keeps a placement from being made ready.
        """
        self.lab = OpenLab(
            lab,
            key_folder=cache / "keys",
            storage_root=simulated_root(cache),
            leases=leases,
            lease_wait_s=lease_wait_s,
            notify=warn,
        )
        self.catalog = catalog or Catalog.of(lab, os.environ, cache, notify=notify, warn=warn)
        self._libraries = Libraries(self.catalog, cache)
        self._preflight: PreflightMode = preflight
        self._findings: dict[Placement, tuple[Finding, ...]] = {}
        self._probes = ProbeBuilder(cache / "probe")
        self._contexts = ContextStore(cache, self.catalog, self._probes, notify=notify)
        self._onnx = OnnxFiles(cache)
        self._notify = notify
        self._care = DeviceCare(
            self.lab,
            Quarantine(quarantine_root(cache)),
            probe_problem=self._probe_problem,
            thorough=ProbeFitness(self._probes).problem,
            tell=tell,
        )
        self._deployers: dict[str, Deployer] = {}
        self._badges = Badges()
        # one for all: after a fault the same device is marked anew, not twice
        self._mark = own_mark()
        self._built: dict[tuple[str, int | None], Path] = {}
        self._ready: dict[Placement, tuple[DeployedRuntime, str]] = {}
        self._failed: dict[Placement, HarnessError] = {}
        self._probe_paths: dict[str, str] = {}
        self.baselines = Baselines(self.device)

    def close(self) -> None:
        """Says on each device that it is not in use any more, and ends what we started.

        Safe to call twice; a device that does not answer delays it by seconds at most.
        """
        for name, deployer in self._deployers.items():
            if not self._care.is_out(name):
                deployer.release()
        self._deployers.clear()
        self.lab.close()

    def prepare(self, needs: Sequence[Need]) -> Mapping[Placement, HarnessError]:
        """Makes everything ready that the cases will want; returns what could not be, and why.

        A placement that failed keeps failing with the same error in `require`, without being
        tried again.
        """
        self._compile_all(needs)
        for placement, models in by_placement(needs).items():
            if placement in self._failed:
                continue
            try:
                self._look_ahead(placement, models)
                self._deploy_together(placement, models)
            except HarnessError as error:
                self._failed[placement] = error
        return dict(self._failed)

    def findings(self, placement: Placement) -> tuple[Finding, ...]:
        """What preflight had to say about a placement when it was made ready."""
        return self._findings.get(placement, ())

    def runtime_identity(self, placement: Placement) -> dict[str, object]:
        """What the libraries of a placement are: the `runtime` of a record. Raises HarnessError."""
        return self._libraries.identity(placement, self._target(placement.device))

    def _look_ahead(self, placement: Placement, models: Sequence[ModelSpec]) -> None:
        if self._preflight == "off":
            return
        contexts = [
            ContextFacts(str(model), context.compiler, context.htp_arch)
            for model, context in self._made(placement, models).items()
        ]
        device = preflight_device(self.device(placement.device))
        found = self._libraries.findings(placement, device, contexts)
        self._findings[placement] = found
        errors = [one for one in found if one.severity == "error"]
        if errors and self._preflight == "strict":
            told = "; ".join(str(one) for one in errors)
            raise VersionError(f"{placement}: {told}", field="--preflight strict")

    def require(self, placement: Placement) -> None:
        """Raises the error that kept this placement from being made ready, if there was one."""
        if placement in self._failed:
            raise self._failed[placement]

    def is_out(self, device: str) -> bool:
        """Whether a device takes no cases now."""
        return self._care.is_out(device)

    def recover(self, device: str, *, case_over: bool) -> bool:
        """To be called after each fault of the lab on a device; whether it can be used again.

        `case_over`: the case is not tried again on it.
        What was known about the device is forgotten, and it is brought back or given up.
        """
        self._forget(device)
        usable = self._care.failed(device, case_over=case_over)
        self._forget(device)
        return usable

    def succeeded(self, device: str) -> None:
        """To be called after each case that the lab survived."""
        self._care.succeeded(device)

    def settle(self, device: str) -> dict[str, object]:
        """Waits until a device is fit for a timed case; see `DeviceCare.settle`."""
        return self._care.settle(device)

    def _forget(self, device: str) -> None:
        self._deployers.pop(device, None)
        self.baselines.forget(device)
        self._ready = {place: made for place, made in self._ready.items() if place.device != device}
        self._failed = {place: why for place, why in self._failed.items() if place.device != device}

    def files(self, need: Need) -> list[PushedFile]:
        """The files that a case needs on its device; fetches, builds and compiles on the host.

        Raises HarnessError like `prepare` remembers it.
        """
        return pushed_files(
            self._runtime(need.placement),
            self._probe(need.placement),
            self._made(need.placement, need.models),
            self._onnx_of(need),
        )

    def _onnx_of(self, need: Need) -> dict[ModelSpec, tuple[Path, Reference]]:
        """The ONNX files that a case gives to ONNX Runtime, with what goes with them."""
        if need.placement.engine != "ort":
            return {}
        references = self._contexts.references(need.models, need.placement.compiler)
        files = [self._onnx.path(model) for model in need.models]
        return dict(zip(need.models, zip(files, references, strict=True), strict=True))

    def compiled(self, need: Need) -> dict[ModelSpec, Context]:
        """The contexts that a case takes, on this host; compiles what is missing."""
        return self._made(need.placement, need.models)

    def deploy_runtime(self, placement: Placement) -> tuple[DeployedRuntime, str]:
        """Puts runtime and probe on the device; returns the runtime and the probe's path there."""
        if placement not in self._ready:
            deployer = self._deployer(placement.device)
            deployed = deployer.deploy_runtime(self._runtime(placement))
            (folder,) = deployer.deploy_sets([self._probe_set(placement)])
            probe_path = f"{folder}/{PROBE_NAME}"
            if self._probe_paths.get(placement.device) != probe_path:
                self._probe_paths[placement.device] = probe_path
                why = self._probe_problem(self.device(placement.device))
                if why is not None:
                    raise InfraError(f"the probe does not run on {placement.device}: {why}")
            self._ready[placement] = deployed, probe_path
        return self._ready[placement]

    def deploy_models(
        self, placement: Placement, models: Sequence[ModelSpec]
    ) -> list[DeployedModel]:
        """Puts the ONNX files of these models, their inputs and references on the device."""
        deployer = self._deployer(placement.device)
        references = self._contexts.references(models, placement.compiler)
        sets = [
            model_set(deployer, self._onnx.path(model), reference)
            for model, reference in zip(models, references, strict=True)
        ]
        return [
            deployed_model(model, reference, folder)
            for model, reference, folder in zip(
                models, references, deployer.deploy_sets(sets), strict=True
            )
        ]

    def reference(self, placement: Placement, model: ModelSpec) -> Reference:
        """A model's inputs and expected outputs on this host. Raises HarnessError."""
        (found,) = self._contexts.references([model], placement.compiler)
        return found

    def deploy_contexts(
        self, placement: Placement, models: Iterable[ModelSpec]
    ) -> dict[ModelSpec, DeployedContext]:
        """Puts the contexts of these models, compiled for the placement, on its device."""
        compiled = self._compiled(placement, tuple(models))
        sets = self._context_sets(placement.device, compiled)
        folders = self._deployer(placement.device).deploy_sets(sets)
        return {
            model: deployed_context(context, folder)
            for (model, context), folder in zip(compiled.items(), folders, strict=True)
        }

    def check_of(self, name: str) -> str:
        """Shell text that exits where another device answers than the one made ready."""
        return self._badges.check_of(name)

    def _deploy_together(self, placement: Placement, models: Sequence[ModelSpec]) -> None:
        """Puts everything that a placement needs on its device in one go."""
        sets = [runtime_set(self._runtime(placement)), self._probe_set(placement)]
        sets += self._context_sets(placement.device, self._made(placement, models))
        self._deployer(placement.device).deploy_sets(sets)
        self.deploy_runtime(placement)

    def _probe_set(self, placement: Placement) -> FileSet:
        file = DeployFile(self._probe(placement), PROBE_NAME, mode=0o755)
        return self._deployer(placement.device).file_set("probe", [file])

    def _context_sets(self, device: str, compiled: Mapping[ModelSpec, Context]) -> list[FileSet]:
        deployer = self._deployer(device)
        return [context_set(deployer, model, context) for model, context in compiled.items()]

    def device(self, name: str) -> AttachedDevice:
        """The device, connected and well.

        Raises as `OpenLab.device`, and InfraError for a device in quarantine.
        """
        self._care.require(name)
        return self.lab.device(name)

    def _probe_problem(self, device: AttachedDevice) -> str | None:
        """Why our probe does not run on a device; None if it does, or is not there yet."""
        path = self._probe_paths.get(device.name)
        return None if path is None else probe_problem(device.adb, path)

    def _compile_all(self, needs: Sequence[Need]) -> None:
        """Compiles all contexts of a compiler in one go: starting it costs more than using it."""
        for placement, models in by_placement(needs).items():
            try:
                self._runtime(placement)
                self._probe(placement)
                self._made(placement, models)
            except HarnessError as error:
                self._failed[placement] = error

    def _made(self, placement: Placement, models: Sequence[ModelSpec]) -> dict[ModelSpec, Context]:
        """Like `_compiled`, without those that the compiler refuses: only their cases suffer."""
        models = _expected_contexts(placement, models)
        arch = self.htp_arch(placement.device) if models else 0
        wanted = [(model, placement.compiler, arch) for model in dict.fromkeys(models)]
        made = self._contexts.without_refused(wanted)
        return self._compiled(placement, [model for model, _, _ in made])

    def _compiled(
        self, placement: Placement, models: Sequence[ModelSpec]
    ) -> dict[ModelSpec, Context]:
        if not models:
            return {}
        arch = self.htp_arch(placement.device)
        wanted = [(model, placement.compiler, arch) for model in dict.fromkeys(models)]
        found = self._contexts.get_many(wanted)
        return {model: context for (model, _, _), context in zip(wanted, found, strict=True)}

    def _runtime(self, placement: Placement) -> Runtime:
        name = placement.device
        arch = self._known_arch(name) if placement.backend == "htp" else None
        return self._libraries.runtime(placement, self._target(name), arch)

    def _probe(self, placement: Placement) -> Path:
        target = self._target(placement.device)
        api = self.device(placement.device).facts.android_api if "android" in target else None
        if (target, api) not in self._built:
            self._built[target, api] = self._probes.build(target, android_api=api)
        return self._built[target, api]

    def _target(self, name: str) -> str:
        (config,) = self.lab.lab.select([name])
        return config.target or self.device(name).target

    def _known_arch(self, name: str) -> int | None:
        (config,) = self.lab.lab.select([name])
        return config.htp_arch or self.device(name).htp_arch

    def htp_arch(self, name: str) -> int:
        """The HTP architecture of a device (73 for v73). Raises ConfigError if nobody knows it."""
        arch = self._known_arch(name)
        if arch is None:
            raise ConfigError(
                f"the HTP architecture of device {name} is not known; set htp_arch or soc",
                field=f"devices.{name}.htp_arch",
            )
        return arch

    def _deployer(self, name: str) -> Deployer:
        if name not in self._deployers:
            device = self.device(name)
            self._badges.look(name, device.adb, device.workdir)
            limit = device.config.store_limit_mb
            self._deployers[name] = Deployer(
                device.adb,
                device.workdir,
                notify=self._notify,
                cap_bytes=None if limit is None else limit * 1_000_000,
                mark=self._mark,
            )
        return self._deployers[name]


def _expected_contexts(placement: Placement, models: Sequence[ModelSpec]) -> Sequence[ModelSpec]:
    """The models whose contexts are made ready before a case asks for them."""
    with_contexts = placement.backend in _WITH_CONTEXTS and placement.engine == "qnn"
    return models if with_contexts else ()
