"""Artifacts that this computer makes for devices: libraries, programs, contexts, ONNX files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from pydantic import BaseModel

from harness.bench.case_placement import Placement
from harness.containers.artefact import Piece, named_version
from harness.core.engine import ENGINES, EngineProgram
from harness.core.errors import plugin_faults
from harness.core.matrix_axes import RPC_LIBRARY, Backend, backend_of
from harness.core.state_folders import BOARDS, cache_root
from harness.deploy.deploy import Deployer
from harness.deploy.layout import FileSet
from harness.dsp.emulator import lacks_floats
from harness.lab.lab_device import AttachedDevice
from harness.models.builtin_models import Model, OnnxFiles
from harness.models.compiler_options import compiler_options
from harness.models.context_metadata import Unreadable, entries, memory_bytes, named_build, needs
from harness.models.contexts import Contexts, Source
from harness.models.session_plan import (
    BACKENDS_BY_ID,
    Context,
    ContextSource,
    DeployedContext,
    DeployedModel,
    Reference,
)
from harness.probe.build import PROBE_NAME, ProbeBuilder
from harness.results.record import RuntimeRecord
from harness.runtimes.catalog import Catalog
from harness.runtimes.preflight import (
    SYSTEM_LIBRARIES,
    ContextFacts,
    PreflightInput,
    TargetFacts,
    preflight,
)
from harness.runtimes.preflight_findings import Finding
from harness.runtimes.runtime import Runtime, build_id_of, facts_of, narrowed, runtime_set

_BINARY: Final = "context.bin"
_MODEL: Final = "model.onnx"


class FileToPush(BaseModel, frozen=True):
    """A file that a case needs on its device; `size` is in bytes, `origin` names its source."""

    name: str
    size: int
    origin: str


@dataclass(frozen=True)
class Materials:
    """All files that a case needs on its device, on this computer.

    `models` are for ONNX Runtime. `files` are files of a user that an engine loads as they are;
    they are deployed with the inputs that a test names for them.
    """

    runtime: Runtime
    probe: Path
    contexts: Mapping[Source, Context]
    models: Mapping[Model, tuple[Path, Reference]]
    program: EngineProgram | None
    files: Sequence[Path] = ()

    def file_sets(self, deployer: Deployer) -> list[FileSet]:
        sets = [runtime_set(self.runtime), probe_set(deployer, self.probe)]
        sets += [context_set(deployer, *context) for context in self.contexts.items()]
        sets += [model_set(deployer, *model) for model in self.models.values()]
        return sets if self.program is None else [*sets, program_set(deployer, self.program)]

    def files_to_push(self) -> list[FileToPush]:
        """Return all files with their sizes and origins, for display."""
        runtime = self.runtime
        origin = f"QNN {runtime.qnn_version}"
        if runtime.ort_version is not None:
            origin += f", ORT {runtime.ort_version}"
        files = [_file_to_push("probe", PROBE_NAME, self.probe)]
        files += [
            FileToPush(name=file.name, size=file.size, origin=origin) for file in runtime.files
        ]
        artifacts: list[tuple[Source, Path, Context | Reference]] = [
            *((source, context.path, context) for source, context in self.contexts.items()),
            *((model, onnx, reference) for model, (onnx, reference) in self.models.items()),
        ]
        for source, main, tensors in artifacts:
            paths = [main, *_tensor_files(tensors).values()]
            files += [_file_to_push(str(source), path.name, path) for path in paths]
        if self.program is not None:
            of = f"{self.program.name} {self.program.version}"
            files += [_file_to_push(of, name, path) for name, path in self.program.files.items()]
        return files + [_file_to_push(path.name, path.name, path) for path in self.files]


def _file_to_push(origin: str, name: str, path: Path) -> FileToPush:
    return FileToPush(name=name, size=path.stat().st_size, origin=origin)


def probe_set(deployer: Deployer, probe: Path) -> FileSet:
    """Return the file set of the probe."""
    return deployer.file_set("probe", {PROBE_NAME: probe}, [PROBE_NAME])


def program_set(deployer: Deployer, program: EngineProgram) -> FileSet:
    """Return the file set of an engine's program."""
    return deployer.file_set(program.name, program.files, [program.program])


