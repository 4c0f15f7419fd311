"""What tests there are, before pytest leaves out those that were not chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from harness.pytest_plugin.own_contexts import suite_of

if TYPE_CHECKING:
    from harness.pytest_plugin.run import Run
    from harness.results.known_issue_lint import CollectedTests
    from harness.workbench import Need, Placement

_WORKER_SAYS = "qnn_harness_collected"


class Collected:
    """Takes note of all collected device tests; from xdist's workers by what they say at the end.

    Nothing is known where single tests were named: the others were not even looked for. Nor is it
    asked where nothing is run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tests: dict[tuple[str, str], dict[str, dict[str, object]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Comes before -k and -m choose."""
        options = self._run.options
        own = options.contexts.paths  # suites have others than they are written with
        if not options.known_issues or own or any("::" in one for one in config.args):
            return
        if config.option.collectonly:
            return
        from harness.pytest_plugin.axes import own_axes
        from harness.results.known_issue_lint import CollectedTests

        collected = CollectedTests(tests=self._tests)
        for item in items:
            if item.get_closest_marker("device") is not None:
                test = getattr(item, "originalname", item.name)
                collected.add(suite_of(item), test, own_axes(item))

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

    def tests(self) -> CollectedTests | None:
        """All that is known; None if it is nothing."""
        if not self._tests:
            return None
        from harness.results.known_issue_lint import CollectedTests

        devices = self._run.asked.lab.devices
        file = self._run.options.known_issues
        beside = file.parent.glob("**/test_*.py") if file is not None else ()
        return CollectedTests(
            tests=self._tests,
            suites=frozenset(path.stem.removeprefix("test_") for path in beside),
            devices=frozenset(device.name for device in devices),
            socs=frozenset(device.soc for device in devices if device.soc),
        )


def parameters_of(item: pytest.Item) -> Mapping[str, Any]:
    """The values of a test's parameters by name, its placement among them."""
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def placement_of(item: pytest.Item) -> Placement | None:
    """Where a case runs, and with what; None for any other test."""
    found = parameters_of(item).get("placement")
    return found if hasattr(found, "compiler") else None


def need_of(item: pytest.Item) -> Need | None:
    """What a case wants made ready; None for any other test."""
    placement = placement_of(item)
    if placement is None:
        return None
    from harness.pytest_plugin.axes import files_of, sources_of
    from harness.workbench import Need

    given = parameters_of(item)
    return Need(placement, sources_of(given, item.path.parent), files_of(given))


def leave_out(
    config: pytest.Config, items: list[pytest.Item], others: Sequence[pytest.Item]
) -> None:
    """Takes tests out of those that pytest runs, and tells who counts them."""
    if others:
        gone = set(others)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=others)
