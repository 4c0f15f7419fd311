"""Vector float in the qemu-hexagon with our patch, each instruction against the plain model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.cache import BOARDS, cache_root
from harness.dsp.emulator import find_qemu
from tests.integration.qemu_hexagon.qfloat_model import Instruction, instructions
from tests.integration.qemu_hexagon.qfloat_operands import operands
from tests.integration.qemu_hexagon.vector_program import OPERANDS, RESULTS, run
from tests.needed import HEXAGON

pytestmark = pytest.mark.slow
ROUNDS = 64
ALL = instructions()


@pytest.fixture(scope="module")
def qemu() -> Path:
    """The one that is used here, which has our patch."""
    return find_qemu(cache_root() / BOARDS).path


def rounds_of(rng: np.random.Generator, instruction: Instruction) -> np.ndarray:
    """Rounds of v2 to v5: `operands` of its formats, and whatever was in the targets before."""
    _, _, kinds = instruction.parts
    size, lanes = f"<u{instruction.element // 8}", ROUNDS * 128 * 8 // instruction.element
    made = rng.integers(0, 256, (ROUNDS, OPERANDS), np.uint8)
    first, second = operands(rng, lanes, kinds)
    made[:, :128] = np.array(first, size).view(np.uint8).reshape(ROUNDS, 128)
    made[:, 256:384] = np.array(second, size).view(np.uint8).reshape(ROUNDS, 128)
    if len(kinds) == 1:
        made[:, 128:256] = made[:, 256:384]
    return made


@pytest.mark.needs(HEXAGON)
@pytest.mark.parametrize("instruction", ALL, ids=lambda one: one.syntax.replace(" ", ""))
def test_an_instruction_does_as_the_model(
    qemu: Path, tmp_path: Path, instruction: Instruction
) -> None:
    rounds = rounds_of(np.random.default_rng(instruction.word + 1), instruction)
    predicate = instruction.syntax.startswith("q3")
    done = run(qemu, instruction.bits, rounds.tobytes(), tmp_path, predicate=predicate)
    got = np.frombuffer(done, np.uint8).reshape(ROUNDS, RESULTS)
    for row, found in zip(rounds, got, strict=True):
        expected = instruction.results(row[:256], row[256:384], row[384:])
        np.testing.assert_array_equal(found, expected)


IN_PLACE = [
    one
    for one in ALL
    if one.syntax.startswith("v31") and ("31:30" in one.syntax or ":2." in one.syntax)
] + [one for one in ALL if "vadd" in one.syntax]


@pytest.mark.needs(HEXAGON)
@pytest.mark.parametrize("instruction", IN_PLACE, ids=lambda one: one.syntax.replace(" ", ""))
def test_a_result_in_the_place_of_an_operand(
    qemu: Path, tmp_path: Path, instruction: Instruction
) -> None:
    rounds = rounds_of(np.random.default_rng(instruction.word + 2), instruction)[:4]
    pair = "31:30" in instruction.syntax
    word = instruction.bits & ~0x1F | 2
    # v31 = v3, or v2; v30 = v2
    moved = (0x1E03E2FE, 0x1E03E3FF) if pair else (0x1E03E2FF,)
    done = run(qemu, word, rounds.tobytes(), tmp_path, predicate=False, behind=moved)
    for row, found in zip(rounds, np.frombuffer(done, np.uint8).reshape(4, RESULTS), strict=True):
        expected = instruction.results(row[:256], row[256:384], row[384:])
        np.testing.assert_array_equal(found, expected)
