"""The programs that a simulated DSP is made of on this computer, and whether they can be had."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.device.dsp.dsp import DspPrograms
from harness.device.dsp.hexagon import build_loader, why_no_loader
from harness.device.dsp.qemu import VECTOR_FLOAT, find_qemu
from harness.ground import HarnessError


def dsp_programs(cache: Path, environment: Mapping[str, str] = os.environ) -> DspPrograms:
    """The emulator, and the loader, which is built into `cache` if it is new.

    Raises ConfigError naming what is missing, or what the compiler said; InfraError if one of them
    hangs.
    """
    emulator = find_qemu(cache, environment).path
    return DspPrograms(emulator, build_loader(cache, environment).absolute())


def why_no_dsp(cache: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why no DSP can be simulated here, with what to install; None where one can.

    Nothing is built for it.
    """
    try:
        find_qemu(cache, environment)
    except HarnessError as error:
        return str(error)
    return why_no_loader(cache, environment)


def lacks_floats(cache: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the emulator has no vector instructions for floating point.

    Raises as `dsp_programs`.
    """
    return VECTOR_FLOAT not in find_qemu(cache, environment).can
