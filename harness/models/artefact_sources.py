"""What a file of a user holds, as sources of contexts: each piece a file, taken as it lies."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from harness.containers.artefact import Artefact, ArtefactError, Blob, Piece
from harness.containers.extract import piece_file
from harness.containers.manifest import RunPlan
from harness.containers.open import open_artefacts
from harness.core.axes import ENGINES
from harness.core.errors import ConfigError
from harness.models.context_file import ContextFile
from harness.models.contexts import Source, SourceList
from harness.models.onnx_model import OnnxModel, require_alike
from harness.models.source import ANY_DISTANCE, CONDITIONS, ClosenessAsked

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Given:
    """What a user gives besides an artefact; `inputs` and `expected` are folders.

    Such a folder holds the files of the tensors. For an artefact of several contexts it holds a
    folder for each, called `0`, `1` and so on. For several artefacts, each has all this in a folder
    called like it. `graph` names the graph to execute.
    `fallback`: nodes of a model that the NPU refuses may run on the CPU. `closeness` is what is
    asked of each output.
    """

    inputs: Path | None = None
    expected: Path | None = None
    tolerance: float = 0.0
    graph: str | None = None
    fallback: bool = False
    closeness: ClosenessAsked = field(default_factory=ClosenessAsked)

    def __post_init__(self) -> None:
        # who says how close outputs must come means these words, and no equality beside them
        if self.closeness and self.expected is not None and not self.tolerance:
            object.__setattr__(self, "tolerance", ANY_DISTANCE)

    def require_expected(self, path: Path) -> None:
        """Raises ConfigError for a tolerance or a condition that nothing is compared with.

        A user would believe that it was kept to.
        """
        if (self.tolerance or self.closeness) and self.expected is None:
            problem = "nothing says what its outputs should be: --expected DIR does"
            asked = "tolerance" if self.tolerance else CONDITIONS
            raise ConfigError(problem, file=path, field=asked)
        self.require_no_original(path)

    def require_no_original(self, path: Path) -> None:
        """Raises ConfigError for another model to compare with, which only a plain .onnx has."""
        if self.closeness.original is not None:
            problem = "is another model for a plain .onnx, which this is not"
            raise ConfigError(problem, file=path, field="reference")


NOTHING: Final = Given()


class WholeFile(SourceList):
    """A file that another engine than the probe loads as it is.

    Its sources are the contexts in it: preflight looks at them. `files` are all that are pushed.
    """

    path: Path
    given: Given = NOTHING
    files: tuple[Path, ...] = ()

    @classmethod
    def of(
        cls,
        path: Path,
        sources: Iterable[Source],
        given: Given,
        files: Iterable[Path],
        *,
        part: str | None = None,
    ) -> Self:
        """The file, called by its name; `part` is which of several graphs of it is meant."""
        name = path.name if part is None else f"{path.name}-{part}"
        made = cls(name, sources, closeness=given.closeness)
        made.path, made.files = path, tuple(files)
        read, wanted = (own_folder(one, path.name) for one in (given.inputs, given.expected))
        if part is not None:
            read, wanted = (one / part if one else None for one in (read, wanted))
        made.given = replace(given, inputs=read, expected=wanted, graph=part or given.graph)
        return made


_MOST_NAMED: Final = 5


def artefacts_with_contexts(
    paths: Sequence[Path], told: Callable[[ArtefactError], None] | None = None
) -> list[Artefact]:
    """The artefacts of files, folders and patterns, without those that hold no contexts.

    A file that was named itself is among them, whatever it holds. Raises ArtefactError, or
    tells it, as `open_artefacts`.
    """
    found = []
    for artefact in open_artefacts(paths, told):
        # a model to be compiled is such a piece itself, or has none
        without = all(one.kind == artefact.kind != "context" for one in artefact.pieces)
        if without and artefact.path not in paths:
            _log.warning("%s: passed by: a %s without contexts", artefact.path, artefact.kind)
        else:
            found.append(artefact)
    return found


def contexts_of(artefact: Artefact, cache_root: Path, given: Given = NOTHING) -> SourceList:
    """The contexts of an artefact, in the order in which its runtime loads them.

    A context inside another file is copied into the cache, once. A piece is called by its number,
    as in model.pte#3; a single one is called like the file. Raises ConfigError for what holds no
    context, InfraError if the cache cannot be written.
    """
    name = artefact.path.name
    if artefact.kind == "onnx":
        read, wanted = (own_folder(one, name) for one in (given.inputs, given.expected))
        path = artefact.path.absolute()
        if given.graph is not None:
            problem = "it is compiled whole: there is no graph to choose"
            raise ConfigError(problem, file=path, field="graph")
        require_alike(path, given.closeness.original)
        models = OnnxModel.each(path, given.tolerance, inputs=read, expected=wanted)
        return SourceList(name, models, closeness=given.closeness)
    pieces = [piece for piece in artefact.pieces if piece.kind != "empty"]
    empty = [piece.origin for piece in artefact.pieces if piece.kind == "empty"]
    if empty:
        _log.warning("%s: %s", artefact.path, left_out(empty))
    for piece in pieces:
        if piece.kind != "context":
            where = f"{piece.origin}: " if piece.origin else ""
            what = f"is a {piece.kind.upper()}, a model that is not compiled yet"
            problem = f"{where}{what}: give the context binary that QNN's tools make of it"
            raise ConfigError(problem, file=piece.path)
    if not pieces:
        able = [engine.name for engine in ENGINES.values() if engine.compiles == artefact.kind]
        hints = (f"; --engine {name} compiles it" for name in able)
        raise ConfigError(f"holds no context{''.join(hints)}", file=artefact.path)
    plan: RunPlan | None = artefact.facts.get("plan")
    for what, folder in (("inputs", given.inputs), ("expected", given.expected)):
        _require_folders(what, folder, artefact, len(pieces))
        _tell_of_extras(folder, name, len(pieces))

    limits = (plan.max_error, plan.min_cosine, plan.min_sqnr) if plan else ()
    # of packed files the same holds as of those that are given, see Given
    usual = ANY_DISTANCE if plan and given.closeness else plan.tolerance if plan else 0.0
    files: dict[tuple[Path, int, int], Path] = {}

    def file(blob: Blob) -> Path:
        place = blob.path, blob.offset, blob.size
        if place not in files:  # a manifest may name one often
            files[place] = piece_file(blob, cache_root).absolute()
        return files[place]

    def tensors(own: Sequence[Blob]) -> list[Path] | None:
        return [file(one) for one in own] or None

    sources = [
        ContextFile(
            file(piece),
            inputs=_folder(given.inputs, name, at, pieces) or tensors(piece.inputs),
            expected=_folder(given.expected, name, at, pieces) or tensors(piece.expected),
            tolerance=given.tolerance or usual,
            graph=given.graph or (plan.graph if plan else None),
            name=f"{name}#{at}" if len(pieces) > 1 else name,
        )
        for at, piece in enumerate(pieces)
    ]
    expects = artefact.facts.get("expects")
    not_run = "\n".join([left_out(empty)] * bool(empty) + _around(artefact, len(pieces)))
    asked = given.closeness or ClosenessAsked(*limits)
    return SourceList(name, sources, empty, plan, expects, asked, not_run)


def left_out(empty_caches: Sequence[str]) -> str:
    """What to say of a model with nodes that hold no context, so that not all of it runs.

    Seen in microsoft/onnxruntime#31977.
    """
    named = ", ".join(empty_caches)
    return f"left out, as their caches are empty: {named}; ONNX Runtime does not load such a model"


def _around(artefact: Artefact, contexts: int) -> list[str]:
    """What to say of a file that is more than its contexts, which is all that is run of it here."""
    others = artefact.facts.get("other_nodes")
    if others is None or (not others and contexts == 1):
        return []
    ran, them = "only its context ran", "it"
    if contexts > 1:
        ran, them = f"only its {contexts} contexts ran, each by itself", "them"
    none = f"none of the {others} nodes" if others > 1 else "not the node"
    around = f", and {none} around {them}" if others else ""
    how = "how right all of the file is: --engine {} --inputs DIR --expected DIR"
    return [f"{ran}{around}", *map(how.format, _run_whole(artefact))]


def _run_whole(artefact: Artefact) -> list[str]:
    return [one.name for one in ENGINES.values() if one.runs_whole == artefact.kind]


def _require_folders(what: str, given: Path | None, artefact: Artefact, pieces: int) -> None:
    """Raises ConfigError for a folder that has none for any of several contexts."""
    folder = own_folder(given, artefact.path.name)
    if folder is None or pieces < 2 or any((folder / f"{at}").exists() for at in range(pieces)):
        return
    problem = f"there is no {folder / '0'}: each of the {pieces} contexts has its own folder there"
    hints = (f"; --engine {name} takes the files of the whole" for name in _run_whole(artefact))
    raise ConfigError(f"{problem}{''.join(hints)}", file=artefact.path, field=what)


def _folder(given: Path | None, name: str, at: int, pieces: Sequence[Piece]) -> Path | None:
    folder = own_folder(given, name)
    return folder / str(at) if folder is not None and len(pieces) > 1 else folder


def _tell_of_extras(given: Path | None, name: str, pieces: int) -> None:
    """Says which folders are not read, where there should be one for each of several contexts."""
    folder = own_folder(given, name)
    if folder is None or given is None or pieces < 2 or not os.path.isdir(folder):
        return
    others = {entry.name for entry in os.scandir(folder) if entry.is_dir()}
    others -= {str(at) for at in range(pieces)}
    if folder == given.absolute():  # may hold those of other artefacts
        others = {one for one in others if one.isdecimal()}
    if others:
        listed = ", ".join(sorted(others)[:_MOST_NAMED])
        _log.warning("%s: not read: %s; %s has 0 to %d", folder, listed, name, pieces - 1)


def own_folder(given: Path | None, name: str) -> Path | None:
    """The folder of an artefact inside the given one; the given one if there is none."""
    if given is None:
        return None
    own = given.absolute() / name
    return own if os.path.isdir(own) else given.absolute()