def context_set(deployer: Deployer, source: ContextSource, context: Context) -> FileSet:
    """Return the file set of a context: its binary, inputs and expected outputs."""
    return deployer.file_set(str(source), {_BINARY: context.path, **_tensor_files(context)})


def model_set(deployer: Deployer, onnx: Path, reference: Reference) -> FileSet:
    """Return the file set of a model: its ONNX file, inputs and expected outputs."""
    return deployer.file_set(onnx.stem, {_MODEL: onnx, **_tensor_files(reference)})


def _tensor_files(artifact: Context | Reference) -> dict[str, Path]:
    """Return inputs and expected outputs by their names on a device."""
    files: dict[str, Path] = {}
    for part in (artifact, *artifact.others) if isinstance(artifact, Context) else (artifact,):
        prefix = _prefix(part) if isinstance(part, Context) else ""
        files |= dict(zip(_names(f"{prefix}input", part.inputs), part.inputs, strict=True))
        files |= dict(zip(_names(f"{prefix}expected", part.expected), part.expected, strict=True))
    return files


def _prefix(context: Context) -> str:
    return f"graph{context.graph}." if context.graph else ""


def deployed_model(model: Model, reference: Reference, folder: str) -> DeployedModel:
    """Return the model whose files are in `folder` on a device."""
    return DeployedModel(
        file=f"{folder}/{_MODEL}",
        inputs=_paths(folder, "input", reference.inputs),
        expected=_paths(folder, "expected", reference.expected),
        tolerance=model.tolerance,
    )


def deployed_context(context: Context, folder: str) -> DeployedContext:
    """Return the context whose files are in `folder` on a device."""
    return DeployedContext(
        context=context,
        binary=f"{folder}/{_BINARY}",
        inputs=_paths(folder, f"{_prefix(context)}input", context.inputs),
        expected=_paths(folder, f"{_prefix(context)}expected", context.expected),
        others=tuple(deployed_context(other, folder) for other in context.others),
    )


def _paths(folder: str, kind: str, paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in _names(kind, paths))


def _names(kind: str, paths: Sequence[Path]) -> list[str]:
    return [f"{kind}.{index}.raw" for index in range(len(paths))]


class Provisioner:
    """Fetches, builds and compiles, each artifact once for all devices; raises HarnessError.

    Runtimes are reduced to the libraries that the processes of a placement need.
    """

    def __init__(self, catalog: Catalog, cache: Path, builds: Mapping[str, Path] = {}) -> None:
        """`builds` are the folders of a user's own builds of engines, by engine."""
        self.catalog = catalog
        self.probes = ProbeBuilder(cache / "probe")
        self.contexts = Contexts(cache, catalog, self.probes)
        self.onnx = OnnxFiles(cache)
        self.builds = builds
        self._wholes: dict[tuple[object, ...], Runtime] = {}
        self._narrowed: dict[tuple[object, ...], Runtime] = {}
        self._built: dict[str, Path] = {}

    def runtime(self, placement: Placement, target: str, htp_arch: int | None) -> Runtime:
        """Return the libraries to push, with the stub and skel for `htp_arch` (73; None: all)."""
        key = (placement.qnn, placement.engine, placement.ort, target, placement.backend, htp_arch)
        if key not in self._narrowed:
            whole = self._whole(placement, target)
            facts = facts_of(whole)
            needed = {file.file_name: file.elf.needed for file in facts if file.elf is not None}
            self._narrowed[key] = narrowed(
                whole,
                placement.backend,
                ENGINES[placement.engine].driver({file.path.name for file in whole.files}),
                htp_arch,
                online_prepare=placement.takes_models,
                needed=needed,
            )
        return self._narrowed[key]

    def _whole(self, placement: Placement, target: str) -> Runtime:
        """Return all files of a runtime, fetched from its source once."""
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
        """Return the findings of preflight, which checks stubs and skels of all HTPs."""
        whole = self._whole(placement, device.target)
        of_use = {file.name for file in self.runtime(placement, device.target, None).files}
        engine = ENGINES[placement.engine]
        subject = PreflightInput(
            files=[file for file in facts_of(whole) if file.name in of_use],
            device=device,
            backend=backend_of(placement.backend) or "htp",
            contexts=contexts,
            qnn_version=whole.qnn_version,
        )
        with plugin_faults(engine, "findings"):
            findings = [*engine.findings(subject, self.builds.get(engine.name))]
        return tuple(preflight(subject, findings))

    def identity(self, placement: Placement, target: str) -> RuntimeRecord:
        """Return version, build and source of the runtime. Raises like `Catalog.runtime`."""
        whole = self._whole(placement, target)
        return RuntimeRecord(
            qnn=whole.qnn_version,
            build_id=build_id_of(facts_of(whole)),
            source=whole.source,
            ort=whole.ort_version if placement.takes_models else None,
        )

    def probe(self, target: str) -> Path:
        if target not in self._built:
            self._built[target] = self.probes.build(target)
        return self._built[target]


