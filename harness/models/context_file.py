"""Context binaries that a user has: the file as it lies, its inputs and what it should give."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from harness.containers.artefact import ArtefactError, Piece
from harness.containers.extract import PIECES
from harness.containers.open import open_artefact
from harness.core.axes import ENGINES
from harness.core.errors import ConfigError
from harness.core.names_inside import name_problem
from harness.core.verified_folder import HashCache, Hashed
from harness.models.metadata import (
    Tensor,
    Unreadable,
    entries,
    graphs_named,
    memory_bytes,
    read_each,
    tensors_of,
)
from harness.models.source import GIVEN, Context
from harness.models.tensor_files import TensorFiles
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import all_versions

_MAX_BYTES: Final = 4 << 30  # the probe reads no more (probe.h)

AnyPath = str | os.PathLike[str]
Files = Path | tuple[Path, ...] | None


@dataclass(frozen=True, init=False)
class ContextFile:
    """A context binary, to be used as it lies there.

    Relative paths are meant from the folder of the test's file. `inputs` and `expected` name a
    folder or list files, raw or .npy: in a folder those called like the tensors (x.raw), or all in
    the order of their numbers (0.raw), else of their names, of which a warning tells. Without
    `inputs` deterministic ones are made up; without `expected` no output is looked at. The record
    says both. Outputs may differ by `tolerance`, in units of the raw values. `graph` names the one
    of several graphs that is executed. Without it all are, in turn, and `inputs` and `expected`
    have a folder for each graph, called like it. `name` is what it is called in cases and reports:
    by default like the file.
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
        """Nothing is read yet. Raises ConfigError for a tolerance that is none."""
        if not 0 <= tolerance < float("inf"):
            raise ConfigError(
                f"{tolerance} is not 0 or more", file=name or str(path), field="tolerance"
            )
        given = {
            "path": Path(path),
            "inputs": given_files(inputs),
            "expected": given_files(expected),
            "tolerance": float(tolerance),
            "graph": graph,
            "name": name or Path(path).name,
        }
        for field, value in given.items():
            object.__setattr__(self, field, value)

    def __str__(self) -> str:
        return self.name

    # other plug-ins of pytest (allure) show parameters so
    __repr__ = __str__

    @property
    def compiled(self) -> bool:
        """Whether a compiler is started here to make it: never."""
        return False

    def seen_from(self, folder: Path) -> Self:
        """This file, with relative paths meant from a folder."""

        return type(self)(
            folder / self.path,
            inputs=given_files(self.inputs, folder),
            expected=given_files(self.expected, folder),
            tolerance=self.tolerance,
            graph=self.graph,
            name=self.name,
        )


def given_files(given: AnyPath | Sequence[AnyPath] | None, folder: Path = Path()) -> Files:
    """A folder, or files; relative ones below a folder (pure)."""
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        return folder / given
    return tuple(folder / one for one in given)


