"""The model of vector floating point, by cases worked out by hand; and the C, alone, against it."""

from __future__ import annotations

import ctypes
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.unit.qemu_hexagon import qfloat_model as model
from tests.unit.qemu_hexagon.qfloat_operands import operands

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "qemu-hexagon" / "target" / "hexagon"
TYPES = {"sf": 0, "hf": 1, "qf32": 2, "qf16": 3}
ALL = model.instructions()
LANES = 3000


def qf32(m: int, exponent: int) -> int:
    return (m << 8 | exponent + 127) & 0xFFFFFFFF


def sf(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def hf(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def rounded(units: Fraction | float, exponent: int = 0) -> int:
    return model.packed("qf32", Fraction(units) / (1 << 23), exponent)


@pytest.mark.parametrize(
    ("units", "m", "exponent"),
    [
        (1, 0, 0),
        (-1, -1, 0),
        (0.25, 0, 0),
        (-0.25, -1, 0),
        (5, 2, 0),
        (5.5, 2, 0),  # 1.5 of 4
        (5.75, 1, 1),  # to the even 6, as 3 * 2
        (6, 1, 1),
        (6.5, 1, 1),
        (6.75, 3, 0),
        (7, 3, 0),
        (8, 4, 0),  # both neighbours are as near
        (-6, -2, 1),
        (-5.5, -2, 1),  # 2.5 of 4
        ((1 << 24) - 1, (1 << 23) - 1, 0),
        (1 << 24, 1 << 22, 1),  # 2.0: halved
        ((1 << 24) + 4, (1 << 22) + 0, 1),  # 2 of 4: down
        ((1 << 24) + 5, (1 << 22) + 1, 1),
        (-(1 << 24), -(1 << 23), 0),  # -2.0 is not
    ],
)
def test_sums_are_rounded_to_an_odd_number_of_units(units: float, m: int, exponent: int) -> None:
    assert rounded(units) == qf32(m, exponent)


def test_exponents_beyond_both_ends() -> None:
    assert rounded(3, -128) == qf32(0, -127)  # halved: 1.5
    assert rounded(7, -128) == qf32(1, -127)
    assert rounded(1 << 23, -129) == qf32(0, -127)
    assert rounded(-(1 << 23), -129) == qf32(-1, -127)
    assert rounded(3, 129) == qf32((1 << 23) - 1, 128)
    assert rounded(-3, 129) == qf32(-(1 << 23), 128)
    assert rounded(2, 128) == qf32((1 << 23) - 1, 128)
    assert rounded(0, 5) == 0


def test_a_negative_product_of_ieee_numbers_is_the_positive_one_complemented() -> None:
    positive = model.multiplied("qf32", model.number("sf", sf(1.5)), model.number("sf", sf(3)))
    negative = model.multiplied("qf32", model.number("sf", sf(1.5)), model.number("sf", sf(-3)))
    assert positive >> 8 ^ negative >> 8 == 0xFFFFFF
    assert positive & 0xFF == negative & 0xFF


def test_a_sum_keeps_the_exponent_of_what_is_left() -> None:
    one, small = model.number("sf", sf(1)), model.number("sf", sf(2**-20))
    assert model.added("qf32", one, small) == qf32((1 << 22) + 4, 0)
    # the larger exponent belongs to the smaller number
    loose = model.number("qf32", qf32(0, 10))
    assert model.added("qf32", loose, model.number("sf", sf(2**-30))) & 0xFF == 127 + 10 - 23
    assert model.added("qf32", one, -one) == 0


def test_what_is_lost_of_a_sum_decides_ties() -> None:
    base = model.number("qf32", qf32(1 << 22, 0))
    half = model.number("qf32", qf32(0, -1))  # half a unit: 1.5
    assert model.added("qf32", base, half) == qf32(1 << 22, 0)
    more = Fraction(1 << 23 | 1, 1 << 23) + Fraction(1, 1 << 24) + Fraction(1, 1 << 90)
    assert model.packed("qf32", more, 0) == qf32(1 << 21, 1)


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 65504.0, 2.0**-24, -(2.0**-14), 3.14159])
def test_ieee_numbers_are_those_of_numpy(value: float) -> None:
    assert model.number("hf", hf(value)).value == Fraction(float(np.float16(value)))
    assert model.to_ieee("hf", Fraction(value), negative=value < 0) == hf(value)
    assert model.to_ieee("sf", Fraction(value), negative=value < 0) == sf(value)


def test_the_largest_exponent_is_an_ordinary_one() -> None:
    assert model.number("hf", 0x7C00).value == 1 << 16
    assert model.to_ieee("hf", Fraction(1 << 16), negative=False) == 0x7C00
    assert model.to_ieee("hf", Fraction(1 << 17), negative=True) == 0xFFFF
    assert model.to_ieee("sf", Fraction(1 << 130), negative=False) == 0x7FFFFFFF


