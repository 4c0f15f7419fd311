"""What this computer makes for devices: libraries, programs, contexts, ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.contexts.compiler.models import OnnxFiles
from harness.contexts.sources.contexts import Contexts
from harness.ground.facts.backends import backend_of
from harness.ground.facts.engines import ENGINES, EXECUTORCH, ORT
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.executorch import (
    EXECUTORCH_LIBRARIES,
    EXECUTORCH_VERSION,
    OWN_BUILD,
    RUNNER,
    runner_files,
)
from harness.libraries.runtimes.findings import Finding
from harness.libraries.runtimes.known_facts import KnownFacts
from harness.libraries.runtimes.library_facts import build_id_of
from harness.libraries.runtimes.needed_files import narrowed
from harness.libraries.runtimes.ort import PLUGIN
from harness.libraries.runtimes.preflight import ContextFacts, PreflightInput, preflight
from harness.libraries.runtimes.preflight_linking import TargetFacts
from harness.libraries.runtimes.runtime import Runtime
from harness.probe.build import PROBE_NAME, ProbeBuilder
from harness.run.workbench.materials import EngineProgram
from harness.run.workbench.placement import Placement
from harness.verdict.results.record import RuntimeRecord


class Provisioner:
    """Fetches, builds and compiles, each thing once for all devices. Methods raise HarnessError.

    Runtimes are cut down to what the processes of a placement need.
    """

    def __init__(self, catalog: Catalog, cache: Path, executorch: Path | None = None) -> None:
        """`executorch` is the folder of a user's own build of ExecuTorch."""
        self.catalog = catalog
        self.probes = ProbeBuilder(cache / "probe")
        self.contexts = Contexts(cache, catalog, self.probes)
        self.onnx = OnnxFiles(cache)
        self._own_executorch = executorch
        self._known = KnownFacts(cache)
        self._wholes: dict[tuple[object, ...], Runtime] = {}
        self._narrowed: dict[tuple[object, ...], Runtime] = {}
        self._built: dict[tuple[str, int | None], Path] = {}

    def runtime(self, placement: Placement, target: str, htp_arch: int | None) -> Runtime:
        """What is pushed; of stubs and skels the pair for `htp_arch` (73), or all if that is None.

        Raises as `Catalog.runtime`.
        """
        key = (placement.qnn, placement.engine, placement.ort, target, placement.backend, htp_arch)
        if key not in self._narrowed:
            whole = self._whole(placement, target)
            facts = self._known.of(whole)
            needed = {one.file_name: one.elf.needed for one in facts if one.elf is not None}
            self._narrowed[key] = narrowed(
                whole,
                placement.backend,
                _engine(placement, whole),
                htp_arch,
                online_prepare=placement.takes_models,
                needed=needed,
            )
        return self._narrowed[key]

    def _whole(self, placement: Placement, target: str) -> Runtime:
        """All files of a runtime; asked of its source once, and not for every case."""
        key = (placement.qnn, placement.engine, placement.ort, target)
        if key not in self._wholes:
            self._wholes[key] = (
                self.catalog.with_ort(placement.qnn, placement.ort, target)
                if placement.takes_models
                else self.catalog.runtime(placement.qnn, target)
            )
        return self._wholes[key]

    def findings(
        self, placement: Placement, device: TargetFacts, contexts: Sequence[ContextFacts]
    ) -> tuple[Finding, ...]:
        """What preflight finds; looks at every stub and skel there is, since one may be misnamed.

        Raises as `Catalog.runtime`.
        """
        whole = self._whole(placement, device.target)
        of_use = {file.name for file in self.runtime(placement, device.target, None).files}
        is_wheel = placement.engine == EXECUTORCH.name and self._own_executorch is None
        subject = PreflightInput(
            files=[one for one in self._known.of(whole) if one.name in of_use],
            device=device,
            backend=backend_of(placement.backend) or "htp",
            contexts=contexts,
            qnn_version=whole.qnn_version,
            executorch=EXECUTORCH_VERSION if is_wheel else None,
        )
        return tuple(preflight(subject))

    def identity(self, placement: Placement, target: str) -> RuntimeRecord:
        """Version, build and source of a placement's runtime. Raises as `Catalog.runtime`."""
        whole = self._whole(placement, target)
        return RuntimeRecord(
            qnn=whole.qnn_version,
            build_id=build_id_of(self._known.of(whole)),
            source=whole.source,
            ort=whole.ort_version if placement.takes_models else None,
        )

    def probe(self, target: str, android_api: int | None) -> Path:
        """The probe for a target; `android_api` is that of the device, for Android."""
        if (target, android_api) not in self._built:
            self._built[target, android_api] = self.probes.build(target, android_api=android_api)
        return self._built[target, android_api]

    def program(self, engine: str, target: str) -> EngineProgram | None:
        """What an engine brings to a device in the place of our probe; None where the probe serves.

        Raises ConfigError for a build of the user's without a runner, or for another target, and
        for a device that ExecuTorch's wheel has no libraries for.
        """
        if engine != EXECUTORCH.name:
            return None
        if self._own_executorch is not None:
            files = runner_files(self._own_executorch, target)
            return EngineProgram("executorch-build", OWN_BUILD, RUNNER, files, is_own=True)
        return EngineProgram(
            "executorch", EXECUTORCH_VERSION, PROBE_NAME, self.executorch(target), is_own=False
        )

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


def _engine(placement: Placement, whole: Runtime) -> str:
    engine = ENGINES[placement.engine]
    if engine is not ORT:
        return engine.libraries or engine.name
    plugin = any(file.path.name == PLUGIN for file in whole.files)
    return "ort-plugin" if plugin else "ort-builtin"
