"""Context binaries of users: the file as it is, its inputs and its expected outputs."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from harness.containers.artefact import ArtefactError, Piece, Tensor
from harness.containers.extract import PIECES
from harness.containers.open import open_artefact
from harness.core.errors import ConfigError
from harness.core.paths_inside import name_problem
from harness.core.verified_folder import HashCache, Hashed
from harness.models.context_metadata import (
    Unreadable,
    entries,
    graphs_named,
    memory_bytes,
    read_each,
    tensors_of,
)
from harness.models.session_plan import GIVEN, Context
from harness.models.tensor_files import TensorFiles
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import all_versions

_MAX_BYTES: Final = 4 << 30  # the probe reads no more (probe.h)

AnyPath = str | os.PathLike[str]
Files = Path | tuple[Path, ...] | None


@dataclass(frozen=True, init=False)
class ContextFile:
    """A context binary, used as it is.

    Relative paths start at the folder of the test's file. `inputs` and `expected` name a folder or
    list files, raw or .npy. Of a folder, the files named after the tensors (x.raw) are used, or all
    in the order of their numbers (0.raw). Without `inputs` deterministic ones are generated;
    without `expected` no output is compared. The record says both. Outputs may
    differ by `tolerance`, in units of the raw values. `graph` names the graph to execute if there
    are several. Without it all are executed, in turn, and `inputs` and `expected` have a folder
    for each graph, named after it. `name` is the name in cases and reports, by default that of the
    file.
    """

    path: Path
    inputs: Files
    expected: Files
    tolerance: float
    graph: str | None
    name: str

    def __init__(
        self,
        path: AnyPath,
        *,
        inputs: AnyPath | Sequence[AnyPath] | None = None,
        expected: AnyPath | Sequence[AnyPath] | None = None,
        tolerance: float = 0.0,
        graph: str | None = None,
        name: str | None = None,
    ) -> None:
        """Read nothing yet. Raises ConfigError for an invalid tolerance."""
        if not 0 <= tolerance < float("inf"):
            raise ConfigError(
                f"{tolerance} is not 0 or more", file=name or str(path), field="tolerance"
            )
        self.__dict__.update(
            path=Path(path),
            inputs=resolve_paths(inputs),
            expected=resolve_paths(expected),
            tolerance=float(tolerance),
            graph=graph,
            name=name or Path(path).name,
        )

    def __str__(self) -> str:
        return self.name

    # other plug-ins of pytest (allure) show parameters by their repr
    __repr__ = __str__

    @property
    def compiled(self) -> bool:
        """False: no compiler is started for it."""
        return False

    def seen_from(self, folder: Path) -> Self:
        """Return this file, with relative paths resolved against a folder."""
        return type(self)(
            folder / self.path,
            inputs=resolve_paths(self.inputs, folder),
            expected=resolve_paths(self.expected, folder),
            tolerance=self.tolerance,
            graph=self.graph,
            name=self.name,
        )


def resolve_paths(paths: AnyPath | Sequence[AnyPath] | None, folder: Path = Path()) -> Files:
    """Return a folder, or files, with relative paths resolved against `folder` (pure)."""
    if paths is None:
        return None
    if isinstance(paths, str | os.PathLike):
        return folder / paths
    return tuple(folder / path for path in paths)


class ContextFiles:
    """Reader of context files: each is read once, as long as it does not change."""

    def __init__(self, cache_root: Path, catalog: Catalog, probes: ProbeBuilder) -> None:
        self._cache = cache_root
        self._catalog = catalog
        self._probes = probes
        self._tensors = TensorFiles(cache_root)
        self._metadata: dict[tuple[Path, str], Mapping[str, Any] | ConfigError] = {}

    def contexts(self, sources: Iterable[ContextFile]) -> dict[ContextFile, Context | ConfigError]:
        """Return the context of each file, with its inputs and expected outputs, or its error.

        All are read in one process. Raises InfraError if there is no library to read metadata.
        """
        contexts: dict[ContextFile, Context | ConfigError] = {}
        for source, state in self._read_all(sources).items():
            try:
                if isinstance(state, ConfigError):
                    raise state
                contexts[source] = self._context(source, *state)
            except ConfigError as error:
                # users know the name of a piece of another file, and not its copy in the cache
                copied = source.path.parent == self._cache / PIECES
                if copied and error.file in (source.path, str(source.path)):
                    error = ConfigError(
                        error.problem, file=source.name, field=error.field, choices=error.choices
                    )
                contexts[source] = error
        return contexts

    def metadata(self, sources: Iterable[ContextFile]) -> dict[ContextFile, Mapping[str, Any]]:
        """Return the metadata of the files, without those that cannot be read.

        Neither the chosen graph nor files for its tensors matter here. Raises as `contexts`.
        """
        states = self._read_all(sources).items()
        return {source: state[1] for source, state in states if not isinstance(state, ConfigError)}

    def _read_all(
        self, sources: Iterable[ContextFile]
    ) -> dict[ContextFile, tuple[Hashed, Mapping[str, Any]] | ConfigError]:
        states: dict[ContextFile, tuple[Hashed, Mapping[str, Any]] | ConfigError] = {}
        hashed: dict[ContextFile, Hashed] = {}
        for source in sources:
            path = source.path
            try:
                self._require(path)
                hashes = HashCache(self._cache, path.parent).hashed({path.name: path})
                hashed[source] = hashes[path.name]
            except ConfigError as error:
                states[source] = error
        self._read({(file.path, state.sha256): state.size for file, state in hashed.items()})
        for source, state in hashed.items():
            metadata = self._metadata[source.path, state.sha256]
            states[source] = metadata if isinstance(metadata, ConfigError) else (state, metadata)
        return states

    def _context(self, source: ContextFile, hashed: Hashed, metadata: Mapping[str, Any]) -> Context:
        path = source.path
        alone = source.graph is not None or len(entries(metadata, "graphs")) == 1
        arch = metadata.get("dsp_arch")
        contexts = []
        for number, graph in graphs_named(metadata, path, source.graph):
            graph_name = None if alone else str(graph.get("name"))
            inputs = tensors_of(graph, "inputs", path)
            outputs = tensors_of(graph, "outputs", path)
            expected = self._tensor_files("expected", source.expected, outputs, graph_name, path)
            context = Context(
                path=path,
                sha256=hashed.sha256,
                size=hashed.size,
                source=source,
                compiler=None,
                htp_arch=arch if isinstance(arch, int) else None,
                inputs=self._tensor_files("inputs", source.inputs, inputs, graph_name, path),
                expected=expected,
                reference=expected,
                against=GIVEN,
                tolerance=source.tolerance,
                metadata=metadata,
                memory_bytes=memory_bytes(metadata),
                graph=number,
                generated_inputs=source.inputs is None,
            )
            contexts.append(context)
        return replace(contexts[0], others=tuple(contexts[1:]))

    def _tensor_files(
        self, field: str, files: Files, tensors: Sequence[Tensor], graph: str | None, binary: Path
    ) -> tuple[Path, ...]:
        """Return the user's files, else generated inputs and no expected outputs.

        If there are several graphs, each (`graph`) has a folder named like it.
        """
        if files is None:
            return self._tensors.generated(tensors, binary) if field == "inputs" else ()
        if graph is not None:
            if not isinstance(files, Path):
                why = "the binary has several graphs; name one, or give a folder for each"
                raise ConfigError(why, file=binary, field=field)
            if problem := name_problem(graph, flat=True):
                why = f"the graph {graph!r} {problem}, so no folder can have its name; name a graph"
                raise ConfigError(why, file=binary, field=field)
            return self._tensors.resolve(field, files / graph, tensors, binary, root=files)
        return self._tensors.resolve(field, files, tensors, binary)

    def _require(self, path: Path) -> None:
        try:
            status = path.stat()
        except OSError as error:
            problem = (
                f"no context binary can be read there: {error.strerror or error}; a relative path "
                "starts in the folder of the test's file"
            )
            raise ConfigError(problem, file=path.absolute()) from error
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= _MAX_BYTES:
            problem = f"is not a file of 1 to {_MAX_BYTES} bytes, as a context binary must be"
            raise ConfigError(problem, file=path.absolute())

    def _read(self, files: Mapping[tuple[Path, str], int]) -> None:
        """Read the metadata of files, which are given with their sizes, by path and hash."""
        new = [key for key in files if key not in self._metadata]
        if not new:
            return
        # the newest reads all that the others read
        newest = all_versions()[-1]
        library = self._catalog.runtime(newest, "linux-x64").library("libQnnSystem.so")
        pieces = [Piece(key[0], 0, files[key], "", "context") for key in new]
        for key, answer in zip(new, read_each(self._probes, library, pieces), strict=True):
            if isinstance(answer, Unreadable):
                problem = f"cannot be read by libQnnSystem.so of QNN {newest}: {answer.reason}"
                with contextlib.suppress(ArtefactError):
                    if (kind := open_artefact(key[0]).kind) != "context":
                        problem = f"is of kind {kind}, not a context binary; `bench.session` runs "
                        problem += "an .onnx, `qnn-harness model compile` makes a binary of it"
                self._metadata[key] = ConfigError(problem, file=key[0])
            else:
                self._metadata[key] = answer
