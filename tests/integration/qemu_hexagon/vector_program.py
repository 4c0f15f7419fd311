"""Runs one vector instruction of Hexagon many times in qemu-hexagon: a program of a few words."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.dsp.emulator import hexagon_program
from tests.integration.qemu_hexagon.hmx_program import assign

_IN, _OUT = 0x400000, 0x800000
OPERANDS = 4 * 128
"""Bytes of one round: v2, v3, v4, and v5, which v30 and v31 hold before it, and whose lowest bits
are q3."""

RESULTS = 2 * 128
"""Bytes of one round: v30, v31; for a predicate, v31 is q3, a byte each."""


def run(
    qemu: Path,
    word: int,
    operands: bytes,
    folder: Path,
    *,
    predicate: bool,
    behind: Sequence[int] = (),
) -> bytes:
    """What the instruction, alone in its packet, makes of as many rounds as there are operands.

    `behind` are words behind it, such as those that bring its result into v30 and v31.
    """
    rounds, rest = divmod(len(operands), OPERANDS)
    assert not rest
    size = rounds * RESULTS
    data = operands.ljust(_OUT - _IN, b"\0") + bytes(size)
    program = folder / "instruction"
    program.write_bytes(
        hexagon_program(_code([word, *behind], rounds, size, predicate), data, data_at=_IN)
    )
    program.chmod(0o700)
    done = subprocess.run([qemu, program], capture_output=True, check=True, timeout=100)
    assert len(done.stdout) == size
    return done.stdout


def _code(words: Sequence[int], rounds: int, size: int, predicate: bool) -> list[int]:
    """The program, as an assembler makes it."""
    body = [
        0x2810C002,  # v2 = vmem(r16+#0)
        0x2810C103,  # v3 = vmem(r16+#1)
        0x2810C204,  # v4 = vmem(r16+#2)
        0x2810C305,  # v5 = vmem(r16+#3)
        0x19B4C54B,  # q3 = vand(v5,r20)
        0x1E03E5FE,  # v30 = v5
        0x1E03E5FF,  # v31 = v5
        *words,
        0x19B4C3BF if predicate else 0x7F00C000,  # v31 = vand(q3,r20) or nop
        0x2831C01E,  # vmem(r17+#0) = v30
        0x2831C11F,  # vmem(r17+#1) = v31
        0xB030C010,  # r16 = add(r16,#512)
        0xB011E011,  # r17 = add(r17,#256)
        0xBFF2FFF2,  # r18 = add(r18,#-1)
        0x7512C000,  # p0 = cmp.eq(r18,#0)
    ]
    return [
        *assign(16, _IN),
        *assign(17, _OUT),
        *assign(18, rounds),
        *assign(20, 0x01010101),
        *body,
        _back(len(body)),
        *assign(0, 1),
        *assign(1, _OUT),
        *assign(2, size),
        *assign(6, 64),  # write
        0x5400C004,  # trap0(#1)
        *assign(0, 0),
        *assign(6, 94),  # exit_group
        0x5400C004,
    ]


def _back(words: int) -> int:
    """If (!p0) jump so many words back."""
    offset = -words & 0x7FFF
    high = (offset >> 13) << 22 | (offset >> 8 & 0x1F) << 16 | (offset >> 7 & 1) << 13
    return 0x5C20C000 | high | (offset & 0x7F) << 1