def test_integers() -> None:
    assert model.converted("w", "sf", sf(-2.75)) == 0xFFFFFFFE
    assert model.converted("h", "hf", 0x7C00) == 0x7FFF
    assert model.converted("w", "sf", sf(-3e9)) == 0x80000000
    assert model.converted("sf", "w", 0xFFFFFFFF) == sf(-1)
    assert model.converted("sf", "w", 0x01000001) == sf(1 << 24)


def test_an_operand_of_zeros_is_the_smallest_number() -> None:
    smallest = model.number("qf16", 0)
    assert smallest.value == Fraction(1, 1 << 25)
    assert model.multiplied("qf16", smallest, model.number("hf", hf(1024))) != 0
    assert model.multiplied("qf16", smallest, model.number("hf", hf(0))) == 0
    assert model.added("qf16", smallest, -smallest) == 0


def test_where_elements_of_pairs_come_from_and_go_to() -> None:
    by_name = {one.syntax: one for one in ALL}
    u = np.concatenate([np.full(32, qf32(0, 23)), np.full(32, qf32(1, 23))]).astype("<u4")
    v, before = np.zeros(128, np.uint8), np.zeros(128, np.uint8)
    halves = by_name["v31.hf = v3:2.qf32"].results(u.view(np.uint8), v, before)
    assert halves[128:].view("<u2").tolist() == [hf(1), hf(3)] * 32
    u = np.tile(np.array([hf(1), hf(2)], "<u2"), 64).view(np.uint8)
    product = by_name["v31:30.qf32 = vmpy(v2.hf,v4.hf)"].results(u, u[:128], before)
    values = [model.number("qf32", int(one)).value for one in product.view("<u4")]
    assert all(abs(one - 1) < Fraction(1, 1 << 20) for one in values[:32])
    assert all(abs(one - 4) < Fraction(1, 1 << 20) for one in values[32:])


def test_predicates_have_a_bit_for_each_byte() -> None:
    by_name = {one.syntax: one for one in ALL}
    u, v = np.zeros(64, "<u4"), np.zeros(32, "<u4")
    u[3] = sf(1)
    before = np.full(128, 1, np.uint8)
    for how, bits in (("", (0, 1)), ("&", (0, 1)), ("|", (1, 1)), ("^", (1, 0))):
        name = f"q3 {how}= vcmp.gt(v2.sf,v4.sf)"
        found = by_name[name].results(u.view(np.uint8), v.view(np.uint8), before)[128:]
        assert found[12:16].tolist() == [bits[1]] * 4
        assert found[:12].tolist() == [bits[0]] * 12


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C, compiled with a header in place of QEMU's."""
    library = tmp_path_factory.mktemp("qfloat") / "qfloat.so"
    include = [f"-I{HERE / 'alone'}", f"-I{SOURCES}"]
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-fsanitize=undefined"]
    # QEMU is compiled so that negative numbers may be shifted
    flags += ["-fno-sanitize=shift-base", "-fsanitize-undefined-trap-on-error"]
    source = HERE / "alone" / "qfloat_alone.c"
    command = ["cc", *flags, *include, str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=100)
    c = ctypes.CDLL(str(library))
    for name in ("add", "multiply", "convert", "from_integer", "max", "min"):
        getattr(c, f"alone_{name}").restype = ctypes.c_uint32
    c.alone_greater.restype = ctypes.c_bool
    return c


def by_c(c: ctypes.CDLL, what: str | None, to: str, kinds: list[str], a: int, b: int) -> int:
    types = [TYPES.get(one, -1) for one in kinds]
    if what is None:
        bits = model.INTEGERS.get(to) or model.INTEGERS.get(kinds[0], 0)
        if to in model.INTEGERS:
            return c.alone_to_integer(a, types[0]) & ((1 << bits) - 1)
        if kinds[0] in model.INTEGERS:
            return c.alone_from_integer(a - (a >> (bits - 1) << bits), TYPES[to])
        return c.alone_convert(a, types[0], TYPES[to])
    if what in ("vadd", "vsub"):
        return c.alone_add(a, types[0], b, types[1], what == "vsub")
    if what == "vmpy":
        return c.alone_multiply(a, types[0], b, types[1], TYPES[to])
    name = {"vcmp": "greater", "vmax": "max", "vmin": "min"}[what]
    return int(getattr(c, f"alone_{name}")(a, b, types[0]))


@pytest.mark.parametrize("instruction", ALL, ids=lambda one: one.syntax.replace(" ", ""))
def test_the_c_does_as_the_model(alone: ctypes.CDLL, instruction: model.Instruction) -> None:
    rng = np.random.default_rng(instruction.word)
    to, what, kinds = instruction.parts
    a, b = operands(rng, LANES, kinds)
    for x, y in zip(a, b, strict=True):
        if what is None:
            expected = model.converted(to, kinds[0], x)
        else:
            expected = model.computed(what, to, kinds, x, y)
        assert by_c(alone, what, to, kinds, x, y) == expected, (hex(x), hex(y), hex(expected))
