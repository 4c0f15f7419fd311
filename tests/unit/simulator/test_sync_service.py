"""The sync service driven message by message, cut anywhere, by a host slow or fast."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator.protocol import CLSE, OKAY, OPEN, WRTE, Packet, Payload, Streams
from harness.simulator.storage import Storage
from harness.simulator.sync_service import SyncSession

DONE = b"DONE" + bytes(4)
QUIT = b"QUIT" + bytes(4)


def message(name: bytes, content: bytes | str = b"") -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return name + struct.pack("<I", len(raw)) + raw


class Host:
    """The host's end: sends when it may, takes at once or later."""

    def __init__(self, root: Path, *, limit: int | None = None) -> None:
        (root / "dev/incoming").mkdir(parents=True, exist_ok=True)
        storage = Storage(root, limit_bytes=limit)
        self.answer = b""
        self.closed = False
        self.order: list[int] = []
        self._may_send = False
        self._unread = 0
        self.streams = Streams(
            self._take,
            lambda _: lambda stream: SyncSession(stream, storage, lambda text: None),
            max_payload=4096,
        )
        self.streams.handle(Packet(OPEN, 7, 0, b"sync:"))

    def _take(self, command: int, _: int, __: int, payload: Payload) -> None:
        self.order.append(command)
        if command == OKAY:
            self._may_send = True
        elif command == CLSE:
            self.closed = True
        else:
            assert len(payload) <= 4096
            self.answer += payload
            self._unread += 1

    def read(self) -> None:
        while self._unread:
            self._unread -= 1
            self.streams.handle(Packet(OKAY, 7, 1, b""))

    def send(self, data: bytes, cuts: list[int]) -> bytes:
        index = 0
        while data and not self.closed:
            if not self._may_send:
                assert self._unread, "the device waits for nothing"
                self.read()
                continue
            size = cuts[index % len(cuts)]
            self._may_send = False
            # from a buffer that changes afterwards, as the real receive buffer does
            shared = bytearray(data[:size])
            self.streams.handle(Packet(WRTE, 7, 1, memoryview(shared)))
            shared[:] = b"?" * len(shared)
            data, index = data[size:], index + 1
        self.read()
        return self.answer


def talk(
    root: Path,
    data: bytes,
    *,
    limit: int | None = None,
    cuts: list[int] | None = None,
) -> bytes:
    return Host(root, limit=limit).send(data, cuts or [1 << 20])


CONTENT = bytes(range(256)) * 600  # more than two DATA messages


def sending(path: str, content: bytes = CONTENT, mtime: int = 1600000000) -> bytes:
    pieces = [content[i : i + 65536] for i in range(0, len(content), 65536)]
    data = b"".join(message(b"DATA", piece) for piece in pieces)
    return message(b"SEND", f"{path},33188") + data + struct.pack("<4sI", b"DONE", mtime)


def test_stat_v1(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(1234))
    os.utime(tmp_path / "f", (5, 1600000000))
    (tmp_path / "f").chmod(0o640)
    answer = talk(tmp_path, message(b"STAT", f"{tmp_path}/f") + message(b"STAT", "none") + QUIT)
    assert answer == struct.pack("<4sIII", b"STAT", 0o100640, 1234, 1600000000) + b"STAT" + bytes(
        12
    )


@pytest.mark.parametrize("request_name", [b"STA2", b"LST2"])
def test_stat_v2(tmp_path: Path, request_name: bytes) -> None:
    (tmp_path / "f").write_bytes(bytes(5))
    (tmp_path / "link").symlink_to("f")
    requests = [message(request_name, path) for path in ("link", "none", "/etc/passwd")]
    answer = talk(tmp_path, b"".join(requests) + QUIT)
    layout = struct.Struct("<4sIQQIIIIQqqq")
    good, missing, outside = layout.iter_unpack(answer)
    status = os.stat(tmp_path / "link", follow_symlinks=request_name == b"STA2")
    assert good == (
        *(request_name, 0, status.st_dev, status.st_ino, status.st_mode, status.st_nlink),
        *(status.st_uid, status.st_gid, status.st_size),
        *(int(status.st_atime), int(status.st_mtime), int(status.st_ctime)),
    )
    assert missing == (request_name, 2, *[0] * 10)
    assert outside == (request_name, 13, *[0] * 10)


def test_list(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    names = {f"file-{number}" for number in range(200)}
    for name in names:
        (folder / name).touch()
    fixed = struct.Struct("<4sIIII")
    answer = talk(tmp_path, message(b"LIST", str(folder)) + QUIT)
    entries = set()
    while True:
        name_id, *_, length = fixed.unpack_from(answer)
        if name_id == b"DONE":
            break
        assert name_id == b"DENT"
        entries.add(answer[fixed.size : fixed.size + length].decode())
        answer = answer[fixed.size + length :]
    assert entries == names | {".", ".."}
    assert answer == b"DONE" + bytes(fixed.size - 4)


@pytest.mark.parametrize("path", ["none", "/etc", "file"])
def test_list_of_what_is_no_folder_is_empty(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    assert talk(tmp_path, message(b"LIST", path) + QUIT) == b"DONE" + bytes(16)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 300000])
def test_recv(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "f").write_bytes(content)
    answer = talk(tmp_path, message(b"RECV", "f") + QUIT)
    found = b""
    while answer[:4] == b"DATA":
        (length,) = struct.unpack_from("<I", answer, 4)
        assert 0 < length <= 65536
        found += answer[8 : 8 + length]
        answer = answer[8 + length :]
    assert found == content
    assert answer == DONE


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("none", "open failed: No such file or directory"),
        ("/etc/passwd", "open failed: Permission denied"),
        (".", "open failed: Is a directory"),
    ],
)
def test_recv_fails(tmp_path: Path, path: str, reason: str) -> None:
    answer = talk(tmp_path, message(b"RECV", path) + message(b"STAT", "none") + QUIT)
    assert answer == message(b"FAIL", reason) + b"STAT" + bytes(12)


