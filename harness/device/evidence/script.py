"""The scripts that ask a device for evidence (pure); their text is in `device/`."""

from __future__ import annotations

import re
import shlex
from typing import Final

from harness.device.transport.questions import shell_text
from harness.device.transport.shell_protocol import TOKEN_VARIABLE

DEVICE_READ_BYTES: Final = 16 << 20
"""How much of a log is looked through on the device for its last part."""

MAX_LINES: Final = 20_000
NO_STACK: Final = "no-native-stack"
"""Stands at the end of the section `stack` where no debugger gave one."""

JUMP_S: Final = 5
"""A device's clock that went so many seconds wrong has jumped."""

_COARSE: Final = "adsprpc|qnn|fastrpc|DEBUG|libc|executorch|onnxruntime|SSR|CONN Reset|avc: "


def state_script(token: str) -> str:
    """Asks for the clocks and what the DSPs are doing."""
    return _script("state", k=token)


def collect_script(
    token: str, *, last_s: int, boot_epoch_s: int | None, file_bytes: int, tombstones: int
) -> str:
    """Asks for the logs and dumps of the last `last_s` seconds.

    `boot_epoch_s` is what the device's clock said at its boot when it was asked before. If that has
    changed, times in logs mean nothing, and their last part is taken instead.
    """
    return _script(
        "collect",
        k=token,
        last_s=last_s,
        boot_s="" if boot_epoch_s is None else boot_epoch_s,
        jump_s=JUMP_S,
        max_lines=MAX_LINES,
        read_bytes=DEVICE_READ_BYTES,
        most=file_bytes + 1,  # so that a cut is seen
        coarse=_COARSE,
        dumps=tombstones,
    )


def look_script(token: str, pid: int, *, file_bytes: int, seconds: float) -> str:
    """Asks what a hung process does, with a native stack where a debugger is there, and ends it.

    Only a process that a call of the harness started is looked at, since numbers are used again.
    """
    return _script(
        "look",
        k=token,
        p=pid,
        seconds=max(1, int(seconds)),
        variable=TOKEN_VARIABLE,
        most=file_bytes + 1,
        no_stack=NO_STACK,
    )


def _script(name: str, **variables: str | int) -> str:
    given = "".join(f"{key}={shlex.quote(str(value))};" for key, value in variables.items())
    texts = (shell_text("evidence", f"device/{one}") for one in ("prelude", name))
    text = re.sub(r" # .*|\\\n", "", "".join(texts))
    return given + re.sub(r"(\{|\bdo)?\n", lambda end: f"{end[1]} " if end[1] else ";", text)
