"""pytest-xdist: a worker holds the devices it was first given, and no two workers share one."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from harness.pytest_plugin.report_marks import GIVEN_UP, RETRIED

if TYPE_CHECKING:
    from harness.pytest_plugin.run import Run


def device_of(node_id: str, devices: Sequence[str]) -> str | None:
    """The device in a node id, whose parameters start with the placement; None if there is none.

    Of two names that would both fit (`a` and `a-b`) the longer one is meant.
    """
    parameters = node_id.partition("[")[2]
    fitting = [name for name in devices if parameters.startswith(f"{name}-")]
    return max(fitting, key=len, default=None)


def scope_of(node_id: str, dist: str) -> str:
    """With which others a test without a device stays together, for a value of `--dist`."""
    match dist:
        case "loadfile":
            return node_id.partition("::")[0]
        case "loadscope":
            return node_id.partition("[")[0].rpartition("::")[0]
    return node_id


class ByDevice(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist hides its types
    """Gives all cases of a device to one worker, and any other test as `--dist` says.

    The seam for placing cases by capability: `_split_scope` says what must stay together, and
    `move` gives a single case to another worker. For that workers stay until all of them are done.
    """

    def __init__(self, config: pytest.Config, log: Any, devices: Sequence[str]) -> None:
        super().__init__(config, log)
        self._devices = list(devices)

    def devices_of(self, node: Any) -> list[str]:
        """The devices that a worker was given cases of."""
        return [scope for scope in self.assigned_work.get(node, {}) if scope in self._devices]

    def worker_with(self, devices: Collection[str]) -> tuple[Any, str] | None:
        """The least busy worker that has one of these devices and takes cases, and the device."""
        fitting = [
            (self._pending_of(self.assigned_work[node]), index, node, device)
            for index, node in enumerate(self.nodes)
            if not node.shutting_down
            for device in self.devices_of(node)
            if device in devices
        ]
        if not fitting:
            return None
        _, _, node, device = min(fitting, key=lambda found: found[:2])
        return node, device

    def move(self, node_id: str, node: Any) -> None:
        """Has a worker run one case more."""
        self.assigned_work[node].setdefault(self._split_scope(node_id), {})[node_id] = False
        node.send_runtest_some([self.registered_collections[node].index(node_id)])

    def schedule(self) -> None:
        """Distributes the cases, but tells no worker yet that these are all."""
        before = self.nodes
        for node in before:
            node.shutdown = _not_yet
        try:
            super().schedule()
        finally:
            for node in before:
                del node.shutdown
        for node in before:
            if node not in self.assigned_work:
                node.shutdown()

    def _split_scope(self, nodeid: str) -> str:
        return device_of(nodeid, self._devices) or scope_of(nodeid, self.config.getoption("dist"))

    def _reschedule(self, node: Any) -> None:
        # without more work the worker waits for the others: `tests_finished` ends them all
        if self.workqueue:
            super()._reschedule(node)


def _not_yet() -> None:
    """In place of a worker's `shutdown` while cases are distributed."""


@dataclass(frozen=True)
class Move:
    """A case that goes on elsewhere: on `device`, after `attempts`, with `left` more allowed."""

    device: str
    attempts: int
    left: int


class Moves:
    """Tells workers which of their cases come from another device: a file each, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, node_id: str, move: Move) -> None:
        """Writes it down, before the worker is told to run the case."""
        self._file(node_id).write_text(json.dumps(asdict(move)))

    def find(self, node_id: str) -> Move | None:
        """What was written down for a case."""
        try:
            return Move(**json.loads(self._file(node_id).read_text()))
        except FileNotFoundError:
            return None

    def _file(self, node_id: str) -> Path:
        return self.folder / hashlib.sha256(node_id.encode("utf-8", "surrogatepass")).hexdigest()


class Controller:
    """Hooks of the process that distributes; it collects nothing and holds no device itself."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scheduler: ByDevice | None = None
        self._temporary = tempfile.TemporaryDirectory(prefix="qnn-harness-moves-")
        self._moves = Moves(Path(self._temporary.name))
        self._moving: dict[str, tuple[Any, Move]] = {}
        self._given_up: set[str] = set()

    def pytest_configure_node(self, node: Any) -> None:
        """Tells each worker which run it works for."""
        node.workerinput["qnn_harness_run"] = str(self._run.planned_folder)
        node.workerinput["qnn_harness_moves"] = str(self._moves.folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByDevice:
        """Distributes by device."""
        self._scheduler = ByDevice(config, log, self._run.device_names)
        return self._scheduler

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Has a case whose device was given up go on with a worker that has a twin of it."""
        left = getattr(report, GIVEN_UP, None)
        if left is None or self._scheduler is None:
            return
        if report.when == "setup":
            self._given_up.add(left["device"])
            twins = set(self._run.twins(left["device"])) - self._given_up
            found = self._scheduler.worker_with(twins)
            if found is not None:
                node, device = found
                self._moving[report.nodeid] = node, Move(device, left["attempts"], left["left"])
        if report.nodeid not in self._moving:
            return
        if report.failed:
            report.outcome = RETRIED
        if report.when == "teardown":
            node, move = self._moving.pop(report.nodeid)
            self._moves.put(report.nodeid, move)
            self._scheduler.move(report.nodeid, node)

    def pytest_unconfigure(self) -> None:
        """Removes what workers were told."""
        self._temporary.cleanup()


def moves_of_worker(config: pytest.Config) -> Moves | None:
    """What an xdist worker is told of moved cases; None elsewhere."""
    given = getattr(config, "workerinput", {}).get("qnn_harness_moves")
    return Moves(Path(str(given))) if given else None


def run_of_worker(config: pytest.Config) -> Path | None:
    """The folder of the run that this process works for as an xdist worker; None elsewhere."""
    given = getattr(config, "workerinput", {}).get("qnn_harness_run")
    return Path(str(given)) if given else None


def is_controller(config: pytest.Config) -> bool:
    """Whether this process distributes tests to workers."""
    return config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
