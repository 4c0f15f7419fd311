"""Small ELF files, made for tests: a header, one LOAD, DYNAMIC, a note, and what they name."""

import struct
from collections.abc import Mapping, Sequence

MACHINES = {"x86": 3, "arm": 40, "x86-64": 62, "hexagon": 164, "aarch64": 183}
BASE = 0x10000


def elf_file(
    machine: str = "aarch64",
    *,
    bits: int = 64,
    flags: int = 0,
    needed: Sequence[str] = (),
    needs: Mapping[str, Sequence[str]] | None = None,
    defines: Sequence[str] = (),
    android_api: int | None = None,
    android_memtag: int | None = None,
    content: bytes = b"",
    pages: int = 4,
) -> bytes:
    """A file as `read_elf` reads it; `content` is put into what is loaded, `pages` is
    the alignment of that."""
    strings = bytearray(b"\0")

    def string(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return len(strings) - 1 - len(text.encode())

    wide = bits == 64
    header, program = (64, 56) if wide else (52, 32)
    start = header + 3 * program
    tags: list[tuple[int, int]] = [(1, string(name)) for name in needed]
    verneed = b""
    for index, (library, versions) in enumerate((needs or {}).items()):
        last = index + 1 == len(needs or {})
        size = 16 + 16 * len(versions)
        verneed += struct.pack(
            "<HHIII", 1, len(versions), string(library), 16, 0 if last else size
        ) + b"".join(
            struct.pack("<IHHII", 0, 0, 2, string(text), 16 if number + 1 < len(versions) else 0)
            for number, text in enumerate(versions)
        )
    verdef = b"".join(
        struct.pack("<HHHHIII", 1, 0, 2, 1, 0, 20, 28 if number + 1 < len(defines) else 0)
        + struct.pack("<II", string(text), 0)
        for number, text in enumerate(defines)
    )
    note = b""
    if android_memtag is not None:
        note = struct.pack("<III8sI", 8, 4, 4, b"Android\0", android_memtag)
    if android_api is not None:
        note += struct.pack("<III8sI", 8, 4, 1, b"Android\0", android_api)
    body = bytes(strings)
    places = {}
    for name, part in (("need", verneed), ("def", verdef), ("note", note)):
        places[name] = start + len(body)
        body += part
    body += content
    tags += [(5, BASE + start), (10, len(strings))]
    if verneed:
        tags += [(0x6FFFFFFE, BASE + places["need"]), (0x6FFFFFFF, len(needs or {}))]
    if verdef:
        tags += [(0x6FFFFFFC, BASE + places["def"]), (0x6FFFFFFD, len(defines))]
    dynamic = b"".join(struct.pack("<QQ" if wide else "<II", *tag) for tag in [*tags, (0, 0)])
    offset = start + len(body)
    segments = [
        (1, 0, BASE, offset + len(dynamic)),
        (2, offset, BASE + offset, len(dynamic)),
        (4, places["note"], BASE + places["note"], len(note)),
    ]
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    fields = (3, MACHINES[machine], 1, 0, header, 0, flags, header, program, 3, 0, 0, 0)
    head = ident + struct.pack("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", *fields)
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, 4, offset, address, address, size, size, pages)
        if wide
        else struct.pack("<IIIIIIII", kind, offset, address, address, size, size, 4, pages)
        for kind, offset, address, size in segments
    )
    return head + table + body + dynamic
