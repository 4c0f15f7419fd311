"""What tests there are, before pytest leaves out those that were not chosen."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import harness
from harness.ground.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.ground.facts.engines import EXECUTORCH
from harness.run.pytest_plugin.markers import MISTAKE, note_mistakes
from harness.run.pytest_plugin.options import with_our_options
from harness.run.pytest_plugin.own_contexts import TAKES, ArtefactFile, choose_contexts, suite_of
from harness.run.pytest_plugin.selection import asks_for_devices
from harness.run.pytest_plugin.terminal import NO_DEVICE, NO_LAB
from harness.verdict.results.case_names import NO_PLACEMENT

if TYPE_CHECKING:
    from harness.contexts.sources.context_file import Files
    from harness.run.pytest_plugin.asked import Selection
    from harness.run.pytest_plugin.options import ContextsAsked
    from harness.run.workbench.placement import Need, Placement
    from harness.verdict.results.known_issue_lint import CollectedTests
    from harness.verdict.results.record import Asked

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
        from harness.run.pytest_plugin.axes import own_axes
        from harness.verdict.results.known_issue_lint import CollectedTests

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
        from harness.verdict.results.known_issue_lint import CollectedTests

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
    from harness.device.lab.matching import required
    from harness.run.pytest_plugin.axes import made_by, takes_compiled

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
    from harness.run.pytest_plugin.axes import files_of, sources_of
    from harness.run.workbench.placement import Need

    given = parameters_of(item)
    return Need(placement, sources_of(given, item.path.parent), files_of(given))


def test_code(items: Sequence[pytest.Item], asked: Selection) -> dict[str, str]:
    """The SHA-256 of each file that says what cases of these names do, by a name for it.

    These are test modules, what was imported from beside or below them, conftests, files of models
    and known issues. Of inputs and expected outputs there is one for each folder. A checkout may
    lie anywhere: modules are called as from the folder that they have in common, other files by
    their own name. What cannot be read is left out: its case says so.
    """
    from harness.contexts.sources.artefact_sources import WholeFile
    from harness.contexts.sources.context_file import ContextFile
    from harness.contexts.sources.onnx_model import OnnxModel
    from harness.ground.files.whole_file import sha256_of
    from harness.run.pytest_plugin.axes import files_of, sources_of

    tests = {item.path for item in items}
    base = os.path.commonpath([path.parent for path in tests])
    found: dict[str, list[str]] = {}
    for path in _modules(tests):
        with contextlib.suppress(OSError):
            name = Path(os.path.relpath(path, base)).as_posix()
            found.setdefault(name, []).append(sha256_of(path))
    others: set[Files] = {asked.options.known_issues}
    models: dict[str, set[str]] = {}
    for item in items:
        given = parameters_of(item)
        others.update(files_of(given))
        for whole in given.values():
            if isinstance(whole, WholeFile):
                others.update((whole.given.inputs, whole.given.expected))
        for one in sources_of(given, item.path.parent):
            if isinstance(one, ContextFile):
                others.update((one.path, one.inputs, one.expected))
            elif isinstance(one, OnnxModel):
                models.setdefault(one.path.name, set()).add(one.digest)
                others.update((*one.read, *one.wanted))
    paths = {path for one in others for path in (one if isinstance(one, tuple) else [one])}
    for other in filter(None, paths):
        if (digest := _digest(other)) is not None:
            found.setdefault(other.name, []).append(digest)
    for name, known in models.items():
        found.setdefault(name, []).extend(known)
    return {name: _one_digest(digests) for name, digests in found.items()}


def asked_of(item: pytest.Item, contexts: ContextsAsked) -> Asked | None:
    """What a run asks of the user's file that a test is run with; None if there is none."""
    takes = contexts.paths and item.get_closest_marker(TAKES) is not None
    return _asked(contexts) if takes or item.getparent(ArtefactFile) is not None else None


@cache
def _asked(contexts: ContextsAsked) -> Asked | None:
    from harness.verdict.results.record import Asked

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
    from harness.ground.files.cache import cache_root
    from harness.ground.files.hash_cache import HashCache

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