PreflightMode = Literal["strict", "warn", "off"]
"""strict: an error of preflight stops the case; warn: it is recorded; off: no preflight."""

_SIDES: Final = ("inputs", "outputs")


def preflight_device(device: AttachedDevice) -> TargetFacts:
    """Return the facts of an attached device for preflight."""
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
    """Return the facts of a context for preflight."""
    facts = preflight_file(name, context.metadata)
    # the compiler chooses the SoC of a context by the HTP of the device
    soc_model = None if context.source.compiled else facts.soc_model
    made_by, arch = context.made_by, context.htp_arch
    return replace(facts, compiler=made_by, htp_arch=arch, soc_model=soc_model)


def preflight_file(name: str, metadata: Mapping[str, Any]) -> ContextFacts:
    """Return the facts of a binary for preflight, as far as its metadata has them."""
    arch, soc = metadata.get("dsp_arch"), metadata.get("soc_model")
    graphs = entries(metadata, "graphs")
    tensors = (tensor for graph in graphs for side in _SIDES for tensor in entries(graph, side))
    has_floats = any(str(tensor.get("data_type")).startswith("float") for tensor in tensors)
    return ContextFacts(
        name,
        named_build(metadata),
        arch if isinstance(arch, int) else None,
        needs(metadata)["vtcm_bytes"],
        memory_bytes(metadata),
        soc if isinstance(soc, int) else None,
        has_floats,
        cast(Backend, BACKENDS_BY_ID.get(metadata.get("backend_id"), "htp")),
    )


def preflight_piece(
    name: str, piece: Piece, answer: Mapping[str, Any] | Unreadable
) -> ContextFacts:
    """Return the facts of a binary of a user, also those that only its options and bytes have."""
    facts = preflight_file(name, {} if isinstance(answer, Unreadable) else answer)
    options = compiler_options(piece)
    numbers = {key: int(text) for key, text in options.items() if re.fullmatch(r"\d{1,9}", text)}
    return replace(
        facts,
        compiler=facts.compiler or (None if piece.origin else named_version(piece.path)),
        # an old binary names its HTP only there
        htp_arch=facts.htp_arch or numbers.get("min_arch"),
        memory_limit_mb=numbers.get("memory_alloc_limit"),
    )


def _libraries_of(device: AttachedDevice) -> frozenset[str] | None:
    shown = device.facts.coprocessors
    usual = SYSTEM_LIBRARIES[device.target]
    if shown is None or RPC_LIBRARY not in usual:
        return None
    has_rpc = any(path.rpartition("/")[2].startswith(RPC_LIBRARY) for path in shown.dsp)
    return usual if has_rpc else usual - {RPC_LIBRARY}