@pytest.mark.parametrize(
    ("path", "limit", "reason"),
    [
        ("/etc/x", None, "couldn't create file: Permission denied"),
        ("folder", None, "couldn't create file: Is a directory"),
        ("f", 100000, "write failed: No space left on device"),
        ("f", 0, "couldn't create file: No space left on device"),
    ],
)
def test_after_a_failed_file_the_next_one_goes_on(
    tmp_path: Path, path: str, limit: int | None, reason: str
) -> None:
    (tmp_path / "folder").mkdir()
    answer = talk(tmp_path, sending(path) + message(b"STAT", "none") + QUIT, limit=limit)
    assert answer == message(b"FAIL", reason) + b"STAT" + bytes(12)
    assert not list((tmp_path / "dev/incoming").iterdir())
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    "data",
    [
        message(b"NOPE", "x"),
        b"STAT" + struct.pack("<I", 1025),
        b"STAT" + b"\xff" * 4,
        message(b"SEND", "no-mode"),
        message(b"SEND", "x,-5"),
        message(b"SEND", "x,99999999999"),
        message(b"SEND", "x,33188") + b"DATA" + struct.pack("<I", 65537),
        message(b"SEND", "x,33188") + message(b"STAT", "y"),
        message(b"STAT", b"a\0b"),
        message(b"SEND", f"l,{0o120777}") + DONE,
        message(b"SND2", "x"),
    ],
)
def test_nonsense_is_refused_and_ends_the_stream(tmp_path: Path, data: bytes) -> None:
    host = Host(tmp_path)
    assert host.send(data, [1 << 20]).startswith(b"FAIL")
    assert host.closed
    assert not list((tmp_path / "dev/incoming").iterdir())


def test_an_unfinished_file_is_removed_when_the_stream_closes(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.send(sending("f")[:70000], [1 << 20])
    assert len(list((tmp_path / "dev/incoming").iterdir())) == 1
    host.streams.handle(Packet(CLSE, 7, 1, b""))
    assert not list((tmp_path / "dev/incoming").iterdir())
    assert not (tmp_path / "f").exists()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
def test_any_cut_gives_the_same_answer(cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "given").write_bytes(CONTENT)
        os.utime(root / "given", (0, 77))
        requests = sending("a/b") + message(b"RECV", "a/b") + message(b"STAT", "given")
        requests += message(b"RECV", "none") + sending("c", b"")
        least = max(cuts) // 1000 + 1
        answer = talk(root, requests + QUIT, cuts=[max(cut, least) for cut in cuts])
        assert answer == talk(root, requests + QUIT)
        assert (root / "a/b").read_bytes() == CONTENT
        assert (root / "a/b").stat().st_mtime == 1600000000


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1))
def test_garbage_does_no_harm(data: bytes, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first = message(b"STAT", "none")
        assert talk(root, first + data, cuts=cuts).startswith(talk(root, first))
        assert {path.name for path in root.iterdir()} <= {"dev"}


def test_what_arrived_is_acknowledged_before_it_is_answered(tmp_path: Path) -> None:
    """As adbd does, and as clients expect that wait for the one, then for the other."""
    host = Host(tmp_path)
    (tmp_path / "file").write_bytes(b"content")
    file = str(tmp_path / "file")
    for request in (
        message(b"STAT", file),
        message(b"LIST", str(tmp_path)),
        message(b"RECV", file),
    ):
        host.order.clear()
        host.send(request, [1 << 20])
        assert host.order == [OKAY, WRTE]
    host.order.clear()
    host.send(message(b"SEND", f"{file},33188") + message(b"DATA", b"x") + DONE, [1 << 20])
    assert host.order == [OKAY, WRTE]


@pytest.mark.parametrize("size", [0, 1, 3000])
def test_a_small_file_goes_out_in_one_write(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:size])
    host = Host(tmp_path)
    answer = host.send(message(b"RECV", str(tmp_path / "file")), [1 << 20])
    assert answer == (message(b"DATA", CONTENT[:size]) if size else b"") + DONE
    assert host.order.count(WRTE) == 1


def test_a_large_folder_is_listed_in_few_writes(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"file-{number}").touch()
    host = Host(tmp_path)
    answer = host.send(message(b"LIST", str(tmp_path)), [1 << 20])
    assert answer.count(b"DENT") == 403  # its own two, and the device's folder
    assert host.order.count(WRTE) == -(-len(answer) // 4096)
