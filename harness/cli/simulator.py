"""`qnn-harness simulator`: a simulated device in the foreground, for use with plain adb."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from harness.cli.lab_options import lab_option, open_lab
from harness.cli.say import say
from harness.errors import ConfigError
from harness.lab.inventory import load_lab


@click.command()
@click.argument("name", required=False)
@lab_option
def simulator(name: str | None, lab_file: Path) -> None:
    """Start the simulated device NAME (default: the lab's first) until Ctrl-C.

    It hangs on an adb server of its own, whose socket is printed; your own is not touched.
    """
    lab = load_lab(lab_file)
    simulated = [device.name for device in lab.devices if device.simulated]
    chosen = name or next(iter(simulated), None)
    if chosen not in simulated:
        raise ConfigError(
            f"{name!r} is not a simulated device of {lab_file}" if name else "no simulated device",
            file=lab_file,
            field="devices",
            choices=simulated,
        )
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    with open_lab(lab, "simulator") as opened:
        device = opened.device(chosen)
        address, serial = device.adb.server.address, device.adb.serial
        say(f"{chosen} is up as {serial}; in another terminal:")
        say(f"    export ADB_SERVER_SOCKET={address.spec}")
        say("    adb devices -l")
        say(f"    adb -s {serial} shell")
        say("Ctrl-C ends it.")
        done.wait()
