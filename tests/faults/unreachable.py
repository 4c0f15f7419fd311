"""Devices that cannot be reached from the start: the lab's fault, and the others' cases run."""

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
from tests.faults.breakable import CONNECT_S, KeptServer
from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.lab.simulated import simulated

SUITE = '''"""One case per device."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
def test_noop(bench):
    bench.run(Plan((Step("noop"),))).check()
'''
AT_ONCE = 4


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
            strange = simulated("sim-strange", folder / "strange", folder / "home")
            locked = simulated("sim-locked", folder / "locked", folder / "other")
            for device in (strange, locked):
                stack.enter_context(device)
            states = {"OFFLINE": "offline", "LOCKED": "unauthorized", "1a2b3c4d": "device"}
            server.server.connect(strange.address, deadline=Deadline(CONNECT_S))
            leads = {"1a2b3c4d": strange.address}
            mock = stack.enter_context(MockAdbServer(states, leads, server.port))
            mute = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            places = {
                "mute": (f"127.0.0.1:{mute.getsockname()[1]}", "here"),
                "gone": (nobody, "here"),
                "offline": ("OFFLINE", "mocked"),
                "unauthorized": ("LOCKED", "mocked"),
                "unplugged": ("NOWHERE", "mocked"),
                "key_refused": (locked.address, "here"),
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
        ports = {"here": server.port, "mocked": mock.port, "empty": no_server.getsockname()[1]}
        hosts = [{"name": n, "host": "127.0.0.1", "port": port} for n, port in ports.items()]
        runs.file.write_text(yaml.safe_dump({"schema": 1, "hosts": hosts, "devices": devices}))
        completed = runs.run("-n", AT_ONCE, "-o", "qnn_retries=0", suites=suite)
    shutil.rmtree(folder / "simulated")
    return completed
