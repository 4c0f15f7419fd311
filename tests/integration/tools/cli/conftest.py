"""Devices on a real adb server with a TCP port, for the labs that name one; and other daemons."""

from tests.integration.device.simulator.conftest import adb, start_device
from tests.integration.device.store.conftest import adb_server, key_folder, make_device

__all__ = ["adb", "adb_server", "key_folder", "make_device", "start_device"]
