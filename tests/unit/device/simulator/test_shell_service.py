"""What the host sends into a command, however it is cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from harness.device.simulator.shell_service import CLOSE_STDIN, STDIN, WINDOW_SIZE, StdinParser


class Heard:
    def __init__(self) -> None:
        self.stdin = b""
        self.closed = 0
        self.sizes: list[tuple[int, int, int, int]] = []
        self.parser = StdinParser(self._data, self._close, lambda *size: self.sizes.append(size))

    def _data(self, data: memoryview) -> None:
        assert not self.closed
        self.stdin += data

    def _close(self) -> None:
        self.closed += 1


def packet(kind: int, data: bytes = b"") -> bytes:
    return struct.pack("<BI", kind, len(data)) + data


KNOWN = st.sampled_from([STDIN, 1, 2, 3, 17, 255])


@settings(deadline=None)
@given(
    st.lists(st.tuples(KNOWN, st.binary(max_size=50)), max_size=10),
    st.lists(st.integers(1, 60), min_size=1),
)
def test_any_cut(packets: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(packet(*each) for each in packets) + packet(CLOSE_STDIN)
    heard, index = Heard(), 0
    while data:
        size = cuts[index % len(cuts)]
        heard.parser.feed(memoryview(data[:size]))
        data, index = data[size:], index + 1
    assert heard.stdin == b"".join(data for kind, data in packets if kind == STDIN)
    assert heard.closed == 1


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (b"24x80,0x0\0", [(24, 80, 0, 0)]),
        (b"24x80,640x480", [(24, 80, 640, 480)]),
        (b"99999x1,1x1", [(0xFFFF, 1, 1, 1)]),
        (b"24x80", []),
        (b"-1x80,0x0", []),
        (b"", []),
        (b"1" * 100000, []),
    ],
)
def test_window_sizes(text: bytes, sizes: list[tuple[int, int, int, int]]) -> None:
    heard = Heard()
    heard.parser.feed(memoryview(packet(WINDOW_SIZE, text) + packet(STDIN, b"on")))
    assert heard.sizes == sizes
    assert heard.stdin == b"on"


@settings(deadline=None)
@given(st.binary(max_size=500))
def test_garbage_does_no_harm(data: bytes) -> None:
    heard = Heard()
    heard.parser.feed(memoryview(packet(STDIN, b"before") + data))
    assert heard.stdin.startswith(b"before")
    assert len(heard.stdin) <= len(b"before") + len(data)
