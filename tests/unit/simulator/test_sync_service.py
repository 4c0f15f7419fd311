"""The sync service driven message by message, cut anywhere, by a host slow or fast."""

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

    def __init__(self, root: Path) -> None:
        (root / "dev/incoming").mkdir(parents=True, exist_ok=True)
        storage = Storage(root)
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


def talk(root: Path, data: bytes, *, cuts: list[int] | None = None) -> bytes:
    return Host(root).send(data, cuts or [1 << 20])


CONTENT = bytes(range(256)) * 600  # more than two DATA messages


def sending(path: str, content: bytes = CONTENT, mtime: int = 1600000000) -> bytes:
    pieces = [content[i : i + 65536] for i in range(0, len(content), 65536)]
    data = b"".join(message(b"DATA", piece) for piece in pieces)
    return message(b"SEND", f"{path},33188") + data + struct.pack("<4sI", b"DONE", mtime)


@pytest.mark.parametrize(
    "data",
    [
        message(b"NOPE", "x"),
        b"STAT" + struct.pack("<I", 1025),
        message(b"SEND", "no-mode"),
        message(b"SEND", "x,-5"),
        message(b"SEND", "x,99999999999"),
        message(b"SEND", "x,33188") + b"DATA" + struct.pack("<I", 65537),
        message(b"SEND", "x,33188") + message(b"STAT", "y"),
        message(b"STAT", b"a\0b"),
        message(b"SEND", f"l,{0o120777}") + DONE,
    ],
)
def test_nonsense_is_refused_and_ends_the_stream(tmp_path: Path, data: bytes) -> None:
    host = Host(tmp_path)
    assert host.send(data, [1 << 20]).startswith(b"FAIL")
    assert host.closed
    assert not list((tmp_path / "dev/incoming").iterdir())


def test_an_aborted_push_leaves_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    half = sending("half").removesuffix(struct.pack("<4sI", b"DONE", 1600000000))
    assert host.send(half, [1 << 20]) == b""
    (begun,) = (tmp_path / "dev/incoming").iterdir()
    assert begun.stat().st_size == len(CONTENT)
    host.streams.handle(Packet(CLSE, 7, 1, b""))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


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
