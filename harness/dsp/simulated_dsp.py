"""A simulated board's DSP: its limits and its folder."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

FOLDER: Final = "dsp"
"""The DSP's folder among a board's files."""

VARIABLE: Final = "QNN_DSP"
"""The environment variable that tells libcdsprpc.so that folder."""


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
