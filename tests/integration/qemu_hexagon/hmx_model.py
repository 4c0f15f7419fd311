"""HMX as it is described, in plain Python: slow, and what the C that QEMU runs is compared with.

A tile has 2048 bytes. A position in it is a number, 0 to 63; halves use each second one. Sums and
results are arrays indexed by set or generation, position and channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

TILE = 2048
CHANNELS = 32

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class NotKnown(Exception):
    """The operands ask for what the description does not tell: nothing has changed."""


def position_bits(kind: str, channel_major: bool) -> int:
    """Address bits that tell the position of a byte ("ub") or a half ("hf")."""
    if kind == "hf":
        return 0b111_1000_0010
    return 0b111_1110_0000 if channel_major else 0b111_1000_0011


def place(position: int, channel_major: bool) -> int:
    """Where a position's first channel lies in its tile."""
    return position * 32 if channel_major else position // 4 * 128 + position % 4


POSITION_AT = {
    channel_major: {place(position, channel_major): position for position in range(64)}
    for channel_major in (False, True)
}


def submasks(mask: int) -> list[int]:
    """All numbers with no other bits than those of the mask, rising."""
    return [number for number in range(mask + 1) if number & ~mask == 0]


def taps(which: str, numbers: list[int], selected: int) -> list[int]:
    """The taps that an instruction names, as indices of rows or columns.

    `selected` is the tap that Rs names: one of `numbers`.
    """
    end = numbers.index(selected)
    return {
        "": list(range(end + 1)),
        "above": list(range(end, len(numbers))),
        "after": list(range(end, len(numbers))),
        "single": [end],
        "dilate": list(range(0, end + 1, 2)),
        "drop": list(range(end + 1)),
        "deep": list(range(end + 1)),
    }[which]


def group_of(first: int, last: int) -> int:
    """How many channels a group has: 32 unless the first lies behind the last."""
    if first <= last:
        return 32
    ones = f"{(((last - first) ^ first ^ last) << 2) & 255:08b}"
    return 32 >> (len(ones) - len(ones.lstrip("1")))


def half(bits: int, more: int = 0, digits: int = 0) -> float:
    """A half, its mantissa continued by some more binary digits."""
    sign = -1.0 if bits & 0x8000 else 1.0
    exponent, mantissa = bits >> 10 & 31, (bits & 1023) + more / (1 << digits)
    if exponent == 0:
        return sign * mantissa * 2.0**-24
    return sign * (1024 + mantissa) * 2.0 ** (exponent - 25)


def field_of(word: int, high: int, low: int) -> int:
    """Bits high to low of a word."""
    return word >> low & ((1 << (high - low + 1)) - 1)


def kept_fraction(value: int, exponent: int, digits: int) -> int:
    """value * 2**exponent / 2**32, cut to some binary digits and to [-4, 4).

    The result has one digit more, which is 1 unless the value is 0 (or the lower limit).
    """
    limit = 4 << digits
    cut = (value << exponent) >> (32 - digits)
    if cut >= limit:
        return 2 * limit - 1
    if cut < -limit:
        return -2 * limit
    return 2 * cut + (1 if value else 0)


@dataclass(frozen=True)
class Activation:
    """What an activation instruction told, until the weights come."""

    kind: str
    which: str
    channel_major: bool
    rs: int
    rt: int


