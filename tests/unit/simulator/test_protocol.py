"""Packets of the adb transport: known bytes, any cut, garbage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulator import protocol
from harness.simulator.protocol import HEADER_BYTES, Packet, PacketReader, ProtocolError, encode

WORDS = st.integers(0, 0xFFFFFFFF)
PACKETS = st.builds(Packet, WORDS, WORDS, WORDS, st.binary(max_size=300), WORDS)
LIMIT = 300


def feed(reader: PacketReader, data: bytes) -> list[Packet]:
    """Everything the reader finds, however little room it gives at a time."""
    found = []
    while data:
        space = reader.space()
        taken = data[: len(space)]
        space[: len(taken)] = taken
        reader.filled(len(taken))
        data = data[len(taken) :]
        while (packet := reader.next()) is not None:
            found.append(packet._replace(payload=bytes(packet.payload)))
    return found


@pytest.mark.parametrize(
    ("packet", "hexadecimal"),
    [
        (
            Packet(protocol.OKAY, 1, 2, b""),
            "4f4b4159 01000000 02000000 00000000 00000000 b0b4bea6",
        ),
        (
            Packet(protocol.WRTE, 0x10, 0x20, b"abc", 0x126),
            "57525445 10000000 20000000 03000000 26010000 a8adabba 616263",
        ),
        (
            Packet(protocol.CNXN, protocol.VERSION, 4096, b""),
            "434e584e 01000001 00100000 00000000 00000000 bcb1a7b1",
        ),
    ],
)
def test_known_bytes(packet: Packet, hexadecimal: str) -> None:
    raw = bytes.fromhex(hexadecimal)
    assert encode(packet) == raw
    assert feed(PacketReader(LIMIT), raw) == [packet]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [([], 0), ([b"abc"], 0x126), ([b"ab", b"c"], 0x126), ([b"\xff" * 1000], 255000)],
)
def test_checksum(parts: list[bytes], expected: int) -> None:
    assert protocol.checksum(parts) == expected


@settings(deadline=None)
@given(st.lists(PACKETS, max_size=8), st.lists(st.integers(1, 400), min_size=1))
def test_every_cut_gives_the_same_packets(packets: list[Packet], cuts: list[int]) -> None:
    reader = PacketReader(LIMIT)
    data = b"".join(map(encode, packets))
    found, index = [], 0
    while data:
        found += feed(reader, data[: cuts[index % len(cuts)]])
        data = data[cuts[index % len(cuts)] :]
        index += 1
    assert found == packets


@settings(deadline=None)
@given(st.binary(min_size=HEADER_BYTES, max_size=2000))
def test_garbage_is_refused(data: bytes) -> None:
    command, magic = data[:4], data[20:24]
    if int.from_bytes(magic, "little") == int.from_bytes(command, "little") ^ 0xFFFFFFFF:
        return
    with pytest.raises(ProtocolError):
        feed(PacketReader(LIMIT), data)


@pytest.mark.parametrize("length", [LIMIT + 1, 1 << 20, 0xFFFFFFFF])
def test_more_than_the_limit_is_refused_before_it_arrives(length: int) -> None:
    with pytest.raises(ProtocolError, match="payload"):
        feed(PacketReader(LIMIT), protocol.header(protocol.WRTE, 1, 1, length))


def test_resizing_keeps_what_has_arrived() -> None:
    reader = PacketReader(16)
    whole = encode(Packet(protocol.WRTE, 1, 2, b"x" * 10))
    assert feed(reader, whole[:30]) == []
    reader.resize(5000)
    large = encode(Packet(protocol.WRTE, 1, 2, b"y" * 5000))
    payloads = [packet.payload for packet in feed(reader, whole[30:] + large)]
    assert payloads == [b"x" * 10, b"y" * 5000]
