"""Devices on a real adb server with a TCP port, for the labs that name one; and other daemons."""

from tests.integration.deploy.conftest import adb_server, key_folder, make_device
from tests.integration.simulator.conftest import adb, start_device

__all__ = ["adb", "adb_server", "key_folder", "make_device", "start_device"]
