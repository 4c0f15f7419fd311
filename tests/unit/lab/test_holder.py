"""A lease's file is read without trust, and every device has a file name of its own."""

from __future__ import annotations

from hypothesis import given, strategies as st

from harness.lab.lease import MAX_BYTES, Holder, device_file, parse_holder
from tests.properties import damaged, reached, reaches

ANNA = Holder("anna", "lab-pc", 4711, "2026-11-21T08:15:00Z", "pytest, run 1")


def test_round_trip_and_text() -> None:
    assert parse_holder(ANNA.content()) == ANNA
    assert str(ANNA) == "anna, process 4711 (pytest, run 1), since 2026-11-21T08:15:00Z"


@reaches(0.02)
@given(damaged(ANNA.content().decode()))
def test_any_content_is_survived(content: str) -> None:
    holder = parse_holder(content.encode())
    if holder is not None:
        reached()
        assert str(holder).isprintable()
        assert parse_holder(holder.content()) == holder


@given(st.integers(0, len(ANNA.content()) - 2))
def test_half_written_is_nobody(length: int) -> None:
    assert parse_holder(ANNA.content()[:length]) is None


def test_what_a_holder_says_is_bounded_and_printable() -> None:
    loud = Holder("a\x1b[2Jb", "h", 1, "s", "x" * 5000)
    read = parse_holder(loud.content())
    assert read is not None
    assert read.user == "a?[2Jb"
    assert len(read.purpose) == 200
    assert len(Holder("u" * 99999, "h", 1, "s", "p").content()) <= MAX_BYTES


@given(st.lists(st.text(max_size=80), unique=True, max_size=8))
def test_names_of_files(keys: list[str]) -> None:
    names = [device_file(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all("/" not in name and not name.startswith(".") and len(name) < 100 for name in names)
