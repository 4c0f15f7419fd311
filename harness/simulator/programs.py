"""What a boot puts into the storage folder: programs, property table, log, and empty folders."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.simulator import logcat, storage
from harness.simulator.board import Board, board_environment, install_board
from harness.simulator.properties import checked_properties, getprop_text

LOG_FILE: Final = "dev/log/main"
"""The device's log, below the storage folder."""

_TABLE: Final = "dev/__properties__/table"
_MAX_TABLE_BYTES: Final = 1 << 20
_PERSISTENT: Final = re.compile(r"^\[(persist\.[^\]]+)\]: \[(.*)\]$", re.MULTILINE)

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
# setprop NAME VALUE: changes a property; persist.* outlive a reboot, ro.* cannot be changed.
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

_UPTIME: Final = r"""
# uptime: counted from the simulated boot.
read -r up _ < /proc/uptime
read -r one five fifteen _ < /proc/loadavg
s=$((${up%.*} - @BOOTED@))
printf ' %s up %d:%02d:%02d,  0 users,  load average: %s, %s, %s\n' "$(date +%T)" \
  $((s / 3600)) $((s / 60 % 60)) $((s % 60)) "$one" "$five" "$fifteen"
"""

_PYTHON_PROGRAM: Final = """
exec @PYTHON@ -I -S @FILE@ @FIRST@ "$@"
"""


def install(
    root: Path,
    properties: Mapping[str, str],
    *,
    limit_bytes: int | None,
    reason: str,
    board: Board | None = None,
) -> None:
    """Makes the storage folder what it is right after a boot of this process.

    Files pushed before stay; log, temporary files and changed properties but persist.* do not.
    Raises OSError, and ConfigError for a board that cannot be laid out.
    """
    table = dict(properties) | _kept_properties(root) | _boot_properties(reason)
    for folder in ("dev", "system"):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(root / folder)
    for folder in ("data/local/tmp", "dev/incoming", "dev/log", "dev/__properties__", "system/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / LOG_FILE).touch()
    (root / _TABLE).write_text(getprop_text(checked_properties(table)))
    texts = {
        "getprop": _GETPROP,
        "setprop": _SETPROP,
        "reboot": _REBOOT,
        "uptime": _UPTIME,
        "log": _python_program(Path(logcat.__file__), "log", str(root / LOG_FILE)),
        "logcat": _python_program(Path(logcat.__file__), "logcat", str(root / LOG_FILE)),
    }
    if limit_bytes is not None:
        texts["df"] = _python_program(Path(storage.__file__), str(root), str(limit_bytes))
    values = {
        "@TABLE@": shlex.quote(str(root / _TABLE)),
        "@PID@": str(os.getpid()),
        "@BOOTED@": str(int(time.clock_gettime(time.CLOCK_BOOTTIME))),
    }
    for name, text in texts.items():
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        program = root / "system/bin" / name
        program.write_text("#!/bin/sh" + text)
        program.chmod(0o755)
    if board is not None:
        install_board(board, root)


def environment(root: Path, board: Board | None = None) -> dict[str, str]:
    """The environment of the device's commands; of the host's only PATH is in it."""
    return {
        "PATH": f"{root}/system/bin:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(root),
        "TMPDIR": str(root),
        "LANG": "C.UTF-8",
        "ANDROID_DATA": f"{root}/data",
        "ANDROID_ROOT": f"{root}/system",
        **(board_environment(root) if board is not None else {}),
    }


def _python_program(file: Path, *first: str) -> str:
    words = {
        "@PYTHON@": shlex.quote(sys.executable),
        "@FILE@": shlex.quote(str(file)),
        "@FIRST@": shlex.join(first),
    }
    text = _PYTHON_PROGRAM
    for placeholder, value in words.items():
        text = text.replace(placeholder, value)
    return text


def _kept_properties(root: Path) -> dict[str, str]:
    try:
        with (root / _TABLE).open("rb") as file:
            text = file.read(_MAX_TABLE_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    return {found[1]: found[2] for found in _PERSISTENT.finditer(text)}


def _boot_properties(reason: str) -> dict[str, str]:
    return {
        "ro.boot.boot_id": str(uuid.uuid4()),
        "ro.boot.bootreason": reason,
        "sys.boot.reason": reason,
    }
