"""A user's own contexts: passed to suites that take some, or run as cases of their file.

`pytest --model model.pte` runs every test marked `user_contexts` on the contexts in that file,
instead of its own parameters. `pytest model.pte` collects the file itself, as if it were a module
with a test of `builtin_tests.py`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from harness.core.context_options import parsed_options
from harness.core.engine import DEFAULT_ENGINE, ENGINES, Engine, find_engine
from harness.core.errors import ConfigError
from harness.plugin.options import ContextOptions, Options, rounds_option, value_of
from harness.plugin.pytest_internals import FileOfTests
from harness.results.case_names import function_of, split_node_id

if TYPE_CHECKING:
    from harness.bench.case_placement import Need
    from harness.bench.run_preparation import Workbench
    from harness.containers.artefact import Artefact
    from harness.models.artefact_sources import ModelOptions
    from harness.models.contexts import SourceList

_log = logging.getLogger(__name__)
_Name = TypeVar("_Name", bound=str)

USER_CONTEXTS: Final = "user_contexts"
REMEDY_TEST: Final = "test_remedy"
"""The test that loads the contexts of a file by one remedy."""

_UNNAMED: Final = ("[", "::")
_DEFAULTS: Final = (None, 0.0, "refuse")
_NO_FILE: Final = (
    "no selected test runs a file; name one (`pytest FILE`), or pass --model FILE to tests marked "
    "`user_contexts`"
)
_MADE_UP: Final = (
    "expected outputs are compared with outputs for generated inputs; pass inputs with --inputs DIR"
)


def isolated_arguments(root: Path) -> list[str]:
    """Return pytest's arguments for a file of somebody else, beside which no program is run."""
    return ["-c", os.devnull, "--noconftest", f"--rootdir={root}"]


def is_of_a_file(case: str) -> bool:
    """Return whether a case belongs to a user's file instead of a test in Python (pure)."""
    file, _, test = split_node_id(case)[0].partition("::")
    tests = (REMEDY_TEST, *(engine.test for engine in ENGINES.values()))
    return not file.endswith(".py") and test in tests


class ArtefactFile(FileOfTests):
    """A user's file that was named on pytest's command line."""

    @property
    def tries_remedies(self) -> bool:
        only_case = value_of(self.config, "qnn_only_case")
        if only_case is not None:
            return function_of(only_case) == REMEDY_TEST
        return bool(value_of(self.config, "qnn_remedies"))

    @property
    def engine(self) -> Engine:
        """The engine that executes it; with `qnn_only_case` the one in the name of the case."""
        only_case = value_of(self.config, "qnn_only_case")
        if only_case is not None:
            test = function_of(only_case)
            named = (engine for engine in ENGINES.values() if engine.test == test)
            return next(named, ENGINES[DEFAULT_ENGINE])
        name = DEFAULT_ENGINE if self.tries_remedies else self.config.getoption("--qnn-engine")
        return find_engine(name) if name is not None else default_engine(self.path)

    def module_of_tests(self) -> ModuleType:
        from harness.plugin.builtin_tests import test_of, test_remedy

        module = ModuleType(self.path.name)
        test = test_remedy if self.tries_remedies else test_of(self.engine)
        setattr(module, test.__name__, test)
        return module


@cache
def default_engine(path: Path) -> Engine:
    """Return the engine of a file by default: a bundle's, one that compiles it, else the probe."""
    from harness.containers.open import open_artefact

    try:
        artefact = open_artefact(path)
    except ConfigError:
        return ENGINES[DEFAULT_ENGINE]  # its case reports the error
    if artefact.pieces:
        return ENGINES[DEFAULT_ENGINE]
    if artefact.facts.get("model") and (plan := artefact.facts["plan"]):
        return ENGINES[plan.engine]
    usual = (engine for engine in ENGINES.values() if artefact.kind in engine.default_for)
    return next(usual, ENGINES[DEFAULT_ENGINE])


def collect_artefact(file: Path, parent: pytest.Collector) -> ArtefactFile | None:
    """Collect a file if it was named on the command line and may contain contexts.

    Its name in node ids is its path relative to the root folder; pytest has no name for a file
    outside of that.
    """
    if file.suffix == ".py" or not parent.session.isinitpath(file):
        return None
    from harness.containers.open import SUFFIXES, UnknownFileError, open_artefact

    try:
        if file.suffix.lower() not in SUFFIXES:
            open_artefact(file)
    except UnknownFileError:
        return None
    except ConfigError:
        pass  # its case reports the error
    name = Path(os.path.relpath(file, parent.config.rootpath)).as_posix()
    collector: ArtefactFile = ArtefactFile.from_parent(parent, path=file, nodeid=name)
    return collector


def suite_of(item: pytest.Item) -> str:
    """Return the name of a test's file in records."""
    module = item.getparent(ArtefactFile)
    return module.engine.suite if module is not None else item.path.stem.removeprefix("test_")


