"""Devices that cannot be reached from the start: the lab's fault, and the others' cases run."""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path

import yaml

from harness.core.deadline import Deadline
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.simulator.programs import device_properties
from tests.faults.breakable import CONNECT_S, KeptServer
from tests.faults.mocks import MockAdbServer, MockHangingUpDaemon, MockMuteDaemon
from tests.integration.device_runs import DeviceRuns, Finished

SUITE = '''"""One case per device."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
def test_noop(bench):
    bench.run(Plan((Step("noop"),))).check()
'''
AT_ONCE = 4


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
