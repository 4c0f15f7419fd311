"""Parts of files are copied right."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.core import local_file as under_test
from tests.properties import reached, reaches

BLOCK = 1 << 16


def copy_range(source: Path, offset: int, size: int, target: Path) -> None:
    with source.open("rb") as read, target.open("xb") as write:
        under_test.copy_range(read, offset, size, write)


def sha256_of_range(source: Path, offset: int, size: int) -> str:
    with source.open("rb") as read:
        return under_test.sha256_of_range(read, offset, size)


@reaches(0.2)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    blocks=st.lists(st.sampled_from([b"", b"a", b"b" * 4096]), min_size=1, max_size=5),
    offset=st.integers(0, 3 * BLOCK),
    size=st.integers(0, 3 * BLOCK),
)
def test_any_part_of_a_file_with_holes(
    tmp_path: Path, blocks: list[bytes], offset: int, size: int
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    target.unlink(missing_ok=True)
    with source.open("wb") as file:
        for number, block in enumerate(blocks):
            os.pwrite(file.fileno(), block, number * BLOCK)
        file.truncate(len(blocks) * BLOCK)
    content = source.read_bytes()[offset : offset + size]

    if len(content) < size:
        with pytest.raises(EOFError, match="early"):
            copy_range(source, offset, size, target)
        return
    reached()
    copy_range(source, offset, size, target)
    assert sha256_of_range(source, offset, size) == hashlib.sha256(content).hexdigest()
    assert target.read_bytes() == content


@pytest.mark.parametrize("links", [True, False])
def test_a_file_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    (tmp_path / "source").write_bytes(b"x" * 9)
    (tmp_path / "link").symlink_to("source")

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for _ in range(2):
        under_test.link_or_copy(tmp_path / "link", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"x" * 9
    assert not (tmp_path / "target").is_symlink()
    assert (tmp_path / "target").samefile(tmp_path / "source") == links
    assert len(list(tmp_path.iterdir())) == 3


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(b"x" * 9)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    with pytest.raises(OSError, match="No space left"):
        copy_range(tmp_path / "source", 0, 9, tmp_path / "target")
