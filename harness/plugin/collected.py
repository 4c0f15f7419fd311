"""What tests there are, their markers, and which words of a command line choose them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from itertools import compress, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import harness
from harness.core.axes import AXES, EXECUTORCH
from harness.core.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.plugin.options import OPTIONS, WITH_VALUE, in_long_forms, with_our_options
from harness.plugin.own_contexts import TAKES, ArtefactFile, choose_contexts, suite_of
from harness.plugin.pytest_internals import marks_asked
from harness.plugin.terminal import NO_DEVICE, NO_LAB
from harness.results.case_names import NO_PLACEMENT

if TYPE_CHECKING:
    from harness.bench.placement import Need, Placement
    from harness.models.context_file import Files
    from harness.plugin.asked import Selection
    from harness.plugin.options import ContextsAsked
    from harness.results.known_issues import CollectedTests
    from harness.results.record import Asked


MARKERS: Final = (
    "device(backend, qnn, engine, compilers, htp_arch, soc, target, simulated, tags): runs on "
    "devices of the lab that satisfy every keyword given; with ONNX Runtime if engine is ort, "
    "with contexts of all compilers if compilers is all",
    "timed: waits until its device is cool and idle (`gate` in devices.yaml)",
    "takes_contexts(parameter): with --contexts, that parameter is the contexts of a file",
)
"""What tests may be marked with, and what that means."""

MISTAKE = pytest.StashKey[ConfigError]()
"""What is wrong with how a test is marked."""

_DEVICE: Final = "device"
_BENCH: Final = "bench"
_LATE: Final = (
    "is marked `device` by a parameter or a hook, which is too late: mark the function, its class "
    "or its module"
)
_OWN: Final = "(one of your own has to be in pytest's setting `markers`)"


def takes_bench(fixtures: Collection[str]) -> bool:
    """Whether a test takes our fixture: somebody may have one of their own of either name."""
    return _BENCH in fixtures and "placement" in fixtures


def _names(lines: Iterable[str]) -> list[str]:
    return [line.partition(":")[0].partition("(")[0].strip() for line in lines]


def note_mistakes(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Takes note of each test that is no device test and was to be one, or has a wrong requirement.

    It is an error of that test, which `-m device` takes. pytest only warns of a marker that nobody
    knows: the test would run without a device, or on each. A registered marker is somebody's own.
    """
    known = frozenset(_names(config.getini("markers")))
    for item in items:
        names = dict.fromkeys(mark.name for mark in item.iter_markers())
        unknown, marked = [name for name in names if name not in known], _DEVICE in names
        problem = mistake(unknown, marked=marked, fixtures=getattr(item, "fixturenames", ()))
        if problem is None and marked and _is_marked_late(item):
            problem = _LATE
        # a record would have the parameter where readers look for the axis
        taken = [name for name in parameters_of(item) if name in AXES] if marked else []
        if problem is None and taken:
            problem = f"has the parameter {taken[0]!r}, called like an axis: rename it"
        wrong = getattr(getattr(item, "callspec", None), "params", {}).get("placement")
        if problem is not None:
            file, line, _ = item.location
            name = getattr(item, "originalname", item.name)
            wrong = ConfigError(f"{name} {problem}", file=file, line=(line or 0) + 1)
        if isinstance(wrong, ConfigError):
            item.stash[MISTAKE] = wrong
            item.add_marker(_DEVICE)


def _is_marked_late(item: pytest.Item) -> bool:
    mark, test = item.get_closest_marker(_DEVICE), getattr(item, "obj", None)
    of_parents = item.parent.iter_markers(_DEVICE) if item.parent is not None else ()
    return None not in (mark, test) and mark not in [*getattr(test, "pytestmark", ()), *of_parents]


def mistake(unknown: Collection[str], *, marked: bool, fixtures: Collection[str]) -> str | None:
    """What is wrong with the markers of a test, of which some are `unknown` (pure)."""
    asks = takes_bench(fixtures)
    ours = _names(MARKERS) if asks else [_DEVICE]
    for name in unknown:
        meant = next((one for one in ours if _is_slip_of(one, name.casefold())), "")
        guess = f", did you mean {meant!r}?" if meant else ""
        if asks and not marked:
            from harness.core.yaml_document import did_you_mean

            guess = guess or did_you_mean(name, [_DEVICE])
        if guess:
            return f"has the unknown marker {name!r}{guess} {_OWN}"
    if asks and not marked:
        return "takes the fixture `bench`: mark it with @pytest.mark.device"
    if marked and not asks:
        slip = next((f", not {one!r}" for one in fixtures if _is_slip_of(_BENCH, one)), "")
        return f"is marked `device` and must take the fixture `bench`{slip}"
    return None


