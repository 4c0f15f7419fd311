"""What a boot puts into the storage folder: programs, property table, log, and empty folders."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import uuid
from pathlib import Path
from typing import Final

from harness.device.simulator import logcat, storage
from harness.device.simulator.board import Board, board_environment, install_board
from harness.device.simulator.device import DeviceSettings
from harness.device.simulator.fixed_paths import FIXED_PATHS
from harness.device.simulator.properties import checked_properties, getprop_text

LOG_FILE: Final = "dev/log/main"
"""The device's log, below the storage folder."""

NEW_ROOT: Final = "dev/root"
"""An empty folder that a boot uses to make its commands' root."""

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

# What libQnnGpu.so for x86-64 looks for (`whereis oqclc`): with it on PATH the backend prepares
# graphs offline. It leaves its sources in the current folder and takes bin.o from there.
_OFFLINE_COMPILER: Final = """
# oqclc: stands in for an offline OpenCL compiler, and compiles nothing.
printf 'no kernel: made by a simulated device of qnn-harness' > bin.o
"""


def install(settings: DeviceSettings, reason: str) -> None:
    """Makes the storage folder what it is right after a boot of this process.

    Files pushed before stay; log, temporary files and changed properties do not.
    Raises OSError, and ConfigError for a board that cannot be laid out.
    """
    root, limit_bytes = settings.storage, settings.storage_limit_bytes
    table = dict(settings.properties) | {"ro.boot.boot_id": str(uuid.uuid4())}
    table |= {"ro.boot.bootreason": reason, "sys.boot.reason": reason}
    for folder in ("dev", "system"):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(root / folder)
    own = ("dev/incoming", "dev/log", NEW_ROOT, "dev/__properties__", "system/bin")
    for folder in (*FIXED_PATHS.values(), *own):
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
    values = {
        "@TABLE@": shlex.quote(str(root / _TABLE)),
        "@PID@": str(os.getpid()),
    }
    for name, text in texts.items():
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        program = root / "system/bin" / name
        program.write_text("#!/bin/sh" + text)
        program.chmod(0o755)
    if settings.board is not None:
        install_board(settings.board, root)


def environment(root: Path, board: Board | None) -> dict[str, str]:
    """The environment of the device's commands; of the host's only PATH is in it.

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
