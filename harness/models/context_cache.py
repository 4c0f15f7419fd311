"""Cache of context binaries by model, compiler and HTP architecture, verified at every use.

There are two kinds of folders: a model's inputs and reference outputs, and a binary with its
metadata. So the binaries of all compilers share one reference.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.containers.artefact import ArtefactError, Piece
from harness.containers.open import open_artefact
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import disk_errors, keep_whole, read_bounded, scratch_folder, written_whole
from harness.core.outgoing_text import counted
from harness.core.socs import SOCS, Soc
from harness.core.verified_folder import (
    FolderChangedError,
    VerifiedFolder,
    locked,
    open_verified,
    publish,
    work_folder,
    write_manifest,
)
from harness.models.builtin_models import PREPARATIONS, Model
from harness.models.compiler import CompileError, CompileJob, InputFile, ReferenceJob, run_jobs
from harness.models.context_metadata import (
    Sizes,
    Unreadable,
    check_arch,
    entries,
    memory_bytes,
    read_each,
)
from harness.models.session_plan import GIVEN, ON_CPU, Context, Reference
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import ORT_HOST_VERSION, CompilerHost

# The SoC passed for an architecture that no known SoC has; the binary's metadata is checked anyway.
_SOME_SOC_MODEL: Final = 43

ContextKey = tuple[Model, str, int]
"""Model, QNN version of the compiler, HTP architecture (73 for v73)."""


def compile_options(htp_arch: int, spec: Model | None = None) -> dict[str, str]:
    """Return the options of ORT's QNN execution provider for an HTP architecture (pure; ORT docs).

    Float models in half precision also need a SoC model: that of the first known SoC with this
    architecture.
    """
    soc = next((soc for soc in SOCS.values() if soc.htp_arch == htp_arch), None)
    return {
        "htp_arch": str(htp_arch),
        "soc_model": str(soc.soc_model if soc else _SOME_SOC_MODEL),
        "enable_htp_fp16_precision": "1",
        **(PREPARATIONS[spec.prepare] if spec else {}),
    }


def reference_job(spec: Model, model: Path) -> ReferenceJob:
    """Return the job that computes a model's outputs; write its inputs beside it."""
    inputs = []
    for index, (name, array) in enumerate(spec.inputs().items()):
        path = model.with_name(f"input.{index}.raw")
        array.tofile(path)
        inputs.append(InputFile(name, path, array.dtype.str, array.shape))
    outputs = {
        name: model.with_name(f"expected.{index}.raw") for index, name in enumerate(spec.outputs())
    }
    return ReferenceJob(
        job=f"reference of {spec}",
        complaint=f"this computer's ORT {ORT_HOST_VERSION} cannot run {spec} on the CPU",
        model=model,
        inputs=tuple(inputs),
        outputs=outputs,
    )


def compile_job(key: ContextKey, model: Path, folder: Path) -> CompileJob:
    """Return the job that compiles a model to a context; create its folder."""
    spec, compiler, arch = key
    folder.mkdir()
    return CompileJob(
        job=f"{spec} for v{arch}",
        complaint=f"QNN {compiler} cannot compile {spec} for HTP v{arch}",
        model=model,
        folder=folder,
        options=compile_options(arch, spec),
    )


def compiled_binary(job: CompileJob) -> Path:
    """Return the context binary of a finished job. Raises CompileError unless there is one."""
    binaries = list(job.folder.glob("*.bin"))
    if len(binaries) != 1:
        number = counted(len(binaries), "context binary", "context binaries")
        raise CompileError(job.complaint, chain=[f"the compiler made {number} instead of one"])
    return binaries[0]


def epcontext_max_size(model: Path, complaint: str) -> int | None:
    """Return the largest spill-fill size that an EPContext model states (bytes), or None.

    Only nodes that carry a context count (`main_context`). Raises CompileError, whose text begins
    with `complaint`, if the file cannot be read.
    """
    try:
        pieces = open_artefact(model).pieces
    except ArtefactError as error:
        raise CompileError(complaint, chain=[f"cannot read {model.name}: {error}"]) from error
    sizes = (piece.facts["max_size"] for piece in pieces if "max_size" in piece.facts)
    return max(sizes, default=None)


