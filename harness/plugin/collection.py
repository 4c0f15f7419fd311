"""Collection: device tests, their markers, and the words of a command line that select cases."""

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
from harness.core.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.core.matrix_axes import AXES
from harness.plugin.options import INI_KEYS, OPTIONS, WITH_VALUE, in_long_forms, with_our_options
from harness.plugin.pytest_internals import compile_markexpr
from harness.plugin.terminal import NO_DEVICE, NO_LAB
from harness.plugin.user_files import ArtefactFile, choose_contexts, suite_of, takes_file
from harness.probe.plan import DEFAULT_WINDOW
from harness.results.case_names import NO_PLACEMENT, named, split_node_id, without_placement

if TYPE_CHECKING:
    from harness.bench.case_placement import Need, Placement
    from harness.models.context_file import Files
    from harness.plugin.options import ContextOptions
    from harness.plugin.selection import Selection
    from harness.results.known_issues import CollectedTests
    from harness.results.record import FileOptions


MARKERS: Final = (
    "device(backend, qnn, engine, compilers, htp_arch, soc, target, simulated, tags): runs on "
    "devices of the lab that satisfy every keyword given; with ONNX Runtime if engine is ort, "
    "with contexts of all compilers if compilers is all",
    "wait_until_idle: waits until its device is cool and idle (`gate` in devices.yaml)",
    "user_contexts(parameter): with --model FILE, that parameter is the contexts of FILE",
)
"""The markers of tests, with their help."""

MISTAKE = pytest.StashKey[ConfigError]()
"""The error in the markers of a test."""

_DEVICE: Final = "device"
_BENCH: Final = "bench"
_UNMARKED: Final = (
    "uses the fixture `bench`, but has no marker; add @pytest.mark.device to the test, its class "
    "or its module (in a pytest.param or a hook it comes too late)"
)


def takes_bench(fixtures: Collection[str]) -> bool:
    """Return whether a test uses our `bench`, and not another fixture of that name."""
    return _BENCH in fixtures and "placement" in fixtures


def mistake_in(item: pytest.Item, problem: str, **more: Any) -> ConfigError:
    """Return the error for a mistake in a test."""
    file, line, _ = item.location
    return ConfigError(problem, file=file, line=(line or 0) + 1, **more)


def note_mistakes(items: Iterable[pytest.Item]) -> None:
    """Mark each test that should be a device test but is not, or has a wrong requirement.

    Such a test fails with the error, and `-m device` selects it.
    """
    for item in items:
        is_marked = item.get_closest_marker(_DEVICE) is not None
        has_bench, problem = takes_bench(getattr(item, "fixturenames", ())), None
        wrong = parameters_of(item).get("placement")
        # in a record the parameter would replace the axis
        reserved = [name for name in parameters_of(item) if name in AXES]
        if is_marked and not has_bench:
            problem = "is marked `device`, but does not use the fixture `bench`; add it"
        elif has_bench and wrong is None and item.get_closest_marker("skip") is None:
            problem = _UNMARKED
        elif is_marked and reserved:
            problem = f"has a parameter with the reserved name {reserved[0]!r}; rename it"
        if problem is not None:
            wrong = mistake_in(item, f"{getattr(item, 'originalname', item.name)} {problem}")
        if isinstance(wrong, ConfigError):
            item.stash[MISTAKE] = wrong
            item.add_marker(_DEVICE)


_SHORT: Final = ("-n", "-p", "-c", "-r", "-W")
_SHORT_FLAGS: Final = re.compile("-[dlqsvx]+")
"""Flags of one letter, also several in one word (`-xvs`)."""
# prefixes of plug-ins with more options than are listed, some with an optional value
_PREFIXES: Final = ("--cov", "--log-", "--json-report", "--reruns", "--metadata")
_MARK: Final = re.compile(r"[\w:+\-.\[\]/\\]+")
_MOST_MARKS: Final = 10
_INI: Final = ("-o", "--override-ini")
_VALUE_MAY_FOLLOW: Final = ("--cov", "--debug")
_LISTED: Final = [
    *Path(__file__).with_name("unrelated_options.txt").read_text("ascii").splitlines()[1:],
    *(option.name + "=" * option.takes_value for option in OPTIONS if not option.chooses),
    *(key.short + "=" for key in INI_KEYS.values() if not key.chooses),  # as `run` spells them
]
UNRELATED_OPTIONS: Final = {name[:-1] for name in _LISTED if name.endswith("=")} | {*_SHORT}
"""Options that do not select cases and take a value."""
FLAGS: Final = {name for name in _LISTED if not name.endswith("=")}
"""Options that do not select cases and take none."""


