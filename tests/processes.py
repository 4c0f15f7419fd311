"""Processes of this computer: those that have to do with a folder, and those that are run."""

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Any


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


def run_to_end(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Return the result of `subprocess.run`, with nothing on stdin and both outputs in one."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run([*map(str, command)], check=False, **streams | {"text": True} | options)
