"""What the steps of an acceptance have in common: a device, a folder on it, and where logs go."""

from __future__ import annotations

import copy
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.device.lab.attach import AttachedDevice, LabDevice
from harness.device.lab.health import RecoveryRules
from harness.device.lab.inventory import Lab
from harness.device.transport.device import Transport
from harness.device.transport.files import Progress, PushItem
from harness.ground.errors import DeviceLost
from harness.run.workbench.target import HeldDevice
from harness.run.workbench.workbench import Workbench
from harness.tools.doctor.check import Answer

FOLDER: Final = "acceptance"
_LEFT_S: Final = 10.0
_REMOVED_S: Final = 60.0


@dataclass
class Ground:
    """A device under acceptance.

    `logs` is a folder of this computer for what the archive is to have; `ask` tells the person at
    the device what to do now. `rules` are the lab's own for recovery. `probe` is where the probe
    lies on the device, once it does. `doubtful`: after the last step it may not answer. `going_on`
    is a step that nobody waits for any more.
    """

    workbench: Workbench
    name: str
    qnn: str
    logs: Path
    ask: Callable[[str], None]
    rules: RecoveryRules
    probe: str = ""
    doubtful: bool = False
    going_on: threading.Thread | None = None

    @property
    def lab_device(self) -> LabDevice:
        return self.workbench.lab.device(self.name)

    @property
    def held(self) -> HeldDevice:
        return self.workbench.held(self.lab_device)

    @property
    def device(self) -> AttachedDevice:
        return self.lab_device.attach()

    @property
    def folder(self) -> str:
        return f"{self.device.workdir}/steps"


def own_folder(lab: Lab, name: str) -> Lab:
    """The lab with a work folder of its own for one device, below the usual one (pure).

    A simulated device is one of our own, with all that it stores.
    """
    devices = tuple(
        one.model_copy(update={"workdir": f"{one.workdir}/{FOLDER}"})
        if one.name == name and not one.simulated
        else one
        for one in lab.devices
    )
    return lab.model_copy(update={"devices": devices})


def nothing_left(ground: Ground) -> Answer:
    """Ends what still runs on the device and removes what was put there."""
    device = ground.device
    ended = device.transport.end_leftovers(timeout_s=_LEFT_S)
    if ground.going_on is not None:
        # what it is about to put there would come back
        ground.going_on.join(_LEFT_S)
        ended = device.transport.end_leftovers(timeout_s=_LEFT_S)
    folder = ground.folder if device.config.simulated else device.workdir
    quoted = shlex.quote(folder)
    script = f"rm -rf {quoted}; [ ! -e {quoted} ]"
    removed = device.transport.shell(
        script, timeout_s=_REMOVED_S, max_output_bytes=1 << 16, doing="remove what was left"
    )
    if not ended:
        return Answer("fail", "processes of ours could not be ended", "reboot it")
    if not removed.ok:
        said = removed.stderr.decode("utf-8", "replace").strip()[:200]
        return Answer("fail", f"{folder} could not be removed: {said}", "remove it by hand")
    if ground.going_on is not None and ground.going_on.is_alive():
        return Answer("warn", "a step that was given up may put files back", f"remove {folder}")
    return Answer("ok", "no process and no file of ours")


class CountingDevice:
    """A way to a device that counts the bytes pushed, and ends behind `lost_after` files.

    The link is not really cut: what was pushed by then has arrived, as when a cable is pulled out.
    """

    def __init__(self, way: Transport, lost_after: int | None = None) -> None:
        self.pushed_bytes = 0
        self.way = copy.copy(way)
        """The device's way, with a `push` of ours."""
        self.way.push = self._push  # type: ignore[method-assign]
        self._push_really = way.push
        self._lost_after = lost_after

    def _push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        taken = files[: self._lost_after]
        self._push_really(taken, timeout_s=timeout_s, progress=progress)
        for item in taken:
            source = item.source
            self.pushed_bytes += len(source) if isinstance(source, bytes) else source.stat().st_size
        if len(taken) < len(files):
            raise DeviceLost("the link ends here, as it was told to", serial=self.way.serial)