def read_metadata(
    probes: ProbeBuilder, system_library: Path, binaries: Sequence[Path]
) -> list[dict[str, Any]]:
    """Return the metadata of context binaries.

    Raises CompileError if the library cannot read one of them; else as `read_each`.
    """
    pieces = [Piece(path, 0, path.stat().st_size, "", "context") for path in binaries]
    metadata = []
    for answer in read_each(probes, system_library, pieces):
        if isinstance(answer, Unreadable):
            problem = f"{system_library.name} cannot read a context that its own compiler made"
            raise CompileError(problem, chain=[answer.reason], output=answer.log)
        metadata.append(answer)
    return metadata


def tensor_order(
    metadata: Mapping[str, Any], complaint: str, inputs: Sizes, outputs: Sizes
) -> tuple[list[str], list[str]]:
    """Return the names of the graph's inputs and outputs in the binary's order (pure).

    Raises CompileError, whose text begins with `complaint`, unless the binary holds one graph with
    exactly these tensors, of these sizes.
    """
    graphs = entries(metadata, "graphs")
    if len(graphs) != 1:
        reason = f"the context has {counted(len(graphs), 'graph')} instead of one"
        raise CompileError(complaint, chain=[reason])
    orders = []
    for kind, expected in (("inputs", inputs), ("outputs", outputs)):
        tensors = entries(graphs[0], kind)
        sizes = {str(tensor.get("name")): tensor.get("bytes") for tensor in tensors}
        if sizes != dict(expected):
            raise CompileError(
                complaint, chain=[f"the context's {kind} are {sizes}, the model's {expected}"]
            )
        orders.append(list(sizes))
    return orders[0], orders[1]


_log = logging.getLogger(__name__)

_FORMAT: Final = 2
_BINARY: Final = "context.bin"
_LOCK_TIMEOUT_S = 1800.0
_ORT_STATUS: Final = re.compile(
    r"^\w+: \[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed: ?)?"
)
_TOO_NEW: Final = re.compile("max supported IR version|Opset [0-9]+ is under development")


