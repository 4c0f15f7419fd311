"""Tar archives of many small members, made faster than tarfile can (pure).

tarfile takes 40 us a member, as long as the device takes to unpack it.
"""

from __future__ import annotations

from typing import Final

BLOCK_BYTES: Final = 512
END_OF_TAR: Final = bytes(2 * BLOCK_BYTES)
_NAME_BYTES = 100
_FILE, _HARD_LINK, _SYMBOLIC_LINK, _LONG_NAME, _LONG_LINK = b"0", b"1", b"2", b"L", b"K"
# owner and group 0, modification time 0; the checksum counts itself as spaces
_NUMBERS = b"%07o\x000000000\x000000000\x00%011o\x0000000000000\x00"
_MAGIC = b"ustar  \0"  # GNU's


def tar_file(name: str, content: bytes, mode: int = 0o644) -> list[bytes]:
    """The blocks of one file."""
    blocks = _member(name.encode(), b"", _FILE, mode, len(content))
    return [*blocks, content, bytes(-len(content) % BLOCK_BYTES)]


def tar_link(name: str, target: str, mode: int, *, hard: bool) -> list[bytes]:
    """The blocks of one link; the target of a hard one is a path as seen by who unpacks.

    `mode` is that of the target: some tars (toybox) give it to what is linked.
    """
    kind = _HARD_LINK if hard else _SYMBOLIC_LINK
    return _member(name.encode(), target.encode(), kind, mode, 0)


def _member(name: bytes, target: bytes, kind: bytes, mode: int, size: int) -> list[bytes]:
    long = []
    for text, long_kind in ((target, _LONG_LINK), (name, _LONG_NAME)):
        if len(text) > _NAME_BYTES:
            content = text + b"\0"
            long += [_header(b"././@LongLink", b"", long_kind, 0o644, len(content))]
            long += [content, bytes(-len(content) % BLOCK_BYTES)]
    return [*long, _header(name[:_NAME_BYTES], target[:_NAME_BYTES], kind, mode, size)]


def _header(name: bytes, target: bytes, kind: bytes, mode: int, size: int) -> bytes:
    numbers = _NUMBERS % (mode, size)
    rest = kind + target.ljust(_NAME_BYTES, b"\0") + _MAGIC
    total = sum(name) + sum(numbers) + sum(rest) + 8 * ord(" ")
    header = b"%b%b%06o\0 %b" % (name.ljust(_NAME_BYTES, b"\0"), numbers, total, rest)
    return header.ljust(BLOCK_BYTES, b"\0")
