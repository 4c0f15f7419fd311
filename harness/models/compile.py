"""Context binaries by model, compiler and HTP architecture: made once, kept, checked at every use.

Two kinds of folders: a model's inputs and reference outputs, and a binary with its metadata, so
that the binaries of all compilers share one reference.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.containers.artefact import ArtefactError, Piece
from harness.containers.open import open_artefact
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.outgoing_text import counted
from harness.core.socs import SOCS
from harness.core.verified_folder import (
    FolderChangedError,
    VerifiedFolder,
    locked,
    open_verified,
    publish,
    work_folder,
    write_manifest,
)
from harness.core.whole_file import keep_whole, read_bounded
from harness.models.compiler import (
    CompileError,
    CompileJob,
    InputFile,
    ReferenceJob,
    run_jobs,
)
from harness.models.metadata import (
    Sizes,
    Unreadable,
    check_arch,
    entries,
    memory_bytes,
    read_each,
)
from harness.models.models import PREPARATIONS, Model
from harness.models.source import GIVEN, ON_CPU, Context, Reference
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import ORT_HOST_VERSION, CompilerHost

# The SoC given with an architecture that no known SoC has: what comes out tells the truth.
_SOME_SOC_MODEL: Final = 43

ContextKey = tuple[Model, str, int]
"""Model, QNN version of the compiler, HTP architecture (73 for v73)."""


def compile_options(htp_arch: int, spec: Model | None = None) -> dict[str, str]:
    """The options of ORT's QNN execution provider for an HTP architecture (pure; ORT docs).

    Half precision for float models needs a SoC model as well; it is that of the first SoC known
    to have this architecture.
    """
    soc = next((soc for soc in SOCS.values() if soc.htp_arch == htp_arch), None)
    return {
        "htp_arch": str(htp_arch),
        "soc_model": str(soc.soc_model if soc else _SOME_SOC_MODEL),
        "enable_htp_fp16_precision": "1",
        **(PREPARATIONS[spec.prepare] if spec else {}),
    }


def reference_job(spec: Model, model: Path) -> ReferenceJob:
    """Computes the outputs of a model; writes its inputs beside it."""
    inputs = []
    for at, (name, array) in enumerate(spec.inputs().items()):
        path = model.with_name(f"input.{at}.raw")
        array.tofile(path)
        inputs.append(InputFile(name, path, array.dtype.str, array.shape))
    outputs = {
        name: model.with_name(f"expected.{at}.raw") for at, name in enumerate(spec.outputs())
    }
    return ReferenceJob(
        job=f"reference of {spec}",
        complaint=f"this computer's ORT {ORT_HOST_VERSION} does not compute {spec} on the CPU",
        model=model,
        inputs=tuple(inputs),
        outputs=outputs,
    )


def compile_job(wanted: ContextKey, model: Path, folder: Path) -> CompileJob:
    """Makes a context out of a model; makes the folder for it."""
    spec, compiler, arch = wanted
    folder.mkdir()
    return CompileJob(
        job=f"{spec} for v{arch}",
        complaint=f"QNN {compiler} does not compile {spec} for HTP v{arch}",
        model=model,
        folder=folder,
        options=compile_options(arch, spec),
    )


def made_binary(job: CompileJob) -> Path:
    """The context binary that a job has made. Raises CompileError unless there is exactly one."""
    binaries = list(job.folder.glob("*.bin"))
    if len(binaries) != 1:
        made = counted(len(binaries), "context binary", "context binaries")
        reason = f"it made {made} instead of one"
        raise CompileError(job.complaint, chain=[reason])
    return binaries[0]


def epcontext_max_size(model: Path, what: str) -> int | None:
    """The largest spill-fill size that an EPContext model states (bytes); None if it states none.

    Only nodes that carry a context count (`main_context`). Raises CompileError, whose text begins
    with `what`, if the compiler cannot have meant this file.
    """
    try:
        pieces = open_artefact(model).pieces
    except ArtefactError as error:
        raise CompileError(what, chain=[f"cannot read {model.name}: {error}"]) from error
    return max((one.facts["max_size"] for one in pieces if "max_size" in one.facts), default=None)


def read_metadata(
    probes: ProbeBuilder, system_library: Path, binaries: Sequence[Path]
) -> list[dict[str, Any]]:
    """The metadata of files that are binaries.

    Raises CompileError if the library does not read one of them; else as `read_each`.
    """
    pieces = [Piece(path, 0, path.stat().st_size, "", "context") for path in binaries]
    found = []
    for one in read_each(probes, system_library, pieces):
        if isinstance(one, Unreadable):
            problem = f"{system_library.name} cannot read a context that its own compiler made"
            raise CompileError(problem, chain=[one.reason], output=one.log)
        found.append(one)
    return found


def tensor_order(
    metadata: Mapping[str, Any], what: str, inputs: Sizes, outputs: Sizes
) -> tuple[list[str], list[str]]:
    """The names of the graph's inputs and outputs in the binary's order (pure).

    Raises CompileError, whose text begins with `what`, unless the binary holds one graph with
    exactly these tensors, of these sizes.
    """
    graphs = entries(metadata, "graphs")
    if len(graphs) != 1:
        raise CompileError(what, chain=[f"it has {counted(len(graphs), 'graph')} instead of one"])
    found = []
    for kind, expected in (("inputs", inputs), ("outputs", outputs)):
        sizes = {str(one.get("name")): one.get("bytes") for one in entries(graphs[0], kind)}
        if sizes != dict(expected):
            raise CompileError(what, chain=[f"its {kind} are {sizes}, the model's {expected}"])
        found.append(list(sizes))
    return found[0], found[1]


_log = logging.getLogger(__name__)

_FORMAT: Final = 2
_BINARY: Final = "context.bin"
_LOCK_TIMEOUT_S = 1800.0
_ORT_STATUS: Final = re.compile(r"^\w+: \[ONNXRuntimeError\] : \d+ : \w+ : ")
_TOO_NEW: Final = re.compile(
    r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"
    r"|Opset (\d+) is under .* domain ai\.onnx is till opset (\d+)"
)


class ContextStore:
    """Contexts below `<cache_root>/contexts`; made by the real compiler when they are missing."""

    def __init__(self, cache_root: Path, catalog: Catalog, probe_builder: ProbeBuilder) -> None:
        self._root = cache_root / "contexts"
        self._catalog = catalog
        self._probes = probe_builder
        self._warned: set[Path] = set()
        self._keys: dict[Model, str] = {}
        self._known: dict[ContextKey, Context | CompileError | ConfigError] = {}
        self._wrong: dict[Model, ConfigError] = {}

    def get(self, model: Model, compiler: str, htp_arch: int) -> Context:
        """One context; see `get_many`."""
        return self.get_many([(model, compiler, htp_arch)])[0]

    def get_many(self, wanted: Sequence[ContextKey]) -> list[Context]:
        """As `each`. Raises CompileError if a compiler does not make one, ConfigError as there."""
        found = []
        for one in self.each(wanted):
            if not isinstance(one, Context):
                raise one
            found.append(one)
        return found

    def each(self, wanted: Sequence[ContextKey]) -> list[Context | CompileError | ConfigError]:
        """Contexts in the order asked for; a compiler makes all that it has to in one process.

        What a compiler refused is told again to every case that wants it, without starting the
        compiler again. So is what is wrong with a file's model. Raises ConfigError for an unknown
        version or an architecture the compiler does not know, InfraError if libraries cannot be
        fetched or the cache cannot be written.
        """
        for one in wanted:
            try:
                self._key(one[0])
            except ConfigError as error:  # a file that was changed meanwhile
                self._known[one] = error
        new = [one for one in dict.fromkeys(wanted) if one not in self._known]
        for compiler in dict.fromkeys(compiler for _, compiler, _ in new):
            self._get_all(compiler, [one for one in new if one[1] == compiler])
        return [self._known[one] for one in wanted]

    def references(self, models: Sequence[Model], compiler: str) -> list[Reference]:
        """The references of models, without their contexts; raises as `get_many`."""
        self._require_computed(models)
        found = {model: self._reference(model) for model in models}
        if None in found.values():
            what = "computing references"
            with locked(self._lock(compiler), what, timeout_s=_LOCK_TIMEOUT_S):
                missing = [model for model in found if self._reference(model) is None]
                self._make(self._catalog.compiler_host(compiler), missing, ())
        self._require_computed(models)
        made = [self._reference(model) for model in models]
        if None in made:
            raise InfraError(f"references went away from {self._root} while it was used")
        return [one for one in made if one is not None]

    def _require_computed(self, models: Sequence[Model]) -> None:
        for model in models:
            if model in self._wrong:
                raise self._wrong[model]

    def _reference(self, spec: Model) -> Reference | None:
        kept = self._open(self._model_folder(spec), self._model_facts(spec))
        if kept is None:
            return None
        inputs, expected = kept.data["inputs"], kept.data["expected"]
        return Reference(
            inputs=tuple(kept.path / inputs[name] for name in spec.inputs()),
            expected=tuple(kept.path / expected[name] for name in spec.outputs()),
        )

    def _lock(self, compiler: str) -> Path:
        return self._root / ".locks" / f"{compiler}.lock"

    def _get_all(self, compiler: str, wanted: Sequence[ContextKey]) -> None:
        if not self._missing(wanted):
            return
        what = f"compiling contexts with QNN {compiler}"
        with locked(self._lock(compiler), what, timeout_s=_LOCK_TIMEOUT_S):
            # Another process may have made them while we waited.
            if missing := self._missing(wanted):
                host = self._catalog.compiler_host(compiler)
                specs = list(dict.fromkeys(spec for spec, _, _ in missing))
                _log.info(f"compiling {', '.join(map(str, specs))} with QNN {compiler}")
                self._make(host, specs, missing)
                if self._missing(missing):
                    raise InfraError(f"contexts went away from {self._root} while it was used")

    def _missing(self, wanted: Sequence[ContextKey]) -> list[ContextKey]:
        """The wanted contexts that are not in the cache; the others go into `_known`."""
        missing = []
        for one in wanted:
            if one[0] in self._wrong:
                self._known[one] = self._wrong[one[0]]
            if one not in self._known:
                reference = self._open(self._model_folder(one[0]), self._model_facts(one[0]))
                binary = self._open(self._binary_folder(one), self._binary_facts(one))
                if reference is None or binary is None:
                    missing.append(one)
                else:
                    self._known[one] = _context(one, reference, binary)
        return missing

    def _open(self, folder: Path, facts: Mapping[str, Any]) -> VerifiedFolder | None:
        try:
            return open_verified(folder, facts)
        except FolderChangedError as damage:
            if folder not in self._warned:
                self._warned.add(folder)
                _log.warning(
                    f"cached context {folder.name} is not as it was ({damage}); making it again"
                )
            return None

    def _make(
        self, host: CompilerHost, specs: Sequence[Model], wanted: Sequence[ContextKey]
    ) -> None:
        """The references of these models where they are missing, and the wanted contexts."""
        with work_folder(self._root) as work:
            models = _written(specs, work)
            references = {
                spec: reference_job(spec, path)
                for spec, path in models.items()
                if self._open(self._model_folder(spec), self._model_facts(spec)) is None
            }
            alike = {self._binary_folder(one): one for one in wanted}
            binaries = {
                one: compile_job(one, models[one[0]], work / f"binary-{at}")
                for at, one in enumerate(alike.values())
            }
            results = run_jobs(host, [*references.values(), *binaries.values()])
            failures: list[HarnessError] = []
            for spec, reference in references.items():
                failed, path = results[reference.job], getattr(spec, "path", None)
                if failed is None:
                    self._keep_reference(spec, reference)
                elif path is not None:
                    self._wrong[spec] = _wrong_model(path, failed)
                else:
                    failures.append(failed)
            refused: dict[ContextKey, HarnessError | None] = {
                one: results[job.job] for one, job in binaries.items()
            }
            made = {one: job for one, job in binaries.items() if refused[one] is None}
            refused |= self._keep_binaries(host, made)
            for one in wanted:
                error = self._wrong.get(one[0]) or refused.get(alike[self._binary_folder(one)])
                if isinstance(error, CompileError | ConfigError):
                    self._known[one] = error
                elif error is not None:
                    failures.append(error)
            if failures:
                raise failures[0]

    def _keep_reference(self, spec: Model, job: ReferenceJob) -> None:
        data = {
            "inputs": {one.name: one.path.name for one in job.inputs},
            "expected": {name: path.name for name, path in job.outputs.items()},
        }
        job.model.unlink()
        write_manifest(job.model.parent, self._model_facts(spec), data)
        publish(job.model.parent, self._model_folder(spec))

    def _keep_binaries(
        self, host: CompilerHost, made: Mapping[ContextKey, CompileJob]
    ) -> dict[ContextKey, HarnessError]:
        """Checks and keeps what was compiled; what was wrong with the others."""
        wrong: dict[ContextKey, HarnessError] = {}
        whole: dict[ContextKey, tuple[CompileJob, Path]] = {}
        for one, job in made.items():
            try:
                whole[one] = (job, made_binary(job))
            except CompileError as error:
                wrong[one] = error
        if not whole:
            return wrong
        paths = [path for _, path in whole.values()]
        metadata = read_metadata(self._probes, host.system_library, paths)
        for (one, (job, path)), found in zip(whole.items(), metadata, strict=True):
            try:
                self._keep_binary(one, job, path, found)
            except HarnessError as error:
                wrong[one] = error
        return wrong

    def _keep_binary(
        self, wanted: ContextKey, job: CompileJob, path: Path, metadata: Mapping[str, Any]
    ) -> None:
        check_arch(metadata, job.complaint, wanted[2])
        reference = self._open(self._model_folder(wanted[0]), self._model_facts(wanted[0]))
        if reference is None:
            return
        inputs, outputs = tensor_order(
            metadata, job.complaint, _sizes(reference, "inputs"), _sizes(reference, "expected")
        )
        data: dict[str, Any] = {"metadata": metadata, "inputs": inputs, "outputs": outputs}
        if wanted[0].prepare == "spill-fill":
            data["max_size"] = epcontext_max_size(job.folder / "context.onnx", job.complaint)
        folder = job.folder / "kept"
        folder.mkdir()
        path.rename(folder / _BINARY)
        write_manifest(folder, self._binary_facts(wanted), data)
        publish(folder, self._binary_folder(wanted))

    def _key(self, spec: Model) -> str:
        """The digest of a model's bytes, which is noted: to build them takes onnx and numpy."""
        alone = spec.without_inputs
        if alone not in self._keys:
            note = self._root / "digests" / alone.recipe if alone.recipe else None
            digest = _noted(note) if note is not None else None
            if digest is None:
                digest = hashlib.sha256(spec.serialized()).hexdigest()
                if note is not None:
                    with contextlib.suppress(InfraError):  # a full cache may be read-only
                        keep_whole(note, digest.encode())
            self._keys[alone] = digest
        return self._keys[alone]

    def _facts(self, spec: Model) -> dict[str, Any]:
        return {"format": _FORMAT, "model": self._key(spec), "ort": ORT_HOST_VERSION}

    def _model_facts(self, spec: Model) -> dict[str, Any]:
        inputs: str = getattr(spec, "inputs_key", "")
        return self._facts(spec) | ({"inputs": inputs} if inputs else {})

    def _binary_facts(self, wanted: ContextKey) -> dict[str, Any]:
        spec, compiler, arch = wanted
        options = compile_options(arch, spec)
        return self._facts(spec) | {"compiler": compiler, "arch": arch, "options": options}

    def _model_folder(self, spec: Model) -> Path:
        return self._root / "models" / f"{spec.model}-{_short_key(self._model_facts(spec))}"

    def _binary_folder(self, wanted: ContextKey) -> Path:
        spec, compiler, arch = wanted
        key = _short_key(self._binary_facts(wanted))
        return self._root / "binaries" / f"{spec.without_inputs}-v{arch}-by-{compiler}-{key}"


