"""The replies and the log of a simulated board's DSP."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from pathlib import Path
from typing import Final, Literal, get_args

from harness.core.json_record import Part, RecordText

_LOG: Final = "log"
_REPLIES: Final = "said"
_VOTES: Final = "votes"
_OVER: Final = (": nothing", " its votes with it")
_PAUSE_S: Final = 0.05
By = Literal["kernel", "emulator"]
BY: Final[tuple[By, ...]] = get_args(By)
_MAX_REPLY_BYTES: Final = 1 << 17
_MAX_LINES: Final = 500
_MAX_FIELD_CHARS: Final = 300
# g_assert_not_reached of GLib, where QEMU takes packets apart
_BAILED_OUT: Final = re.compile(
    rb"^ERROR:[\w/.+~-]{0,200}target/hexagon/decode\.c:\d+:(\w+):", re.M
)


class DspReply(Part):
    """A reply of a simulated DSP that is neither success nor QNN's.

    `by` is `kernel` for the simulated kernel, driver and DSP system, `emulator` for a limit of the
    emulator; `call` is the request, `answer` the error as a number or a name, `words` the reason.
    """

    by: By
    call: RecordText
    answer: RecordText
    words: RecordText


def clear_replies(folder: Path) -> None:
    """Remove the replies and votes of earlier processes. Raises OSError."""
    for name in (_REPLIES, _VOTES):
        (folder / name).unlink(missing_ok=True)


def read_replies(folder: Path, logged: int = 0) -> tuple[DspReply, ...]:
    """Return the replies since `clear_replies`, oldest first, each once; skip incomplete lines.

    An emulator that aborts at an unknown instruction (QEMU 10.0) writes no reply: its
    message is searched for after the first `logged` bytes of the log. Raises OSError, but not
    where there is no file.
    """
    text = _end_of(folder / _REPLIES, 0, _MAX_REPLY_BYTES)[0].decode("utf-8", "replace")
    whole = text.split("\n")[:-1][:_MAX_LINES]
    log, _ = log_end(folder, logged, _MAX_REPLY_BYTES)
    ended = (
        DspReply(
            by="emulator",
            call="process",
            answer="SIGABRT",
            words=f"an instruction ({match[1].decode()})",
        )
        for match in _BAILED_OUT.finditer(log)
    )
    return tuple(dict.fromkeys([*filter(None, map(_parse_reply, whole)), *ended]))


def read_votes(folder: Path, wait_s: float = 0) -> list[str]:
    """Return the votes for power that arrived since `clear_replies`, oldest first.

    Each is the function that the library called and what it asked for. They are waited for as long
    as clocks are still voted for: the DSP's process ends a moment after a killed client. Raises
    OSError, but not where there is no file.
    """
    ends_at = time.monotonic() + wait_s
    while (votes := _votes(folder)) and not votes[-1].endswith(_OVER):
        if time.monotonic() >= ends_at:
            break
        time.sleep(_PAUSE_S)
    return votes


def _votes(folder: Path) -> list[str]:
    lines = _end_of(folder / _VOTES, 0, _MAX_REPLY_BYTES)[0].decode("utf-8", "replace").split("\n")
    fields = (line.split("\t", 3) for line in lines[:-1][:_MAX_LINES])
    return [f"{vote[1]}: {vote[3]}" for vote in fields if len(vote) == 4 and vote[0] == "vote"]


def log_size(folder: Path) -> int:
    """Return the number of bytes the DSP's processes have printed; 0 if that is unknown."""
    with contextlib.suppress(OSError):
        return (folder / _LOG).lstat().st_size
    return 0


def log_end(folder: Path, begin: int, most: int) -> tuple[bytes, bool]:
    """Return the end of the log after `begin`, and whether its beginning was cut off.

    Raises OSError, but not where there is no file.
    """
    return _end_of(folder / _LOG, begin, most)


def _end_of(file: Path, begin: int, most: int) -> tuple[bytes, bool]:
    """Read the end of a file of the board, which may have any content."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b"", False
    with open(fd, "rb", buffering=0) as opened:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(file))
        first = max(begin, opened.seek(0, os.SEEK_END) - most)
        return os.pread(fd, most, first), first > begin


def _parse_reply(line: str) -> DspReply | None:
    parts = line.split("\t", 3)
    by, *texts = parts if len(parts) == 4 else ("", "", "", "")
    call, answer, words = (
        "".join(c if c.isprintable() else "?" for c in text)[:_MAX_FIELD_CHARS] for text in texts
    )
    if by not in BY or not call or not answer:
        return None
    return DspReply(by=by, call=call, answer=answer, words=words)
