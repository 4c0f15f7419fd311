"""ELF files say what they are; whatever else the bytes are, they are refused in bounded time."""

import struct

import pytest
from hypothesis import given, settings, strategies as st

from harness.runtimes.elf import MAX_VERSIONS, ElfError, read_elf
from tests.properties import reached, reaches
from tests.unit.runtimes.elf_files import elf_file

STUB = elf_file(
    needed=["libcdsprpc.so", "libc.so.6"],
    needs={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.34", "GLIBC_2.4"], "libm.so.6": ["GLIBC_2.29"]},
    defines=["VERS_1.26.0"],
)


def test_a_library_of_linux() -> None:
    facts = read_elf(STUB)
    assert (facts.bits, facts.machine) == (64, "aarch64")
    assert facts.needed == ("libcdsprpc.so", "libc.so.6")
    assert facts.min_glibc == (2, 34)
    assert facts.libc == "glibc"
    assert facts.version_needs[-1] == ("libm.so.6", "GLIBC_2.29")
    assert facts.android_api is None


def test_a_library_of_android_and_code_for_the_dsp() -> None:
    """NT_ANDROID_TYPE_MEMTAG has the name of its API level and the number 4 (elf_common.h)."""
    tagged = {"needed": ["libc.so"], "android_memtag": 5}
    facts = read_elf(elf_file(**tagged, android_api=30))
    assert (facts.libc, facts.android_api, facts.min_glibc) == ("bionic", 30, None)
    assert read_elf(elf_file(**tagged)).android_api is None
    facts = read_elf(elf_file("hexagon", bits=32, flags=0x73, needed=["libc++.so.1", "libc.so"]))
    assert (facts.bits, facts.machine, facts.libc) == (32, "hexagon", None)
    assert facts.needed == ("libc++.so.1", "libc.so")


@pytest.mark.parametrize(
    ("versions", "oldest"),
    [
        (["GLIBC_2.9", "GLIBC_2.10"], (2, 10)),
        (["GLIBC_PRIVATE"], None),
        (["GLIBC_2.17", "GLIBC_ABI_DT_RELR"], (2, 36)),
        (["GLIBC_2.99999999"], None),
    ],
)
def test_the_oldest_glibc(versions: list[str], oldest: tuple[int, int] | None) -> None:
    assert read_elf(elf_file(needs={"libc.so.6": versions})).min_glibc == oldest


@pytest.mark.parametrize(("bits", "machine"), [(64, "aarch64"), (32, "arm")])
@pytest.mark.parametrize(
    ("alignment", "pages"), [(0, None), (1, None), (0x1000, 4096), (1 << 16, 65536)]
)
def test_how_large_pages_may_be(bits: int, machine: str, alignment: int, pages: int | None) -> None:
    assert read_elf(elf_file(machine, bits=bits, pages=alignment)).page_bytes == pages


def test_the_least_aligned_part_that_is_loaded_decides() -> None:
    data = bytearray(elf_file(pages=0x4000))
    for segment, kind, pages in ((1, 2, 8), (2, 1, 0x1000)):
        offset = 64 + 56 * segment
        struct.pack_into("<I", data, offset, kind)
        struct.pack_into("<Q", data, offset + 48, pages)
    assert read_elf(bytes(data)).page_bytes == 0x1000


def test_names_are_made_harmless() -> None:
    assert read_elf(elf_file(needed=["lib\x1b[31m\n.so"])).needed == ("lib?[31m?.so",)


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"PK\x03\x04" * 30, b"\x7fELF\x02\x02\x01" + bytes(100)]
)
def test_what_is_no_elf_file(data: bytes) -> None:
    with pytest.raises(ElfError, match=r"^it"):
        read_elf(data)


@pytest.mark.parametrize("length", range(0, len(STUB), 7))
def test_a_file_that_was_cut_off(length: int) -> None:
    with pytest.raises(ElfError):
        read_elf(STUB[:length])


def test_a_list_of_versions_that_names_itself_ends() -> None:
    data = bytearray(elf_file(needs={"libc.so.6": ["GLIBC_2.17"]}))
    offset = data.index(b"GLIBC_2.17\0") + 11
    struct.pack_into("<H", data, offset + 2, 65535)
    struct.pack_into("<I", data, offset + 16 + 12, 0x80000000)  # the next one: far outside
    with pytest.raises(ElfError):
        read_elf(bytes(data))


def test_more_versions_than_there_can_be() -> None:
    many = {"libc.so.6": ["GLIBC_2.17"] * (MAX_VERSIONS + 1)}
    with pytest.raises(ElfError, match="more than"):
        read_elf(elf_file(needs=many))


def test_the_same_record_over_and_over_ends() -> None:
    """Records may overlap: a step of 1 through a long list must still end soon."""
    data = bytearray(elf_file(needs={"libc.so.6": ["GLIBC_2.17"]}, content=bytes(1 << 16)))
    offset = data.index(b"GLIBC_2.17\0") + 11
    struct.pack_into("<I", data, offset + 12, 1)
    count = data.rindex(struct.pack("<QQ", 0x6FFFFFFF, 1))
    struct.pack_into("<Q", data, count + 8, 1 << 60)
    with pytest.raises(ElfError):
        read_elf(bytes(data))


def refused_or_read(data: bytes) -> bool:
    """Return True if it is read; facts of any bytes are bounded and harmless."""
    try:
        facts = read_elf(data)
    except ElfError:
        return False
    reached()
    assert len(facts.needed) <= 1024
    assert all(name.isprintable() for name in facts.needed)
    assert facts.min_glibc is None or facts.min_glibc > (0, 0)
    assert facts.libc in (None, "glibc", "bionic")
    return True


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=2000)
def test_any_bytes(data: bytes) -> None:
    """Of bytes at random none are a library, whatever stands before them."""
    assert not refused_or_read(data)
    for bits, size in ((64, 64), (32, 52)):
        assert not refused_or_read(elf_file(bits=bits)[:7] + data)
        assert not refused_or_read(elf_file(bits=bits)[:size] + data)


@reaches(0.1)
@given(
    st.sampled_from([STUB, elf_file("hexagon", bits=32, flags=0x73, needed=["libc++.so.1"])]),
    st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=8)), max_size=6),
)
@settings(max_examples=400, deadline=2000)
def test_changed_bytes(data: bytes, changes: list[tuple[int, bytes]]) -> None:
    changed = bytearray(data)
    for place, value in changes:
        offset = place % len(data)
        changed[offset : offset + len(value)] = value
    refused_or_read(bytes(changed))
