"""Processes of this computer that have to do with a folder."""

import contextlib
import os
from pathlib import Path


def processes_of(folder: Path) -> dict[int, bytes]:
    """Return the command lines of those that name a folder there, or that have it about them.

    Everything that a run starts has the folders of its lab in its environment, or works in one.
    """
    processes = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            place = os.fsencode(os.readlink(process / "cwd") + "/")
            environment = (process / "environ").read_bytes()
            if os.fsencode(f"{folder}/") in b"\n".join([command, environment, place]):
                processes[int(process.name)] = command
    return processes
