"""Contexts of the user's own: given to suites that take some, or run as cases of their file.

`pytest --contexts model.pte` has every test marked `takes_contexts` run on the contexts in that
file, instead of on what it is parametrized with. `pytest model.pte` collects the file itself, as if
it were a module with a test of `own_cases.py`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

import pytest

from harness.core.axes import ENGINES, ORT, QNN, Engine
from harness.core.errors import ConfigError
from harness.plugin.options import ContextsAsked, Options, rounds_asked
from harness.plugin.pytest_internals import FileOfTests
from harness.results.case_names import split_node_id

if TYPE_CHECKING:
    from harness.bench.placement import Need
    from harness.bench.workbench import Workbench
    from harness.containers.artefact import Artefact
    from harness.models.artefact_sources import Given
    from harness.models.contexts import SourceList
    from harness.models.source import Residency

_log = logging.getLogger(__name__)

TAKES: Final = "takes_contexts"

TESTS: Final = frozenset(engine.test for engine in ENGINES.values())
"""The tests that a file of a user's can have."""

_RUN: Final = re.compile(r"-(resident|sequential|window)-(\d{1,6})\]?$")
_UNNAMED: Final = ("[", "::")
_UNSAID: Final = (None, 0.0, "refuse")
_MADE_UP: Final = (
    "what is expected is compared with what comes of inputs that are made up; --inputs DIR names "
    "yours"
)


def nothing_beside(root: Path) -> list[str]:
    """pytest's arguments for a file that was handed over: what lies beside it is not run.

    A conftest.py or a pytest.ini there is somebody else's program.
    """
    return ["-c", os.devnull, "--noconftest", f"--rootdir={root}"]


def is_of_a_file(case: str) -> bool:
    """Whether a case is one of a file that was named, and not of a test in Python (pure)."""
    file, _, test = split_node_id(case)[0].partition("::")
    return not file.endswith(".py") and test in TESTS


class ArtefactFile(FileOfTests):
    """A file of the user's that was named on pytest's command line."""

    @property
    def engine(self) -> Engine:
        """What executes it. With `--only-case` the name of the case says it."""
        only_case = self.config.getoption("--qnn-only-case")
        if only_case is not None:
            others = (one for one in ENGINES.values() if not one.takes_contexts)
            return next((one for one in others if f"::{one.test}" in only_case), QNN)
        asked = self.config.getoption("--qnn-engine")
        return ENGINES[asked] if asked is not None else usual_engine(self.path)

    def module_of_tests(self) -> ModuleType:
        """The tests of all engines."""
        from harness.plugin import own_cases

        return own_cases

    def is_test(self, name: str) -> bool:
        """Whether a function there is the test of the engine."""
        return name == self.engine.test


@cache
def usual_engine(path: Path) -> Engine:
    """Return what executes a file where nobody says: what a bundle says, what compiles its kind.

    Else it is the probe.
    """
    from harness.containers.open import open_artefact

    try:
        artefact = open_artefact(path)
    except ConfigError:
        return QNN  # its case says what is wrong with it
    if artefact.pieces:
        return QNN
    if artefact.facts.get("model") and (plan := artefact.facts["plan"]):
        return ENGINES[plan.engine]
    return next((one for one in ENGINES.values() if one.compiles == artefact.kind), QNN)


def collect_artefact(file: Path, parent: pytest.Collector) -> ArtefactFile | None:
    """The cases of a file, if it is one that was named and may hold contexts.

    Its name in node ids is its path as seen from the root folder, wherever it lies: pytest has none
    for a file outside.
    """
    if file.suffix == ".py" or not parent.session.isinitpath(file):
        return None
    if not _may_be_one(file):
        return None
    name = Path(os.path.relpath(file, parent.config.rootpath)).as_posix()
    made: ArtefactFile = ArtefactFile.from_parent(parent, path=file, nodeid=name)
    return made


def _may_be_one(file: Path) -> bool:
    from harness.containers.open import SUFFIXES, UnknownFileError, open_artefact

    try:
        if file.suffix.lower() not in SUFFIXES:
            open_artefact(file)
    except UnknownFileError:
        return False
    except ConfigError:
        pass  # its case says what is wrong with it, as of all that is called so
    return True


def suite_of(item: pytest.Item) -> str:
    """What records call the file that a test stands in."""
    module = item.getparent(ArtefactFile)
    return module.engine.suite if module is not None else item.path.stem.removeprefix("test_")


