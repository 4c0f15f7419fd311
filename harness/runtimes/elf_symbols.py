"""What an ELF library offers by name: its exported dynamic symbols. Pure and bounded.

How many symbols there are stands nowhere; as a dynamic loader does, it is concluded from the hash
table that finds them.
"""

from __future__ import annotations

import struct
from typing import Final

from harness.runtimes.elf import ElfError, ElfReader

MAX_SYMBOLS: Final = 1_000_000

# Source of all numbers: the System V ABI (gabi), and for DT_GNU_HASH glibc's elf/dl-lookup.c.
_DT_HASH, _DT_SYMTAB, _DT_GNU_HASH = 4, 6, 0x6FFFFEF5
_STB_LOCAL = 0
_STV_INTERNAL, _STV_HIDDEN = 1, 2
_SHN_UNDEF = 0


def exported_symbols(data: bytes) -> frozenset[str]:
    """The names that a library exports; none for one without a hash table. Raises ElfError."""
    reader = ElfReader(data)
    tags = reader.dynamic()
    if _DT_SYMTAB not in tags:
        return frozenset()
    start = reader.offset_of(tags[_DT_SYMTAB])
    count = _count(reader, tags)
    layout, size = ("<IBBHQQ", 24) if reader.wide else ("<IIIBBH", 16)
    reader.within(start, count * size)
    names = set()
    for fields in struct.iter_unpack(layout, data[start : start + count * size]):
        if reader.wide:
            name, info, other, section = fields[:4]
        else:
            name, info, other, section = fields[0], *fields[3:6]
        visible = other & 3 not in (_STV_INTERNAL, _STV_HIDDEN)
        if info >> 4 != _STB_LOCAL and visible and section != _SHN_UNDEF and name:
            names.add(reader.string(name))
    return frozenset(names)


def _count(reader: ElfReader, tags: dict[int, int]) -> int:
    if _DT_HASH in tags:
        count = reader.unpack("II", reader.offset_of(tags[_DT_HASH]))[1]
    elif _DT_GNU_HASH in tags:
        count = _gnu_count(reader, reader.offset_of(tags[_DT_GNU_HASH]))
    else:
        return 0
    if count > MAX_SYMBOLS:
        raise ElfError(f"it has {count} symbols")
    return count


def _gnu_count(reader: ElfReader, table: int) -> int:
    """The last symbol of the last chain: chains end where the lowest bit is set."""
    buckets, first, blooms, _ = reader.unpack("IIII", table)
    if buckets > MAX_SYMBOLS or blooms > MAX_SYMBOLS:
        raise ElfError(f"its table of symbols has {buckets} buckets")
    start = table + 16 + blooms * (8 if reader.wide else 4)
    last = max(reader.unpack(f"{buckets}I", start), default=0)
    if last < first:
        return first
    chains = start + buckets * 4
    for index in range(last, MAX_SYMBOLS):
        if reader.unpack("I", chains + (index - first) * 4)[0] & 1:
            return index + 1
    raise ElfError("its table of symbols does not end")
