"""Context binaries by model, compiler and HTP architecture, made once and kept in the cache.

Two kinds of folders: a model with its inputs and reference outputs, and a binary with its
metadata, so that the binaries of all compilers share one reference.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.contexts.compiler import CompileJob, ReferenceJob, run_jobs
from harness.contexts.metadata import memory_bytes, read_metadata
from harness.contexts.models import ModelSpec
from harness.errors import InfraError
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog, CompilerHost
from harness.runtimes.notices import Say
from harness.runtimes.sealed import (
    SealBrokenError,
    SealedFolder,
    locked,
    open_sealed,
    seal,
)

_FORMAT: Final = 1
_BINARY = "context.bin"
_MODEL = "model.onnx"
_LOCK_TIMEOUT_S = 1800.0
_ANY_SOC_MODEL = 43

Wanted = tuple[ModelSpec, str, int]
"""Model, QNN version of the compiler, HTP architecture (73 for v73)."""


@dataclass(frozen=True)
class Context:
    """A context binary on the host, and what is known of it.

    `inputs` and `expected` are raw files, one per tensor in the order of the binary's graph;
    outputs may differ from `expected` by `tolerance` (in units of the raw values). `memory_bytes`
    is what the metadata says a device needs for it: I/O, constants and spill-fill.
    """

    path: Path
    sha256: str
    size: int
    model: ModelSpec
    compiler: str
    htp_arch: int
    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]
    tolerance: float
    metadata: Mapping[str, Any]
    memory_bytes: int


class ContextStore:
    """Contexts below `<cache_root>/contexts`; made by the real compiler when they are missing.

    `notify` gets progress; a damaged folder is told to the catalog's `warn` and made again.
    """

    def __init__(
        self,
        cache_root: Path,
        catalog: Catalog,
        probe_builder: ProbeBuilder,
        *,
        notify: Say | None = None,
    ) -> None:
        self._root = cache_root / "contexts"
        self._catalog = catalog
        self._probes = probe_builder
        self._notify = notify or catalog.notify
        self._built: dict[ModelSpec, str] = {}
        self._found: dict[Wanted, Context] = {}

    def get(self, model: ModelSpec, compiler: str, htp_arch: int) -> Context:
        """One context; see `get_many`."""
        return self.get_many([(model, compiler, htp_arch)])[0]

    def get_many(self, wanted: Sequence[Wanted]) -> list[Context]:
        """Contexts in the order asked for; all that one compiler has to make, it makes in one go.

        Raises CompileError if a compiler does not make one (the others are made and kept),
        ConfigError for an unknown version or an architecture the compiler does not know,
        InfraError if libraries cannot be fetched or the cache cannot be written.
        """
        new = [one for one in dict.fromkeys(wanted) if one not in self._found]
        for compiler in dict.fromkeys(compiler for _, compiler, _ in new):
            self._get_all(compiler, [one for one in new if one[1] == compiler])
        return [self._found[one] for one in wanted]

    def _get_all(self, compiler: str, wanted: Sequence[Wanted]) -> None:
        if self._open_all(wanted):
            return
        lock = self._root / ".locks" / f"{compiler}.lock"
        what = f"compiling contexts with QNN {compiler}"
        with locked(lock, what, timeout_s=_LOCK_TIMEOUT_S, notify=self._notify):
            # another process may have made them while we waited
            if not self._open_all(wanted):
                self._make(compiler, [one for one in wanted if one not in self._found])
                if not self._open_all(wanted):
                    raise InfraError(f"contexts in {self._root} went away while they were used")

    def _open_all(self, wanted: Iterable[Wanted]) -> bool:
        """Whether all are there; the ones that are go into `_found`."""
        missing = False
        for one in wanted:
            if one not in self._found:
                context = self._open(one)
                if context is None:
                    missing = True
                else:
                    self._found[one] = context
        return not missing

    def _open(self, wanted: Wanted) -> Context | None:
        spec, compiler, arch = wanted
        model = self._open_folder(self._model_folder(spec), self._model_facts(spec))
        made = self._open_folder(self._binary_folder(wanted), self._binary_facts(wanted))
        if model is None or made is None:
            return None
        binary = made.files[_BINARY]
        return Context(
            path=binary.path,
            sha256=binary.sha256,
            size=binary.size,
            model=spec,
            compiler=compiler,
            htp_arch=arch,
            inputs=tuple(model.path / name for name in model.data["inputs"]),
            expected=tuple(model.path / name for name in model.data["expected"]),
            tolerance=spec.tolerance,
            metadata=made.data["metadata"],
            memory_bytes=memory_bytes(made.data["metadata"]),
        )

    def _open_folder(self, folder: Path, facts: Mapping[str, Any]) -> SealedFolder | None:
        try:
            return open_sealed(folder, facts)
        except SealBrokenError as damage:
            self._catalog.warn(
                f"cached context {folder.name} is not as it was ({damage}); making it again"
            )
            shutil.rmtree(folder, ignore_errors=True)
            return None

    def _make(self, compiler: str, wanted: Sequence[Wanted]) -> None:
        host = self._catalog.compiler_host(compiler)
        specs = list(dict.fromkeys(spec for spec, _, _ in wanted))
        self._notify(f"compiling {', '.join(map(str, specs))} with QNN {compiler}")
        with work_folder(self._root) as work:
            models, references, binaries = {}, {}, {}
            for number, spec in enumerate(specs):
                models[spec] = work / f"{number}.onnx"
                models[spec].write_bytes(self._model(spec).content)
                if self._open_folder(self._model_folder(spec), self._model_facts(spec)) is None:
                    references[spec] = _reference_job(spec, models[spec], work / f"model-{number}")
            for number, one in enumerate(wanted):
                binaries[one] = _compile_job(one, models[one[0]], work / f"binary-{number}")
            results = run_jobs(host, [*references.values(), *binaries.values()])
            for spec, reference in references.items():
                if results[reference.job] is None:
                    self._keep_model(spec, reference)
            made = {one: job for one, job in binaries.items() if results[job.job] is None}
            if made:
                self._keep_binaries(host, made)
            for failure in results.values():
                if failure is not None:
                    raise failure

    def _keep_model(self, spec: ModelSpec, job: ReferenceJob) -> None:
        data = {
            "inputs": {one.name: one.path.name for one in job.inputs},
            "expected": {name: path.name for name, path in job.outputs.items()},
        }
        folder = job.folder
        seal(folder, self._model_facts(spec), data)
        publish(folder, self._model_folder(spec))

    def _keep_binaries(self, host: CompilerHost, made: Mapping[Wanted, CompileJob]) -> None:
        """Names, checks and keeps what was compiled; raises the first thing that was wrong."""
        paths = [_the_binary(job) for job in made.values()]
        metadata = read_metadata(self._probes, host.system_library, paths)
        wrong: list[HarnessError] = []
        for (one, job), path, found in zip(made.items(), paths, metadata, strict=True):
            try:
                check_arch(found, job.complaint, one[2])
                inputs, outputs = tensor_order(found, job.complaint, *_sizes(self._model_of(one)))
            except HarnessError as error:
                wrong.append(error)
                continue
            folder = job.folder.with_name(f"{job.folder.name}-made")
            folder.mkdir()
            path.rename(folder / _BINARY)
            data = {"metadata": found, "inputs": inputs, "outputs": outputs}
            seal(folder, self._binary_facts(one), data)
            publish(folder, self._binary_folder(one))
        if wrong:
            raise wrong[0]