def choose_contexts(metafunc: pytest.Metafunc, options: Options) -> None:
    """Gives a test the contexts of the user's instead of its own, if there are any for it.

    Of several files each that is no artefact has a case, which says so. Raises ConfigError for a
    single one, or an option that asks for what there is not.
    """
    own = metafunc.definition.getparent(ArtefactFile)
    marker = metafunc.definition.get_closest_marker(TAKES)
    if own is not None and not own.engine.takes_contexts:
        wholes = _readable(own, lambda: _whole_files(own.path, own.engine, options.contexts))
        for one in wholes:
            one.rounds = rounds_asked(options.contexts.rounds, options.contexts.warmup)
        _parametrize(metafunc, "workload", wholes)
    elif own is not None:
        (contexts,) = _readable(own, lambda: [_contexts_of_file(own.path, options.contexts)])
        contexts.rounds = rounds_asked(options.contexts.rounds, options.contexts.warmup)
        ways = _ways(options, contexts)
        _parametrize(metafunc, "workload", [contexts])
        _parametrize(metafunc, "residency,contexts", ways)
    elif marker is not None and options.contexts.paths:
        _parametrize(metafunc, marker.args[0], _contexts_of_paths(options.contexts))


def _readable(file: ArtefactFile, read: Callable[[], list[SourceList]]) -> list[SourceList]:
    """What is read of a file; where that is one of several, an unreadable one is a list as well."""
    from harness.models.artefact_sources import WholeFile

    try:
        return read()
    except ConfigError as error:
        if len(file.config.args) < 2:
            raise
        return [WholeFile.unreadable(file.path.name, error)]


@cache
def _whole_files(path: Path, engine: Engine, asked: ContextsAsked) -> list[SourceList]:
    """What an engine other than the probe is to run of a file. Raises ConfigError."""
    from harness.plugin.own_cases import WHOLE_FILES

    artefact, asked = _opened(path, asked)
    path = artefact.path
    if asked.numbers or asked.residencies:
        all_at_once = f"{engine.title} loads what a file holds, all at once"
        problem = f"{all_at_once}: it takes no number of contexts and no residency"
        raise ConfigError(problem, file=path)
    wholes = WHOLE_FILES[engine.name](path, _given(path, engine, asked))
    return [_as_packed(one, artefact) for one in wholes]


def _opened(path: Path, asked: ContextsAsked) -> tuple[Artefact, ContextsAsked]:
    """What a file holds. Of a bundle of a model that is the model, with what was asked of it.

    Raises ConfigError and InfraError.
    """
    from harness.containers.extract import unpacked_model
    from harness.containers.open import open_artefact
    from harness.core.cache import cache_root

    packed = open_artefact(path)
    if packed.pieces or not packed.facts.get("model"):
        return packed, asked
    model, plan = unpacked_model(packed, cache_root()), packed.facts["plan"]
    artefact = open_artefact(model)
    artefact = replace(artefact, facts={**packed.facts, **artefact.facts})
    if plan is None:
        return artefact, asked
    root = model.parents[len(Path(packed.facts["model"][0][0].file).parts) - 1]
    folders = {name: root / name for name in ("inputs", "expected") if (root / name).is_dir()}
    limits = ("tolerance", "graph", "max_error", "min_cosine", "min_sqnr")
    then = folders | {name: getattr(plan, name) for name in limits}
    then["fallback"] = "allow" if plan.fallback else "refuse"
    unsaid = {name: value for name, value in then.items() if getattr(asked, name) in _UNSAID}
    return artefact, replace(asked, **unsaid)


def _as_packed(sources: SourceList, artefact: Artefact) -> SourceList:
    """These sources, with what a bundle says of how they were run."""
    plan, expects = (artefact.facts.get(name) for name in ("plan", "expects"))
    sources.plan, sources.expects = plan or sources.plan, expects or sources.expects
    return sources


def _given(path: Path, engine: Engine, asked: ContextsAsked) -> Given:
    from harness.models.artefact_sources import Given
    from harness.models.source import ClosenessAsked

    allowed = asked.fallback == "allow"
    if allowed and engine != ORT:
        problem = f"{engine.title} leaves nothing to the CPU that is not left to it in the file"
        choices = ["--engine ort", "--fallback refuse"]
        raise ConfigError(problem, file=path, field="--fallback", choices=choices)
    for field, folder in (("inputs", asked.inputs), ("expected", asked.expected)):
        if folder is not None and not folder.exists():
            problem = f"there is no {folder.absolute()}, the folder with their files"
            raise ConfigError(problem, file=path, field=field)
    if asked.expected is not None and asked.inputs is None:
        _log.warning("%s: %s", path.name, _MADE_UP)
    closeness = ClosenessAsked(asked.max_error, asked.min_cosine, asked.min_sqnr, asked.reference)
    return Given(asked.inputs, asked.expected, asked.tolerance, asked.graph, allowed, closeness)


