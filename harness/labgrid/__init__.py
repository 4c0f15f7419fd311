"""Places of a labgrid lab as a source of devices: who may use a device, across computers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from harness.lab.device_config import DeviceSource


@pluggy.HookimplMarker("pytest")
def qnn_transports() -> Iterable[type[DeviceSource]]:
    """Return the source of docs/howto/lab.md."""
    from harness.labgrid.source import LabgridConfig  # only where devices.yaml is read

    return [LabgridConfig]
