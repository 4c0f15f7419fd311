"""Lines are appended whole, whatever became of those who wrote before; parts are copied right."""

import errno
import hashlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.core.errors import InfraError, InternalError
from harness.core.files import AppendedLines, copy_range, lines_of, link_or_copy, sha256_of_range
from tests.properties import reached, reaches


@pytest.mark.parametrize(
    ("alone", "expected"), [(False, b"one\npart\ntwo\n"), (True, b"one\ntwo\n")]
)
def test_a_torn_line_is_ended_or_taken_out(tmp_path: Path, alone: bool, expected: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\npart")
    lines = AppendedLines(path, alone=alone)
    lines.append(b"two\n")
    lines.close()
    assert path.read_bytes() == expected


def test_one_process_alone_keeps_others_away(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"part")
    first = AppendedLines(path, alone=True)
    assert path.read_bytes() == b""
    with pytest.raises(BlockingIOError):
        AppendedLines(path, alone=True)
    first.append(b"one\n")
    first.close()
    first.close()
    with pytest.raises(InternalError):
        first.append(b"two\n")
    AppendedLines(path, alone=True).close()
    assert path.read_bytes() == b"one\n"


def test_what_cannot_be_written_is_the_labs_fault(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="No such file"):
        AppendedLines(tmp_path / "gone" / "log")
    with pytest.raises(InfraError, match="No space left on device"):
        AppendedLines(Path("/dev/full")).append(b"one\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\n\nbc", [(0, b"a\n"), (2, b"\n"), (3, b"bc")]),
        (b"abcd\nd\n", [(0, b"abcd\n"), (5, b"d\n")]),
        (b"abcdef\nd\n", [(0, b"abcde"), (7, b"d\n")]),
        (b"x" * 23, [(0, b"xxxxx")]),
    ],
)
def test_lines_are_read_with_their_places(
    content: bytes, expected: list[tuple[int, bytes]]
) -> None:
    assert list(lines_of(io.BytesIO(content), 4)) == expected


BLOCK = 1 << 16


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

    with source.open("rb") as read, target.open("xb") as write:
        if len(content) < size:
            with pytest.raises(EOFError):
                copy_range(read, offset, size, write)
            return
        reached()
        copy_range(read, offset, size, write)
        assert sha256_of_range(read, offset, size) == hashlib.sha256(content).hexdigest()
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
        link_or_copy(tmp_path / "link", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"x" * 9
    assert not (tmp_path / "target").is_symlink()
    assert (tmp_path / "target").samefile(tmp_path / "source") == links
    assert len(list(tmp_path.iterdir())) == 3