def refuse_wrong_files(
    items: Sequence[pytest.Item], needs: Sequence[Need], workbench: Workbench
) -> None:
    """Raises what is wrong with the files of a user's if no case of the run can be run with them.

    Else each wrong one has a record of its own.
    """
    own = [item for item in items if item.getparent(ArtefactFile) is not None]
    if len(own) == len(items) == len(needs):
        pairs = zip(items, needs, strict=True)
        wrong = [unreadable(item) or workbench.wrong_input(need) for item, need in pairs]
        if (error := wrong[0]) is not None and all(wrong):
            raise error


def unreadable(item: pytest.Item) -> ConfigError | None:
    """Why nothing can be taken from the file of a case."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next(filter(None, (getattr(one, "wrong", None) for one in given)), None)


def left_out(items: Sequence[pytest.Item], options: Options) -> list[pytest.Item]:
    """The device tests that take no contexts, where the user's are given to those that do."""
    if not options.contexts.paths:
        return []
    return [
        item
        for item in items
        if item.get_closest_marker("device")
        and not item.get_closest_marker(TAKES)
        and item.getparent(ArtefactFile) is None
    ]


def _parametrize(metafunc: pytest.Metafunc, names: str, values: Sequence[object]) -> None:
    """Has a test run with these values of parameters, whatever it says of them itself."""
    marks = metafunc.definition.own_markers
    ids = str if "," not in names else None
    new = pytest.mark.parametrize(names, values, ids=ids).mark
    for at, mark in enumerate(marks):
        if mark.name == "parametrize" and mark.args[0] == names:
            marks[at] = new
            return
    marks.append(new)


@cache
def _contexts_of_paths(asked: ContextsAsked) -> list[SourceList]:
    from harness.models.artefact_sources import artefacts_with_contexts

    return [_contexts_in(artefact, asked) for artefact in artefacts_with_contexts(asked.paths)]


@cache
def _contexts_of_file(path: Path, asked: ContextsAsked) -> SourceList:
    artefact, asked = _opened(path, asked)
    return _as_packed(_contexts_in(artefact, asked), artefact)


def _contexts_in(artefact: Artefact, asked: ContextsAsked) -> SourceList:
    """The contexts of an artefact. Raises ConfigError and InfraError."""
    from harness.core.cache import cache_root
    from harness.models.artefact_sources import contexts_of

    require_name(artefact.path)
    given = _given(artefact.path, QNN, asked)
    if artefact.kind != "onnx":
        packed = any(piece.expected for piece in artefact.pieces)
        (given.require_no_original if packed else given.require_expected)(artefact.path)
    return contexts_of(artefact, cache_root(), given)


def require_name(path: Path) -> None:
    """Raises ConfigError for a file that no case can be called by."""
    if any(text in str(path) for text in _UNNAMED):
        problem = "a path with [ or :: cannot stand in the name of a case: call it otherwise"
        raise ConfigError(problem, file=path)


def _ways(options: Options, own: SourceList) -> list[tuple[str, int]]:
    """Residency and number of contexts of each case of a file with these contexts.

    A single case (`--only-case`) is run as its name says. Raises ConfigError.
    """
    from harness.models.source import RESIDENCIES

    named = named_way(options.only_case or "")
    if named is not None:
        return [named]
    numbers = context_numbers(options.contexts.numbers, "--contexts-number") or [len(own)]
    samples = any(getattr(one, "sample", "") for one in own)  # no need of them all at once
    usual = (own.plan.residency if own.plan else "sequential" if samples else "resident",)
    residencies = list(dict.fromkeys(options.contexts.residencies or usual))
    for residency in residencies:
        if residency not in RESIDENCIES:
            problem = f"no residency {residency!r}"
            raise ConfigError(problem, field="--contexts-residency", choices=RESIDENCIES)
    return [(residency, number) for residency in residencies for number in numbers]


def named_way(case: str) -> tuple[Residency, int] | None:
    """Residency and number of contexts that the name of a case ends with, if it does."""
    found = _RUN.search(case)
    return (cast("Residency", found[1]), int(found[2])) if found else None


def context_numbers(given: Sequence[str], option: str) -> list[int]:
    """The numbers of contexts that an option says, each once: twice would be two cases of one name.

    Raises ConfigError for what is no number, naming the option.
    """
    for text in given:
        if not (text.isdecimal() and len(text) < 7 and int(text)):
            problem = f"{text[:40]!r} is no number of contexts: 1 to 999999"
            raise ConfigError(problem, field=option)
    return list(dict.fromkeys(map(int, given)))
