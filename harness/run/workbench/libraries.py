"""Which libraries a placement puts on its device, and what preflight says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from harness.contexts.context.metadata import entries, memory_bytes, named_build, needs
from harness.contexts.context.source import Context
from harness.device.dsp.hexagon import lacks_floats
from harness.device.lab.attach import AttachedDevice
from harness.ground.facts.backends import RPC_LIBRARY, backend_of
from harness.ground.facts.engines import ENGINES, EXECUTORCH, ORT
from harness.ground.files.cache import BOARDS, cache_root
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.executorch import EXECUTORCH_VERSION
from harness.libraries.runtimes.findings import Finding
from harness.libraries.runtimes.known_facts import KnownFacts
from harness.libraries.runtimes.library_facts import build_id_of
from harness.libraries.runtimes.needed_files import narrowed
from harness.libraries.runtimes.ort import PLUGIN
from harness.libraries.runtimes.preflight import ContextFacts, PreflightInput, preflight
from harness.libraries.runtimes.preflight_linking import SYSTEM_LIBRARIES, TargetFacts
from harness.libraries.runtimes.runtime import Runtime
from harness.run.workbench.placement import Placement
from harness.verdict.results.record import RuntimeRecord

PreflightMode = Literal["strict", "warn", "off"]
"""strict: an error of preflight keeps a case from running; warn: it is recorded; off: no look."""


_SIDES: Final = ("inputs", "outputs")


class RunLibraries:
    """The runtimes of a run's placements, cut down to what their processes need."""

    def __init__(self, catalog: Catalog, cache_root: Path, *, own_executorch: bool = False) -> None:
        """`own_executorch`: ExecuTorch is a build of the user's, of an unknown version."""
        self._catalog = catalog
        self._executorch = None if own_executorch else EXECUTORCH_VERSION
        self._known = KnownFacts(cache_root)
        self._wholes: dict[tuple[object, ...], Runtime] = {}
        self._narrowed: dict[tuple[object, ...], Runtime] = {}

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
                self._catalog.with_ort(placement.qnn, placement.ort, target)
                if placement.takes_models
                else self._catalog.runtime(placement.qnn, target)
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
        subject = PreflightInput(
            files=[one for one in self._known.of(whole) if one.name in of_use],
            device=device,
            backend=backend_of(placement.backend) or "htp",
            contexts=contexts,
            qnn_version=whole.qnn_version,
            executorch=self._executorch if placement.engine == EXECUTORCH.name else None,
        )
        return tuple(preflight(subject))

    def identity(self, placement: Placement, target: str) -> RuntimeRecord:
        """Version, build and source of a placement's runtime. Raises as `Catalog.runtime`."""
        whole = self._whole(placement, target)
        return RuntimeRecord(
            qnn=whole.qnn_version,
            build_id=whole.build_id or build_id_of(self._known.of(whole)),
            source=whole.source,
            ort=whole.ort_version if placement.takes_models else None,
        )


def _engine(placement: Placement, whole: Runtime) -> str:
    engine = ENGINES[placement.engine]
    if engine is not ORT:
        return engine.libraries or engine.name
    plugin = any(file.path.name == PLUGIN for file in whole.files)
    return "ort-plugin" if plugin else "ort-builtin"


def preflight_device(device: AttachedDevice) -> TargetFacts:
    """What preflight wants to know of an attached device."""
    return TargetFacts(
        target=device.target,
        soc=device.soc,
        htp_arch=device.htp_arch,
        glibc=device.facts.glibc,
        android_api=device.facts.android_api,
        libraries=_libraries_of(device),
        page_bytes=device.facts.page_bytes,
        lacks_floats=device.simulated_dsp is not None and lacks_floats(cache_root() / BOARDS),
    )


def preflight_context(name: str, context: Context) -> ContextFacts:
    """What preflight wants to know of a context."""
    facts = preflight_file(name, context.metadata)
    # of one that is compiled here the compiler chose the SoC, by the device's HTP
    soc_model = None if context.source.compiled else facts.soc_model
    made_by, arch = context.made_by, context.htp_arch
    return replace(facts, compiler=made_by, htp_arch=arch, soc_model=soc_model)


def preflight_file(name: str, metadata: Mapping[str, Any]) -> ContextFacts:
    """What preflight wants to know of a binary, as far as its own metadata tell."""
    arch, soc = metadata.get("dsp_arch"), metadata.get("soc_model")
    graphs = entries(metadata, "graphs")
    tensors = (one for graph in graphs for side in _SIDES for one in entries(graph, side))
    has_floats = any(str(one.get("data_type")).startswith("float") for one in tensors)
    return ContextFacts(
        name,
        named_build(metadata),
        arch if isinstance(arch, int) else None,
        needs(metadata).vtcm_bytes,
        memory_bytes(metadata),
        soc if isinstance(soc, int) else None,
        has_floats,
    )


def _libraries_of(device: AttachedDevice) -> frozenset[str] | None:
    shown = device.facts.coprocessors
    usual = SYSTEM_LIBRARIES[device.target]
    if shown is None or RPC_LIBRARY not in usual:
        return None
    has_rpc = any(path.rpartition("/")[2].startswith(RPC_LIBRARY) for path in shown.dsp)
    return usual if has_rpc else usual - {RPC_LIBRARY}
