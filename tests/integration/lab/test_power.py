"""A device that nothing else brings back is switched by a command, ever more seldom."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.lab.attach import OpenLab
from harness.lab.device_watch import DeviceWatch
from harness.lab.health import LabEvent, Quarantine
from harness.lab.inventory import load_lab
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.simulator.programs import device_properties
from tests.faults.breakable import KeptServer
from tests.integration.transport.adb.faulty_link import FaultyLink

DESK = "desk"


class Desk:
    """A device whose link is cut until `thaws` is run, and what was told of it."""

    def __init__(self, folder: Path, ends: contextlib.ExitStack) -> None:
        self.folder, self.ends = folder, ends
        self.adb = KeptServer(folder)
        ends.callback(self.adb.stop)
        self.adb.start()
        self.device = ends.enter_context(
            SimulatedDevice(
                DESK,
                storage=folder / "storage",
                properties=device_properties(DESK, "QCS8550"),
                public_key=harness_key(folder).with_suffix(".pub"),
            )
        )
        self.link = ends.enter_context(FaultyLink(self.device.address))
        self.thaw = folder / "thaw"
        self.is_over = threading.Event()
        thread = threading.Thread(target=self._resume, daemon=True)
        thread.start()
        ends.callback(thread.join)
        ends.callback(self.is_over.set)
        self.events: list[LabEvent] = []
        self.now = 0.0
        self.runs = folder / "switched"

    def watch(self, power: str) -> None:
        """Opens the lab, in which it is switched so, and uses it once."""
        lab = {
            "schema": 1,
            "recovery": {"come_back_s": 0, "reboot": False, "reboot_timeout_s": 20},
            "hosts": [{"name": "here", "host": "127.0.0.1", "port": self.adb.port}],
            "devices": [
                {"name": DESK, "serial": self.link.address, "host": "here", "power": power}
            ],
        }
        file = self.folder / "devices.yaml"
        file.write_text(yaml.safe_dump(lab))
        opened = OpenLab(load_lab(file), key_folder=self.folder, storage_root=self.folder / "none")
        self.lab = self.ends.enter_context(opened)
        self._watch = DeviceWatch(
            Quarantine(self.folder / "quarantine"),
            probe_problem=lambda device: None,
            on_event=self.events.append,
            clock=lambda: self.now,
        )
        self._watch.require(self.lab.device(DESK))
        self.events.clear()

    def freeze(self) -> None:
        self.link.cut()

    def _resume(self) -> None:
        while not self.is_over.wait(0.02):
            if self.thaw.exists():
                self.link.resume()
                self.thaw.unlink()

    @property
    def thaws(self) -> str:
        wait = f"while [ -e {self.thaw} ]; do sleep 0.05; done"
        return f"echo x >>{self.runs}; touch {self.thaw}; {wait}"

    def failed(self) -> bool:
        return self._watch.failed(self.lab.device(DESK), case_over=False)

    def require(self) -> None:
        self._watch.require(self.lab.device(DESK))

    def steps(self) -> list[tuple[str, str]]:
        events, self.events[:] = self.events[:], []
        return [(event.event, event.state) for event in events if event.event != "health"]

    @property
    def switched(self) -> int:
        return len(self.runs.read_text().split()) if self.runs.exists() else 0


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with contextlib.ExitStack() as ends:
        yield Desk(tmp_path, ends)


@pytest.mark.slow
def test_a_command_brings_it_back_where_a_reboot_is_forbidden(desk: Desk) -> None:
    desk.watch(desk.thaws)
    desk.freeze()
    assert desk.failed()
    assert desk.steps() == [("reconnect", "bad"), ("power-cycle", "good")]
    assert desk.switched == 1
