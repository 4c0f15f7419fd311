"""Files are written whole or not at all, and read no further than they may be long."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.files import (
    open_regular,
    read_bounded,
    read_note,
    scratch_folder,
    write_json,
    write_whole,
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"some", b"other"):
        write_whole(path, content)
        assert read_bounded(path, 5) == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_file_for_which_there_is_no_room_is_named(tmp_path: Path) -> None:
    """The system says of a write that fails only why."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_whole(tmp_path / "file", bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_one_byte_more_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with pytest.raises(OSError, match="4 bytes") as caught:
        read_bounded(path, 4)
    assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize("content", ["{", "[]", '{"sha256": 1}', '{"sha256": "%s"}' % ("zz" * 32)])
def test_a_note_without_a_hash_is_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    assert read_note(path) is None
    write_json(path, {"sha256": "ab" * 32})
    assert read_note(path) == {"sha256": "ab" * 32}


def test_what_came_in_the_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    """Neither waited for, nor read without end."""
    path = tmp_path / "file"
    path.write_bytes(b"some")
    with open_regular(path, 4) as stream:
        assert stream.read() == b"some"
    with pytest.raises(OSError, match=r"\b4 bytes\b.*\b3\b"):
        open_regular(path, 3)
    path.unlink()
    for create in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        create(path)
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
        path.rmdir() if path.is_dir() else path.unlink()


HOLDER = """
import sys, time
from pathlib import Path
from harness.core.files import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    time.sleep(100)
"""


def grow_old(folder: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(folder, (hour_ago, hour_ago))


def test_it_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "file").write_text("content")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_is_held_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        leftover = Path(process.stdout.readline().strip())
        grow_old(leftover)
        with scratch_folder(tmp_path):
            assert (leftover / "file").exists(), "somebody holds it"
        process.send_signal(signal.SIGKILL)
    other = tmp_path / "somebody-elses"
    link = tmp_path / "qnn-harness-tmp-link"
    other.mkdir()
    link.symlink_to(other)
    grow_old(other)
    young = tmp_path / "qnn-harness-tmp-young"
    young.mkdir()
    with scratch_folder(tmp_path):
        assert not leftover.exists()
        assert other.exists()
        assert young.exists()
