"""A device that nothing else brings back is switched off and on by labgrid's own driver.

What listens at the address of the power switch is a real HTTP server, which stops and starts the
simulated device.
"""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.lab.device_watch import DeviceWatch
from harness.lab.health import DeviceEvent, Quarantine
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from tests.integration.device_runs import DeviceRuns
from tests.integration.labgrid.rack import Rack
from tests.integration.transport.adb.faulty_link import FaultyLink

RECOVERY = {"come_back_s": 1, "reboot_timeout_s": 60}


class PoweredRack(Rack):
    """A rack whose `p1` has a power port, which its device does not move away by."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 2)
        self.links: dict[str, FaultyLink] = {}
        self.asked: list[str] = []
        self.is_broken = False
        rack = self

        class Switch(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                rack.asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                if rack.is_broken:
                    self.send_error(500)
                    return
                (rack.switch_on if rack.asked[-1] == "1" else rack.switch_off)("p1")
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._switch = ThreadingHTTPServer(("127.0.0.1", 0), Switch)
        threading.Thread(target=self._switch.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._switch.shutdown()
        self._switch.server_close()

    def address_of(self, name: str, stack: contextlib.ExitStack) -> str:
        self.links[name] = stack.enter_context(FaultyLink(self.devices[name].address))
        return self.links[name].address

    def more_of(self, name: str) -> dict[str, dict[str, object]]:
        if name != "p1":
            return {}
        port = self._switch.server_address[1]
        host = f"http://127.0.0.1:{port}/{{index}}"
        return {"NetworkPowerPort": {"model": "rest", "host": host, "index": "1"}}

    def switch_off(self, name: str) -> None:
        self.links[name].cut()
        self.devices[name].stop()

    def switch_on(self, name: str) -> None:
        if not self.devices[name].running:
            self.devices[name].start()
        self.links[name].lead_to(self.devices[name].address)
        self.links[name].resume()


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoweredRack]:
    with PoweredRack(tmp_path_factory.mktemp("rack")) as started:
        yield started


class Ward:
    """A session that holds both places, and what was told of their devices."""

    def __init__(
        self, rack: PoweredRack, folder: Path, ends: contextlib.ExitStack, **rules: object
    ) -> None:
        recovery = RECOVERY | rules
        runs = DeviceRuns(folder)
        rack.describe(runs, recovery=recovery, places=2)

        self.now = 0.0
        self.events: list[DeviceEvent] = []
        lab = load_lab(runs.file, find=lambda source: source.reserve(ends))
        opened = OpenLab(lab, key_folder=folder / "keys", storage_root=folder / "simulated")
        self.lab = ends.enter_context(opened)
        self.watch = DeviceWatch(
            Quarantine(folder / "quarantine"),
            probe_problem=lambda device: None,
            on_event=self.events.append,
            clock=lambda: self.now,
        )
        for name in ("p1", "p2"):
            self.watch.require(self.lab.device(name))

    def steps(self) -> list[tuple[str, str]]:
        """Return the steps taken since the last call."""
        events, self.events[:] = self.events[:], []
        steps = [(event.event, event.state) for event in events]
        return [event for event in steps if event != ("health", "good")]


@pytest.fixture
def ward(rack: PoweredRack, tmp_path: Path) -> Iterator[Ward]:
    with contextlib.ExitStack() as ends:
        yield Ward(rack, tmp_path, ends)
        rack.is_broken = False
        for name in rack.devices:
            rack.switch_on(name)
        rack.asked.clear()


@pytest.mark.slow
def test_a_device_that_was_switched_off_is_switched_on(rack: PoweredRack, ward: Ward) -> None:
    ward.steps()
    rack.switch_off("p1")
    assert ward.watch.failed(ward.lab.device("p1"), case_over=False)
    assert ward.steps() == [("reconnect", "bad"), ("power-cycle", "good")]
    assert rack.asked == ["0", "1"]


def test_no_device_is_switched_for_its_host(rack: PoweredRack, ward: Ward) -> None:
    rack.adb.kill()
    try:
        assert not ward.watch.failed(ward.lab.device("p1"), case_over=False)
    finally:
        rack.adb.start()
    assert rack.asked == []
