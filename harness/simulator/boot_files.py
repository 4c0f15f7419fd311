"""Files that a boot puts into the storage folder: programs, properties, log and folders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.simulator import logcat, storage
from harness.simulator.board import Board, board_environment, install_board
from harness.simulator.device import DeviceSettings
from harness.simulator.fixed_paths import FIXED_PATHS

SIMULATED_HARDWARE: Final = "simulator"
"""The value of ro.hardware, which no phone has."""
_FEATURES: Final = ("shell_v2", "stat_v2", "fixed_push_mkdir")
_BUILD_PROP: Final = Path(__file__).parent / "build.prop"


def device_properties(
    name: str, soc: str, *, abi: str = "x86_64", root: bool = False
) -> dict[str, str]:
    """Return the property table of a device called `name` that pretends to have the SoC `soc`.

    `abi` is that of the programs that really run there; `root` selects a build for developers,
    else one for users.
    """
    values = {
        "abi": abi,
        "insecure": int(root),
        "secure": int(not root),
        "type": "userdebug" if root else "user",
        "product": soc.lower(),
        "serial": "SIM" + hashlib.sha256(name.encode()).hexdigest()[:9].upper(),
        "soc": soc,
    }
    lines = _BUILD_PROP.read_text("ascii").format(**values).splitlines()
    return dict(line.split("=", 1) for line in lines)


def board_properties(name: str, soc: str) -> dict[str, str]:
    """Return the property table of a simulated Linux board: few, and none of Android's version.

    A board's adbd has no properties of its own; these name the device for people and for us. It
    does not tell its SoC here: what it shows of that is in /sys.
    """
    android = device_properties(name, soc, abi="arm64-v8a")
    names = ("ro.product.", "ro.serialno", "ro.boot.serialno", "ro.boot.hardware", "ro.adb.secure")
    return {key: value for key, value in android.items() if key.startswith(names)}


def getprop_text(table: Mapping[str, str]) -> str:
    """Return the table as getprop prints it."""
    return "".join(f"[{name}]: [{value}]\n" for name, value in sorted(table.items()))


def banner(table: Mapping[str, str]) -> bytes:
    """Return the device's banner in CNXN: three properties and its features."""
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    fields = [f"{name}={table.get(name, '').replace(';', '_')}" for name in names]
    fields.append("features=" + ",".join(_FEATURES))
    return f"device::{';'.join(fields)}".encode()


LOG_FILE: Final = "dev/log/main"
"""The device's log, below the storage folder."""

NEW_ROOT: Final = "dev/root"
"""An empty folder that a boot uses to build its commands' root."""

_TABLE: Final = "dev/__properties__/table"

_PROGRAMS: Final = Path(__file__).parent / "device_programs"


def install(settings: DeviceSettings, reason: str) -> None:
    """Bring the storage folder into the state right after a boot of this process.

    Pushed files stay; log, temporary files and changed properties do not.
    Raises OSError, and ConfigError for a board that cannot be laid out.
    """
    root, limit_bytes = settings.storage, settings.storage_limit_bytes
    table = dict(settings.properties) | {"ro.boot.boot_id": str(uuid.uuid4())}
    table |= {"ro.boot.bootreason": reason, "sys.boot.reason": reason}
    for folder in ("dev", "system"):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(root / folder)
    folders = ("dev/incoming", "dev/log", NEW_ROOT, "dev/__properties__", "system/bin")
    for folder in (*FIXED_PATHS.values(), *folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / LOG_FILE).touch()
    (root / _TABLE).write_text(getprop_text(table))
    texts = {path.stem: path.read_text("ascii") for path in _PROGRAMS.glob("*.sh")}
    if not settings.prepares_gpu:
        del texts["oqclc"]
    for name in ("log", "logcat"):
        texts[name] = _python_program(Path(logcat.__file__), name, str(root / LOG_FILE))
    if limit_bytes is not None:
        texts["df"] = _python_program(Path(storage.__file__), str(root), str(limit_bytes))
    table_file = shlex.quote(str(root / _TABLE))
    for name, text in texts.items():
        program = root / "system/bin" / name
        program.write_text(text.replace("@TABLE@", table_file).replace("@PID@", str(os.getpid())))
        program.chmod(0o755)
    if settings.board is not None:
        install_board(settings.board, root)


def environment(root: Path, board: Board | None) -> dict[str, str]:
    """Return the environment of the device's commands; only PATH is taken from the host's.

    Whatever that is, a device has the programs of a shell.
    """
    path = filter(None, (f"{root}/system/bin", os.environ.get("PATH"), os.defpath))
    return {
        "PATH": os.pathsep.join(path),
        "HOME": str(root),
        "TMPDIR": str(root),
        "LANG": "C.UTF-8",
        "ANDROID_DATA": f"{root}/data",
        "ANDROID_ROOT": f"{root}/system",
        **(board_environment(board, root) if board is not None else {}),
    }


def _python_program(file: Path, *first: str) -> str:
    command = shlex.join([sys.executable, "-I", "-S", str(file), *first])
    return f'#!/bin/sh\nexec {command} "$@"\n'