def choose_contexts(metafunc: pytest.Metafunc, options: Options) -> None:
    """Parametrize a test with the user's contexts instead of its own, if there are any for it.

    If one of several files is invalid, its case reports that. Raises ConfigError if the only file
    is, or if an option does not match it.
    """
    file = metafunc.definition.getparent(ArtefactFile)
    marker = metafunc.definition.get_closest_marker(USER_CONTEXTS)
    if file is not None and not file.engine.takes_contexts:
        wholes = _read_or_note(file, lambda: _whole_files(file.path, file.engine, options.contexts))
        for whole in wholes:
            whole.rounds = rounds_option(options.contexts)
        _parametrize(metafunc, "workload", wholes)
    elif file is not None:
        (contexts,) = _read_or_note(file, lambda: [_contexts_of_file(file.path, options.contexts)])
        contexts.rounds = rounds_option(options.contexts, is_bundle=contexts.plan is not None)
        _parametrize(metafunc, "workload", [contexts])
        variants = _variants(options, contexts, remedies=file.tries_remedies)
        names = "remedy,contexts" if file.tries_remedies else "residency,contexts"
        _parametrize(metafunc, names, variants)
    elif marker is not None and options.contexts.paths:
        _parametrize(metafunc, marker.args[0], _contexts_of_paths(options.contexts))


def _read_or_note(file: ArtefactFile, read: Callable[[], list[SourceList]]) -> list[SourceList]:
    """Read a file; an unreadable one of several gives a list with its error."""
    from harness.models.artefact_sources import WholeFile

    try:
        return read()
    except ConfigError as error:
        if len(file.config.args) < 2:
            raise
        return [WholeFile.unreadable(file.path.name, error)]


@cache
def _whole_files(path: Path, engine: Engine, options: ContextOptions) -> list[SourceList]:
    """Return the cases of a file for an engine other than the probe. Raises ConfigError."""
    artefact, options = _open(path, options)
    path = artefact.path
    if options.numbers or options.residencies:
        problem = f"{engine.title} loads a whole file at once; leave out --copies and --residency"
        raise ConfigError(problem, file=path)
    wholes = engine.cases(path, _model_options(path, engine, options))
    return [_with_bundle(whole, artefact) for whole in wholes]


def _open(path: Path, options: ContextOptions) -> tuple[Artefact, ContextOptions]:
    """Open a file; a bundle with a model gives the model and the options it was packed with.

    Raises ConfigError and InfraError.
    """
    from harness.containers.extract import unpacked_model
    from harness.containers.open import open_artefact
    from harness.core.state_folders import cache_root

    packed = open_artefact(path)
    if packed.pieces or not packed.facts.get("model"):
        return packed, options
    model, plan = unpacked_model(packed, cache_root()), packed.facts["plan"]
    artefact = open_artefact(model)
    artefact = replace(artefact, facts={**packed.facts, **artefact.facts})
    if plan is None:
        return artefact, options
    root = model.parents[len(Path(packed.facts["model"][0][0].file).parts) - 1]
    folders = {name: root / name for name in ("inputs", "expected") if (root / name).is_dir()}
    limits = ("tolerance", "graph", "max_error", "min_cosine", "min_sqnr")
    packed_with = folders | {name: getattr(plan, name) for name in limits}
    packed_with["fallback"] = "allow" if plan.fallback else "refuse"
    unset = [name for name in packed_with if getattr(options, name) in _DEFAULTS]
    return artefact, replace(options, **{name: packed_with[name] for name in unset})


def _with_bundle(sources: SourceList, artefact: Artefact) -> SourceList:
    """Return these sources with the plan and the expected end of a bundle."""
    plan, expects = (artefact.facts.get(name) for name in ("plan", "expects"))
    sources.plan, sources.expects = plan or sources.plan, expects or sources.expects
    if plan is not None:
        sources.context_options = sources.context_options or plan.context_options
    return sources


def _model_options(path: Path, engine: Engine, options: ContextOptions) -> ModelOptions:
    from harness.models.artefact_sources import ModelOptions
    from harness.models.session_plan import ClosenessLimits

    allowed = options.fallback == "allow"
    if allowed and not engine.takes_models:
        problem = f"{engine.title} runs nodes on the CPU only if the file assigns them to it"
        able = [f"--engine {each.name}" for each in ENGINES.values() if each.takes_models]
        raise ConfigError(
            problem, file=path, field="--fallback", choices=[*able, "--fallback refuse"]
        )
    for field, folder in (("inputs", options.inputs), ("expected", options.expected)):
        if folder is not None and not folder.exists():
            problem = f"the folder {folder.absolute()} does not exist"
            raise ConfigError(problem, file=path, field=field)
    if options.expected is not None and options.inputs is None:
        _log.warning("%s: %s", path.name, _MADE_UP)
    limits = ClosenessLimits(
        options.max_error, options.min_cosine, options.min_sqnr, options.reference
    )
    loads = parsed_options(options.context_option, "--context-option")
    if loads and not engine.takes_context_options:
        problem = f"{engine.title} sets the options of contexts when it compiles a file"
        able = [f"--engine {each.name}" for each in ENGINES.values() if each.takes_context_options]
        raise ConfigError(problem, file=path, field="--context-option", choices=able)
    return ModelOptions(
        options.inputs, options.expected, options.tolerance, options.graph, allowed, limits, loads
    )


