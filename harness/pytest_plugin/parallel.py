"""pytest-xdist: a worker holds the devices it was first given, and no two workers share one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from harness.pytest_plugin.run import Run


def device_of(node_id: str, devices: Sequence[str]) -> str | None:
    """The device in a node id, whose parameters start with the placement; None if there is none.

    Of two names that would both fit (`a` and `a-b`) the longer one is meant.
    """
    parameters = node_id.partition("[")[2]
    fitting = [name for name in devices if parameters.startswith(f"{name}-")]
    return max(fitting, key=len, default=None)


class ByDevice(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist hides its types
    """Gives all cases of a device to one worker, and any other test as `--dist` says.

    The seam for placing cases by capability: `_split_scope` says what must stay together.
    """

    def __init__(self, config: pytest.Config, log: Any, devices: Sequence[str]) -> None:
        super().__init__(config, log)
        self._devices = list(devices)

    def _split_scope(self, nodeid: str) -> str:
        return device_of(nodeid, self._devices) or scope_of(nodeid, self.config.getoption("dist"))


def scope_of(node_id: str, dist: str) -> str:
    """With which others a test without a device stays together, for a value of `--dist`."""
    match dist:
        case "loadfile":
            return node_id.partition("::")[0]
        case "loadscope":
            return node_id.partition("[")[0].rpartition("::")[0]
    return node_id


class Controller:
    """Hooks of the process that distributes; it collects nothing and holds no device itself."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def pytest_configure_node(self, node: Any) -> None:
        """Tells each worker which run it works for."""
        node.workerinput["qnn_harness_run"] = str(self._run.planned_folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByDevice:
        """Distributes by device."""
        return ByDevice(config, log, self._run.device_names)


def run_of_worker(config: pytest.Config) -> Path | None:
    """The folder of the run that this process works for as an xdist worker; None elsewhere."""
    given = getattr(config, "workerinput", {}).get("qnn_harness_run")
    return Path(str(given)) if given else None


def is_controller(config: pytest.Config) -> bool:
    """Whether this process distributes tests to workers."""
    return config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
