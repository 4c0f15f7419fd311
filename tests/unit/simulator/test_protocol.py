"""Packets of the adb transport: any cut, garbage, more than the limit."""

import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator import protocol
from harness.simulator.protocol import HEADER_BYTES, AdbPacketReader, BadPacket, Packet, encode
from tests.properties import reached, reaches

WORDS = st.integers(0, 0xFFFFFFFF)
PACKETS = st.builds(Packet, WORDS, WORDS, WORDS, st.binary(max_size=300))
LIMIT = 300


def feed(reader: AdbPacketReader, data: bytes) -> list[Packet]:
    """Everything the reader finds, however little room it gives at a time."""
    packets = []
    while data:
        space = reader.space()
        piece = data[: len(space)]
        space[: len(piece)] = piece
        reader.filled(len(piece))
        data = data[len(piece) :]
        while (packet := reader.next()) is not None:
            packets.append(packet._replace(payload=bytes(packet.payload)))
    return packets


@settings(deadline=None)
@given(st.lists(PACKETS, max_size=8), st.lists(st.integers(1, 400), min_size=1))
def test_every_cut_gives_the_same_packets(packets: list[Packet], cuts: list[int]) -> None:
    reader = AdbPacketReader(LIMIT)
    data = b"".join(map(encode, packets))
    parsed, index = [], 0
    while data:
        parsed += feed(reader, data[: cuts[index % len(cuts)]])
        data = data[cuts[index % len(cuts)] :]
        index += 1
    assert parsed == packets


@reaches(0.9)
@settings(deadline=None)
@given(st.binary(min_size=HEADER_BYTES, max_size=2000))
def test_garbage_is_refused(data: bytes) -> None:
    command, magic = data[:4], data[20:24]
    if int.from_bytes(magic, "little") == int.from_bytes(command, "little") ^ 0xFFFFFFFF:
        return
    reached()
    with pytest.raises(BadPacket):
        feed(AdbPacketReader(LIMIT), data)


def test_more_than_the_limit_is_refused_before_it_arrives() -> None:
    for length in (LIMIT + 1, 0xFFFFFFFF):
        with pytest.raises(BadPacket, match="payload"):
            feed(AdbPacketReader(LIMIT), protocol.header(protocol.WRTE, 1, 1, length))
