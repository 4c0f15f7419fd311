"""HMX of the patched qemu-hexagon, compiled alone, against the plain model: random operands."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.unit.qemu_hexagon.hmx_model import Hmx, NotKnown

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "qemu-hexagon" / "target" / "hexagon"
MEMORY = 1 << 18
ACTIVATIONS = {"": 0, "above": 1, "single": 2, "dilate": 3, "deep": 4}
WEIGHTS = {
    "": (0, 0),
    "after": (1, 0),
    "single": (2, 0),
    "dilate": (3, 0),
    "drop": (0, 1),
    "deep": (0, 2),
}


class State(ctypes.Structure):
    """HMXState."""

    _fields_ = (
        ("sums", ctypes.c_int32 * (2 * 64 * 32)),
        ("half_sums", ctypes.c_double * (2 * 32 * 32)),
        ("results", ctypes.c_uint16 * (2 * 64 * 32)),
        ("words", ctypes.c_uint64 * 32),
        ("current", ctypes.c_int),
        ("activation", ctypes.c_uint32 * 5),
        ("unknown", ctypes.c_bool * 2),
    )


class Alone:
    """hmx.c and hmx_convert.c in this process."""

    def __init__(self, library: Path) -> None:
        self.c = ctypes.CDLL(str(library))
        self.c.alone_state.restype = ctypes.POINTER(State)
        self.c.alone_memory.restype = ctypes.POINTER(ctypes.c_uint8)
        for name in ("alone_weight", "alone_convert", "alone_store"):
            getattr(self.c, name).restype = ctypes.c_bool
        self.state = self.c.alone_state().contents
        self.memory = np.ctypeslib.as_array(self.c.alone_memory(), (MEMORY,))

    def reset(self, memory: np.ndarray) -> None:
        """All zero, and a memory with what is given."""
        ctypes.memset(ctypes.byref(self.state), 0, ctypes.sizeof(State))
        self.memory[:] = memory


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """The C, compiled with a header in place of QEMU's."""
    library = tmp_path_factory.mktemp("hmx") / "hmx.so"
    files = [SOURCES / "hmx.c", SOURCES / "hmx_convert.c", HERE / "alone" / "hmx_alone.c"]
    include = [f"-I{HERE / 'alone'}", f"-I{SOURCES}"]
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command = ["cc", *flags, *include, *map(str, files), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, timeout=100)
    return Alone(library)


def assert_same(model: Hmx, real: Alone) -> None:
    """State and memory are the same, bit by bit."""
    got = real.state
    wrapped = model.sums.astype(np.int32)
    np.testing.assert_array_equal(np.array(got.sums).reshape(wrapped.shape), wrapped)
    floats = np.array(got.half_sums, np.float64).reshape(model.half_sums.shape)
    np.testing.assert_array_equal(floats, model.half_sums)
    results = np.array(got.results).reshape(model.results.shape)
    np.testing.assert_array_equal(results, model.results)
    assert got.current == model.current
    np.testing.assert_array_equal(real.memory, model.memory)


def halves(rng: np.random.Generator, count: int) -> np.ndarray:
    """Halves whose products and their sums are exact, whatever the order."""
    return (rng.integers(-63, 64, count) / 8).astype("<f2").view(np.uint8)


