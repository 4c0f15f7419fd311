"""devices.yaml, leases, health and recovery of devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from harness.lab.device_config import DeviceConfig


@pluggy.HookimplMarker("pytest")
def qnn_transports() -> Iterable[type[DeviceConfig]]:
    """Return the kinds of docs/howto/lab.md."""
    from harness.lab.device_config import KINDS  # only where devices.yaml is read

    return KINDS
