"""Which qemu-hexagon a simulated DSP runs in, and what that one can.

What it can is tried: a program of a few words for Hexagon v68 is run for each kind of instruction.
Versions do not tell, since a user may have a build of his own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.device.dsp.build import run_build
from harness.ground.errors import ConfigError
from harness.ground.files.scratch import scratch_folder
from harness.ground.files.verified_folder import key_of
from harness.ground.files.whole_file import disk_errors, read_note, write_json

VARIABLE: Final = "QNN_HARNESS_QEMU_HEXAGON"
"""Names a qemu-hexagon of the user's own."""

SETUP: Final = "qnn-harness simulator build-dsp"
VECTOR_FLOAT: Final = "vector float"
HMX: Final = "hmx"

PATCH: Final = Path(__file__).parents[3] / "qemu-hexagon"
"""What is added to QEMU; only a checkout has it."""

_SYSTEM: Final = ("qemu-hexagon", "qemu-hexagon-static")
_EXIT: Final = (0x78004000, 0x7800CBC6, 0x5400C004)  # { r0 = #0; r6 = #94 } { trap0(#1) }
_VECTORS: Final = 0x1C41C000  # { v0.w = vadd(v0.w,v1.w) }
_ABILITIES: Final = {
    VECTOR_FLOAT: 0x1FA2E13F,  # { v31.qf32 = vadd(v1.sf,v2.sf) }
    HMX: 0xA6E0C011,  # { mxclracc }
}
_AT: Final = 0x20000
_PAGE: Final = 0x10000
_PROGRAM_S: Final = 20.0
_VERSION: Final = re.compile(r"qemu-hexagon version (\d[\w.+~-]{0,30})")


@dataclass(frozen=True)
class Qemu:
    """A qemu-hexagon that runs integer vector code of Hexagon v68.

    `path` is absolute; `origin` says whether the user named it, it was built with our patch, or it
    is the system's; `can` has `VECTOR_FLOAT` and `HMX` where it executes these.
    """

    path: Path
    version: str
    origin: Literal["own", "built", "system"]
    can: frozenset[str]


def find_qemu(cache: Path, environment: Mapping[str, str] = os.environ) -> Qemu:
    """The one to use: the user's own, else the one built with our patch, else the system's.

    What was tried is remembered in `cache` until the program changes. Raises ConfigError that says
    what is wrong with each and how to get one; InfraError if one hangs.
    """
    lacking = []
    for origin, path in _candidates(cache, environment):
        try:
            return _tried(path, origin, cache)
        except ConfigError as error:
            if origin == "own":
                raise ConfigError(str(error), field=VARIABLE) from error
            lacking.append(str(error))
    found = "; ".join(lacking) or "there is no qemu-hexagon"
    raise ConfigError(
        f"{found}: `{SETUP}` builds one that runs all of a skel, qemu-user of Debian 13 (apt "
        f"install qemu-user) runs its integer code, or name your own in {VARIABLE}"
    )


def built_qemu(cache: Path) -> Path:
    """Where the one with this patch is, or would be; without the patch, the newest there is."""
    folder = cache / "qemu-hexagon"
    if PATCH.is_dir():
        return folder / patch_key(PATCH) / "qemu-hexagon"
    there = sorted(folder.glob("*/qemu-hexagon"), key=lambda one: one.stat().st_mtime)
    return there[-1] if there else folder / "none" / "qemu-hexagon"


def patch_key(patch: Path) -> str:
    """What tells one patch from another. Raises ConfigError if it cannot be read."""
    files = sorted(one for one in patch.rglob("*") if one.is_file() and one.suffix != ".md")
    try:
        contents = [(one.relative_to(patch).as_posix(), one.read_bytes()) for one in files]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=error.filename) from error
    return key_of(contents)


def what_it_can(path: Path, folder: Path) -> tuple[str, frozenset[str]]:
    """The version of a qemu-hexagon and what it executes, tried in a folder for that alone.

    Raises ConfigError if it is none, or does not run vector code of v68; InfraError if it hangs.
    """
    said: list[str] = []
    _run(path, "--version", folder, said)
    version = _VERSION.search("\n".join(said))
    if version is None:
        raise ConfigError(f"{path} is no qemu-hexagon: it tells no version")
    program = folder / "trial"
    if not _runs(path, program, [_VECTORS]):
        raise ConfigError(
            f"{path}, version {version[1]}, does not run vector code for Hexagon v68 (10.0 does)"
        )
    can = {name for name, word in _ABILITIES.items() if _runs(path, program, [word])}
    return version[1], frozenset(can)


def hexagon_program(words: Sequence[int], data: bytes = b"", *, data_at: int = 0x400000) -> bytes:
    """A program for Hexagon v68 under Linux: code, and data that it may change, at an address."""
    begin, code = 52 + 2 * 32, struct.pack(f"<{len(words)}I", *words)
    head = (2, 164, 1, _AT + begin, 52, 0, 0x68, 52, 32, 2 if data else 1, 40, 0, 0)
    parts = (
        struct.pack("<16s2H5I6H", b"\x7fELF\x01\x01\x01", *head),
        struct.pack("<8I", 1, 0, _AT, _AT, begin + len(code), begin + len(code), 5, _PAGE),
        struct.pack("<8I", 1, _PAGE, data_at, data_at, len(data), len(data), 6, _PAGE),
        code,
    )
    return b"".join(parts).ljust(_PAGE, b"\0") + data


def _candidates(
    cache: Path, environment: Mapping[str, str]
) -> Iterator[tuple[Literal["own", "built", "system"], Path]]:
    path = environment.get("PATH")
    if named := environment.get(VARIABLE, "").strip():
        found = shutil.which(named, path=path)
        if found is None:
            raise ConfigError(f"{named} is no program", field=VARIABLE)
        yield "own", Path(found).absolute()
        return
    if (built := built_qemu(cache)).is_file():
        yield "built", built
    for name in _SYSTEM:
        if found := shutil.which(name, path=path):
            yield "system", Path(found).absolute()


def _tried(path: Path, origin: Literal["own", "built", "system"], cache: Path) -> Qemu:
    with disk_errors(f"cannot try {path}"):
        status = path.stat()
        identity = (str(path), status.st_size, status.st_mtime_ns, _ABILITIES)
        key = hashlib.sha256(repr(identity).encode()).hexdigest()
        note = cache / "qemu-hexagon" / f"tried-{key[:24]}.json"
        known = read_note(note)
        if known is None:
            note.parent.mkdir(parents=True, exist_ok=True)
            with scratch_folder(note.parent) as folder:
                version, can = what_it_can(path, folder)
            write_json(note, {"sha256": key, "version": version, "can": sorted(can)})
            return Qemu(path, version, origin, can)
    return Qemu(path, str(known["version"]), origin, frozenset(known["can"]))


def _runs(qemu: Path, program: Path, words: Sequence[int]) -> bool:
    program.write_bytes(hexagon_program([*words, *_EXIT]))
    program.chmod(0o700)
    try:
        _run(qemu, str(program), program.parent, [])
    except ConfigError:
        return False
    return True


def _run(qemu: Path, argument: str, folder: Path, said: list[str]) -> None:
    command = [str(qemu), argument]
    run_build(command, folder=folder, timeout_s=_PROGRAM_S, on_line=said.append)
