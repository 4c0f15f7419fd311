"""A simulated board's DSP: its limits, its folder, and its replies and log."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal, get_args

FOLDER: Final = "dsp"
"""The DSP's folder among a board's files."""

VARIABLE: Final = "QNN_DSP"
"""The environment variable that tells libcdsprpc.so that folder."""

_LOG: Final = "log"
_REPLIES: Final = "said"
Kind = Literal["kernel", "emulator"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_MAX_REPLY_BYTES: Final = 1 << 17
_MAX_LINES: Final = 500
_MAX_FIELD_CHARS: Final = 300
# g_assert_not_reached of GLib, where QEMU takes packets apart
_BAILED_OUT: Final = re.compile(
    rb"^ERROR:[\w/.+~-]{0,200}target/hexagon/decode\.c:\d+:(\w+):", re.M
)


@dataclass(frozen=True)
class DspLimits:
    """Limits of a DSP; the defaults are those of a phone with a v73 (SM8550).

    `arch` is the Hexagon version (73 is v73); `sessions` are protection domains of all processes
    together (a process has at most 4): the context banks of the CDSP in the kernel's device trees;
    `handles` DMA handles of a process; `mapped_mb` MB that a session may map; `vtcm_mb` MB of fast
    memory; `hvx_threads` vector contexts; `unsigned_pd` 1 where programs without a signature of the
    vendor may open a session.
    """

    arch: int = 73
    sessions: int = 8
    handles: int = 256
    mapped_mb: int = 4096
    vtcm_mb: int = 8
    hvx_threads: int = 4
    unsigned_pd: int = 1

    def text(self) -> str:
        """Return the `limits` file that libcdsprpc.so and the DSP's processes read."""
        return "".join(f"{limit.name} {getattr(self, limit.name)}\n" for limit in fields(self))


@dataclass(frozen=True)
class DspPrograms:
    """The programs of a DSP: the emulator, and the loader that it runs (both absolute paths)."""

    emulator: Path
    loader: Path


@dataclass(frozen=True)
class DspReply:
    """An unsuccessful reply that does not come from QNN itself.

    `kind` is `kernel` for what stands in for kernel, driver and DSP system, `emulator` for what the
    emulator cannot do; `call` is what was asked, `answer` the error as a number or a name, `words`
    says why.
    """

    kind: Kind
    call: str
    answer: str
    words: str


def lay_out_dsp(folder: Path, programs: DspPrograms, limits: DspLimits) -> None:
    """Create the folder of a DSP, which must not exist yet. Raises OSError."""
    folder.mkdir()
    (folder / "slots").mkdir()
    (folder / "qemu-hexagon").symlink_to(programs.emulator)
    (folder / "loader").symlink_to(programs.loader)
    (folder / "limits").write_text(limits.text())


def dsp_environment(folder: Path) -> dict[str, str]:
    """Return the additional environment by which programs find the DSP."""
    return {VARIABLE: str(folder)}


def clear_replies(folder: Path) -> None:
    """Remove the replies to earlier processes. Raises OSError."""
    (folder / _REPLIES).unlink(missing_ok=True)


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
        DspReply("emulator", "process", "SIGABRT", f"an instruction ({match[1].decode()})")
        for match in _BAILED_OUT.finditer(log)
    )
    return tuple(dict.fromkeys([*filter(None, map(_parse_reply, whole)), *ended]))


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
            raise OSError(errno.EINVAL, "is no file", str(file))
        first = max(begin, opened.seek(0, os.SEEK_END) - most)
        return os.pread(fd, most, first), first > begin


def _parse_reply(line: str) -> DspReply | None:
    parts = line.split("\t", 3)
    kind, call, answer, words = parts if len(parts) == 4 else ("", "", "", "")
    if kind not in KINDS or not call or not answer:
        return None
    shown = ("".join(c if c.isprintable() else "?" for c in part) for part in (call, answer, words))
    return DspReply(kind, *(part[:_MAX_FIELD_CHARS] for part in shown))
