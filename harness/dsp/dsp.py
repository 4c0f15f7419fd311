"""What a simulated board's DSP is told to be, where that lies, and what it left behind."""

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
"""Beside what else a boot makes of a board."""

VARIABLE: Final = "QNN_DSP"
"""Names that folder to libcdsprpc.so."""

_LOG: Final = "log"
_SAID: Final = "said"
Kind = Literal["kernel", "emulator"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_MAX_SAID_BYTES: Final = 1 << 17
_MAX_LINES: Final = 500
_MAX_FIELD_CHARS: Final = 300
# g_assert_not_reached of GLib, where QEMU takes packets apart
_BAILED_OUT: Final = re.compile(
    rb"^ERROR:[\w/.+~-]{0,200}target/hexagon/decode\.c:\d+:(\w+):", re.M
)


@dataclass(frozen=True)
class DspLimits:
    """What a DSP has; the defaults are a phone's with a v73 (SM8550).

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
        """The `limits` file that libcdsprpc.so and the DSP's processes read."""
        return "".join(f"{one.name} {getattr(self, one.name)}\n" for one in fields(self))


@dataclass(frozen=True)
class DspPrograms:
    """What runs as a DSP: the emulator, and the loader that it runs (both absolute paths)."""

    emulator: Path
    loader: Path


@dataclass(frozen=True)
class Said:
    """An answer that is no success and not QNN's own.

    `kind` is `kernel` for what stands in for kernel, driver and DSP system, `emulator` for what the
    emulator cannot do; `call` is what was asked, `answer` the error as a number or a name, `words`
    says why.
    """

    kind: Kind
    call: str
    answer: str
    words: str


def lay_out_dsp(folder: Path, programs: DspPrograms, limits: DspLimits) -> None:
    """Makes the folder of a DSP, which must not be there yet. Raises OSError."""
    folder.mkdir()
    (folder / "slots").mkdir()
    (folder / "qemu-hexagon").symlink_to(programs.emulator)
    (folder / "loader").symlink_to(programs.loader)
    (folder / "limits").write_text(limits.text())


def dsp_environment(folder: Path) -> dict[str, str]:
    """What the environment of programs has besides, so that they find the DSP."""
    return {VARIABLE: str(folder)}


def forget_said(folder: Path) -> None:
    """Before a process: what was said until now belongs to others. Raises OSError."""
    (folder / _SAID).unlink(missing_ok=True)


def read_said(folder: Path, logged: int = 0) -> tuple[Said, ...]:
    """What was said since, oldest first and each once; what is no whole line is left out.

    An emulator that ends at an instruction which it does not know (QEMU 10.0) can say nothing: its
    last words are looked for behind the first `logged` bytes of the log. Raises OSError, but not
    where there is no file.
    """
    text = _end_of(folder / _SAID, 0, _MAX_SAID_BYTES)[0].decode("utf-8", "replace")
    whole = text.split("\n")[:-1][:_MAX_LINES]
    log, _ = log_end(folder, logged, _MAX_SAID_BYTES)
    ended = (
        Said("emulator", "process", "SIGABRT", f"an instruction ({found[1].decode()})")
        for found in _BAILED_OUT.finditer(log)
    )
    return tuple(dict.fromkeys([*filter(None, map(_said, whole)), *ended]))


def log_size(folder: Path) -> int:
    """How many bytes the DSP's processes have printed; 0 where that cannot be told."""
    with contextlib.suppress(OSError):
        return (folder / _LOG).lstat().st_size
    return 0


def log_end(folder: Path, begin: int, most: int) -> tuple[bytes, bool]:
    """The end of what they have printed behind `begin`, and whether that is not all of it.

    Raises OSError, but not where there is no file.
    """
    return _end_of(folder / _LOG, begin, most)


def _end_of(file: Path, begin: int, most: int) -> tuple[bytes, bool]:
    """Reads what a program of the board wrote, who may have put anything there."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b"", False
    with open(fd, "rb", buffering=0) as opened:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is no file", str(file))
        first = max(begin, opened.seek(0, os.SEEK_END) - most)
        return os.pread(fd, most, first), first > begin


def _said(line: str) -> Said | None:
    parts = line.split("\t", 3)
    kind, call, answer, words = parts if len(parts) == 4 else ("", "", "", "")
    if kind not in KINDS or not call or not answer:
        return None
    shown = ("".join(c if c.isprintable() else "?" for c in part) for part in (call, answer, words))
    return Said(kind, *(part[:_MAX_FIELD_CHARS] for part in shown))
