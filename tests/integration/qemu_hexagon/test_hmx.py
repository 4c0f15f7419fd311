"""HMX in the qemu-hexagon with our patch: which packets there are, and what raises a signal.

That their sums are right is seen where real skels execute them (tests/integration/dsp).
"""

import itertools
import signal
from pathlib import Path

import pytest

from tests.integration.qemu_hexagon import hmx_program as program
from tests.integration.qemu_hexagon.hmx_program import ACTIVATIONS, AT, WEIGHTS

pytestmark = pytest.mark.slow
SIZE = 0x40000
BIAS, WEIGHTS_AT, RESULTS = 0x3000, 0x20000, 0x30000
OPERANDS = (AT + 0x4000, 0x77C, AT + WEIGHTS_AT, 0x3FF)
BYTES = ACTIVATIONS["ub", "", False]


@pytest.mark.parametrize("kind", ["ub", "hf"])
def test_every_packet_is_executed(qemu: Path, tmp_path: Path, kind: str) -> None:
    activations = [word for (of, *_), word in ACTIVATIONS.items() if of == kind]
    weights = [word for (of, _), word in WEIGHTS.items() if of == kind]
    code = program.single(program.BIAS, AT + BIAS)
    for activation, weight in itertools.product(activations, weights):
        code += program.multiply(activation, weight, OPERANDS)
    code += program.single(program.SWAPS[kind]) + program.single(program.CLEARS[kind])
    code += program.multiply(ACTIVATIONS[kind, "", False], WEIGHTS[kind, ""], OPERANDS)
    code += program.single(program.CONVERSIONS["bytes" if kind == "ub" else "halves"])
    memory = bytearray(b"\x01\x3c" * (SIZE // 2))
    memory[BIAS : BIAS + 256] = (0x4000).to_bytes(4, "little") * 32 + bytes(128)
    for store in program.STORES.values():
        code += program.single(store, AT + RESULTS, 0x700)
    status, after = program.run(qemu, code, bytes(memory), tmp_path)
    assert status == 0
    assert after[:RESULTS] == memory[:RESULTS]
    assert after[RESULTS:] != memory[RESULTS:]


def test_what_is_not_implemented_is_an_illegal_instruction(qemu: Path, tmp_path: Path) -> None:
    shape = bytearray(SIZE)
    shape[BIAS + 2] = 2
    for code in (
        program.multiply(BYTES, program.NIBBLES, OPERANDS),
        program.multiply(ACTIVATIONS["hf", "", False], WEIGHTS["ub", ""], OPERANDS),
        program.single(program.BIAS, AT + BIAS) + program.single(program.CONVERSIONS["bytes"]),
        program.single(program.CONVERSIONS["pairs"])
        + program.single(program.STORES[""], AT + RESULTS, 0x700),
    ):
        status, _ = program.run(qemu, code, bytes(shape), tmp_path)
        assert status == -signal.SIGILL


def test_memory_that_is_not_there_is_a_segmentation_fault(qemu: Path, tmp_path: Path) -> None:
    nowhere = 0x10000000
    for code in (
        program.multiply(BYTES, WEIGHTS["ub", ""], (nowhere, *OPERANDS[1:])),
        program.single(program.BIAS, nowhere),
        program.single(program.STORES[""], nowhere, 0x77C),
    ):
        status, _ = program.run(qemu, code, bytes(SIZE), tmp_path)
        assert status == -signal.SIGSEGV