def _context(wanted: ContextKey, reference: VerifiedFolder, made: VerifiedFolder) -> Context:
    spec, compiler, arch = wanted
    binary = made.files[_BINARY]
    inputs, outputs = reference.data["inputs"], made.data["outputs"]
    known = {name: reference.path / file for name, file in reference.data["expected"].items()}
    known |= spec.expected()
    told = tuple(known[name] for name in outputs)
    return Context(
        path=binary.path,
        sha256=binary.sha256,
        size=binary.size,
        source=spec,
        compiler=compiler,
        htp_arch=arch,
        inputs=tuple(reference.path / inputs[name] for name in made.data["inputs"]),
        expected=told if spec.compared else (),
        reference=told,
        against=GIVEN if spec.expected() else ON_CPU,
        tolerance=spec.tolerance,
        metadata=made.data["metadata"],
        memory_bytes=memory_bytes(made.data["metadata"]),
        max_size=made.data.get("max_size"),
    )


def _wrong_model(path: Path, refused: CompileError) -> ConfigError:
    """What is wrong with a file's model that ORT does not compute on the CPU."""
    ours, why = f"this computer's ONNX Runtime {ORT_HOST_VERSION}", refused.first
    if (told := _TOO_NEW.search(why)) is None:
        problem = f"{ours} does not compute it on the CPU: {_ORT_STATUS.sub('', why)}"
        return ConfigError(problem, file=path)
    from onnx import helper

    ir, most_ir, opset, most = told.groups()
    call, has = "", f"opset {opset}"
    if most_ir is not None:
        # who has the newest IR mostly has the newest opset, too, which ORT would tell next
        known = helper.VERSION_TABLE
        most = next((row[2] for row in known if row[1] >= int(most_ir)), known[-1][2])
        call, has = f"ir_version={most_ir}, ", f"IR version {ir}"
    call = f'helper.make_model(graph, {call}opset_imports=[helper.make_opsetid("", {most})])'
    problem = f"has {has}, and {ours}, which computes expected outputs, takes {most_ir or most}"
    return ConfigError(f"{problem} at most: make it by {call}, or with lower numbers", file=path)


def _written(specs: Sequence[Model], work: Path) -> dict[Model, Path]:
    """Where the models are written, each into a folder of its own, its content once."""
    paths = {spec: work / f"model-{at}" / "model.onnx" for at, spec in enumerate(specs)}
    first: dict[Model, Path] = {}
    for spec, path in paths.items():
        path.parent.mkdir()
        same = first.setdefault(spec.without_inputs, path)
        if same is path:
            path.write_bytes(spec.serialized())
        else:
            path.hardlink_to(same)
    return paths


def _sizes(reference: VerifiedFolder, kind: str) -> dict[str, int]:
    return {name: reference.files[file].size for name, file in reference.data[kind].items()}


def _noted(note: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found = read_bounded(note, 64).decode()
        return found if re.fullmatch("[0-9a-f]{64}", found) else None
    return None


def _short_key(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
