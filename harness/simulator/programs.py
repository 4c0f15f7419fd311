"""Files that a boot puts into the storage folder: programs, properties, log and folders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.simulator import logcat, storage
from harness.simulator.board import Board, board_environment, install_board
from harness.simulator.device import DeviceSettings
from harness.simulator.fixed_paths import FIXED_PATHS

SIMULATED_HARDWARE: Final = "simulator"
"""The value of ro.hardware, which no phone has."""
_FEATURES: Final = ("shell_v2", "stat_v2", "fixed_push_mkdir")
_NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,255}")
_MAX_VALUE_CHARACTERS: Final = 4096

# Qualcomm's names of the platforms, as phones with these SoCs report them in ro.board.platform.
_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SM8250": "kona",
        "SM8350": "lahaina",
        "SM8450": "taro",
        "SM8475": "taro",
        "SM8550": "kalama",
        "QCS8550": "kalama",
        "SM8650": "pineapple",
        "SM8750": "sun",
        "SM8850": "canoe",
    }
)


def device_properties(
    name: str, soc: str, *, abi: str = "x86_64", root: bool = False
) -> dict[str, str]:
    """Return the property table of a device called `name` that pretends to have the SoC `soc`.

    `abi` is that of the programs that really run there; `root` selects a build for developers,
    else one for users.
    """
    product = soc.lower()
    serial = "SIM" + hashlib.sha256(name.encode()).hexdigest()[:9].upper()
    build = "SIM1.240101.001"
    build_type = "userdebug" if root else "user"
    fingerprint = f"qnn-harness/{product}/{product}:14/{build}/1:{build_type}/test-keys"
    return {
        "ro.adb.secure": "1",
        "ro.board.platform": _PLATFORMS.get(soc, product),
        "ro.boot.hardware": SIMULATED_HARDWARE,
        "ro.boot.serialno": serial,
        "ro.build.display.id": build,
        "ro.build.fingerprint": fingerprint,
        "ro.build.id": build,
        "ro.build.type": build_type,
        "ro.build.version.release": "14",
        "ro.build.version.sdk": "34",
        "ro.debuggable": "1" if root else "0",
        "ro.hardware": SIMULATED_HARDWARE,
        "ro.product.brand": "qnn-harness",
        "ro.product.cpu.abi": abi,
        "ro.product.cpu.abilist": abi,
        "ro.product.device": product,
        "ro.product.model": f"{soc} simulator",
        "ro.product.name": product,
        "ro.secure": "0" if root else "1",
        "ro.serialno": serial,
        "ro.soc.manufacturer": "QTI",
        "ro.soc.model": soc,
        "sys.boot_completed": "1",
    }


def board_properties(name: str, soc: str) -> dict[str, str]:
    """Return the property table of a simulated Linux board: few, and none of Android's version.

    A board's adbd has no properties of its own; these name the device for people and for us. It
    does not tell its SoC here: what it shows of that is in /sys.
    """
    android = device_properties(name, soc, abi="arm64-v8a")
    names = ("ro.product.", "ro.serialno", "ro.boot.serialno", "ro.boot.hardware", "ro.adb.secure")
    return {key: value for key, value in android.items() if key.startswith(names)}


def checked_properties(table: Mapping[str, str]) -> dict[str, str]:
    """Return the table sorted by name. Raises ValueError for what getprop cannot print."""
    for name, value in table.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a property")
        if not isinstance(value, str) or re.search(r"[\r\n\0]", value):
            raise ValueError(f"property {name}: {value!r} is not one line of text")
        if len(value) > _MAX_VALUE_CHARACTERS:
            raise ValueError(f"property {name}: longer than {_MAX_VALUE_CHARACTERS} characters")
    return dict(sorted(table.items()))


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

_GETPROP: Final = r"""
# getprop [NAME [DEFAULT]]: the device's properties.
table=@TABLE@
[ $# -eq 0 ] && exec cat "$table"
while IFS= read -r line; do
  case $line in
    "[$1]: ["*) line=${line#*"]: ["}; printf '%s\n' "${line%]}"; exit 0 ;;
  esac
done < "$table"
printf '%s\n' "$2"
"""

_SETPROP: Final = r"""
# setprop NAME VALUE: changes a property until the next boot; ro.* cannot be changed.
table=@TABLE@
[ $# -eq 2 ] || { echo 'usage: setprop NAME VALUE' >&2; exit 1; }
bad=
case $1 in ''|ro.*|*[!A-Za-z0-9._:@-]*) bad=1 ;; esac
case $2 in *'
'*) bad=1 ;; esac
[ -z "$bad" ] || { echo "Failed to set property '$1' to '$2'." >&2; exit 1; }
{
  while IFS= read -r line; do
    case $line in "[$1]: ["*) ;; *) printf '%s\n' "$line" ;; esac
  done < "$table"
  printf '[%s]: [%s]\n' "$1" "$2"
} | sort > "$table.$$" && mv "$table.$$" "$table"
"""

_REBOOT: Final = """
# reboot: ends every command, this one too.
kill -HUP @PID@ && exec sleep 60
"""

# libQnnGpu.so for x86-64 searches for it (`whereis oqclc`): with it on PATH the backend prepares
# graphs offline. It leaves its sources in the current folder and takes bin.o from there.
_OFFLINE_COMPILER: Final = """
# oqclc: stands in for an offline OpenCL compiler, and compiles nothing.
printf 'no kernel: made by a simulated device of qnn-harness' > bin.o
"""


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
    (root / _TABLE).write_text(getprop_text(checked_properties(table)))
    texts = {
        "getprop": _GETPROP,
        "setprop": _SETPROP,
        "reboot": _REBOOT,
        "log": _python_program(Path(logcat.__file__), "log", str(root / LOG_FILE)),
        "logcat": _python_program(Path(logcat.__file__), "logcat", str(root / LOG_FILE)),
    }
    if settings.prepares_gpu:
        texts["oqclc"] = _OFFLINE_COMPILER
    if limit_bytes is not None:
        texts["df"] = _python_program(Path(storage.__file__), str(root), str(limit_bytes))
    table_file = shlex.quote(str(root / _TABLE))
    for name, text in texts.items():
        program = root / "system/bin" / name
        text = text.replace("@TABLE@", table_file).replace("@PID@", str(os.getpid()))
        program.write_text("#!/bin/sh" + text)
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
    return f'\nexec {command} "$@"\n'