class Pair:
    """Model and C, which do the same, and are compared after each instruction."""

    def __init__(self, real: Alone, seed: int, kind: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        if kind == "hf":
            memory = halves(self.rng, MEMORY // 2)
        else:
            memory = self.rng.integers(0, 256, MEMORY, np.uint8)
        self.real = real
        real.reset(memory)
        self.model = Hmx(memory.copy())

    def number(self, end: int) -> int:
        """A random number below an end."""
        return int(self.rng.integers(end))

    def multiply(self, which: str, weights: str, major: bool, rs: int, rt: int) -> None:
        """A packet of activations and weights."""
        kind = int(self.kind == "hf")
        from_, length = 0x20000 + 128 * self.number(64), self.number(1 << 14)
        self.model.activation(self.kind, which, major, rs, rt)
        self.model.weight(self.kind, weights, from_, length)
        self.real.c.alone_activation(kind, int(major), ACTIVATIONS[which], rs, rt)
        assert self.real.c.alone_weight(kind, *WEIGHTS[weights], from_, length)
        assert_same(self.model, self.real)

    def operands(self, which: str) -> tuple[int, int]:
        """Any tap, mask and channels; tiles within the first half of the memory."""
        rs = 2048 * (8 + self.number(20)) + self.number(2048)
        rt = self.number(2048) + 2048 * self.number(5 if which == "deep" else 20)
        return rs, rt

    def bias(self, words: list[int]) -> None:
        """Bias words, from a place in memory."""
        table = np.array([w & 0xFFFFFFFF for w in words] + [w >> 32 for w in words], "<u4")
        for memory in (self.model.memory, self.real.memory):
            memory[0x3000:0x3100] = table.view(np.uint8)
        self.model.bias(0x3000)
        self.real.c.alone_bias(0x3000)
        assert list(self.real.state.words) == self.model.words == words

    def convert(self, what: str, rs: int) -> None:
        """A conversion, which both do or both refuse."""
        known = True
        try:
            getattr(self.model, f"convert_{what}")(rs)
        except NotKnown:
            known = False
        number = ("bytes", "halves", "pairs").index(what)
        assert self.real.c.alone_convert(number, rs) == known
        assert_same(self.model, self.real)

    def store(self) -> None:
        """One of the stores, where nothing is read afterwards: any half could be infinite."""
        number = self.number(3)
        rs, rt = 2048 * (80 + self.number(8)) + self.number(2048), self.number(39 * 2048)
        known = True
        try:
            self.model.store(("", "cm", "2x2")[number], rs, rt)
        except NotKnown:
            known = False
        assert self.real.c.alone_store(number, rs, rt) == known
        assert_same(self.model, self.real)


def byte_word(pair: Pair) -> int:
    """A bias word of bytes without the bits of a shape; sums of some size do not all saturate."""
    word = pair.number(1 << 32) & ~(1 << 18 | 1 << 17 | 1 << 15 | 31 << 10)
    word |= (14 + pair.number(6)) << 10
    return word | (pair.number(1 << 18) - (1 << 17)) % (1 << 32) << 32


def half_word(pair: Pair) -> int:
    """A bias word of halves: scale, offset and bias of moderate size, any shape."""
    scale, offset, bias = (pair.number(1 << 16) & ~0x4000 for _ in range(3))
    return scale | offset << 16 | pair.number(1 << 16) << 32 | bias << 48


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("which", ACTIVATIONS)
@pytest.mark.parametrize(("kind", "major"), [("ub", False), ("ub", True), ("hf", False)])
def test_every_kind_of_multiplication_sums_what_the_model_sums(
    alone: Alone, kind: str, major: bool, which: str, weights: str
) -> None:
    seed = sum(map(ord, kind + which + weights)) + major
    pair = Pair(alone, seed, kind)
    for _ in range(3):
        rs, rt = pair.operands(which)
        pair.multiply(which, weights, major, rs, rt)


@pytest.mark.parametrize("group", [4, 8, 16])
@pytest.mark.parametrize("kind", ["ub", "hf"])
def test_channels_whose_first_lies_behind_the_last_are_groups(
    alone: Alone, kind: str, group: int
) -> None:
    pair = Pair(alone, group, kind)
    for shift, major in ((2, False), (0, True)):
        if kind == "hf" and major:
            continue
        rs, rt = 0x8000 + (group << shift), 0x700 + ((group - 1) << shift)
        pair.multiply("", "", major, rs, rt)
        assert pair.model.half_sums.any() or pair.model.sums.any()


@pytest.mark.parametrize("seed", range(12))
def test_bytes_become_what_the_model_says_with_any_feedback(alone: Alone, seed: int) -> None:
    pair = Pair(alone, seed, "ub")
    for _ in range(4):
        pair.multiply("", "", bool(pair.number(2)), *pair.operands(""))
        pair.bias([byte_word(pair) for _ in range(32)])
        pair.convert("bytes", pair.number(32))
        pair.store()


@pytest.mark.parametrize("seed", range(12))
def test_halves_become_what_the_model_says_with_any_shape(alone: Alone, seed: int) -> None:
    pair = Pair(alone, seed, "hf")
    for _ in range(4):
        pair.multiply("", "", False, *pair.operands(""))
        pair.bias([half_word(pair) for _ in range(32)])
        pair.convert("halves", pair.number(32))
        pair.store()


@pytest.mark.parametrize("seed", range(12))
def test_pairs_become_what_the_model_says(alone: Alone, seed: int) -> None:
    pair = Pair(alone, seed, "ub")
    for _ in range(4):
        pair.multiply("", "dilate", False, *pair.operands(""))
        words = [byte_word(pair) & ~(0x1F << 19 | 1 << 16 | 0x7F8 << 20) for _ in range(32)]
        words[1::2] = [pair.number(1 << 31) & 0x7FF903FF for _ in range(16)]
        words[0::2] = [word & ~0x380000 | pair.number(2) << 22 for word in words[0::2]]
        pair.bias(words)
        pair.convert("pairs", pair.number(4) << 9 | pair.number(32))
        pair.store()


@pytest.mark.parametrize(("kind", "what"), [("ub", "bytes"), ("hf", "halves")])
def test_the_sets_are_swapped(alone: Alone, kind: str, what: str) -> None:
    pair = Pair(alone, 3, kind)
    for _ in range(3):
        pair.multiply("", "", False, *pair.operands(""))
        pair.model.swap()
        pair.real.c.alone_swap()
        pair.convert(what, 3)


def test_a_shape_that_nobody_has_described_is_refused(alone: Alone) -> None:
    for bit in (15, 17, 18):
        pair = Pair(alone, bit, "ub")
        pair.bias([0x4000, 1 << bit] + [0] * 30)
        pair.convert("bytes", 0)
        pair.convert("pairs", 0x600)


def test_weights_of_another_type_than_the_activations_are_refused(alone: Alone) -> None:
    pair = Pair(alone, 1, "ub")
    pair.real.c.alone_activation(1, 0, 0, 0x8000, 0x77C)
    assert not pair.real.c.alone_weight(0, 0, 0, 0x20000, 0x3FF)
    assert_same(pair.model, pair.real)


def test_clearing_leaves_the_sums_of_the_other_type(alone: Alone) -> None:
    for kind in ("ub", "hf"):
        pair = Pair(alone, 2, kind)
        pair.multiply("", "", False, 0x8000, 0x77C)
        for cleared in ("hf", "ub") if kind == "ub" else ("ub", "hf"):
            pair.model.clear(cleared)
            pair.real.c.alone_clear(int(cleared == "hf"))
            assert_same(pair.model, pair.real)
