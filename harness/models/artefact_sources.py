"""Model files of users as sources of contexts, one file per piece."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from harness.containers.artefact import Artefact, ArtefactError, Blob
from harness.containers.extract import piece_file
from harness.containers.manifest import RunPlan
from harness.containers.open import open_artefacts
from harness.core.context_options import OptionValue
from harness.core.engine import ENGINES, FileRun
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.models.context_file import ContextFile
from harness.models.contexts import Source, SourceList
from harness.models.onnx_model import OnnxModel, require_alike
from harness.models.session_plan import ANY_DISTANCE, CONDITIONS, ClosenessLimits

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelOptions:
    """Options of a run of model files; `inputs` and `expected` are folders of tensor files.

    For an artefact of several contexts, such a folder holds a folder for each, named `0`, `1` and
    so on; for several artefacts, it holds all that in a folder named like the artefact. `graph`
    names the graph to execute. With `fallback`, nodes that the NPU refuses may run on the CPU.
    `closeness` are the conditions for each output, `context_options` are those of each context.
    """

    inputs: Path | None = None
    expected: Path | None = None
    tolerance: float = 0.0
    graph: str | None = None
    fallback: bool = False
    closeness: ClosenessLimits = field(default_factory=ClosenessLimits)
    context_options: Mapping[str, OptionValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # conditions on closeness replace the test for equality
        if self.closeness and self.expected is not None and not self.tolerance:
            object.__setattr__(self, "tolerance", ANY_DISTANCE)

    def require_expected(self, path: Path) -> None:
        """Raise ConfigError for a tolerance or a condition without expected outputs.

        A user would believe that it was checked.
        """
        if (self.tolerance or self.closeness) and self.expected is None:
            problem = "the file has no expected outputs; pass --expected DIR"
            field = "tolerance" if self.tolerance else CONDITIONS
            raise ConfigError(problem, file=path, field=field)
        self.require_no_original(path)

    def require_no_original(self, path: Path) -> None:
        """Raise ConfigError for a model to compare with, which only a plain .onnx may have."""
        if self.closeness.original is not None:
            problem = "needs a plain .onnx, which this file is not"
            raise ConfigError(problem, file=path, field="reference")

    def whole_file(self, path: Path) -> WholeFile:
        """Return a file to load as it is, with these options."""
        return WholeFile.of(path, (), self, [path])


NO_OPTIONS: Final = ModelOptions()


class WholeFile(SourceList):
    """A file that an engine other than the probe loads as it is.

    Its sources are the contexts in it, for preflight. `files` are all that are pushed.
    """

    path: Path
    options: ModelOptions = NO_OPTIONS
    files: tuple[Path, ...] = ()

    @property
    def file_run(self) -> FileRun:
        """The file with its options, as an engine runs it."""
        options = self.options
        return FileRun(
            self.path,
            options.inputs,
            options.expected,
            options.tolerance,
            self.rounds,
            options.graph,
            options.fallback,
            self.rounds.timeout_s,
            context_options=self.context_options,
        )

    @classmethod
    def of(
        cls,
        path: Path,
        sources: Iterable[Source],
        options: ModelOptions,
        files: Iterable[Path],
        *,
        part: str | None = None,
    ) -> Self:
        """Return the file, named like it; `part` is one of its graphs if there are several."""
        name = path.name if part is None else f"{path.name}-{part}"
        whole = cls(
            name, sources, closeness=options.closeness, context_options=options.context_options
        )
        whole.path, whole.files = path, tuple(files)
        inputs, expected = (
            own_folder(root, path.name) for root in (options.inputs, options.expected)
        )
        if part is not None:
            inputs, expected = (folder / part if folder else None for folder in (inputs, expected))
        whole.options = replace(
            options, inputs=inputs, expected=expected, graph=part or options.graph
        )
        return whole


def artefacts_with_contexts(
    paths: Sequence[Path], on_error: Callable[[ArtefactError], None] | None = None
) -> list[Artefact]:
    """Return the artefacts of files and folders, without those that hold no contexts.

    A file that was named itself is always among them. If none has contexts, it returns the .onnx
    models, or else all. Raises ArtefactError, or passes it to `on_error`, as `open_artefacts`.
    """
    chosen: list[Artefact] = []
    others: list[Artefact] = []
    for artefact in open_artefacts(paths, on_error):
        # a model to be compiled is such a piece itself, or has none
        without = all(piece.kind == artefact.kind != "context" for piece in artefact.pieces)
        (others if without and artefact.path not in paths else chosen).append(artefact)
    chosen = chosen or [model for model in others if model.kind == "onnx"] or others
    for path in (artefact.path for artefact in others if artefact not in chosen):
        _log.warning("%s is ignored: it has no contexts; name the file itself to include it", path)
    return chosen


def contexts_of(
    artefact: Artefact, cache_root: Path, options: ModelOptions = NO_OPTIONS
) -> SourceList:
    """Return the contexts of an artefact, in the order in which its runtime loads them.

    A context inside another file is copied into the cache, once. A piece is named by its number,
    as in model.pte#3; a single one is named like the file. Raises ConfigError for an artefact
    without contexts, InfraError if the cache cannot be written.
    """
    name = artefact.path.name
    if artefact.kind == "onnx":
        inputs, expected = own_folder(options.inputs, name), own_folder(options.expected, name)
        path = artefact.path.absolute()
        if options.graph is not None:
            problem = "an .onnx is compiled as a whole; name no graph"
            raise ConfigError(problem, file=path, field="graph")
        require_alike(path, options.closeness.original)
        model = OnnxModel.of(path, options.tolerance, inputs=inputs, expected=expected)
        return SourceList(
            name, [model], closeness=options.closeness, context_options=options.context_options
        )
    pieces = artefact.pieces
    if empty := ", ".join(piece.origin for piece in pieces if piece.kind == "empty"):
        # seen in microsoft/onnxruntime#31977
        problem = f"{empty} has no context, and ONNX Runtime cannot load such a model"
        cure = "compile it again with ep.context_embed_mode=0"
        raise ConfigError(f"{problem}; {cure}", file=artefact.path)
    for piece in pieces:
        if piece.kind != "context":
            prefix = f"{piece.origin}: " if piece.origin else ""
            problem = f"{prefix}is a {piece.kind.upper()}, a model that is not compiled yet"
            cure = "give the context binary that QNN's tools compile it to"
            raise ConfigError(f"{problem}; {cure}", file=piece.path)
    if not pieces:
        able = [engine.name for engine in ENGINES.values() if artefact.kind in engine.default_for]
        hints = (f"; --engine {name} runs it" for name in able)
        raise ConfigError(f"has no context binary{''.join(hints)}", file=artefact.path)
    plan: RunPlan | None = artefact.facts.get("plan")
    limits = (plan.max_error, plan.min_cosine, plan.min_sqnr) if plan else ()
    # as in ModelOptions: conditions on closeness replace the test for equality
    usual = ANY_DISTANCE if plan and options.closeness else plan.tolerance if plan else 0.0
    files: dict[tuple[Path, int, int], Path] = {}

    def file(blob: Blob) -> Path:
        place = blob.path, blob.offset, blob.size
        if place not in files:  # a manifest may name one often
            files[place] = piece_file(blob, cache_root).absolute()
        return files[place]

    def tensors(blobs: Sequence[Blob]) -> list[Path] | None:
        return [file(blob) for blob in blobs] or None

    def folder_of(root: Path | None, index: int) -> Path | None:
        folder = own_folder(root, name)
        return folder / str(index) if folder is not None and len(pieces) > 1 else folder

    sources = [
        ContextFile(
            file(piece),
            inputs=folder_of(options.inputs, index) or tensors(piece.inputs),
            expected=folder_of(options.expected, index) or tensors(piece.expected),
            tolerance=options.tolerance or usual,
            graph=options.graph or (plan.graph if plan else None),
            name=f"{name}#{index}" if len(pieces) > 1 else name,
        )
        for index, piece in enumerate(pieces)
    ]
    expects = artefact.facts.get("expects")
    closeness = options.closeness or ClosenessLimits(*limits)
    notes = "\n".join(_partial_run_notes(artefact, len(pieces)))
    return SourceList(name, sources, plan, expects, closeness, notes, options.context_options)


def _partial_run_notes(artefact: Artefact, contexts: int) -> list[str]:
    """Return notes on a file that is more than its contexts, which are all that runs of it."""
    others = artefact.facts.get("other_nodes")
    if others is None or (not others and contexts == 1):
        return []
    ran = f"only its {counted(contexts, 'context')} ran, each alone"
    ran += f"; its {counted(others, 'other node')} did not run" if others else ""
    hint = "to check the whole file: --engine {} --inputs DIR --expected DIR"
    engines = [engine for engine in ENGINES.values() if artefact.kind not in engine.default_for]
    return [ran, *(hint.format(each.name) for each in engines if artefact.kind in each.kinds)]


def own_folder(root: Path | None, name: str) -> Path | None:
    """Return the folder of an artefact inside `root`, or `root` if there is none."""
    if root is None:
        return None
    folder = root.absolute() / name
    return folder if os.path.isdir(folder) else root.absolute()
