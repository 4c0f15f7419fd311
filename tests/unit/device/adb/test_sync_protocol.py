"""Sync requests look as the protocol says; replies are read however they were cut."""

from __future__ import annotations

import itertools
import stat
import struct

import pytest
from hypothesis import given, strategies as st

from harness.device.adb.sync_protocol import (
    Dialect,
    Fail,
    FileData,
    Okay,
    Reply,
    ReplyReader,
    done,
    request,
)
from harness.device.transport.faults import ProtocolError
from harness.device.transport.files import RemoteStat
from harness.ground.errors import InfraError
from tests.properties import reached, reaches

OLD = Dialect.of(frozenset())
NEW = Dialect.of(frozenset({"stat_v2", "sendrecv_v2"}))
NUMBER = st.integers(0, 2**31)


def stat_v2(kind: bytes, s: RemoteStat) -> bytes:
    return kind + struct.pack(
        "<IQQIIIIQqqq", s.error, 1, 2, s.mode, 1, 0, 0, s.size, 3, s.mtime_s, 4
    )


def encode(reply: Reply, dialect: Dialect) -> bytes:
    """What a device would send for a reply."""
    match reply:
        case Okay():
            return b"OKAY\0\0\0\0"
        case Fail(text):
            return b"FAIL" + struct.pack("<I", len(text.encode())) + text.encode()
        case FileData(content):
            return b"DATA" + struct.pack("<I", len(content)) + content
        case RemoteStat() if dialect.stat_v2:
            return stat_v2(b"STA2", reply)
        case RemoteStat(mode, size, mtime_s):
            return b"STAT" + struct.pack("<III", mode, size, mtime_s)
    raise AssertionError(reply)


STATS = st.builds(RemoteStat, st.integers(1, 0o177777), NUMBER, NUMBER)
REPLIES = st.one_of(
    st.just(Okay()),
    st.builds(Fail, st.text(max_size=20)),
    st.builds(FileData, st.binary(min_size=1, max_size=100)),
    STATS,
)


def joined(replies: list[Reply]) -> list[Reply]:
    """Pieces of file content that stand behind one another as one."""
    result: list[Reply] = []
    for reply in replies:
        last = result[-1] if result else None
        if isinstance(reply, FileData) and isinstance(last, FileData):
            result[-1] = FileData(last.content + reply.content)
        else:
            result.append(reply)
    return result


@given(
    st.lists(REPLIES, max_size=12),
    st.lists(st.integers(0, 5000), max_size=20),
    st.sampled_from([OLD, NEW]),
)
def test_replies_survive_any_cut(replies: list[Reply], cuts: list[int], dialect: Dialect) -> None:
    stream = b"".join(encode(reply, dialect) for reply in replies)
    edges = [0, *sorted({c % (len(stream) + 1) for c in cuts}), len(stream)]
    reader = ReplyReader()
    seen = [r for a, b in itertools.pairwise(edges) for r in reader.feed(stream[a:b])]
    assert joined(seen) == joined(replies)


@reaches(0.2)
@given(
    st.lists(REPLIES, max_size=4),
    st.binary(max_size=7) | st.binary(min_size=8, max_size=64),
    st.sampled_from([OLD, NEW]),
)
def test_any_bytes_end_in_replies_or_a_protocol_error(
    replies: list[Reply], rubbish: bytes, dialect: Dialect
) -> None:
    reader = ReplyReader()
    seen: list[Reply] = []
    try:
        for piece in (*(encode(reply, dialect) for reply in replies), rubbish):
            seen += reader.feed(piece)
    except ProtocolError:
        reached()
    assert seen[: len(replies)] == replies


@pytest.mark.parametrize(
    "bad",
    [
        b"DATA" + struct.pack("<I", 65537),
        b"FAIL" + struct.pack("<I", 1 << 20),
        b"SEND\0\0\0\0",
        b"\0\0\0\0\0\0\0\0",
    ],
)
def test_what_would_not_end_is_refused(bad: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(ReplyReader().feed(bad))


def test_requests_of_both_versions() -> None:
    mode = stat.S_IFREG | 0o755
    assert OLD.send("/a,b", 0o755) == b"SEND\x0a\0\0\0/a,b,%d" % mode
    assert NEW.send("/a", 0o755) == b"SND2\2\0\0\0/aSND2" + struct.pack("<II", mode, 0)
    assert OLD.receive("/a") == b"RECV\2\0\0\0/a"
    assert NEW.receive("/a") == b"RCV2\2\0\0\0/aRCV2\0\0\0\0"
    assert OLD.stat("/a", follow=True) == b"STAT\2\0\0\0/a"
    assert NEW.stat("/a", follow=True) == b"STA2\2\0\0\0/a"
    assert NEW.stat("/a", follow=False) == b"LST2\2\0\0\0/a"
    assert done(5) == b"DONE\5\0\0\0"
    assert done(-5) == b"DONE\0\0\0\0"
    assert done(2**40) == b"DONE\xff\xff\xff\xff"


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 1025])
def test_paths_that_adbd_cannot_take(path: str) -> None:
    with pytest.raises(InfraError, match="not a path for a device"):
        request(b"STAT", path)


def test_the_old_protocol_says_missing_by_a_mode_of_zero() -> None:
    (reply,) = ReplyReader().feed(b"STAT" + b"\0" * 12)
    assert isinstance(reply, RemoteStat)
    assert reply.is_missing
