"""Files by adbutils' sync: requests as the protocol says, answers however they come, bounds."""

import contextlib
import socket
import stat
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.core.errors import DeviceError, DeviceLost, DeviceRefused
from harness.transport.files import PushItem, RemoteStat
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.transport.mock_address import OKAY, MockAddress

OPENED = OKAY + OKAY
TAKEN = OKAY + bytes(4)
OPENING = b"0010host:transport:x0005sync:"
STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")


def stat_v2(status: RemoteStat, word: bytes = b"STA2") -> bytes:
    mode, size, mtime_s, error = status.mode, status.size, status.mtime_s, status.error
    return STAT_V2.pack(word, error, 1, 2, mode, 1, 0, 0, size, 3, mtime_s, 4)


def message(word: bytes, text: bytes) -> bytes:
    return word + struct.pack("<I", len(text)) + text


def file_of(size: int) -> RemoteStat:
    return RemoteStat(stat.S_IFREG | 0o644, size, 5)


def answering(sizes: list[int], step: int) -> MockAddress:
    """Takes files of these sizes, `step` bytes at a time, and answers for all at the end."""
    remaining = len(OPENING)
    for size in sizes:
        requests = (b"SEND", f"/f{size},33188".encode()), (b"DONE", b""), (b"LST2", b"/f%d" % size)
        remaining += sum(len(message(*request)) for request in requests)
        remaining += size + len(message(b"DATA", b"")) * -(-size // 65536)

    def serve(far: socket.socket) -> None:
        nonlocal remaining
        with far, contextlib.suppress(OSError):
            far.sendall(OPENED)
            while remaining:
                remaining -= len(far.recv(min(step, remaining)))
            far.sendall(b"".join(TAKEN + stat_v2(file_of(size), b"LST2") for size in sizes))
            far.recv(1)

    return MockAddress(serve=serve)


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([0, 10, 70_001, 600_000, 1_000_000]), max_size=6),
    st.sampled_from([5_000, 100_000, 1_000_000]),
)
def test_progress_never_goes_back_and_ends_with_all(sizes: list[int], step: int) -> None:
    progress: list[int] = []
    with answering(sizes, step).sync() as stream:
        stream.push((PushItem(bytes(size), f"/f{size}") for size in sizes), progress.append)
    assert progress == sorted(progress)
    assert progress[-1] == sum(sizes)


def test_requests(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content")
    accepted, status = TAKEN + stat_v2(file_of(7), b"LST2"), stat_v2(file_of(7))
    address = MockAddress(OKAY, OKAY, accepted, status, message(b"DONE", b""))
    with address.sync() as stream:
        stream.push([PushItem(source, "/a,b", 0o755)])
        with pytest.raises(DeviceError):  # of what was announced nothing came
            stream.pull("/a,b", tmp_path / "pulled", 100)
    mtime = struct.pack("<I", int(source.stat().st_mtime))
    assert address.sent() == OPENING + b"".join(
        [
            message(b"SEND", b"/a,b,%d" % (stat.S_IFREG | 0o755)),
            message(b"DATA", b"content") + b"DONE" + mtime,
            message(b"LST2", b"/a,b"),
            message(b"STA2", b"/a,b"),
            message(b"RECV", b"/a,b"),
        ]
    )
    assert list(tmp_path.iterdir()) == [source]


def test_files_are_pulled_one_after_another(tmp_path: Path) -> None:
    """A length stands behind DONE, which adbutils leaves unread."""
    answer = stat_v2(file_of(3)) + message(b"DATA", b"a") + message(b"DATA", b"bc")
    with MockAddress(OPENED + 2 * (answer + message(b"DONE", b""))).sync() as stream:
        for name in ("first", "second"):
            stream.pull("/f", tmp_path / name, 3)
            assert (tmp_path / name).read_bytes() == b"abc"


def test_what_is_no_file_ends_a_pull(tmp_path: Path, snapshot: Snapshot) -> None:
    texts = []
    for answer, kind in (
        (message(b"DATA", bytes(65537)), DeviceLost),
        (b"DATA\xff\xff\xff\xff", DeviceLost),
        (message(b"FAIL", bytes(1 << 17)), DeviceLost),
        (b"SEND\0\0\0\0", DeviceError),
        (bytes(8), DeviceError),
        (b"\xff\xff\xff\xff", DeviceError),
        (TAKEN, DeviceError),
        (message(b"FAIL", b"Permission denied"), DeviceRefused),
        (message(b"FAIL", b""), DeviceRefused),
        (message(b"DATA", bytes(11)), DeviceError),
        (message(b"DATA", b"ab"), DeviceLost),
        (b"", DeviceLost),
    ):
        address = MockAddress(OPENED + stat_v2(file_of(10)) + answer)
        with address.sync() as stream, pytest.raises(DeviceError) as caught:
            stream.pull("/f", tmp_path / "f", 10)
        assert (type(caught.value), caught.value.command) == (kind, "pull /f")
        assert list(tmp_path.iterdir()) == []
        texts.append(caught.value)
    assert texts == snapshot


@reaches(0.2)
@given(
    st.sampled_from(["push", "stat", "pull"]),
    st.lists(
        st.sampled_from(
            [
                TAKEN,
                b"STAT" + bytes(12),
                stat_v2(file_of(1)),
                stat_v2(file_of(1), b"LST2"),
                message(b"DATA", b"x"),
                message(b"DONE", b""),
            ]
        ),
        max_size=5,
    ),
    st.binary(max_size=64),
)
def test_whatever_a_device_says_is_an_answer_or_one_of_the_errors(
    tmp_path_factory: pytest.TempPathFactory, name: str, answer: list[bytes], rest: bytes
) -> None:
    local = tmp_path_factory.getbasetemp() / "pulled"
    address = MockAddress(OPENED + b"".join(answer) + rest)
    with address.sync() as stream:
        try:
            if name == "push":
                stream.push([PushItem(b"x", "/f")])
            elif name == "stat":
                stream.stat("/f")
            else:
                stream.pull("/f", local, 1)
        except DeviceError:
            reached()


def test_what_a_device_cannot_look_at_is_told_from_what_is_missing() -> None:
    for error, missing in ((2, True), (20, True), (13, False)):
        with MockAddress(OPENED + stat_v2(RemoteStat(0, 0, 0, error))).sync() as stream:
            if missing:
                assert stream.stat("/f") is None
            else:
                with pytest.raises(DeviceRefused, match="Permission denied"):
                    stream.stat("/f")


def test_a_callback_that_fails_is_no_fault_of_the_device() -> None:
    def fail(_sent: int) -> None:
        raise BrokenPipeError("of the caller")

    answer = OPENED + TAKEN + stat_v2(file_of(1), b"LST2")
    with (
        MockAddress(answer).sync() as stream,
        pytest.raises(BrokenPipeError, match="of the caller"),
    ):
        stream.push([PushItem(b"x", "/f")], fail)
