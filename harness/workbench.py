"""Everything a run needs made ready before its first case: libraries, probe, contexts, devices.

Host work (fetch, build, compile) and device work (connect, deploy) are done once per run and
shared by its cases. What cannot be made ready is remembered per placement, so that one version
that cannot be fetched spoils its own cases and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cache import simulated_root
from harness.contexts.compile import Context, ContextStore
from harness.contexts.models import ModelSpec
from harness.contexts.session_plan import DeployedContext
from harness.errors import ConfigError, HarnessError, InfraError
from harness.lab.attach import AttachedDevice, OpenLab
from harness.lab.inventory import Lab
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog, Runtime
from harness.runtimes.deploy import DeployedRuntime, Deployer, DeployFile, runtime_set
from harness.runtimes.device_store import FileSet
from harness.runtimes.notices import on_stderr
from harness.runtimes.use_marks import own_mark

_PROBE_NAME = "qnn-probe"


@dataclass(frozen=True, order=True)
class Placement:
    """Where and with what a case runs: one device, backend, runtime and compiler."""

    device: str
    backend: str
    qnn: str
    compiler: str

    def __str__(self) -> str:
        text = f"{self.device}-{self.backend}-{self.qnn}"
        return text if self.compiler == self.qnn else f"{text}-by-{self.compiler}"


@dataclass(frozen=True)
class Need:
    """What one case will want: a placement and the models it takes contexts of."""

    placement: Placement
    models: tuple[ModelSpec, ...]


@dataclass(frozen=True)
class PushedFile:
    """One file that a case needs on the device (for `--plan`); `size` in bytes."""

    origin: str
    name: str
    size: int


class Workbench:
    """The shared preparation of a run; `close` ends what it started."""

    def __init__(
        self,
        lab: Lab,
        *,
        cache: Path,
        notify: Callable[[str], None],
        warn: Callable[[str], None] = on_stderr,
    ) -> None:
        self.lab = OpenLab(lab, key_folder=cache / "keys", storage_root=simulated_root(cache))
        self.catalog = Catalog(cache, notify=notify, warn=warn)
        self._probes = ProbeBuilder(cache / "probe")
        self._contexts = ContextStore(cache, self.catalog, self._probes, notify=notify)
        self._notify = notify
        self._deployers: dict[str, Deployer] = {}
        # one for all: after a fault the same device is marked anew, not twice
        self._mark = own_mark()
        self._built: dict[str, Path] = {}
        self._ready: dict[Placement, tuple[DeployedRuntime, str]] = {}
        self._failed: dict[Placement, HarnessError] = {}
        self._lost: dict[str, InfraError] = {}

    def close(self) -> None:
        """Says on each device that it is not in use any more, and ends what we started.

        Safe to call twice; a device that does not answer delays it by seconds at most.
        """
        for name, deployer in self._deployers.items():
            if name not in self._lost:
                deployer.release()
        self._deployers.clear()
        self.lab.close()

    def prepare(self, needs: Sequence[Need]) -> Mapping[Placement, HarnessError]:
        """Makes everything ready that the cases will want; returns what could not be, and why.

        A placement that failed keeps failing with the same error in `require`, without being
        tried again.
        """
        self._compile_all(needs)
        for placement, models in _by_placement(needs).items():
            if placement in self._failed or placement.device in self._lost:
                continue
            try:
                self._deploy_together(placement, models)
            except HarnessError as error:
                self._failed[placement] = error
        return dict(self._failed)

    def require(self, placement: Placement) -> None:
        """Raises the error that kept this placement from being made ready, if there was one."""
        if placement.device in self._lost:
            raise self._lost[placement.device]
        if placement in self._failed:
            raise self._failed[placement]

    def is_lost(self, device: str) -> bool:
        """Whether a device was given up for the rest of the run."""
        return device in self._lost

    def let_go(self, device: str, *, for_good: bool) -> None:
        """Forgets a device after a fault of the lab; it is attached anew when it is needed next.

        With `for_good` it is attached at once, and if that fails, too, every placement on it fails
        from now on, so that the cases that follow need not wait for it one by one.
        """
        self._deployers.pop(device, None)
        self._ready = {place: made for place, made in self._ready.items() if place.device != device}
        self._failed = {place: why for place, why in self._failed.items() if place.device != device}
        self.lab.release(device)
        if for_good:
            try:
                self.device(device)
            except HarnessError as error:
                why = f"device {device} was lost earlier in this run: {error}"
                self._lost[device] = InfraError(why)

    def files(self, need: Need) -> list[PushedFile]:
        """The files that a case needs on its device; fetches, builds and compiles on the host.

        Raises HarnessError like `prepare` remembers it.
        """
        runtime = self._runtime(need.placement)
        probe = self._probe(need.placement)
        origin = f"QNN {runtime.qnn_version}"
        files = [PushedFile("probe", _PROBE_NAME, probe.stat().st_size)]
        files += [PushedFile(origin, file.name, file.size) for file in runtime.files]
        for model, context in self._compiled(need.placement, need.models).items():
            paths = [context.path, *context.inputs, *context.expected]
            files += [PushedFile(str(model), path.name, path.stat().st_size) for path in paths]
        return files

    def deploy_runtime(self, placement: Placement) -> tuple[DeployedRuntime, str]:
        """Puts runtime and probe on the device; returns the runtime and the probe's path there."""
        if placement not in self._ready:
            deployer = self._deployer(placement.device)
            deployed = deployer.deploy_runtime(self._runtime(placement))
            (folder,) = deployer.deploy_sets([self._probe_set(placement)])
            self._ready[placement] = deployed, f"{folder}/{_PROBE_NAME}"
        return self._ready[placement]

    def deploy_contexts(
        self, placement: Placement, models: Iterable[ModelSpec]
    ) -> dict[ModelSpec, DeployedContext]:
        """Puts the contexts of these models, compiled for the placement, on its device."""
        compiled = self._compiled(placement, tuple(models))
        sets = self._context_sets(placement.device, compiled)
        folders = self._deployer(placement.device).deploy_sets(sets)
        deployed = {}
        for (model, context), folder in zip(compiled.items(), folders, strict=True):
            inputs, expected = _names("input", context.inputs), _names("expected", context.expected)
            deployed[model] = DeployedContext(
                context=context,
                binary=f"{folder}/context.bin",
                inputs=tuple(f"{folder}/{name}" for name in inputs),
                expected=tuple(f"{folder}/{name}" for name in expected),
            )
        return deployed

    def _deploy_together(self, placement: Placement, models: Sequence[ModelSpec]) -> None:
        """Puts everything that a placement needs on its device in one go."""
        sets = [runtime_set(self._runtime(placement)), self._probe_set(placement)]
        sets += self._context_sets(placement.device, self._compiled(placement, models))
        self._deployer(placement.device).deploy_sets(sets)
        self.deploy_runtime(placement)

    def _probe_set(self, placement: Placement) -> FileSet:
        file = DeployFile(self._probe(placement), _PROBE_NAME, mode=0o755)
        return self._deployer(placement.device).file_set("probe", [file])

    def _context_sets(self, device: str, compiled: Mapping[ModelSpec, Context]) -> list[FileSet]:
        deployer = self._deployer(device)
        sets = []
        for model, context in compiled.items():
            paths = (*context.inputs, *context.expected)
            names = _names("input", context.inputs) + _names("expected", context.expected)
            files = [DeployFile(context.path, "context.bin")]
            files += [DeployFile(path, name) for path, name in zip(paths, names, strict=True)]
            sets.append(deployer.file_set(str(model), files))
        return sets

    def device(self, name: str) -> AttachedDevice:
        """The device, connected; raises as `OpenLab.device`."""
        return self.lab.device(name)

    def _compile_all(self, needs: Sequence[Need]) -> None:
        """Compiles all contexts of a compiler in one go: starting it costs more than using it."""
        for placement, models in _by_placement(needs).items():
            try:
                self._runtime(placement)
                self._probe(placement)
                self._compiled(placement, models)
            except HarnessError as error:
                self._failed[placement] = error

    def _compiled(
        self, placement: Placement, models: Sequence[ModelSpec]
    ) -> dict[ModelSpec, Context]:
        if not models:
            return {}
        arch = self._htp_arch(placement.device)
        wanted = [(model, placement.compiler, arch) for model in dict.fromkeys(models)]
        found = self._contexts.get_many(wanted)
        return {model: context for (model, _, _), context in zip(wanted, found, strict=True)}

    def _runtime(self, placement: Placement) -> Runtime:
        return self.catalog.runtime(placement.qnn, self._target(placement.device))

    def _probe(self, placement: Placement) -> Path:
        target = self._target(placement.device)
        if target not in self._built:
            self._built[target] = self._probes.build(target)
        return self._built[target]

    def _target(self, name: str) -> str:
        (config,) = self.lab.lab.select([name])
        return config.target or self.device(name).target

    def _htp_arch(self, name: str) -> int:
        (config,) = self.lab.lab.select([name])
        arch = config.htp_arch or self.device(name).htp_arch
        if arch is None:
            raise ConfigError(
                f"the HTP architecture of device {name} is not known; set htp_arch or soc",
                field=f"devices.{name}.htp_arch",
            )
        return arch

    def _deployer(self, name: str) -> Deployer:
        if name not in self._deployers:
            device = self.device(name)
            limit = device.config.store_limit_mb
            self._deployers[name] = Deployer(
                device.adb,
                device.workdir,
                notify=self._notify,
                cap_bytes=None if limit is None else limit * 1_000_000,
                mark=self._mark,
            )
        return self._deployers[name]


def _names(kind: str, paths: Sequence[Path]) -> list[str]:
    return [f"{kind}.{index}.raw" for index in range(len(paths))]


def _by_placement(needs: Iterable[Need]) -> dict[Placement, tuple[ModelSpec, ...]]:
    merged: dict[Placement, dict[ModelSpec, None]] = {}
    for need in needs:
        merged.setdefault(need.placement, {}).update(dict.fromkeys(need.models))
    return {placement: tuple(models) for placement, models in merged.items()}
