"""How a real device of the lab is reached, and what it is asked first."""

from __future__ import annotations

import shlex
from typing import Final

from harness.device.adb.device import AdbDevice
from harness.device.adb.server import AdbServer
from harness.device.lab.facts import SCRIPT, DeviceFacts, parse_facts
from harness.device.lab.inventory import DeviceConfig, Lab
from harness.device.ssh.board import SshBoard
from harness.device.transport.device import Transport
from harness.device.transport.this_computer import ThisComputer
from harness.ground.errors import DeviceError, DeviceRefused

_FACTS_S: Final = 15.0
_MAX_FACTS_BYTES: Final = 1 << 20


def transport_of(lab: Lab, config: DeviceConfig) -> Transport:
    """How a real device of the lab is reached; nothing is asked of it."""
    if config.login is not None:
        return SshBoard(config.login)
    if config.transport == "adb":
        return AdbDevice(config.serial or "", AdbServer(lab.server_of(config)))
    return ThisComputer()


def require_own_folder(device: Transport, folder: str) -> None:
    """Makes the work folder if it is not there; it has to be of our account there, and only ours.

    Else another account of a board could exchange what runs as us. Raises DeviceRefused.
    """
    path = shlex.quote(folder)
    done = device.shell(
        f"mkdir -p {path}&&[ -O {path} ]&&[ ! -h {path} ]&&"
        f"case $(ls -ld {path}) in ????????w*)exit 1;;esac",
        timeout_s=_FACTS_S,
        doing="look whose its work folder is",
    )
    if not done.ok:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        why = f": {said}" if said else ", or others may write there"
        raise DeviceRefused(
            f"its work folder {folder} is not that of the account that we have there{why}; name "
            "another `workdir`",
            serial=device.serial,
        )


def read_facts(device: Transport, folder: str) -> DeviceFacts:
    """Asks a device about itself in one round trip; `folder` is where the harness will work.

    Raises DeviceError if it does not answer in time or answers endlessly.
    """
    script = f"set -- {shlex.quote(folder)}\n{SCRIPT}"
    answer = device.shell(
        script, timeout_s=_FACTS_S, max_output_bytes=_MAX_FACTS_BYTES, doing="ask what it is"
    )
    if answer.truncated:
        raise DeviceError("its description of itself does not end", serial=device.serial)
    return parse_facts(answer.stdout.decode("utf-8", "replace"))