def refuse_wrong_files(
    items: Sequence[pytest.Item], needs: Sequence[Need], workbench: Workbench
) -> None:
    """Raise the first error if all files are wrong; else each has a record of its own."""
    from_files = [item for item in items if item.getparent(ArtefactFile) is not None]
    if len(from_files) == len(items) == len(needs):
        pairs = zip(items, needs, strict=True)
        wrong = [file_error(item) or workbench.wrong_input(need) for item, need in pairs]
        if (error := wrong[0]) is not None and all(wrong):
            raise error


def file_error(item: pytest.Item) -> ConfigError | None:
    """Return the error of a case's file, None if it was read."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next(filter(None, (getattr(parameter, "wrong", None) for parameter in parameters)), None)


def takes_file(item: pytest.Item, options: ContextOptions) -> bool:
    """Return whether a test runs a user's file, or contexts in one."""
    takes_contexts = item.get_closest_marker(USER_CONTEXTS) is not None
    return (bool(options.paths) and takes_contexts) or item.getparent(ArtefactFile) is not None


def tests_without_contexts(items: Sequence[pytest.Item], options: Options) -> list[pytest.Item]:
    """Return the device tests that take no contexts, if the user's are to be run.

    Raises ConfigError for an option of files if no test runs one: it would check nothing.
    """
    tests = [item for item in items if item.get_closest_marker("device")]
    others = [item for item in tests if not takes_file(item, options.contexts)]
    if tests and len(others) == len(tests) and options.for_files:
        raise ConfigError(_NO_FILE, field=options.for_files[0])
    return others if options.contexts.paths else []


def _parametrize(metafunc: pytest.Metafunc, names: str, values: Sequence[object]) -> None:
    marks = metafunc.definition.own_markers
    ids = str if "," not in names else None
    new = pytest.mark.parametrize(names, values, ids=ids).mark
    for index, mark in enumerate(marks):
        if mark.name == "parametrize" and mark.args[0] == names:
            marks[index] = new
            return
    marks.append(new)


@cache
def _contexts_of_paths(options: ContextOptions) -> list[SourceList]:
    from harness.models.artefact_sources import artefacts_with_contexts

    return [_contexts_in(artefact, options) for artefact in artefacts_with_contexts(options.paths)]


@cache
def _contexts_of_file(path: Path, options: ContextOptions) -> SourceList:
    artefact, options = _open(path, options)
    return _with_bundle(_contexts_in(artefact, options), artefact)


def _contexts_in(artefact: Artefact, options: ContextOptions) -> SourceList:
    """Return the contexts of an artefact. Raises ConfigError and InfraError."""
    from harness.core.state_folders import cache_root
    from harness.models.artefact_sources import contexts_of

    require_name(artefact.path)
    tensors = _model_options(artefact.path, ENGINES[DEFAULT_ENGINE], options)
    if artefact.kind != "onnx":
        packed = any(piece.expected for piece in artefact.pieces)
        (tensors.require_no_original if packed else tensors.require_expected)(artefact.path)
    return contexts_of(artefact, cache_root(), tensors)


def require_name(path: Path) -> None:
    """Raise ConfigError for a file whose path cannot be part of a case's name."""
    if any(text in str(path) for text in _UNNAMED):
        problem = "a path with [ or :: cannot be part of the name of a case; rename it"
        raise ConfigError(problem, file=path)


def _variants(options: Options, contexts: SourceList, *, remedies: bool) -> list[tuple[str, int]]:
    """Return residency, or remedy, and number of contexts of each case of a file.

    A single case (`qnn_only_case`) has those in its name. Raises ConfigError.
    """
    from harness.experiments.context_remedies import REMEDIES
    from harness.models.session_plan import RESIDENCIES

    choices = REMEDIES if remedies else RESIDENCIES
    if (named := named_variant(options.only_case or "", choices)) is not None:
        return [named]
    numbers = context_numbers(options.contexts.numbers, "--copies") or [len(contexts)]
    usual = (contexts.plan.residency if contexts.plan else "resident",)
    asked = options.contexts.remedies if remedies else options.contexts.residencies or usual
    for name in asked:
        if name not in choices:
            raise ConfigError(f"no remedy {name!r:.80}", field="qnn_remedies", choices=[*REMEDIES])
    return [(name, number) for name in dict.fromkeys(asked) for number in numbers]


def named_variant(case: str, names: Iterable[_Name]) -> tuple[_Name, int] | None:
    """Return one of `names` and the number of contexts that a case's name ends with, or None."""
    for name in names:
        if (match := re.search(rf"-{re.escape(name)}-(\d{{1,6}})\]?$", case)) is not None:
            return name, int(match[1])
    return None


def context_numbers(texts: Sequence[str], option: str) -> list[int]:
    """Parse numbers of contexts, each once for distinct names. Raises ConfigError."""
    for text in texts:
        if not (text.isdecimal() and len(text) < 7 and int(text)):
            problem = f"{text[:40]!r} is not a number of contexts from 1 to 999999"
            raise ConfigError(problem, field=option)
    return list(dict.fromkeys(map(int, texts)))
