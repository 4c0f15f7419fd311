"""Devices on a real adb server with a TCP port, for the labs that name one."""

from tests.integration.simulator.conftest import adb, start_device

__all__ = ["adb", "start_device"]
