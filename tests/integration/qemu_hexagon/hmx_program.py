"""Programs for Hexagon that execute instructions of HMX, which no assembler here knows."""

import subprocess
from pathlib import Path

from harness.dsp.emulator import hexagon_program

AT = 0x400000
"""Where the memory lies that the instructions work on."""

ACTIVATIONS = {
    ("ub", "deep", False): 0x920000E0,
    ("ub", "deep", True): 0x920000E1,
    ("hf", "deep", False): 0x920000E2,
    ("hf", "", False): 0x920000E4,
    ("hf", "above", False): 0x920000E6,
    ("ub", "dilate", False): 0x920000E8,
    ("ub", "dilate", True): 0x920000E9,
    ("ub", "", False): 0x920000EC,
    ("ub", "", True): 0x920000ED,
    ("ub", "above", False): 0x920000EE,
    ("ub", "above", True): 0x920000EF,
    ("ub", "single", False): 0x920000F0,
    ("ub", "single", True): 0x920000F1,
    ("hf", "single", False): 0x920000F8,
    ("hf", "dilate", False): 0x920000FA,
}
"""By type, taps, and whether channels lie side by side."""

WEIGHTS = {
    ("ub", ""): 0x920020E0,
    ("ub", "single"): 0x920020E6,
    ("ub", "drop"): 0x920020E7,
    ("ub", "deep"): 0x920020E8,
    ("ub", "after"): 0x920020E9,
    ("ub", "dilate"): 0x920020EB,
    ("hf", ""): 0x920020EF,
    ("hf", "single"): 0x920020F2,
    ("hf", "drop"): 0x920020F3,
    ("hf", "deep"): 0x920020F4,
    ("hf", "after"): 0x920020F5,
    ("hf", "dilate"): 0x920020F6,
}
CONVERSIONS = {"bytes": 0xA6E01710, "pairs": 0xA6E01910, "halves": 0xA6E01A10}
STORES = {"": 0xA6E00018, "cm": 0xA6E00019, "2x2": 0xA6E0001A}
CLEARS = {"ub": 0xA6E00011, "hf": 0xA6E00013}
SWAPS = {"ub": 0xA6E00014, "hf": 0xA6E00015}
BIAS = 0x920003FE

NIBBLES = 0x920020E1
"""Weights of 4 bits: an instruction that is not implemented."""

_MORE, _LAST = 0x4000, 0xC000


def multiply(activation: int, weight: int, operands: tuple[int, int, int, int]) -> list[int]:
    """A packet of activations and weights, whose operands are Rs and Rt of one and the other."""
    code = [word for n, value in enumerate(operands) for word in assign(n + 2, value)]
    return [*code, activation | 2 << 16 | 3 << 8 | _MORE, weight | 4 << 16 | 5 << 8 | _LAST]


def single(word: int, rs: int = 0, rt: int = 0) -> list[int]:
    takes_rt = word in STORES.values()
    registers = 2 << 16 | (3 << 8 if takes_rt else 0)
    return [*assign(2, rs), *assign(3, rt), word | registers | _LAST]


def assign(register: int, value: int) -> tuple[int, int]:
    """rN = ##value: a packet of two words."""
    value &= 0xFFFFFFFF
    extender = (value >> 20) << 16 | _MORE | (value >> 6 & 0x3FFF)
    return extender, 0x7800C000 | (value & 0x3F) << 5 | register


def run(
    qemu: Path, code: list[int], memory: bytes, folder: Path, written: tuple[int, int] | None = None
) -> tuple[int, bytes]:
    """The exit status, and the memory as the code leaves it: all, or a part by address and size."""
    trap = 0x5400C004
    address, size = written or (AT, len(memory))
    ending = [*assign(0, 1), *assign(1, address), *assign(2, size), *assign(6, 64), trap]
    ending += [*assign(0, 0), *assign(6, 94), trap]
    program = folder / "program"
    program.write_bytes(hexagon_program([*code, *ending], memory, data_at=AT))
    program.chmod(0o700)
    done = subprocess.run([qemu, program], capture_output=True, timeout=100)
    return done.returncode, done.stdout
