"""Simulated devices that a kept adb server of tests may use."""

from pathlib import Path

from harness.simulator.boot_files import device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key


def simulated(name: str, storage: Path, home: Path, **reported: str) -> SimulatedDevice:
    """Return a device, whose serial number follows from its name, for the key of a home folder."""
    return SimulatedDevice(
        name,
        storage=storage,
        properties=device_properties(name, "QCS8550") | reported,
        public_key=harness_key(home).with_suffix(".pub"),
    )
