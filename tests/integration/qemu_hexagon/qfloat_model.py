"""A plain model of Hexagon's vector floating point: exact fractions, one element at a time.

A number of the formats of its own (qf32, qf16) is (2M+1) units of the last place at exponent E: it
is never normalised, and only odd multiples of a unit exist. So an operand of zeros is the smallest
number; a result that is exactly zero is written so. IEEE operands (sf, hf) have neither infinity
nor NaN: the largest exponent is one more ordinary one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

INSTRUCTIONS = """
v31.sf = v2.qf32                 1e042000
v31.hf = v3:2.qf32               1e0420c0
v31.hf = v2.qf16                 1e042060
v31.sf = v2.w                    1e052060
v31.w = v2.sf                    1e052020
v31.hf = v2.h                    1e052080
v31.h = v2.hf                    1e052040
v31.qf32 = vadd(v2.qf32,v4.qf32) 1fa02000
v31.qf32 = vadd(v2.qf32,v4.sf)   1fa02040
v31.qf32 = vadd(v2.sf,v4.sf)     1fa02020
v31.qf32 = vsub(v2.qf32,v4.qf32) 1fa02060
v31.qf32 = vsub(v2.qf32,v4.sf)   1fa020a0
v31.qf32 = vsub(v2.sf,v4.sf)     1fa02080
v31.qf16 = vadd(v2.qf16,v4.qf16) 1f602040
v31.qf16 = vadd(v2.qf16,v4.hf)   1f602080
v31.qf16 = vadd(v2.hf,v4.hf)     1f602060
v31.qf16 = vsub(v2.qf16,v4.qf16) 1f6020a0
v31.qf16 = vsub(v2.qf16,v4.hf)   1f6020e0
v31.qf16 = vsub(v2.hf,v4.hf)     1f6020c0
v31.qf32 = vmpy(v2.qf32,v4.qf32) 1fe02000
v31.qf32 = vmpy(v2.sf,v4.sf)     1fe02020
v31.qf16 = vmpy(v2.qf16,v4.qf16) 1fe02060
v31.qf16 = vmpy(v2.qf16,v4.hf)   1fe020a0
v31.qf16 = vmpy(v2.hf,v4.hf)     1fe02080
v31:30.qf32 = vmpy(v2.qf16,v4.qf16) 1fe020c0
v31:30.qf32 = vmpy(v2.qf16,v4.hf) 1f802000
v31:30.qf32 = vmpy(v2.hf,v4.hf)  1fe020e0
v31.sf = vmax(v2.sf,v4.sf)       1fc02020
v31.sf = vmin(v2.sf,v4.sf)       1fc02040
v31.hf = vmax(v2.hf,v4.hf)       1fc02060
v31.hf = vmin(v2.hf,v4.hf)       1fc02080
q3 = vcmp.gt(v2.sf,v4.sf)        1c802070
q3 = vcmp.gt(v2.hf,v4.hf)        1c802074
q3 &= vcmp.gt(v2.sf,v4.sf)       1c8020c8
q3 &= vcmp.gt(v2.hf,v4.hf)       1c8020cc
q3 |= vcmp.gt(v2.sf,v4.sf)       1c802030
q3 |= vcmp.gt(v2.hf,v4.hf)       1c802034
q3 ^= vcmp.gt(v2.sf,v4.sf)       1c8020e8
q3 ^= vcmp.gt(v2.hf,v4.hf)       1c8020ec
"""
"""Each with its word, but for registers and the bits that say where a packet ends."""

_SHAPE = re.compile(r"(?:v31:30|v31|q3)(?:\.(\w+))? .?= (?:(v\w+)(?:\.gt)?\()?([^()]+)\)?")


@dataclass(frozen=True)
class Form:
    """A format of numbers: bits behind the point of a significand, bits and bias of exponents."""

    fraction: int
    exponent: int
    ieee: bool

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def bits(self) -> int:
        return 1 + self.fraction + self.exponent

    @property
    def highest(self) -> int:
        return (1 << self.exponent) - 1 - self.bias


FORMS = {
    "qf32": Form(23, 8, ieee=False),
    "qf16": Form(10, 5, ieee=False),
    "sf": Form(23, 8, ieee=True),
    "hf": Form(10, 5, ieee=True),
}
INTEGERS = {"w": 32, "h": 16}


@dataclass(frozen=True)
class Number:
    """An operand: `significand` * 2**`exponent`."""

    significand: Fraction
    exponent: int
    ieee: bool

    @property
    def value(self) -> Fraction:
        return self.significand * Fraction(2) ** self.exponent

    def __neg__(self) -> Number:
        return replace(self, significand=-self.significand)


def number(kind: str, word: int) -> Number:
    """The number that the bits of an element stand for."""
    form = FORMS[kind]
    unit = Fraction(1, 1 << form.fraction)
    if not form.ieee:
        m, field = word >> form.exponent, word & ((1 << form.exponent) - 1)
        if m >> form.fraction:
            m -= 2 << form.fraction
        return Number((2 * m + 1) * unit, field - form.bias, ieee=False)
    field, m = divmod(word & ((1 << (form.bits - 1)) - 1), 1 << form.fraction)
    hidden = 1 << form.fraction if field else 0
    sign = -1 if word >> (form.bits - 1) else 1
    return Number(sign * (hidden + m) * unit, max(field, 1) - form.bias, ieee=True)


def packed(kind: str, s: Fraction, exponent: int, *, complemented: bool = False) -> int:
    """The word of qf32 or qf16 that is nearest: an odd multiple of a unit."""
    form = FORMS[kind]
    if s == 0:
        return 0
    largest, lowest = (1 << form.fraction) - 1, -form.bias
    if exponent < lowest - 1:
        m, exponent = (-1 if s < 0 else 0), lowest
    else:
        odd, exponent = _odd(s * (1 << form.fraction), exponent, lowest, form)
        m = (odd - 1) // 2
        if exponent > form.highest:
            m, exponent = (-largest - 1 if s < 0 else largest), form.highest
    if complemented:
        m = -1 - m
    return (m << form.exponent | exponent + form.bias) & ((1 << form.bits) - 1)


def _odd(units: Fraction, exponent: int, lowest: int, form: Form) -> tuple[int, int]:
    """The odd number of units, and its exponent, to which a number is rounded."""
    two = 2 << form.fraction
    if units >= two or units < -two or exponent < lowest:
        units /= 2
        rest = units % 4
        return int(units - rest) + (1 if rest <= 2 else 3), exponent + 1
    rest = units % 4
    if rest <= Fraction(3, 2):
        return int(units - rest) + 1, exponent
    if rest <= Fraction(5, 2):
        return (int(units - rest) + 2) // 2, exponent + 1
    return int(units - rest) + 3, exponent


def added(kind: str, a: Number, b: Number) -> int:
    """The sum; of two negative IEEE numbers, that of their magnitudes, complemented."""
    complemented = a.ieee and b.ieee and a.significand < 0 and b.significand < 0
    if complemented:
        a, b = -a, -b
    if a.exponent < b.exponent:
        a, b = b, a
    exponent = b.exponent
    if a.significand:
        exponent = max(exponent, a.exponent + _ilogb(a.significand))
    total = (a.value + b.value) / Fraction(2) ** exponent
    return packed(kind, total, exponent, complemented=complemented)


def multiplied(kind: str, a: Number, b: Number) -> int:
    """The product; of IEEE numbers of which one is negative, that of magnitudes, complemented."""
    product = a.significand * b.significand
    complemented = a.ieee and b.ieee and product < 0
    if complemented:
        product = -product
    return packed(kind, product, a.exponent + b.exponent, complemented=complemented)


def to_ieee(kind: str, value: Fraction, *, negative: bool) -> int:
    """The nearest IEEE number, the even one of two; what is too large is all ones."""
    form = FORMS[kind]
    sign = 1 << (form.bits - 1) if negative else 0
    if value == 0:
        return sign
    exponent = max(_ilogb(value), 1 - form.bias)
    nearest = round(abs(value) / Fraction(2) ** (exponent - form.fraction))
    word = ((exponent + form.bias - 1) << form.fraction) + nearest
    return sign | min(word, (1 << (form.bits - 1)) - 1)


def _ilogb(value: Fraction) -> int:
    """The exponent e of 2**e <= |value| < 2**(e+1)."""
    value = abs(value)
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if value >= Fraction(2) ** e else e - 1


def converted(to: str, kind: str, word: int) -> int:
    if to in INTEGERS:
        bits = INTEGERS[to]
        whole = int(number(kind, word).value)
        return max(-(1 << (bits - 1)), min(whole, (1 << (bits - 1)) - 1)) & ((1 << bits) - 1)
    if kind in INTEGERS:
        whole = word - ((word >> (INTEGERS[kind] - 1)) << INTEGERS[kind])
        return to_ieee(to, Fraction(whole), negative=whole < 0)
    value = number(kind, word).value
    return to_ieee(to, value, negative=value < 0)


def computed(operation: str, to: str, kinds: list[str], a: int, b: int) -> int:
    """The element that an operation of two operands makes."""
    x, y = number(kinds[0], a), number(kinds[1], b)
    if operation == "vmpy":
        return multiplied(to, x, y)
    if operation in ("vadd", "vsub"):
        return added(to, x, y if operation == "vadd" else -y)
    if operation == "vcmp":
        return int(x.value > y.value)
    first = x.value > y.value if operation == "vmax" else x.value < y.value
    return a if first else b


@dataclass(frozen=True)
class Instruction:
    """One instruction of the table above, of registers v3:2, v4 and v31:30 or q3."""

    syntax: str
    word: int

    @property
    def bits(self) -> int:
        """Its word: alone in its packet, with its registers."""
        pair = "31:30" in self.syntax
        target = 3 if self.syntax.startswith("q3") else 30 if pair else 31
        second = 4 << 16 if "v4" in self.syntax else 0
        return self.word | 0xC000 | second | 2 << 8 | target

    @property
    def parts(self) -> tuple[str, str | None, list[str]]:
        """The format of the result, the operation (none: a conversion), those of the operands."""
        shape = _SHAPE.fullmatch(self.syntax)
        to, operation, operands = shape.groups()
        return to or "", operation, [operand.rpartition(".")[2] for operand in operands.split(",")]

    @property
    def element(self) -> int:
        """The bits of an element of the first operand."""
        return 16 if self.parts[2][0] in ("hf", "qf16", "h") else 32

    def results(self, u: np.ndarray, v: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The 256 bytes of v31:30 afterwards.

        `u` is 256 bytes (v3:2), `v` 128 (v4), `before` 128 with what both targets hold and, in the
        lowest bits, q3. For a predicate, v31 gets its bits, a byte each.
        """
        to, operation, kinds = self.parts
        size = f"<u{self.element // 8}"
        result = np.concatenate([before, before])
        first = u.view(size)
        if ":2." in self.syntax:
            # even elements come from the low vector, odd ones from the high one
            first = first.reshape(2, 32).T.reshape(-1)
        else:
            first = first[: 1024 // self.element]
        if operation is None:
            elements = [converted(to, kinds[0], int(a)) for a in first]
        else:
            pairs = zip(first, v.view(size), strict=True)
            elements = [computed(operation, to, kinds, int(a), int(b)) for a, b in pairs]
        if self.syntax.startswith("q3"):
            change = self.syntax[3].strip("=")
            bits, old = np.repeat(np.array(elements, np.uint8), self.element // 8), before & 1
            result[128:] = {"": bits, "&": old & bits, "|": old | bits, "^": old ^ bits}[change]
        elif "31:30" in self.syntax:
            result[:] = np.array(elements, "<u4").reshape(32, 2).T.reshape(-1).view(np.uint8)
        else:
            width = 2 if to in ("hf", "qf16", "h") else 4
            result[128:] = np.array(elements, f"<u{width}").view(np.uint8)
        return result


def instructions() -> list[Instruction]:
    rows = [line.rsplit(None, 1) for line in INSTRUCTIONS.strip().splitlines()]
    return [Instruction(syntax.strip(), int(word, 16)) for syntax, word in rows]
