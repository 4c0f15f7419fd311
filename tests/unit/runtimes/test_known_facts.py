"""Facts about libraries are read once, and are the same when they come from the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.runtimes import known_facts
from harness.runtimes.known_facts import KnownFacts, build_id_of
from harness.runtimes.plain_folder import FolderSource
from harness.runtimes.runtime import Runtime
from tests.unit.runtimes.elf_files import elf_file


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    folder = tmp_path / "libs"
    folder.mkdir()
    build = b"\0v2.49.0.260701120000\0"
    needs = {"libc.so.6": ["GLIBC_2.34"]}
    whole = elf_file(soname="libQnnHtp.so", needed=["libc.so.6"], needs=needs, content=build)
    (folder / "libQnnHtp.so").write_bytes(whole)
    skel = elf_file("hexagon", bits=32, flags=0x73, content=build)
    (folder / "libQnnHtpV73Skel.so").write_bytes(skel)
    source = FolderSource("mine", folder, tmp_path / "cache")
    return source.runtime("2.49.0.260701", "linux-arm64")


def test_what_is_kept_is_what_was_read(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = KnownFacts(tmp_path).of(runtime)
    assert build_id_of(read) == "2.49.0.260701120000"
    assert read[0].elf is not None
    assert read[0].elf.min_glibc == (2, 34)

    def unread(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(known_facts, "read_library", unread)
    assert KnownFacts(tmp_path).of(runtime) == read


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'[{"name": 1}]', b"\xff" * 40])
def test_a_damaged_file_costs_time_only(content: bytes, runtime: Runtime, tmp_path: Path) -> None:
    read = KnownFacts(tmp_path).of(runtime)
    (kept,) = (tmp_path / "facts").iterdir()
    kept.write_bytes(content)
    assert KnownFacts(tmp_path).of(runtime) == read


def test_damaged_libraries_are_read_each_time(runtime: Runtime, tmp_path: Path) -> None:
    runtime.files[0].path.write_bytes(b"no library")
    assert KnownFacts(tmp_path).of(runtime)[0].problem
    assert not (tmp_path / "facts").exists()
