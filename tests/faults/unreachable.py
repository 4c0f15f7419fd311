"""Devices that cannot be reached from the start: the lab's fault, and the others' cases run."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import socketserver
import threading
from pathlib import Path
from typing import Self

import yaml

from harness.core.deadline import Deadline
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.simulator.programs import device_properties
from tests.faults.breakable import CONNECT_S, KeptServer
from tests.integration.device_runs import DeviceRuns, Finished

SUITE = '''"""One case per device."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
def test_noop(bench):
    bench.run(Plan((Step("noop"),))).check()
'''
AT_ONCE = 4


class MockMuteDaemon:
    """Takes connections and never says a word."""

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()


class MockHangingUpDaemon:
    """Takes connections and closes them at once."""

    def __enter__(self) -> Self:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                pass

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class MockAdbServer:
    """An adb server with devices on USB in states as given.

    `leads` gives, for some, the address of a device on the real adb server at `behind` that is at
    the other end of their cable.
    """

    def __init__(self, states: dict[str, str], leads: dict[str, str], behind: int) -> None:
        self._states = states
        self._leads = leads
        self._behind = behind

    def __enter__(self) -> Self:
        states, leads, behind = self._states, self._leads, self._behind

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                length = self.rfile.read(4)
                request = self.rfile.read(int(length, 16)).decode() if length else ""
                if request == "host:version":
                    self._say(b"OKAY", b"0029")
                elif request.startswith("host:devices"):
                    rows = "".join(f"{name}\t{state}\n" for name, state in states.items())
                    self._say(b"OKAY", rows.encode())
                elif name := next((name for name in leads if f":{name}" in request), ""):
                    self._lead(request.replace(f":{name}", f":{leads[name]}"))
                else:
                    self._say(b"FAIL", b"device offline")

            def _lead(self, request: str) -> None:
                with socket.create_connection(("127.0.0.1", behind)) as server:
                    server.sendall(f"{len(request):04x}{request}".encode())
                    ends = {self.connection: server, server: self.connection}
                    while ready := select.select(ends, [], [])[0]:
                        for end in ready:
                            data = end.recv(1 << 16)
                            if not data:
                                return
                            ends[end].sendall(data)

            def _say(self, status: bytes, text: bytes) -> None:
                self.wfile.write(status + b"%04x" % len(text) + text)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def run_all(folder: Path) -> Finished:
    """One run on a lab in which every device but one is out of reach in its own way."""
    (folder / "suite").mkdir()
    suite = folder / "suite/test_reach.py"
    suite.write_text(SUITE)
    runs = DeviceRuns(folder)
    with contextlib.ExitStack() as stack:
        server = KeptServer(folder / "home")
        stack.callback(server.stop)
        server.start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{free.getsockname()[1]}"
            no_server = stack.enter_context(socket.socket())
            no_server.bind(("127.0.0.1", 0))  # bound, but nobody listens
            strange = stack.enter_context(_simulated(folder, "strange", "QCS8550", folder / "home"))
            states = {"OFFLINE": "offline", "LOCKED": "unauthorized", "1a2b3c4d": "device"}
            server.server.connect(strange.address, deadline=Deadline(CONNECT_S))
            leads = {"1a2b3c4d": strange.address}
            mock = stack.enter_context(MockAdbServer(states, leads, server.port))
            unknown = stack.enter_context(_simulated(folder, "locked", "QCS8550", folder / "other"))
            places = {
                "mute": (stack.enter_context(MockMuteDaemon()).address, "here"),
                "gone": (nobody, "here"),
                "hangs_up": (stack.enter_context(MockHangingUpDaemon()).address, "here"),
                "offline": ("OFFLINE", "mocked"),
                "unauthorized": ("LOCKED", "mocked"),
                "unplugged": ("NOWHERE", "mocked"),
                "key_refused": (unknown.address, "here"),
                "no_server": ("NOWHERE", "empty"),
                "other_serial": ("1a2b3c4d", "mocked"),
            }
        devices: list[dict[str, object]] = [
            {
                "name": name,
                "serial": serial,
                "host": host,
                "soc": "QCS8550",
                "target": "linux-x64",
                "workdir": f"{folder}/strange/data/local/tmp/qnn",
            }
            for name, (serial, host) in places.items()
        ]
        devices.append({"name": "fine", "simulated": True, "soc": "QCS8550"})
        ports = {
            "here": server.port,
            "mocked": mock.port,
            "empty": no_server.getsockname()[1],
        }
        hosts = [{"name": n, "host": "127.0.0.1", "port": port} for n, port in ports.items()]
        runs.file.write_text(yaml.safe_dump({"schema": 1, "hosts": hosts, "devices": devices}))
        completed = runs.run("-n", AT_ONCE, "--retries", 0, suites=suite)
    shutil.rmtree(folder / "simulated")
    return completed


def _simulated(folder: Path, name: str, soc: str, home: Path) -> SimulatedDevice:
    return SimulatedDevice(
        f"sim-{name}",
        storage=folder / name,
        properties=device_properties(f"sim-{name}", soc),
        public_key=harness_key(home).with_suffix(".pub"),
    )