class ContextStore:
    """Contexts below `<cache_root>/contexts`, compiled when they are missing."""

    def __init__(self, cache_root: Path, catalog: Catalog, probe_builder: ProbeBuilder) -> None:
        self._root = cache_root / "contexts"
        self._catalog = catalog
        self._probes = probe_builder
        self._warned: set[Path] = set()
        self._keys: dict[Model, str] = {}
        self._known: dict[ContextKey, Context | CompileError | ConfigError] = {}
        self._wrong: dict[Model, ConfigError] = {}

    def get(self, model: Model, compiler: str, htp_arch: int) -> Context:
        """Return one context, as `each`, but raise its CompileError or ConfigError."""
        (context,) = self.each([(model, compiler, htp_arch)])
        if not isinstance(context, Context):
            raise context
        return context

    def each(self, keys: Sequence[ContextKey]) -> list[Context | CompileError | ConfigError]:
        """Return a context or its error per key; one compiler process makes all that it has to.

        Errors of a compiler or of a file's model are remembered: the compiler is not started again
        for them. Raises ConfigError for an unknown version or an architecture that the compiler
        does not know, InfraError if libraries cannot be fetched or the cache cannot be written.
        """
        for key in keys:
            try:
                self._key(key[0])
            except ConfigError as error:  # a file that was changed meanwhile
                self._known[key] = error
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        for compiler in dict.fromkeys(compiler for _, compiler, _ in new):
            self._get_all(compiler, [key for key in new if key[1] == compiler])
        return [self._known[key] for key in keys]

    def references(self, models: Sequence[Model], compiler: str) -> list[Reference]:
        """Return the references of models, without their contexts; raises as `get`."""
        if any(self._computed(model) is None for model in models):
            with self._locked(compiler, "computing references"):
                missing = [model for model in dict.fromkeys(models) if not self._computed(model)]
                self._build(self._catalog.compiler_host(compiler), missing, ())
        references = list(filter(None, map(self._computed, models)))
        if len(references) < len(models):
            raise InfraError(f"references were removed from {self._root}; run again")
        return references

    def _computed(self, model: Model) -> Reference | None:
        if model in self._wrong:
            raise self._wrong[model]
        return self._reference(model)

    def _reference(self, spec: Model) -> Reference | None:
        folder = self._stored_model(spec)
        if folder is None:
            return None
        inputs, expected = folder.data["inputs"], folder.data["expected"]
        return Reference(
            inputs=tuple(folder.path / inputs[name] for name in spec.inputs()),
            expected=tuple(folder.path / expected[name] for name in spec.outputs()),
        )

    def _locked(self, compiler: str, purpose: str) -> AbstractContextManager[None]:
        lock = self._root / ".locks" / f"{compiler}.lock"
        return locked(lock, purpose, timeout_s=_LOCK_TIMEOUT_S)

    def _get_all(self, compiler: str, keys: Sequence[ContextKey]) -> None:
        if not self._missing(keys):
            return
        with self._locked(compiler, f"compiling contexts with QNN {compiler}"):
            # Another process may have compiled them meanwhile.
            if missing := self._missing(keys):
                host = self._catalog.compiler_host(compiler)
                specs = list(dict.fromkeys(spec for spec, _, _ in missing))
                _log.info(f"compiling {', '.join(map(str, specs))} with QNN {compiler}")
                self._build(host, specs, missing)
                if self._missing(missing):
                    raise InfraError(f"contexts were removed from {self._root}; run again")

    def _missing(self, keys: Sequence[ContextKey]) -> list[ContextKey]:
        """Return the keys that are not in the cache; put the contexts of the others in `_known`."""
        missing = []
        for key in keys:
            if key[0] in self._wrong:
                self._known[key] = self._wrong[key[0]]
            if key not in self._known:
                reference = self._stored_model(key[0])
                binary = self._open(self._binary_folder(key), self._binary_facts(key))
                if reference is None or binary is None:
                    missing.append(key)
                else:
                    self._known[key] = _context(key, reference, binary)
        return missing

    def _stored_model(self, spec: Model) -> VerifiedFolder | None:
        return self._open(self._model_folder(spec), self._model_facts(spec))

    def _open(self, folder: Path, facts: Mapping[str, Any]) -> VerifiedFolder | None:
        try:
            return open_verified(folder, facts)
        except FolderChangedError as damage:
            if folder not in self._warned:
                self._warned.add(folder)
                _log.warning(
                    f"cached context {folder.name} has changed ({damage}); compiling it again"
                )
            return None

    def _build(
        self, host: CompilerHost, specs: Sequence[Model], keys: Sequence[ContextKey]
    ) -> None:
        with work_folder(self._root) as work:
            models = _written(specs, work)
            references = {
                spec: reference_job(spec, path)
                for spec, path in models.items()
                if self._stored_model(spec) is None
            }
            key_by_folder = {self._binary_folder(key): key for key in keys}
            binaries = {
                key: compile_job(key, models[key[0]], work / f"binary-{index}")
                for index, key in enumerate(key_by_folder.values())
            }
            results = run_jobs(host, [*references.values(), *binaries.values()])
            failures: list[HarnessError] = []
            for spec, reference in references.items():
                failed, path = results[reference.job], getattr(spec, "path", None)
                if failed is None:
                    self._keep_reference(spec, reference)
                elif path is not None:
                    ours = f"ONNX Runtime {ORT_HOST_VERSION}, which computes the expected outputs,"
                    reason = _ORT_STATUS.sub("", failed.first)
                    problem = f"{ours} cannot run it on the CPU: {reason}"
                    if _TOO_NEW.search(reason):
                        problem += "; export it with an older opset and `ir_version`"
                    self._wrong[spec] = ConfigError(problem, file=path)
                else:
                    failures.append(failed)
            refused: dict[ContextKey, HarnessError | None] = {
                key: results[job.job] for key, job in binaries.items()
            }
            compiled = {key: job for key, job in binaries.items() if refused[key] is None}
            refused |= self._keep_binaries(host, compiled)
            for key in keys:
                same = key_by_folder[self._binary_folder(key)]
                error = self._wrong.get(key[0]) or refused.get(same)
                if isinstance(error, CompileError | ConfigError):
                    self._known[key] = error
                elif error is not None:
                    failures.append(error)
            if failures:
                raise failures[0]

    def _keep_reference(self, spec: Model, job: ReferenceJob) -> None:
        data = {
            "inputs": {file.name: file.path.name for file in job.inputs},
            "expected": {name: path.name for name, path in job.outputs.items()},
        }
        job.model.unlink()
        write_manifest(job.model.parent, self._model_facts(spec), data)
        publish(job.model.parent, self._model_folder(spec))

    def _keep_binaries(
        self, host: CompilerHost, jobs: Mapping[ContextKey, CompileJob]
    ) -> dict[ContextKey, HarnessError]:
        """Check and store compiled binaries; return the errors of those that are wrong."""
        wrong: dict[ContextKey, HarnessError] = {}
        paths: dict[ContextKey, Path] = {}
        for key, job in jobs.items():
            try:
                paths[key] = compiled_binary(job)
            except CompileError as error:
                wrong[key] = error
        if paths:
            metadata = read_metadata(self._probes, host.system_library, list(paths.values()))
            for (key, path), binary_metadata in zip(paths.items(), metadata, strict=True):
                try:
                    self._keep_binary(key, jobs[key], path, binary_metadata)
                except HarnessError as error:
                    wrong[key] = error
        return wrong

    def _keep_binary(
        self, key: ContextKey, job: CompileJob, path: Path, metadata: Mapping[str, Any]
    ) -> None:
        check_arch(metadata, job.complaint, key[2])
        reference = self._stored_model(key[0])
        if reference is None:
            return
        sizes = (
            {name: reference.files[file].size for name, file in reference.data[kind].items()}
            for kind in ("inputs", "expected")
        )
        inputs, outputs = tensor_order(metadata, job.complaint, *sizes)
        data: dict[str, Any] = {"metadata": metadata, "inputs": inputs, "outputs": outputs}
        if key[0].prepare == "spill-fill":
            data["max_size"] = epcontext_max_size(job.folder / "context.onnx", job.complaint)
        folder = job.folder / "kept"
        folder.mkdir()
        path.rename(folder / _BINARY)
        write_manifest(folder, self._binary_facts(key), data)
        publish(folder, self._binary_folder(key))

    def _key(self, spec: Model) -> str:
        """Return the digest of a model's bytes, cached on disk: building them imports onnx."""
        alone = spec.without_inputs
        if alone not in self._keys:
            note, digest = self._root / "digests" / (alone.recipe or "none"), ""
            with contextlib.suppress(OSError, UnicodeDecodeError):
                digest = read_bounded(note, 64).decode()
            if not re.fullmatch("[0-9a-f]{64}", digest):
                digest = hashlib.sha256(spec.serialized()).hexdigest()
                if alone.recipe:
                    with contextlib.suppress(InfraError):  # a full cache may be read-only
                        keep_whole(note, digest.encode())
            self._keys[alone] = digest
        return self._keys[alone]

    def _facts(self, spec: Model) -> dict[str, Any]:
        return {"format": _FORMAT, "model": self._key(spec), "ort": ORT_HOST_VERSION}

    def _model_facts(self, spec: Model) -> dict[str, Any]:
        inputs: str = getattr(spec, "inputs_key", "")
        return self._facts(spec) | ({"inputs": inputs} if inputs else {})

    def _binary_facts(self, key: ContextKey) -> dict[str, Any]:
        spec, compiler, arch = key
        options = compile_options(arch, spec)
        return self._facts(spec) | {"compiler": compiler, "arch": arch, "options": options}

    def _model_folder(self, spec: Model) -> Path:
        return self._root / "models" / f"{spec.model}-{_short_key(self._model_facts(spec))}"

    def _binary_folder(self, key: ContextKey) -> Path:
        spec, compiler, arch = key
        digest = _short_key(self._binary_facts(key))
        return self._root / "binaries" / f"{spec.without_inputs}-v{arch}-by-{compiler}-{digest}"