@dataclass
class Hmx:
    """The unit's state, and the memory it works on (addresses are indices)."""

    memory: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
    sums: Ints = field(default_factory=lambda: np.zeros((2, 64, CHANNELS), np.int64))
    half_sums: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = field(
        default_factory=lambda: np.zeros((2, 32, CHANNELS), np.float64)
    )
    results: Ints = field(default_factory=lambda: np.zeros((2, 64, CHANNELS), np.int64))
    words: list[int] = field(default_factory=lambda: [0] * CHANNELS)
    current: int = 0
    latched: Activation | None = None
    unknown: list[bool] = field(default_factory=lambda: [False, False])

    def activation(self, kind: str, which: str, channel_major: bool, rs: int, rt: int) -> None:
        """activation.ub or activation.hf: `which` is "", "above", "single", "dilate", "deep"."""
        self.latched = Activation(kind, which, channel_major, rs, rt)

    def weight(self, kind: str, which: str, rs: int, rt: int) -> None:
        """weight.b or weight.hf (`kind` "ub" or "hf"): multiplies what was latched."""
        told = self.latched
        if told is None or told.kind != kind:
            raise NotKnown
        mask = position_bits(kind, told.channel_major)
        rows, columns = submasks(told.rt & mask), submasks(~told.rt & mask)
        row_taps = taps(told.which, rows, told.rs & rows[-1])
        column_taps = taps(which, columns, told.rs & columns[-1])
        shift = 0 if told.channel_major else 2
        whole = 2 if kind == "hf" else 4
        first = (told.rs >> shift & 31) // whole * whole
        last = (told.rt >> shift & 31) // whole * whole + whole - 1
        base, distance = told.rs // TILE * TILE, told.rt // TILE * TILE
        blocks = [(base, base + distance, tap, first, last) for tap in row_taps]
        group = group_of(first, last)
        if told.which == "deep":
            tiles = distance // TILE + 1
            blocks = [
                (
                    base + n * TILE,
                    0,
                    0,
                    first if n == 0 else 0,
                    last if n == tiles - 1 else 31,
                )
                for n in range(tiles)
            ]
            if tiles > 1:
                group = 32
        weights = self._stream(kind, rs, rt)
        for tile, next_tile, tap, block_first, block_last in blocks:
            values = self._values(told, rows, columns, tile, next_tile, tap)
            for other in (0, 1) if which == "deep" else (0,):
                for column_tap in column_taps:
                    matrix = np.zeros((CHANNELS, CHANNELS), weights.dtype)
                    if group < 32:
                        steps = range(block_first % group, block_last % group + 1)
                    else:
                        steps = range(block_first, block_last + 1)
                    for channel in steps:
                        if not len(weights):
                            break
                        for out in range(CHANNELS):
                            start = out // group * group if group < 32 else 0
                            matrix[start + channel, out] = weights[0, out]
                        weights = weights[1:]
                    moved = values @ matrix
                    keep = which not in ("drop", "deep")
                    self._add(told, rows, columns, moved, column_tap, other, keep)

    def _stream(self, kind: str, rs: int, rt: int) -> np.ndarray[tuple[int, ...], np.dtype]:
        """All weights from Rs to the vector that Rt names: one row for each step."""
        raw = self.memory[rs // 128 * 128 :][: (rt // 128 + 1) * 128].tobytes()
        typed = np.frombuffer(raw, np.int8 if kind == "ub" else np.float16)
        steps = typed.reshape(len(raw) // 128, CHANNELS, -1).transpose(0, 2, 1)
        return steps.reshape(-1, CHANNELS).astype(np.int64 if kind == "ub" else np.float64)

    def _values(
        self, told: Activation, rows: list[int], columns: list[int], tile: int, below: int, tap: int
    ) -> np.ndarray[tuple[int, ...], np.dtype]:
        """Activations by row, column and channel, the rows moved by a tap."""
        apart = 1 if told.channel_major else 4
        values = np.zeros((len(rows), len(columns), CHANNELS))
        for y in range(len(rows)):
            start = tile if y + tap < len(rows) else below
            for x, column in enumerate(columns):
                at = start + rows[(y + tap) % len(rows)] + column
                taken = self.memory[at : at + apart * CHANNELS].tobytes()
                if told.kind == "hf":
                    values[y, x] = np.frombuffer(taken, np.float16)[::2]
                else:
                    values[y, x] = np.frombuffer(taken, np.uint8)[::apart]
        return values if told.kind == "hf" else values.astype(np.int64)

    def _add(
        self,
        told: Activation,
        rows: list[int],
        columns: list[int],
        products: np.ndarray[tuple[int, ...], np.dtype],
        tap: int,
        other: int,
        keep: bool,
    ) -> None:
        for y, row in enumerate(rows):
            for x in range(len(columns)):
                beyond, moved = divmod(x + tap, len(columns))
                if beyond and not keep:
                    continue
                position = POSITION_AT[told.channel_major][row | columns[moved]]
                into = self.current ^ other ^ beyond
                if told.kind == "hf":
                    self.half_sums[into, position // 2] += products[y, x]
                else:
                    self.sums[into, position] += products[y, x]

    def bias(self, rs: int) -> None:
        """bias=mxmem2(Rs)."""
        words = np.frombuffer(self.memory[rs // 128 * 128 :][:256].tobytes(), "<u4")
        self.words = [int(words[n]) | int(words[32 + n]) << 32 for n in range(CHANNELS)]

    def clear(self, kind: str) -> None:
        """mxclracc, mxclracc.hf."""
        (self.half_sums if kind == "hf" else self.sums)[:] = 0

    def swap(self) -> None:
        """mxswap, mxswap.hf."""
        self.current ^= 1

    def _begin(self, rs: int) -> Ints:
        """Results of a conversion go here: a new generation, unless there is feedback."""
        if rs & 12 == 0:
            self.results[1] = self.results[0]
            self.unknown = [False, self.unknown[0]]
        return self.results[0]

    def _end(self, rs: int, sums: np.ndarray[tuple[int, ...], np.dtype]) -> None:
        if not rs & 1:
            sums[self.current] = 0
            self.current ^= 1

    def convert_bytes(self, rs: int) -> None:
        """cvt.ub=acc(Rs)."""
        if any(field_of(word, 18, 17) or field_of(word, 15, 15) for word in self.words):
            raise NotKnown
        results = self._begin(rs)
        limit = max if rs & 16 else min
        for channel, word in enumerate(self.words):
            bias = field_of(word, 63, 32) - (word >> 63 << 32)
            for position in range(64):
                scale = field_of(word, 9, 0) * 2 + field_of(word, 31, 31)
                scale += 0 if field_of(word, 16, 16) else 2048
                offset = field_of(word, 30, 19)
                before = int(results[position, channel])
                if rs >> 2 & 3 == 1:
                    offset = limit(offset, before)
                if rs >> 2 & 3 == 2:
                    scale = limit(scale, before)
                value = int(self.sums[self.current, position, channel]) + bias
                value = kept_fraction(value, field_of(word, 14, 10), 12)
                value = value * scale // 4096 + offset
                if not rs & 2:
                    value = max(0, min(4095, value))
                results[position, channel] = value % 4096
        self._end(rs, self.sums)

    def convert_pairs(self, rs: int) -> None:
        """cvt.uh:2x2=acc(Rs)."""
        select = rs >> 9 & 3
        if rs >> 2 & 3 in (1, 2):
            raise NotKnown
        if select == 0:
            self._begin(rs)
            self.unknown[0] = True
            self._end(rs, self.sums)
            return
        for even, odd in zip(self.words[::2], self.words[1::2], strict=True):
            unusual = field_of(even, 18, 15) or field_of(even, 21, 19) or field_of(even, 30, 23)
            strange = field_of(odd, 15, 10) or field_of(odd, 18, 17) or odd >> 31
            if unusual or strange:
                raise NotKnown
        results = self._begin(rs)
        sums = self.sums[self.current]
        for channel in range(0, CHANNELS, 2):
            even, odd = self.words[channel : channel + 2]
            digits = f"{1 - field_of(odd, 16, 16):b}{field_of(odd, 9, 0):010b}"
            digits += f"{field_of(even, 9, 0):010b}{field_of(even, 31, 31):b}"
            scale = int(digits, 2)
            offset = field_of(odd, 30, 19) * 256 + field_of(even, 22, 22) * 8
            bias = field_of(even, 63, 32) - (even >> 63 << 32)
            for position in range(0, 64, 2):
                (ll, lh), (hl, hh) = sums[position : position + 2, channel : channel + 2].tolist()
                value = {
                    1: hh + lh // 256,
                    2: hl + ll // 256,
                    3: (hh * 65536 + (lh + hl) * 256 + ll) // 65536,
                }[select]
                value = kept_fraction(value + bias, field_of(even, 14, 10), 24)
                value = value * scale // (1 << 26) + offset
                if not rs & 2:
                    value = max(0, min(0xFFFFF, value))
                to = channel if select == 2 else channel + 1
                results[position, to] = value % 4096
                results[position + 1, to] = value % (1 << 20) // 4096 * 16
        self._end(rs, self.sums)

    def convert_halves(self, rs: int) -> None:
        """cvt.hf=acc(Rs)."""
        if rs >> 2 & 3 == 2:
            raise NotKnown
        results = self._begin(rs)
        limit = max if rs & 16 else min
        for channel, word in enumerate(self.words):
            scale = half(field_of(word, 15, 0), field_of(word, 35, 32), 4)
            offset = half(field_of(word, 31, 16), field_of(word, 39, 36), 4)
            bias = half(field_of(word, 63, 48), field_of(word, 47, 43), 5)
            shape = (
                lambda value: value,
                lambda value: min(value, 0.0),
                lambda value: max(value, 0.0),
                abs,
            )[field_of(word, 41, 40)]
            sign = -1 if field_of(word, 42, 42) else 1
            for position in range(32):
                low, high = results[2 * position : 2 * position + 2, channel].tolist()
                added = offset
                if rs >> 2 & 3 == 1:
                    added = limit(offset, half(low // 16 + high // 16 * 256))
                value = sign * shape(float(self.half_sums[self.current, position, channel]) + bias)
                value = value * scale + added
                if not rs & 2:
                    value = max(-65504.0, min(65504.0, value))
                bits = int(np.float64(value).astype(np.float16).view(np.uint16))
                results[2 * position, channel] = bits % 256 * 16
                results[2 * position + 1, channel] = bits // 256 * 16
        self._end(rs, self.half_sums)

    def store(self, which: str, rs: int, rt: int) -> None:
        """mxmem(Rs,Rt)=cvt: `which` is "", "cm", "2x2"."""
        major = which == "cm"
        mask = position_bits("ub", major)
        rows, columns = submasks(rt & mask), submasks(~rt & mask)
        down, split = rows.index(rs & rows[-1]), columns.index(rs & columns[-1])
        if self.unknown[0] or (split and self.unknown[1]):
            raise NotKnown
        channels = range(1, 32, 2) if which == "2x2" else range(32)
        start = (rs & 64) // 4 if which == "2x2" else 0
        for y, row in enumerate(rows):
            wrapped, to_row = divmod(y + down, len(rows))
            tile = rs // TILE * TILE + wrapped * (rt // TILE * TILE)
            for x, column in enumerate(columns):
                older = 1 if x < split else 0
                source = POSITION_AT[major][row | columns[(x - split) % len(columns)]]
                for n, channel in enumerate(channels, start):
                    at = tile + rows[to_row] + column + n * (1 if major else 4)
                    self.memory[at] = int(self.results[older, source, channel]) // 16
