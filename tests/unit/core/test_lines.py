"""Lines are appended whole, one after another, whatever became of those who wrote before."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from harness.core.errors import InfraError, InternalError
from harness.core.local_file import AppendedLines, lines_of


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
    with pytest.raises(InternalError, match="is closed already"):
        first.append(b"two\n")
    AppendedLines(path, alone=True).close()
    assert path.read_bytes() == b"one\n"


def test_what_cannot_be_written_is_the_labs_fault(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"cannot write .*: No such file"):
        AppendedLines(tmp_path / "gone" / "log")
    with pytest.raises(InfraError, match="No space left on device"):
        AppendedLines(Path("/dev/full")).append(b"one\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a\n\nbc", [(0, b"a\n"), (2, b"\n"), (3, b"bc")]),
        (b"abc\nd\n", [(0, b"abc\n"), (4, b"d\n")]),
        (b"abcd\nd\n", [(0, b"abcd\n"), (5, b"d\n")]),
        (b"abcdef\nd\n", [(0, b"abcde"), (7, b"d\n")]),
        (b"x" * 23, [(0, b"xxxxx")]),
    ],
)
def test_lines_are_read_with_their_places(
    content: bytes, expected: list[tuple[int, bytes]]
) -> None:
    assert list(lines_of(io.BytesIO(content), 4)) == expected