def _context(key: ContextKey, reference: VerifiedFolder, compiled: VerifiedFolder) -> Context:
    spec, compiler, arch = key
    binary = compiled.files[_BINARY]
    inputs, outputs = reference.data["inputs"], compiled.data["outputs"]
    files = {name: reference.path / file for name, file in reference.data["expected"].items()}
    files |= spec.expected()
    expected = tuple(files[name] for name in outputs)
    return Context(
        path=binary.path,
        sha256=binary.sha256,
        size=binary.size,
        source=spec,
        compiler=compiler,
        htp_arch=arch,
        inputs=tuple(reference.path / inputs[name] for name in compiled.data["inputs"]),
        expected=expected if spec.compared else (),
        reference=expected,
        against=GIVEN if spec.expected() else ON_CPU,
        tolerance=spec.tolerance,
        metadata=compiled.data["metadata"],
        memory_bytes=memory_bytes(compiled.data["metadata"]),
        max_size=compiled.data.get("max_size"),
    )


def _written(specs: Sequence[Model], work: Path) -> dict[Model, Path]:
    """Write each model into its own folder, equal ones as hard links; return their paths."""
    paths = {spec: work / f"model-{index}" / "model.onnx" for index, spec in enumerate(specs)}
    first: dict[Model, Path] = {}
    for spec, path in paths.items():
        path.parent.mkdir()
        same = first.setdefault(spec.without_inputs, path)
        if same is path:
            path.write_bytes(spec.serialized())
        else:
            path.hardlink_to(same)
    return paths


