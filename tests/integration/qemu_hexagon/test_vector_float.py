"""Vector float in the qemu-hexagon with our patch, each instruction against the plain model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.integration.qemu_hexagon.hmx_program import AT, assign, run as run_program
from tests.integration.qemu_hexagon.qfloat_model import Instruction, instructions

pytestmark = pytest.mark.slow
ROUNDS = 64
ALL = instructions()
OPERANDS, RESULTS = 4 * 128, 2 * 128
"""Bytes of a round: v2, v3, v4, and v5, which v30 and v31 hold before it, and whose lowest bits are
q3; then v30 and v31, for a predicate v31 is q3, a byte each.
"""
OUT = 0x800000


def run(
    qemu: Path,
    instruction: Instruction,
    word: int,
    rounds: np.ndarray,
    folder: Path,
    behind: Sequence[int] = (),
) -> None:
    """Let a word, alone in its packet, do in each round what the model says of the instruction.

    `behind` are words behind it, such as those that bring its result into v30 and v31.
    """
    size = len(rounds) * RESULTS
    body = [
        0x2810C002,  # v2 = vmem(r16+#0)
        0x2810C103,  # v3 = vmem(r16+#1)
        0x2810C204,  # v4 = vmem(r16+#2)
        0x2810C305,  # v5 = vmem(r16+#3)
        0x19B4C54B,  # q3 = vand(v5,r20)
        0x1E03E5FE,  # v30 = v5
        0x1E03E5FF,  # v31 = v5
        word,
        *behind,
        # v31 = vand(q3,r20) or nop
        0x19B4C3BF if instruction.syntax.startswith("q3") else 0x7F00C000,
        0x2831C01E,  # vmem(r17+#0) = v30
        0x2831C11F,  # vmem(r17+#1) = v31
        0xB030C010,  # r16 = add(r16,#512)
        0xB011E011,  # r17 = add(r17,#256)
        0xBFF2FFF2,  # r18 = add(r18,#-1)
        0x7512C000,  # p0 = cmp.eq(r18,#0)
    ]
    begin = [*assign(16, AT), *assign(17, OUT), *assign(18, len(rounds)), *assign(20, 0x01010101)]
    memory = rounds.tobytes().ljust(OUT - AT, b"\0") + bytes(size)
    code = [*begin, *body, jump_back(len(body))]
    status, output = run_program(qemu, code, memory, folder, (OUT, size))
    assert status == 0
    got = np.frombuffer(output, np.uint8).reshape(len(rounds), RESULTS)
    for row, result in zip(rounds, got, strict=True):
        expected = instruction.results(row[:256], row[256:384], row[384:])
        np.testing.assert_array_equal(result, expected)


def jump_back(words: int) -> int:
    """If (!p0) jump so many words back."""
    offset = -words & 0x7FFF
    high = (offset >> 13) << 22 | (offset >> 8 & 0x1F) << 16 | (offset >> 7 & 1) << 13
    return 0x5C20C000 | high | (offset & 0x7F) << 1


WIDTHS = {"qf32": 32, "sf": 32, "w": 32, "qf16": 16, "hf": 16, "h": 16}
_EXPONENTS = {"qf32": (0, 8), "sf": (23, 8), "qf16": (0, 5), "hf": (10, 5)}


def operands(
    rng: np.random.Generator, count: int, kinds: Sequence[str]
) -> tuple[list[int], list[int]]:
    """As many pairs, for operands of these kinds (one, or two): any bits, near each other, ends."""
    first = _words(rng, count, kinds[0])
    second = _words(rng, count, kinds[-1])
    if len(kinds) == 2 and WIDTHS[kinds[0]] == WIDTHS[kinds[1]]:
        near = rng.random(count) < 0.4
        shift, bits = _EXPONENTS[kinds[1]]
        mask = (1 << bits) - 1
        field = _field(first, kinds[0]) + rng.integers(-26, 27, count)
        moved = second & ~(mask << shift) | (np.clip(field, 0, mask) << shift)
        second = np.where(near, moved, second)
        if kinds[0] == kinds[1]:
            same = rng.random(count) < 0.1
            second = np.where(same, first ^ (1 << rng.integers(0, WIDTHS[kinds[0]], count)), second)
    return first.tolist(), second.tolist()


def _field(words: np.ndarray, kind: str) -> np.ndarray:
    shift, bits = _EXPONENTS[kind]
    return words >> shift & ((1 << bits) - 1)


def _words(rng: np.random.Generator, count: int, kind: str) -> np.ndarray:
    """Words of a kind: any; with few bits set or none; with an exponent at an end or in between."""
    width = WIDTHS[kind]
    words = rng.integers(0, 1 << width, count)
    sparse = words & rng.integers(0, 1 << width, count) & rng.integers(0, 1 << width, count)
    if kind not in _EXPONENTS:
        # integers of every length
        return words >> rng.integers(0, width, count)
    shift, bits = _EXPONENTS[kind]
    mask, middle = (1 << bits) - 1, 1 << (bits - 1)
    exponents = np.stack(
        [
            rng.integers(0, mask + 1, count),
            rng.integers(0, 3, count),
            mask - rng.integers(0, 3, count),
            np.clip(middle + rng.integers(-24, 25, count), 0, mask),
            middle - rng.integers(0, 4, count),
        ]
    )
    chosen = exponents[rng.integers(0, len(exponents), count), np.arange(count)]
    bare = np.where(rng.random(count) < 0.3, sparse, words) & ~(mask << shift)
    numbers = bare | chosen << shift
    zeros = np.where(rng.random(count) < 0.5, 0, 1 << (width - 1))
    return np.where(rng.random(count) < 0.03, zeros, numbers)


def rounds_of(rng: np.random.Generator, instruction: Instruction) -> np.ndarray:
    """Rounds of v2 to v5: `operands` of its formats, and whatever was in the targets before."""
    _, _, kinds = instruction.parts
    size, lanes = f"<u{instruction.element // 8}", ROUNDS * 128 * 8 // instruction.element
    registers = rng.integers(0, 256, (ROUNDS, OPERANDS), np.uint8)
    first, second = operands(rng, lanes, kinds)
    registers[:, :128] = np.array(first, size).view(np.uint8).reshape(ROUNDS, 128)
    registers[:, 256:384] = np.array(second, size).view(np.uint8).reshape(ROUNDS, 128)
    if len(kinds) == 1:
        registers[:, 128:256] = registers[:, 256:384]
    return registers


@pytest.mark.parametrize(
    "instruction", ALL, ids=lambda instruction: instruction.syntax.replace(" ", "")
)
def test_an_instruction_does_as_the_model(
    qemu: Path, tmp_path: Path, instruction: Instruction
) -> None:
    rounds = rounds_of(np.random.default_rng(instruction.word + 1), instruction)
    run(qemu, instruction, instruction.bits, rounds, tmp_path)


IN_PLACE = [
    instruction
    for instruction in ALL
    if instruction.syntax.startswith("v31")
    and ("31:30" in instruction.syntax or ":2." in instruction.syntax)
] + [instruction for instruction in ALL if "vadd" in instruction.syntax]


@pytest.mark.parametrize(
    "instruction", IN_PLACE, ids=lambda instruction: instruction.syntax.replace(" ", "")
)
def test_a_result_in_the_place_of_an_operand(
    qemu: Path, tmp_path: Path, instruction: Instruction
) -> None:
    rounds = rounds_of(np.random.default_rng(instruction.word + 2), instruction)[:4]
    # v31 = v3, or v2; v30 = v2
    moved = (0x1E03E2FE, 0x1E03E3FF) if "31:30" in instruction.syntax else (0x1E03E2FF,)
    run(qemu, instruction, instruction.bits & ~0x1F | 2, rounds, tmp_path, moved)