class ContextFiles:
    """Reads context files: once each, as long as they do not change."""

    def __init__(self, cache_root: Path, catalog: Catalog, probes: ProbeBuilder) -> None:
        self._cache = cache_root
        self._catalog = catalog
        self._probes = probes
        self._tensors = TensorFiles(cache_root)
        self._metadata: dict[tuple[Path, str], Mapping[str, Any] | ConfigError] = {}

    def contexts(self, sources: Iterable[ContextFile]) -> dict[ContextFile, Context | ConfigError]:
        """The context of each file, with its inputs and expected outputs, or what is wrong with it.

        All are read in one process. Raises InfraError if the library that reads metadata cannot be
        had.
        """
        found: dict[ContextFile, Context | ConfigError] = {}
        for source, one in self._looked_at(sources).items():
            try:
                if isinstance(one, ConfigError):
                    raise one
                found[source] = self._context(source, one)
            except ConfigError as error:
                # of a piece of another file users know the name, and not its copy
                copied = source.path.parent == self._cache / PIECES
                if copied and error.file in (source.path, str(source.path)):
                    error = ConfigError(
                        error.problem, file=source.name, field=error.field, choices=error.choices
                    )
                found[source] = error
        return found

    def metadata(self, sources: Iterable[ContextFile]) -> dict[ContextFile, Mapping[str, Any]]:
        """What the files say of themselves, without those that cannot be read.

        Neither the graph that is meant nor files for its tensors matter here. Raises as `contexts`.
        """
        found = {}
        for source, one in self._looked_at(sources).items():
            if isinstance(one, Hashed):
                told = self._metadata[source.path, one.sha256]
                if not isinstance(told, ConfigError):
                    found[source] = told
        return found

    def _looked_at(self, sources: Iterable[ContextFile]) -> dict[ContextFile, Hashed | ConfigError]:
        """The files, hashed, and their metadata read; or why there is none."""
        found: dict[ContextFile, Hashed | ConfigError] = {}
        for source in sources:
            path = source.path
            try:
                self._require(path)
                hashes = HashCache(self._cache, path.parent).hashed({path.name: path})
                found[source] = hashes[path.name]
            except ConfigError as error:
                found[source] = error
        hashed = {one: known for one, known in found.items() if isinstance(known, Hashed)}
        self._read({(source.path, one.sha256): one.size for source, one in hashed.items()})
        return found

    def _context(self, source: ContextFile, hashed: Hashed) -> Context:
        path = source.path
        metadata = self._metadata[path, hashed.sha256]
        if isinstance(metadata, ConfigError):
            raise metadata
        alone = source.graph is not None or len(entries(metadata, "graphs")) == 1
        arch = metadata.get("dsp_arch")
        contexts = []
        for number, graph in graphs_named(metadata, path, source.graph):
            own = None if alone else str(graph.get("name"))
            inputs = tensors_of(graph, "inputs", path)
            outputs = tensors_of(graph, "outputs", path)
            expected = self._given("expected", source.expected, outputs, own, path)
            context = Context(
                path=path,
                sha256=hashed.sha256,
                size=hashed.size,
                source=source,
                compiler=None,
                htp_arch=arch if isinstance(arch, int) else None,
                inputs=self._given("inputs", source.inputs, inputs, own, path),
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

    def _given(
        self,
        what: str,
        files: Files,
        tensors: Sequence[Tensor],
        graph: str | None,
        binary: Path,
    ) -> tuple[Path, ...]:
        """What a user gave, else inputs that are made up, without expected outputs.

        Of several graphs (`graph`) each has a folder called like it.
        """
        if files is None:
            return self._tensors.generated(tensors, binary) if what == "inputs" else ()
        if graph is not None:
            if not isinstance(files, Path):
                why = "the binary has several graphs: name one, or give a folder with one for each"
                raise ConfigError(why, file=binary, field=what)
            if problem := name_problem(graph, flat=True):
                why = f"no folder can be called like the graph {graph!r}, which {problem}: name one"
                raise ConfigError(why, file=binary, field=what)
            return self._tensors.given(what, files / graph, tensors, binary, within=files)
        return self._tensors.given(what, files, tensors, binary)

    def _require(self, path: Path) -> None:
        try:
            size = path.stat().st_size
        except OSError as error:
            problem = (
                f"no context binary can be read there: {error.strerror or error}; relative paths "
                "are meant from the folder of the test's file"
            )
            raise ConfigError(problem, file=path.absolute()) from error
        if not path.is_file():
            raise ConfigError("is not a file, but a context binary is one", file=path.absolute())
        if not 0 < size <= _MAX_BYTES:
            problem = f"has {size} bytes; a context binary has 1 to {_MAX_BYTES}"
            raise ConfigError(problem, file=path.absolute())

    def _read(self, files: Mapping[tuple[Path, str], int]) -> None:
        """Has the metadata of files, by path and hash, with their sizes."""
        new = [key for key in files if key not in self._metadata]
        if not new:
            return
        # the newest reads what the others read, and more
        newest = all_versions()[-1]
        library = self._catalog.runtime(newest, "linux-x64").library("libQnnSystem.so")
        pieces = [Piece(key[0], 0, files[key], "", "context") for key in new]
        for key, told in zip(new, read_each(self._probes, library, pieces), strict=True):
            if isinstance(told, Unreadable):
                problem = _another_kind(key[0]) or (
                    f"is no whole context binary for libQnnSystem.so of QNN {newest}, "
                    f"which reads what one is made of: {told.reason}"
                )
                self._metadata[key] = ConfigError(problem, file=key[0])
            else:
                self._metadata[key] = told


def _another_kind(path: Path) -> str | None:
    """What a file is that the library does not read; None if no other kind is seen in it."""
    try:
        kind = open_artefact(path).kind
    except ArtefactError:
        return None
    if kind == "context":
        return None
    takes = "`qnn-harness run` takes it as it is"
    for one in ENGINES.values():
        if kind in (one.runs_whole, one.compiles, "onnx" if one.takes_models else None):
            method = "session" if one.takes_models else one.name
            marked = f'`device(engine="{one.name}")`'
            takes = f"`bench.{method}(...)` takes it, in a test marked {marked}"
    return f"is no context binary, but of the kind {kind}: {takes}"