def _short_key(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def prefix_of(number: int) -> str:
    """Return the prefix that `compile_together` gives to the tensors of a model if need be."""
    return f"model{number}_"


def _with_own_name(model: bytes, prefix: str, known: set[tuple[str, ...]]) -> bytes:
    """Return a model with a prefix for its inputs and outputs if its graph's name would be known.

    ONNX Runtime names a graph by a hash of these names.
    """
    import onnx
    from onnx.compose import add_prefix

    proto = onnx.load_model_from_string(model)
    outputs = (name for node in proto.graph.node for name in node.output)
    names = (*(tensor.name for tensor in proto.graph.input), *outputs)
    if names in known:
        others = ("nodes", "edges", "initializers", "value_infos", "functions")
        proto = add_prefix(proto, prefix, **{f"rename_{kind}": False for kind in others})
        return bytes(proto.SerializeToString())
    known.add(names)
    return model


def compile_together(
    models: Sequence[Model],
    host: CompilerHost,
    htp_arch: int,
    probes: ProbeBuilder,
    folder: Path,
    **options: str,
) -> tuple[Path, Mapping[str, Any]]:
    """Compile models into one context in an empty folder, and return it with its metadata.

    Each becomes a graph, and they share weights that they have in common. Inputs and outputs get a
    prefix where graphs would have the same name, which the compiler refuses. `options` are some of
    the provider. Raises CompileError if the compiler fails.
    """
    known: set[tuple[str, ...]] = set()
    paths = [folder / f"model-{number}.onnx" for number, _ in enumerate(models)]
    for number, (model, path) in enumerate(zip(models, paths, strict=True)):
        path.write_bytes(_with_own_name(model.serialized(), prefix_of(number), known))
    job = compile_job((models[0], host.qnn_version, htp_arch), paths[0], folder / "made")
    job = replace(job, others=tuple(paths[1:]), options={**job.options, **options})
    refused = run_jobs(host, [job])[job.job]
    if refused is not None:
        raise refused
    binary = compiled_binary(job)
    (metadata,) = read_metadata(probes, host.system_library, [binary])
    check_arch(metadata, job.complaint, htp_arch)
    return binary, metadata


def compile_to_file(
    model: Model, host: CompilerHost, soc: Soc, probes: ProbeBuilder, output: Path
) -> Mapping[str, Any]:
    """Compile a model for the HTP of a SoC into `output`, and return the binary's metadata.

    The file is written whole or not at all. Raises CompileError if the compiler fails, ConfigError
    for a SoC without HTP, InfraError if it cannot be written.
    """
    arch = soc.htp_arch
    if arch is None:
        raise ConfigError(
            f"{soc.name} has a DSP without HTP, which cannot load contexts", field="soc"
        )
    with scratch_folder() as work:
        # this SoC, instead of the first with its architecture
        binary, metadata = compile_together(
            [model], host, arch, probes, work, soc_model=str(soc.soc_model)
        )
        with (
            disk_errors(f"cannot write {output}"),
            binary.open("rb") as content,
            written_whole(output) as stream,
        ):
            shutil.copyfileobj(content, stream)
    return metadata
