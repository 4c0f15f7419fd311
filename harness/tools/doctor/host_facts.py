"""What this computer has of the things that runs need: asked here, judged elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.device.adb.server import AdbServer, adb_binary
from harness.device.simulator.emulation import QEMUS, first_program, run_program
from harness.device.transport.questions import memory
from harness.ground.errors import HarnessError, InfraError
from harness.ground.files.cache import PRIVATE, open_to_others
from harness.probe.build import ProbeBuilder
from harness.probe.ndk import Ndk, find_ndk

_PROGRAM_S: Final = 5.0
_SERVER_S: Final = 3.0


@dataclass(frozen=True)
class HostFacts:
    """What was found; texts as the programs say them, bytes as the kernel counts.

    `compilers` maps targets to where the probe comes from, a compiler's command for one, or to None
    with the reason in `compiler_problems`. `adb` is the program that the harness starts, `path_adb`
    another one that a person would start. `server_running` tells of the user's own adb server.
    """

    python: tuple[int, int, int] = (0, 0, 0)
    machine: str = ""
    compilers: Mapping[str, str | None] = field(default_factory=dict)
    compiler_problems: Mapping[str, str] = field(default_factory=dict)
    ndk: Ndk | None = None
    qemu: str | None = None
    adb: str | None = None
    adb_version: str | None = None
    adb_problem: str | None = None
    path_adb: str | None = None
    server_running: bool = False
    cache: str = ""
    cache_problem: str | None = None
    cache_free_bytes: int | None = None
    reports: str = ""
    reports_free_bytes: int | None = None
    memory_bytes: int | None = None


def ask_host(
    cache: Path, reports: Path, targets: Iterable[str], environment: Mapping[str, str]
) -> HostFacts:
    """Looks at this computer; every part takes seconds at most, and none raises."""
    builder = ProbeBuilder(cache / "probe", environment)
    compilers: dict[str, str | None] = {}
    problems: dict[str, str] = {}
    for target in dict.fromkeys(targets):
        try:
            compilers[target] = builder.comes_from(target)
        except HarnessError as error:
            compilers[target], problems[target] = None, str(error)
    adb, adb_problem = None, None
    try:
        adb = str(adb_binary())
    except HarnessError as error:
        adb_problem = str(error)
    return HostFacts(
        python=sys.version_info[:3],
        machine=os.uname().machine,
        compilers=compilers,
        compiler_problems=problems,
        ndk=find_ndk(environment),
        qemu=first_program(QEMUS, environment.get("PATH")),
        adb=adb,
        adb_version=_version_of(adb) if adb else None,
        adb_problem=adb_problem,
        path_adb=shutil.which("adb", path=environment.get("PATH")),
        server_running=AdbServer().is_running(timeout_s=_SERVER_S),
        cache=str(cache),
        cache_problem=_write_problem(cache),
        cache_free_bytes=_free(cache),
        reports=str(reports.absolute()),
        reports_free_bytes=_free(reports.absolute()),
        memory_bytes=_memory(),
    )


def index_problem(requirement: str, *, timeout_s: float) -> str | None:
    """Why pip cannot find a project, with its own configuration; None if it can."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += ["index", "versions", "--retries", "0", "--timeout", "5", requirement]
    try:
        done = run_program(command, timeout_s=timeout_s)
    except InfraError:
        return f"pip did not come back within {timeout_s:g} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (lines or done.stderr.splitlines() or ["pip failed"])[-1].removeprefix("ERROR: ")


def _version_of(adb: str) -> str | None:
    try:
        done = run_program([adb, "--version"], timeout_s=_PROGRAM_S)
    except (OSError, InfraError):
        return None
    return ", ".join(done.stdout.splitlines()[:2]) or None


def _free(path: Path) -> int | None:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _write_problem(folder: Path) -> str | None:
    """Why a folder cannot be written to or made, or that it is open to others."""
    if (why := open_to_others(folder)) is not None:
        return why
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        file = folder / f".doctor-{os.getpid()}"
        file.write_bytes(b"ok")
        file.unlink()
    except OSError as error:
        return f"{error.strerror or error}"
    return None


def _memory() -> int | None:
    with contextlib.suppress(OSError):
        return memory({"memory": Path("/proc/meminfo").read_text().splitlines()}, "MemAvailable")
    return None
