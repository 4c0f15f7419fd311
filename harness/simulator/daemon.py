"""The simulated device as a process: command line, storage lock, then the supervisor."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.errors import ConfigError, HarnessError, InfraError
from harness.simulator.auth import parse_public_key
from harness.simulator.board import Board
from harness.simulator.boot import DeviceSettings
from harness.simulator.properties import checked_properties
from harness.simulator.services import SUPPORTED_FEATURES
from harness.simulator.supervisor import Supervisor

LOCK_FILE: Final = ".simulated-device"
"""Lies in the storage folder, holds the daemon's pid, and is locked while it runs."""

_LOCK_S: Final = 5.0
_MAX_FILE_BYTES: Final = 1 << 20
_OPEN_FILES: Final = 16384


def lock_storage(folder: Path) -> int:
    """Makes the folder a device's storage and locks it; the descriptor returned holds the lock.

    Waits some seconds for a device that is just ending. Raises ConfigError for a folder that holds
    something else, InfraError if another device uses it.
    """
    if re.search(r"[:\n\0]", str(folder)):
        raise ConfigError(f"{str(folder)!r} cannot be in PATH: it has a colon or a line break")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / LOCK_FILE).exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty and not the storage of a simulated device")
        fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InfraError(f"storage {folder}: {error.strerror}") from error
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
                os.close(fd)
                raise InfraError(
                    f"storage {folder} is in use by another simulated device (pid {holder})"
                ) from None
            time.sleep(0.05)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a device in the foreground; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        settings = _settings(options)
        lock_storage(settings.storage)
        _raise_file_limit()
        Supervisor(settings, options.port, watch_stdin=not options.ignore_stdin).run()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness.simulator.daemon",
        description="A simulated device for `adb connect`, on 127.0.0.1 only. Prints one line of "
        'JSON, {"port": N}, when it listens, and ends when its stdin does.',
        epilog="Commands of the device run on this host, in the storage folder, as this user.",
    )
    add = parser.add_argument
    add("--storage", type=Path, required=True, metavar="DIR", help="the device's storage folder")
    add("--key", type=Path, required=True, metavar="FILE", help="the one adbkey.pub let in")
    add("--properties", type=Path, required=True, metavar="FILE", help="JSON object for getprop")
    add("--port", type=int, default=0, metavar="N", help="default: any free one")
    add(
        "--features",
        default=",".join(sorted(SUPPORTED_FEATURES)),
        metavar="A,B",
        help="default: %(default)s; an old device has fewer",
    )
    add("--storage-limit", type=int, metavar="BYTES", help="size of the flash; default: the host's")
    add("--reboot-seconds", type=float, default=0.5, metavar="S", help="default: %(default)s")
    add("--board", metavar="JSON", help="qemu, shim and libraries of an arm64 board")
    add("--ignore-stdin", action="store_true", help="end only at SIGTERM or SIGINT")
    return parser


def _settings(options: argparse.Namespace) -> DeviceSettings:
    features = frozenset(filter(None, options.features.split(",")))
    if unknown := sorted(features - SUPPORTED_FEATURES):
        raise ConfigError(
            f"unknown feature {unknown[0]!r}", field="features", choices=sorted(SUPPORTED_FEATURES)
        )
    if not 0 <= options.port <= 65535 or not 0 <= options.reboot_seconds <= 3600:
        raise ConfigError("port must be 0 to 65535, reboot seconds 0 to 3600")
    if options.storage_limit is not None and options.storage_limit < 0:
        raise ConfigError("the storage limit cannot be negative")
    try:
        key = parse_public_key(_read(options.key))
    except ValueError as error:
        raise ConfigError(str(error), file=options.key) from error
    try:
        table = json.loads(_read(options.properties))
        if not isinstance(table, dict):
            raise ValueError("not a JSON object")
        properties = checked_properties(table)
    except ValueError as error:
        raise ConfigError(str(error), file=options.properties) from error
    return DeviceSettings(
        storage=options.storage.resolve(),
        properties=properties,
        key=key,
        features=features,
        storage_limit_bytes=options.storage_limit,
        reboot_s=options.reboot_seconds,
        board=None if options.board is None else Board.from_json(options.board),
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error


def _raise_file_limit() -> None:
    """Every running command needs four descriptors of the daemon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