def asks_for_devices(config: pytest.Config, *, alone: bool = False) -> bool:
    """Return whether `-m` selects device tests, or these `alone`, before any is collected."""
    return selects_devices(config.getoption("markexpr", ""), alone=alone)


def selects_devices(expression: str, *, alone: bool = False) -> bool:
    """Return whether `-m` selects tests because they are device tests, or these `alone` (pure).

    It is evaluated for a test with the mark `device` and without it, for all combinations of the
    other marks in it.
    """
    if (evaluate := compile_markexpr(expression)) is None:
        return False
    others = sorted({*_MARK.findall(expression)} - {"device"})[:_MOST_MARKS]
    pairs: set[tuple[bool, bool]] = set()
    for chosen in product((False, True), repeat=len(others)):
        marks = {*compress(others, chosen)}
        as_device, as_other = (partial(_is_in, marks | extra) for extra in ({"device"}, set[str]()))
        pairs.add((evaluate(as_device), evaluate(as_other)))
    return (True, False) in pairs and not (alone and any(other for _, other in pairs))


def _is_in(marks: Set[str], name: str, /, **_more: object) -> bool:
    return name in marks


def selection(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line that select cases, sorted.

    Versions do not: with other versions the cases are the same.
    """
    return tuple(sorted(_words(deque(in_long_forms(command[1:])))))


def _words(words: deque[str]) -> Iterator[str]:
    while words:
        word = words.popleft()
        name, equals, value = word.partition("=")
        short = len(word) == 2 and word[0] == "-"
        if word in _INI and words:
            key = INI_KEYS.get(words[0].partition("=")[0])
            if key is None or key.chooses:
                yield f"-o={words[0]}"
            words.popleft()
            continue
        if equals and name.startswith(_PREFIXES):
            continue
        if word in _VALUE_MAY_FOLLOW:
            if words and not words[0].startswith("-"):
                words.popleft()
            continue
        if word in FLAGS or _SHORT_FLAGS.fullmatch(word) or (word[:2] in _SHORT and len(word) > 2):
            continue  # as in -nauto
        if short or name in WITH_VALUE or name in UNRELATED_OPTIONS:
            value = value if equals or not words else words.popleft()
            if name not in UNRELATED_OPTIONS:
                yield f"{name}={value}"
        else:
            yield word


_WORKER_KEY = "qnn_harness_collected"
_NO_LAB = (
    f"{NO_LAB}; use --device sim-v73 for a simulated device, or write one for the attached "
    "devices with `qnn-harness init`"
)


class Collected:
    """Records all collected device tests; xdist's workers report theirs at the end.

    Nothing is known if single tests were named, since the others were not collected, or if nothing
    is run.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._tests: dict[tuple[str, str], dict[str, dict[str, object]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Collect the tests before -k and -m deselect some."""
        note_mistakes(items)
        options = self._selection.options
        files = options.contexts.paths  # they replace the contexts of suites
        if not options.known_issues or files or any("::" in argument for argument in config.args):
            return
        if config.option.collectonly or not any(map(placement_of, items)):
            return
        from harness.plugin.axes import parameter_axes
        from harness.results.known_issues import CollectedTests

        collected = CollectedTests(tests=self._tests)
        for item in items:
            if item.get_closest_marker("device") is not None:
                test = getattr(item, "originalname", item.name)
                collected.add(suite_of(item), test, parameter_axes(parameters_of(item)))
            else:
                collected.add(suite_of(item), "", {})  # a file without device tests is known, too

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_WORKER_KEY] = [[*names, axes] for names, axes in self._tests.items()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive the tests of a worker; all workers collect the same."""
        for suite, test, axes in getattr(node, "workeroutput", {}).get(_WORKER_KEY, ()):
            self._tests[suite, test] = axes

    def tests(self) -> CollectedTests:
        """Return all collected tests, with the suites and devices of the lab."""
        from harness.results.known_issues import CollectedTests

        devices = self._selection.lab.devices
        file = self._selection.options.known_issues
        modules = file.parent.glob("**/test_*.py") if self._tests and file is not None else ()
        names = (path.stem.removeprefix("test_") for path in modules if not _is_foreign(path, file))
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
    """Return the values of a test's parameters by name, including its placement."""
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def placement_of(item: pytest.Item) -> Placement | None:
    """Return the placement of a case; None for any other test."""
    placement = parameters_of(item).get("placement")
    return placement if hasattr(placement, "compiler") and MISTAKE not in item.stash else None


def own_test(item: pytest.Item) -> str:
    """Return the node id of a case without its placement, which cases of one test share."""
    base, parameters = split_node_id(item.nodeid)
    placed = str(placement_of(item) or NO_PLACEMENT)
    return named(base, without_placement(parameters or "", placed))


def placements_for(
    metafunc: pytest.Metafunc, selection: Selection
) -> tuple[Sequence[object], HarnessError | None]:
    """Return the placements of a test, and the error that stops the run's device tests.

    A missing lab is an error only if device tests, a device or a lab were selected: other tests do
    not need one. An error in the marker takes the place of a placement.
    """
    from harness.lab.matching import required
    from harness.plugin.axes import made_by, takes_compiled

    marker = metafunc.definition.get_closest_marker("device")
    if marker is None:  # an error of the test
        return [pytest.param(None, id=NO_PLACEMENT)], None
    requirements = dict(marker.kwargs)
    in_marker = f"the marker of {metafunc.definition.name}"
    if marker.args:
        problem = f'takes only keywords, as in device(backend="htp"), not {marker.args[0]!r:.60}'
        wrong = mistake_in(metafunc.definition, f"{in_marker} {problem}")
        return [pytest.param(wrong, id=NO_PLACEMENT)], None
    try:
        required(requirements)  # also without any device to match
        choose_contexts(metafunc, selection.options)
        argument_values = [mark.args[1] for mark in metafunc.definition.iter_markers("parametrize")]
        values, reasons = selection.placements(
            requirements,
            compiled=takes_compiled(argument_values),
            made_by=partial(made_by, argument_values),
        )
        return values or [_skipped(f"{NO_DEVICE}: {'; '.join(reasons)}")], None
    except NoLabError as error:
        get = metafunc.config.getoption
        if asks_for_devices(metafunc.config) or get("--qnn-device") or get("--qnn-lab"):
            return (), error
        return [_skipped(with_our_options(metafunc.config, _NO_LAB))], None
    except ConfigError as error:
        if error.field in requirements and error.file is None:
            field = f"{error.field} in {in_marker}"
            wrong = mistake_in(
                metafunc.definition, error.problem, field=field, choices=error.choices
            )
            return [pytest.param(wrong, id=NO_PLACEMENT)], None
        return (), error
    except HarnessError as error:
        return (), error


def _skipped(reason: str) -> Any:
    return pytest.param(None, id=NO_PLACEMENT, marks=pytest.mark.skip(reason=reason))


def need_of(item: pytest.Item) -> Need | None:
    """Return the requirements of a case; None for any other test."""
    placement = placement_of(item)
    if placement is None:
        return None
    from harness.bench.case_placement import Need
    from harness.plugin.axes import files_of, sources_of

    parameters = parameters_of(item)
    return Need(placement, sources_of(parameters, item.path.parent), files_of(parameters))


_MODEL_FILES: Final = "inputs and expected outputs of models"


def test_code(items: Sequence[pytest.Item], selection: Selection) -> dict[str, str]:
    """Return the SHA-256 of each file that determines what these cases do, by name.

    These are test modules, modules imported from beside or below them, conftests, model files and
    known issues; inputs and expected outputs have one for each folder, and those of models, which
    are files of the cache named after their content, have one together. Names do not depend on the
    checkout: modules have paths relative to their common folder, other files their own name.
    Unreadable files are left out: their cases report the error.
    """
    from harness.core.files import sha256_of
    from harness.core.state_folders import cache_root

    tests = {item.path for item in items}
    base = os.path.commonpath([path.parent for path in tests])
    digests_of: dict[str, list[str]] = {}
    for path in _modules(tests):
        with contextlib.suppress(OSError):
            name = Path(os.path.relpath(path, base)).as_posix()
            digests_of.setdefault(name, []).append(sha256_of(path))
    known_issues = selection.options.known_issues
    others = {path: _digest(path) for path in ([known_issues] if known_issues else [])}
    for item in items:
        others |= _user_file_digests(item)
    for path, digest in others.items():
        if digest is not None:
            name = _MODEL_FILES if path.is_relative_to(cache_root()) else path.name
            digests_of.setdefault(name, []).append(digest)
    return {name: _one_digest(digests) for name, digests in digests_of.items()}


def files_sha256(item: pytest.Item) -> str | None:
    """Return the SHA-256 of a case's file as it is now; of several files, that of their digests.

    That of a model covers its weights. Runs of a file and of another one put in its place have
    different digests, however the case ended. None if the case has no file, or none can be read.
    """
    digests = set(filter(None, _user_file_digests(item).values()))
    return _one_digest([*digests]) if digests else None


def _user_file_digests(item: pytest.Item) -> dict[Path, str | None]:
    """Return the SHA-256 of each of the user's files and folders that a case uses."""
    from harness.models.artefact_sources import WholeFile
    from harness.models.context_file import ContextFile
    from harness.models.onnx_model import OnnxModel
    from harness.plugin.axes import files_of, sources_of

    parameters = parameters_of(item)
    files: set[Files] = set(files_of(parameters))
    models = {}
    for value in parameters.values():
        if isinstance(value, WholeFile):
            files.update((value.options.inputs, value.options.expected))
    for source in sources_of(parameters, item.path.parent):
        if isinstance(source, ContextFile):
            files.update((source.path, source.inputs, source.expected))
        elif isinstance(source, OnnxModel):
            models[source.path] = source.digest
            files.update((*source.input_files, *source.expected_files))
    if item.getparent(ArtefactFile) is not None:
        files.add(item.path)
    paths = {path for entry in files for path in (entry if isinstance(entry, tuple) else [entry])}
    return {path: _digest(path) for path in paths - models.keys() if path} | models


def file_options(item: pytest.Item, contexts: ContextOptions) -> FileOptions | None:
    """Return the run's options for the user's file of a test; None without one."""
    return _file_options(contexts) if takes_file(item, contexts) else None


@cache
def _file_options(contexts: ContextOptions) -> FileOptions | None:
    from harness.results.record import FileOptions

    fields = {name: getattr(contexts, name) for name in FileOptions.model_fields}
    fields["tolerance"] = contexts.tolerance or None
    fields["window"] = None if contexts.window == DEFAULT_WINDOW else contexts.window
    fields["fallback"] = "allow" if contexts.fallback == "allow" else None
    fields["context_option"] = ", ".join(sorted(contexts.context_option)) or None
    # an unreadable file is recorded by its path; its case reports the error
    fields |= {
        name: _digest(path) or str(path) for name, path in fields.items() if isinstance(path, Path)
    }
    file_options = FileOptions(**fields)
    return file_options if file_options != FileOptions() else None


def _digest(path: Path) -> str | None:
    """Return the digest of a file, or of a folder's files and names; None if unreadable."""
    from harness.core.state_folders import cache_root
    from harness.core.verified_folder import HashCache

    is_folder = path.is_dir()
    files = {"": path}
    if is_folder:
        files = {p.relative_to(path).as_posix(): p for p in path.rglob("*") if p.is_file()}
    try:
        hashed = HashCache(cache_root(), path if is_folder else path.parent).hashed(files)
    except InfraError:
        return None
    if not is_folder:
        return hashed[""].sha256
    return _one_digest([f"{name} {entry.sha256}" for name, entry in hashed.items()])


def _modules(tests: set[Path]) -> set[Path]:
    """Return test modules, modules imported from their folders, and the conftests above.

    Installed modules are left out: their version identifies them.
    """
    folders = tuple({f"{path.parent}{os.sep}" for path in tests})
    above = {str(folder) for path in tests for folder in path.parents}
    installed = (f"{sys.prefix}{os.sep}", f"{Path(harness.__file__).parent}{os.sep}")
    modules = set(tests)
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(installed):
            continue
        folder, name = os.path.split(file)
        if file.startswith(folders) or (name == "conftest.py" and folder in above):
            modules.add(Path(file))
    return modules


def _one_digest(digests: list[str]) -> str:
    if len(digests) == 1 and len(digests[0]) == 64:
        return digests[0]
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()


def deselect(
    config: pytest.Config, items: list[pytest.Item], others: Sequence[pytest.Item]
) -> None:
    """Deselect tests, and report them to pytest's hook."""
    if others:
        removed = set(others)
        items[:] = [item for item in items if item not in removed]
        config.hook.pytest_deselected(items=others)
