"""What this computer makes for devices: libraries, the probe, contexts, ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from harness.contexts.contexts import Contexts, Source
from harness.contexts.metadata import named_build
from harness.contexts.models import Model, OnnxFiles
from harness.contexts.source import Context, Reference
from harness.errors import ConfigError
from harness.fit.forecasts import Forecasts
from harness.probe.build import PROBE_NAME, ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.executorch import EXECUTORCH_LIBRARIES, runner_files
from harness.runtimes.preflight import ContextFacts
from harness.runtimes.runtime import Runtime
from harness.workbench.libraries import Libraries, preflight_context, preflight_file
from harness.workbench.placement import Need, Placement

# Context binaries are made for the HTP: elsewhere a case gets one if it asks, but none is expected.
_WITH_CONTEXTS = ("htp",)


class TargetSpec(Protocol):
    """What must be known of a device to make something for it."""

    @property
    def target(self) -> str:
        """What libraries for it are built for, such as `android-arm64`."""

    @property
    def htp_arch(self) -> int | None:
        """73 for v73; None if nobody knows."""


class Supplies:
    """Fetches, builds and compiles, each thing once for all devices. Methods raise HarnessError."""

    def __init__(self, catalog: Catalog, cache: Path, executorch: Path | None = None) -> None:
        """`executorch` is the folder of a user's own build of ExecuTorch."""
        self.catalog = catalog
        self._own_executorch = executorch
        self.libraries = Libraries(catalog, cache, own_executorch=executorch is not None)
        self.probes = ProbeBuilder(cache / "probe")
        self._contexts = Contexts(cache, catalog, self.probes)
        self.forecasts = Forecasts(cache, self.probes)
        self._onnx = OnnxFiles(cache)
        self._built: dict[tuple[str, int | None], Path] = {}

    def runtime(self, placement: Placement, kind: TargetSpec) -> Runtime:
        """The libraries of a placement, cut down to what its device needs."""
        arch = kind.htp_arch if placement.backend == "htp" else None
        return self.libraries.runtime(placement, kind.target, arch)

    def probe(self, target: str, android_api: int | None) -> Path:
        """The probe for a target; `android_api` is that of the device, for Android."""
        if (target, android_api) not in self._built:
            self._built[target, android_api] = self.probes.build(target, android_api=android_api)
        return self._built[target, android_api]

    def executor_runner(self, target: str) -> dict[str, Path] | None:
        """The runner of the user's own build, and its libraries; None if there is no such build."""
        own = self._own_executorch
        return None if own is None else runner_files(own, target)

    def executorch(self, target: str) -> dict[str, Path]:
        """The probe with ExecuTorch in it, and the libraries that are to lie beside it, by name."""
        wheel = self.catalog.executorch(target)
        root = wheel.path / "executorch"
        identity = " ".join(
            wheel.files[f"executorch/lib/{name}"].sha256 for name in EXECUTORCH_LIBRARIES
        )
        program = self.probes.build_with_executorch(root, identity)
        libraries = {name: root / "lib" / name for name in EXECUTORCH_LIBRARIES}
        return {PROBE_NAME: program, **libraries}

    def contexts(
        self, placement: Placement, kind: TargetSpec, sources: Sequence[Source]
    ) -> dict[Source, Context]:
        """The contexts of these sources.

        Raises CompileError for one that its compiler refuses, ConfigError for a wrong file.
        """
        return self._contexts.of(sources, *self._compiling(placement, kind, sources))

    def expected_contexts(self, need: Need, kind: TargetSpec) -> dict[Source, Context]:
        """Those that are made ready before a case asks for them, as far as they can be had."""
        placement, sources = need.placement, need.sources
        if not placement.takes_contexts:
            return {}
        if placement.backend not in _WITH_CONTEXTS:
            sources = tuple(one for one in sources if not one.compiled)
        return self._contexts.available(sources, *self._compiling(placement, kind, sources))

    def required_contexts(self, need: Need, kind: TargetSpec) -> dict[Source, Context]:
        """The same. Raises ConfigError for a wrong file."""
        if not need.placement.takes_contexts:
            return {}
        self.contexts(need.placement, kind, [one for one in need.sources if not one.compiled])
        return self.expected_contexts(need, kind)

    def context_facts(self, need: Need, kind: TargetSpec) -> list[ContextFacts]:
        """What preflight wants to know of the contexts that a case takes, whatever loads them."""
        if need.placement.takes_contexts:
            made = self.expected_contexts(need, kind)
            return [preflight_context(str(source), context) for source, context in made.items()]
        inside = self._contexts.metadata(need.sources)
        return [preflight_file(str(source), told) for source, told in inside.items()]

    def builds(self, sources: Sequence[Source]) -> list[str]:
        """The QNN builds that files name as theirs, as far as they can be read."""
        return [
            build
            for told in self._contexts.metadata(sources).values()
            if (build := named_build(told)) is not None
        ]

    def _compiling(
        self, placement: Placement, kind: TargetSpec, sources: Sequence[Source]
    ) -> tuple[str | None, int | None]:
        """Compiler and HTP architecture, as far as one of the sources needs them."""
        if not any(one.compiled for one in sources):
            return None, None
        return self._compiler(placement, kind), arch_of(placement, kind)

    def _compiler(self, placement: Placement, kind: TargetSpec) -> str:
        """What compiles for a placement, also where it was not made for that."""
        return placement.compiler or self.catalog.compiler_for(placement.qnn, kind.target)

    def models(
        self, placement: Placement, kind: TargetSpec, models: Sequence[Model]
    ) -> dict[Model, tuple[Path, Reference]]:
        """The ONNX files of these models, with what goes with them."""
        references = self.references(placement, kind, models)
        return {model: (self._onnx.path(model), made) for model, made in references.items()}

    def references(
        self, placement: Placement, kind: TargetSpec, models: Sequence[Model]
    ) -> dict[Model, Reference]:
        """The inputs and expected outputs of these models."""
        made = self._contexts.references(models, self._compiler(placement, kind))
        return dict(zip(models, made, strict=True))


def arch_of(placement: Placement, kind: TargetSpec) -> int:
    """The HTP architecture of a placement's device. Raises ConfigError if nobody knows it."""
    if kind.htp_arch is None:
        raise ConfigError(
            f"the HTP architecture of device {placement.device} is not known; set htp_arch or soc",
            field=f"devices.{placement.device}.htp_arch",
        )
    return kind.htp_arch
