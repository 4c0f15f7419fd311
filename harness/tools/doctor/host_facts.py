"""What this computer has of the things that runs need: asked here, judged elsewhere."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.device.adb.address import USER_PORT
from harness.device.adb.server import AdbServer, adb_binary
from harness.device.simulator.emulation import QEMUS, first_program, run_program
from harness.device.transport.questions import memory
from harness.ground.errors import HarnessError, InfraError
from harness.ground.files.cache import PRIVATE, open_to_others
from harness.probe.build import ProbeBuilder
from harness.probe.ndk import Ndk, find_ndk
from harness.tools.doctor.usb import UsbDevice, rules_for_vendors, user_groups, vendor_devices

_PROGRAM_S: Final = 5.0
_SERVER_S: Final = 3.0
_LISTENING: Final = "0A"


@dataclass(frozen=True)
class ServerOwner:
    """Whose process listens: None where the kernel does not say it to this user."""

    user: str | None
    pid: int | None
    command: str | None


@dataclass(frozen=True)
class HostFacts:
    """What was found; texts as the programs say them, bytes as the kernel counts.

    `compilers` maps targets to where the probe comes from, a compiler's command for one, or to None
    with the reason in `compiler_problems`. `adb` is the program that the harness starts, `path_adb`
    another one that a person would start. `server` is the user's own adb server; `index` what the
    package index answered, None if it was not asked.
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
    server_owner: ServerOwner | None = None
    usb: tuple[UsbDevice, ...] = ()
    usb_rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
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
    running = AdbServer().is_running(timeout_s=_SERVER_S)
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
        server_running=running,
        server_owner=listener(USER_PORT) if running else None,
        usb=tuple(vendor_devices()),
        usb_rules=rules_for_vendors(),
        groups=user_groups(),
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


def listener(port: int, proc: Path = Path("/proc")) -> ServerOwner | None:
    """Who listens on a TCP port of this computer, as far as the kernel tells; None if nobody."""
    for name in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / name).read_text().splitlines()[1:]:
                fields = line.split()
                if len(fields) < 10 or fields[3] != _LISTENING:
                    continue
                if fields[1].rpartition(":")[2] == f"{port:04X}":
                    pid = _process_with(f"socket:[{fields[9]}]", proc)
                    return ServerOwner(_user(int(fields[7])), pid, _command(pid, proc))
    return None


def _process_with(link: str, proc: Path) -> int | None:
    with contextlib.suppress(OSError):
        for folder in proc.iterdir():
            if not folder.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                for descriptor in (folder / "fd").iterdir():
                    if os.readlink(descriptor) == link:
                        return int(folder.name)
    return None


def _command(pid: int | None, proc: Path) -> str | None:
    if pid is None:
        return None
    try:
        said = (proc / str(pid) / "cmdline").read_bytes()[:300]
    except OSError:
        return None
    return said.replace(b"\0", b" ").decode("utf-8", "replace").strip() or None


def _user(number: int) -> str | None:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


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
