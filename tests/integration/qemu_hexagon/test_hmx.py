"""HMX in the qemu-hexagon with our patch: encodings, operands, memory, and what raises SIGILL."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from harness.core.cache import BOARDS, cache_root
from harness.dsp.emulator import find_qemu
from tests.integration.qemu_hexagon import hmx_program as program
from tests.integration.qemu_hexagon.hmx_model import Hmx
from tests.integration.qemu_hexagon.hmx_program import ACTIVATIONS, AT, WEIGHTS
from tests.needed import HEXAGON

pytestmark = pytest.mark.slow
SIZE = 0x40000
BIAS, WEIGHTS_AT, RESULTS = 0x3000, 0x20000, 0x30000
TILES = (8, 28)
KINDS = [
    (*activation, which)
    for activation in ACTIVATIONS
    for kind, which in WEIGHTS
    if kind == activation[0]
]


@pytest.fixture(scope="module")
def qemu() -> Path:
    """The one that is used here, which has our patch."""
    return find_qemu(cache_root() / BOARDS).path


class Both:
    """Instructions that the model does at once, and a program does later."""

    def __init__(self, kind: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        if kind == "hf":
            memory = (self.rng.integers(-63, 64, SIZE // 2) / 8).astype("<f2").view(np.uint8)
        else:
            memory = self.rng.integers(0, 256, SIZE, np.uint8)
        self.before = memory
        self._write_bias(memory)
        self.model = Hmx(memory.copy())
        self.code: list[int] = []

    def number(self, end: int) -> int:
        """A random number below an end."""
        return int(self.rng.integers(end))

    def _write_bias(self, memory: np.ndarray) -> None:
        """Words without the bits of an unknown shape, by which not all sums saturate."""
        low = self.rng.integers(0, 1 << 32, 32) & ~(1 << 18 | 1 << 17 | 1 << 15 | 31 << 10)
        low |= self.rng.integers(14, 20, 32) << 10
        high = self.rng.integers(-(1 << 17), 1 << 17, 32)
        if self.kind == "hf":
            low, high = self.rng.integers(0, 1 << 32, (2, 32))
            low, high = low & 0xBFFFBFFF, high & 0xBFFFFFFF
        words = np.concatenate([low, high]).astype("<i8").astype("<u4")
        memory[BIAS : BIAS + 256] = words.view(np.uint8)

    def multiply(self, which: str, major: bool, weights: str) -> None:
        """Activations and weights, anywhere."""
        rs = 2048 * int(self.rng.integers(*TILES)) + self.number(2048)
        rt = self.number(2048) + 2048 * self.number(3)
        wrs, wrt = WEIGHTS_AT + 128 * self.number(64), self.number(1 << 14)
        self.model.activation(self.kind, which, major, rs, rt)
        self.model.weight(self.kind, weights, wrs, wrt)
        words = ACTIVATIONS[self.kind, which, major], WEIGHTS[self.kind, weights]
        self.code += program.multiply(*words, (AT + rs, rt, AT + wrs, wrt))

    def convert_and_store(self, what: str, rs: int, store: str) -> None:
        """What the sums become, at another place of the results."""
        self.model.bias(BIAS)
        self.code += program.single(program.BIAS, AT + BIAS)
        getattr(self.model, f"convert_{what}")(rs)
        self.code += program.single(program.CONVERSIONS[what], rs)
        to = RESULTS + 2048 * self.number(8) + self.number(2048)
        rt = self.number(4096)
        self.model.store(store, to, rt)
        self.code += program.single(program.STORES[store], AT + to, rt)

    def clear(self, kind: str) -> None:
        """All sums of a type."""
        self.model.clear(kind)
        self.code += program.single(program.CLEARS[kind])

    def swap(self) -> None:
        """The other set becomes the current one."""
        self.model.swap()
        self.code += program.single(program.SWAPS[self.kind])

    def check(self, qemu: Path, folder: Path) -> None:
        """Both leave the same memory."""
        status, memory = program.run(qemu, self.code, self.before.tobytes(), folder)
        assert status == 0
        np.testing.assert_array_equal(np.frombuffer(memory, np.uint8), self.model.memory)
        assert (self.model.memory != self.before).any()


@pytest.mark.needs(HEXAGON)
@pytest.mark.parametrize(("kind", "which", "major", "weights"), KINDS)
def test_every_packet_of_activations_and_weights(
    qemu: Path, tmp_path: Path, kind: str, which: str, major: bool, weights: str
) -> None:
    both = Both(kind, len(which) + 10 * len(weights) + 100 * major)
    for store in ("", "cm", "2x2"):
        both.multiply(which, major, weights)
        both.swap()
        both.multiply(which, major, weights)
        both.clear("hf" if kind == "ub" else "ub")
        if kind == "ub":
            both.convert_and_store("bytes", both.number(32), store)
        else:
            both.convert_and_store("halves", both.number(32) & ~8, store)
        both.clear(kind)
    both.check(qemu, tmp_path)


@pytest.mark.needs(HEXAGON)
def test_results_of_a_pass_limit_those_of_the_next(qemu: Path, tmp_path: Path) -> None:
    for kind, what in (("ub", "bytes"), ("hf", "halves")):
        both = Both(kind, 5)
        both.multiply("", False, "")
        for rs in (3, 6, 1, 0x15, 0xD):
            both.convert_and_store(what, rs, "")
        both.check(qemu, tmp_path)


@pytest.mark.needs(HEXAGON)
def test_pairs_of_16_bits(qemu: Path, tmp_path: Path) -> None:
    both = Both("ub", 3)
    for table in (both.before, both.model.memory):
        words = table[BIAS : BIAS + 256].view("<u4")
        words[0:32:2] &= 0x8040FFFF
        words[1:32:2] &= 0x7FF003FF
        words[33::2] = 0
    for rs in (0x401, 0x20C, 0x600):
        both.multiply("", False, "dilate")
        both.convert_and_store("pairs", rs, "2x2" if rs == 0x600 else "")
    both.check(qemu, tmp_path)


@pytest.mark.needs(HEXAGON)
def test_what_is_not_implemented_is_an_illegal_instruction(qemu: Path, tmp_path: Path) -> None:
    shape = np.zeros(SIZE, np.uint8)
    shape[BIAS + 2] = 2
    bias = program.single(program.BIAS, AT + BIAS)
    operands = (AT + 0x4000, 0x77C, AT + WEIGHTS_AT, 0x3FF)
    for code in (
        program.multiply(ACTIVATIONS["ub", "", False], program.NIBBLES, operands),
        program.multiply(ACTIVATIONS["hf", "", False], WEIGHTS["ub", ""], operands),
        bias + program.single(program.CONVERSIONS["bytes"]),
        program.single(program.CONVERSIONS["pairs"])
        + program.single(program.STORES[""], AT + RESULTS, 0x700),
    ):
        status, _ = program.run(qemu, code, shape.tobytes(), tmp_path)
        assert status == -signal.SIGILL


@pytest.mark.needs(HEXAGON)
def test_memory_that_is_not_there_is_a_segmentation_fault(qemu: Path, tmp_path: Path) -> None:
    operands = (0x10000000, 0x77C, AT + WEIGHTS_AT, 0x3FF)
    code = program.multiply(ACTIVATIONS["ub", "", False], WEIGHTS["ub", ""], operands)
    for faulty in (
        code,
        program.single(program.BIAS, 0x10000000),
        program.single(program.STORES[""], 0x10000000, 0x77C),
    ):
        status, _ = program.run(qemu, faulty, bytes(SIZE), tmp_path)
        assert status == -signal.SIGSEGV