def _is_slip_of(meant: str, word: str) -> bool:
    ours, theirs = _less_a_letter(meant), _less_a_letter(word)
    wrong = any(one == other for one, other in zip(ours, theirs, strict=False))
    return sorted(word) == sorted(meant) or word in ours or meant in theirs or wrong


def _less_a_letter(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


_NO_CASE: Final = {one.name: one for one in OPTIONS if not one.chooses}
# what a command line says besides which cases it means, of pytest's own options and of plug-ins
_SHORT: Final = ("-n", "-p", "-c", "-r", "-W")
_SHORT_FLAGS: Final = re.compile("-[dlqsvx]+")
"""Flags of one letter, also several in one word (`-xvs`)."""
# these have more options than are listed here, and some whose value may be left out
_TOLD_TO: Final = ("--cov", "--log-", "--json-report", "--reruns", "--metadata")
_MARK: Final = re.compile(r"[\w:+\-.\[\]/\\]+")
_MOST_MARKS: Final = 10
_VALUE_MAY_FOLLOW: Final = ("--cov", "--debug")
SAYS_NO_CASE: Final = frozenset(
    {
        *(name for name, one in _NO_CASE.items() if one.takes_value),
        *("--junitxml", "--junit-xml", "--junitprefix", "--junit-prefix", "--durations"),
        *("--durations-min", "--color", "--code-highlight", "--tb", "--show-capture", "--capture"),
        *("--verbosity", "--maxfail", "--rootdir", "--basetemp", "--config-file", "--pdbcls"),
        *("--pythonwarnings", "--max-warnings", "--report-chars", "--pastebin", *_SHORT),
        *("--dist", "--numprocesses", "--maxprocesses", "--max-worker-restart", "--maxschedchunk"),
        *("--timeout", "--timeout-method", "--session-timeout", "--reruns", "--reruns-delay"),
        *("--only-rerun", "--rerun-except", "--html", "--css", "--report-log"),
        *("--alluredir", "--allure-link-pattern", "--json-report-file", "--cov-report"),
        *("--cov-config", "--cov-fail-under", "--cov-context", "--cov-precision", "--log-level"),
        *("--log-format", "--log-date-format", "--log-cli-level", "--log-cli-format"),
        *("--log-file", "--log-file-mode", "--log-file-level", "--log-file-format"),
    }
)
FLAGS: Final = frozenset(
    {
        *(name for name, one in _NO_CASE.items() if not one.takes_value),
        *("--json", "--showlocals", "--no-showlocals", "--exitfirst", "--full-trace", "--pdb"),
        *("--no-header", "--no-summary", "--quiet", "--verbose", "--no-fold-skipped", "--xfail-tb"),
        *("--disable-warnings", "--disable-pytest-warnings", "--force-short-summary"),
        *("--strict", "--strict-markers", "--strict-config", "--setup-show", "--cache-clear"),
        *("--failed-first", "--ff", "--new-first", "--nf", "--loadscope-reorder"),
        *("--no-loadscope-reorder", "--self-contained-html", "--clean-alluredir"),
        *("--allure-no-capture", "--json-report", "--cov-append", "--cov-branch", "--cov-reset"),
        *("--no-cov", "--no-cov-on-fail"),
    }
)


def asks_for_devices(config: pytest.Config) -> bool:
    """Whether a run is about devices, as far as that is known before anything is collected."""
    return wants_devices(config.getoption("markexpr", ""))


def asks_for_devices_alone(config: pytest.Config) -> bool:
    """Whether `-m` takes no other tests."""
    return is_of_devices(config.getoption("markexpr", ""))


def wants_devices(expression: str) -> bool:
    """Whether `-m` takes some test because it is a device test (pure)."""
    return (True, False) in _taken(expression)


def is_of_devices(expression: str) -> bool:
    """Whether `-m` takes device tests alone: `device and smoke and not slow` (pure)."""
    return _taken(expression) in ({(True, False)}, {(True, False), (False, False)})


def _taken(expression: str) -> set[tuple[bool, bool]]:
    """Whether a device test is taken, and the same test if it were none.

    It has a pair for each way in which the test's other marks make a difference.
    """
    if (asked := marks_asked(expression)) is None:
        return set()
    others = sorted({*_MARK.findall(expression)} - {"device"})[:_MOST_MARKS]
    found: set[tuple[bool, bool]] = set()
    for has in product((False, True), repeat=len(others)):
        marks = {*compress(others, has)}
        taken, otherwise = (partial(_is_in, marks | own) for own in ({"device"}, set[str]()))
        found.add((asked(taken), asked(otherwise)))
    return found


def _is_in(marks: Set[str], name: str, /, **_more: object) -> bool:
    return name in marks


def selection(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that choose cases, in one order.

    Versions choose none: with other versions the cases are the same.
    """
    return tuple(sorted(_words(deque(in_long_forms(command[1:])))))


def _words(words: deque[str]) -> Iterator[str]:
    while words:
        word = words.popleft()
        name, equals, value = word.partition("=")
        short = len(word) == 2 and word[0] == "-"
        if equals and name.startswith(_TOLD_TO):
            continue
        if word in _VALUE_MAY_FOLLOW:
            if words and not words[0].startswith("-"):
                words.popleft()
            continue
        if word in FLAGS or _SHORT_FLAGS.fullmatch(word) or (word[:2] in _SHORT and len(word) > 2):
            continue  # as in -nauto
        if short or name in WITH_VALUE or name in SAYS_NO_CASE:
            value = value if equals or not words else words.popleft()
            if name not in SAYS_NO_CASE:
                yield f"{name}={value}"
        else:
            yield word


_WORKER_SAYS = "qnn_harness_collected"
_NO_LAB = (
    f"{NO_LAB}: --device sim-v73 runs it on a device that this computer simulates; "
    "qnn-harness init writes one of the devices that are attached"
)


class Collected:
    """Takes note of all collected device tests; from xdist's workers by what they say at the end.

    If single tests were named, the others were not looked for, and nothing is known of tests.
    Nobody asks if nothing is run.
    """

    def __init__(self, asked: Selection) -> None:
        self._asked = asked
        self._tests: dict[tuple[str, str], dict[str, dict[str, object]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Comes before -k and -m choose."""
        note_mistakes(config, items)
        options = self._asked.options
        own = options.contexts.paths  # suites have others than they are written with
        if not options.known_issues or own or any("::" in one for one in config.args):
            return
        if config.option.collectonly or not any(map(placement_of, items)):
            return
        from harness.plugin.axes import own_axes
        from harness.results.known_issues import CollectedTests

        collected = CollectedTests(tests=self._tests)
        for item in items:
            if item.get_closest_marker("device") is not None:
                test = getattr(item, "originalname", item.name)
                collected.add(suite_of(item), test, own_axes(parameters_of(item)))
            else:
                collected.add(suite_of(item), "", {})  # that a file has no such test is known, too

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker tells the process that distributes."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_WORKER_SAYS] = [[*names, axes] for names, axes in self._tests.items()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker told; all of them collect the same."""
        for suite, test, axes in getattr(node, "workeroutput", {}).get(_WORKER_SAYS, ()):
            self._tests[suite, test] = axes

    def tests(self) -> CollectedTests:
        """All that is known."""
        from harness.results.known_issues import CollectedTests

        devices = self._asked.lab.devices
        file = self._asked.options.known_issues
        beside = file.parent.glob("**/test_*.py") if self._tests and file is not None else ()
        names = (path.stem.removeprefix("test_") for path in beside if not _is_foreign(path, file))
        return CollectedTests(
            tests=self._tests,
            suites=frozenset(names) if self._tests else None,
            devices=frozenset(device.name for device in devices),
            socs=frozenset(device.soc for device in devices if device.soc),
        )


def _is_foreign(test: Path, issues: Path | None) -> bool:
    below = test.parts[len(issues.parent.parts) :] if issues is not None else test.parts
    return any(part.startswith(".") or part == "site-packages" for part in below)


def parameters_of(item: pytest.Item) -> Mapping[str, Any]:
    """The values of a test's parameters by name, its placement among them."""
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def placement_of(item: pytest.Item) -> Placement | None:
    """Where a case runs, and with what; None for any other test."""
    found = parameters_of(item).get("placement")
    return found if hasattr(found, "compiler") and MISTAKE not in item.stash else None


def placements_for(
    metafunc: pytest.Metafunc, asked: Selection
) -> tuple[Sequence[object], HarnessError | None]:
    """Where a test runs, and what keeps the run from its device tests.

    Without a lab that is nothing, unless device tests, a device or a lab were asked for: who runs
    other tests, or looks for them, needs none. What is wrong with the marker stands instead of a
    placement.
    """
    from harness.lab.matching import required
    from harness.plugin.axes import made_by, takes_compiled

    marker = metafunc.definition.get_closest_marker("device")
    if marker is None:  # an error of the test
        return [pytest.param(None, id=NO_PLACEMENT)], None
    requirements = dict(marker.kwargs)
    path, line, _ = metafunc.definition.location
    if marker.args:
        told = f'takes keywords, as in device(backend="htp"), and not {marker.args[0]!r:.60}'
        name = metafunc.definition.name
        wrong = ConfigError(f"the marker of {name} {told}", file=path, line=(line or 0) + 1)
        return [pytest.param(wrong, id=NO_PLACEMENT)], None
    try:
        required(requirements)  # also where there is no device to ask
        choose_contexts(metafunc, asked.options)
        given = [mark.args[1] for mark in metafunc.definition.iter_markers("parametrize")]
        own = asked.options.executorch is not None and requirements.get("engine") == EXECUTORCH.name
        values, reasons = asked.placements(
            requirements,
            compiled=takes_compiled(given),
            made_by=made_by(given) if own else (),
        )
        return values or [_nowhere(f"{NO_DEVICE}: {'; '.join(reasons)}")], None
    except NoLabError as error:
        get = metafunc.config.getoption
        if asks_for_devices(metafunc.config) or get("--qnn-device") or get("--qnn-lab"):
            return (), error
        above = asked.lab_above
        why = f"{NO_LAB}, but {above}" if above else _NO_LAB
        return [_nowhere(with_our_options(metafunc.config, why))], None
    except ConfigError as error:
        if error.field in requirements and error.file is None:
            return [pytest.param(_in_marker(error, metafunc), id=NO_PLACEMENT)], None
        return (), error
    except HarnessError as error:
        return (), error


def _in_marker(error: ConfigError, metafunc: pytest.Metafunc) -> ConfigError:
    path, line, _ = metafunc.definition.location
    return ConfigError(
        error.problem,
        file=path,
        line=(line or 0) + 1,
        field=f"{error.field} in the marker of {metafunc.definition.name}",
        choices=error.choices,
    )


def _nowhere(why: str) -> Any:
    return pytest.param(None, id=NO_PLACEMENT, marks=pytest.mark.skip(reason=why))


def need_of(item: pytest.Item) -> Need | None:
    """What a case wants made ready; None for any other test."""
    placement = placement_of(item)
    if placement is None:
        return None
    from harness.bench.placement import Need
    from harness.plugin.axes import files_of, sources_of

    given = parameters_of(item)
    return Need(placement, sources_of(given, item.path.parent), files_of(given))


_OF_MODELS: Final = "inputs and expected outputs of models"


def test_code(items: Sequence[pytest.Item], asked: Selection) -> dict[str, str]:
    """The SHA-256 of each file that says what cases of these names do, by a name for it.

    These are test modules, what was imported from beside or below them, conftests, files of models
    and known issues. Of inputs and expected outputs there is one for each folder, and one of all
    that models are given: files of the cache, which are called by what they hold. A checkout may
    lie anywhere: modules are called as from the folder that they have in common, other files by
    their own name. What cannot be read is left out: its case says so.
    """
    from harness.core.cache import cache_root
    from harness.core.whole_file import sha256_of

    tests = {item.path for item in items}
    base = os.path.commonpath([path.parent for path in tests])
    found: dict[str, list[str]] = {}
    for path in _modules(tests):
        with contextlib.suppress(OSError):
            name = Path(os.path.relpath(path, base)).as_posix()
            found.setdefault(name, []).append(sha256_of(path))
    known = [asked.options.known_issues] if asked.options.known_issues else []
    others = {path: _digest(path) for path in known}
    for item in items:
        others |= _files_taken(item)
    for path, digest in others.items():
        if digest is not None:
            name = _OF_MODELS if path.is_relative_to(cache_root()) else path.name
            found.setdefault(name, []).append(digest)
    return {name: _one_digest(digests) for name, digests in found.items()}


def files_sha256(item: pytest.Item) -> str | None:
    """The SHA-256 of the file that a case takes, as it is now; of several, of what theirs are.

    That of a model is of its weights, too. It tells runs of a file from those of another that was
    put in its place, however a case ended. None where it takes no file, or none can be read.
    """
    digests = set(filter(None, _files_taken(item).values()))
    return _one_digest([*digests]) if digests else None


def _files_taken(item: pytest.Item) -> dict[Path, str | None]:
    """The files and folders of a user's that a case takes, with the SHA-256 of each."""
    from harness.models.artefact_sources import WholeFile
    from harness.models.context_file import ContextFile
    from harness.models.onnx_model import OnnxModel
    from harness.plugin.axes import files_of, sources_of

    given = parameters_of(item)
    files: set[Files] = set(files_of(given))
    models = {}
    for whole in given.values():
        if isinstance(whole, WholeFile):
            files.update((whole.given.inputs, whole.given.expected))
    for one in sources_of(given, item.path.parent):
        if isinstance(one, ContextFile):
            files.update((one.path, one.inputs, one.expected))
        elif isinstance(one, OnnxModel):
            models[one.path] = one.digest
            files.update((*one.read, *one.wanted))
    if item.getparent(ArtefactFile) is not None:
        files.add(item.path)
    paths = {path for one in files for path in (one if isinstance(one, tuple) else [one])}
    return {path: _digest(path) for path in paths - models.keys() if path} | models


def asked_of(item: pytest.Item, contexts: ContextsAsked) -> Asked | None:
    """What a run asks of the user's file that a test is run with; None if there is none."""
    takes = contexts.paths and item.get_closest_marker(TAKES) is not None
    return _asked(contexts) if takes or item.getparent(ArtefactFile) is not None else None


@cache
def _asked(contexts: ContextsAsked) -> Asked | None:
    from harness.results.record import Asked

    given = {field: getattr(contexts, field) for field in Asked.model_fields}
    given["tolerance"] = contexts.tolerance or None
    given["fallback"] = "allow" if contexts.fallback == "allow" else None
    # what cannot be read is told by its path: the case says so
    given |= {
        field: _digest(path) or str(path) for field, path in given.items() if isinstance(path, Path)
    }
    asked = Asked(**given)
    return asked if asked != Asked() else None


def _digest(path: Path) -> str | None:
    """Of a file, or of all files in a folder with their names; None if it cannot be read."""
    from harness.core.cache import cache_root
    from harness.core.verified_folder import HashCache

    is_folder = path.is_dir()
    files = {"": path}
    if is_folder:
        files = {one.relative_to(path).as_posix(): one for one in path.rglob("*") if one.is_file()}
    try:
        hashed = HashCache(cache_root(), path if is_folder else path.parent).hashed(files)
    except InfraError:
        return None
    if not is_folder:
        return hashed[""].sha256
    return _one_digest([f"{name} {one.sha256}" for name, one in hashed.items()])


def _modules(tests: set[Path]) -> set[Path]:
    """Files of tests, with what else of their folders is imported, and the conftests above.

    Not what is installed: that is told by its version.
    """
    folders = {path.parent for path in tests}
    above = {folder for path in tests for folder in path.parents}
    installed = {Path(sys.prefix), Path(harness.__file__).parent}
    found = set(tests)
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        path = Path(file) if isinstance(file, str) else Path()
        beside = path.suffix == ".py" and not folders.isdisjoint(path.parents)
        if (
            beside or (path.name == "conftest.py" and path.parent in above)
        ) and installed.isdisjoint(path.parents):
            found.add(path)
    return found


def _one_digest(digests: list[str]) -> str:
    if len(digests) == 1 and len(digests[0]) == 64:
        return digests[0]
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()


def leave_out(
    config: pytest.Config, items: list[pytest.Item], others: Sequence[pytest.Item]
) -> None:
    """Takes tests out of those that pytest runs, and tells who counts them."""
    if others:
        gone = set(others)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=others)
