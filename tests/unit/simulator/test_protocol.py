"""The adb transport: known packets, any cut, garbage; streams and their flow control."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator import protocol
from harness.simulator.protocol import (
    CLSE,
    HEADER_BYTES,
    MAX_STREAMS,
    OKAY,
    OPEN,
    WRTE,
    AdbPacketReader,
    BadPacket,
    Endpoint,
    Packet,
    Payload,
    Stream,
    Streams,
    StreamService,
    encode,
)
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


@pytest.mark.parametrize(
    ("packet", "hexadecimal"),
    [
        (
            Packet(protocol.OKAY, 1, 2, b""),
            "4f4b4159 01000000 02000000 00000000 00000000 b0b4bea6",
        ),
        (
            Packet(protocol.WRTE, 0x10, 0x20, b"abc"),
            "57525445 10000000 20000000 03000000 00000000 a8adabba 616263",
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
    assert feed(AdbPacketReader(LIMIT), raw) == [packet]


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


@pytest.mark.parametrize("length", [LIMIT + 1, 1 << 20, 0xFFFFFFFF])
def test_more_than_the_limit_is_refused_before_it_arrives(length: int) -> None:
    with pytest.raises(BadPacket, match="payload"):
        feed(AdbPacketReader(LIMIT), protocol.header(protocol.WRTE, 1, 1, length))


def test_resizing_keeps_what_has_arrived() -> None:
    reader = AdbPacketReader(16)
    whole = encode(Packet(protocol.WRTE, 1, 2, b"x" * 10))
    assert feed(reader, whole[:30]) == []
    reader.resize(5000)
    large = encode(Packet(protocol.WRTE, 1, 2, b"y" * 5000))
    payloads = [packet.payload for packet in feed(reader, whole[30:] + large)]
    assert payloads == [b"x" * 10, b"y" * 5000]


class StandInEndpoint:
    """Remembers what happens to it."""

    def __init__(self, stream: Stream, *, consumes: bool = True) -> None:
        self.stream = stream
        self.consumes = consumes
        self.events: list[object] = []

    def received(self, data: memoryview) -> bool:
        self.events.append(bytes(data))
        return self.consumes

    def writable(self) -> None:
        self.events.append("writable")

    def closed(self) -> None:
        self.events.append("closed")


class Conversation:
    def __init__(self) -> None:
        self.sent: list[tuple[int, int, int, bytes]] = []
        self.endpoints: list[StandInEndpoint] = []
        self.streams = Streams(self._send, self._find, max_payload=4096)

    def _send(self, command: int, arg0: int, arg1: int, payload: Payload) -> None:
        self.sent.append((command, arg0, arg1, bytes(payload)))

    def _find(self, name: bytes) -> StreamService | None:
        if name == b"broken":

            def fail(_: Stream) -> Endpoint:
                raise OSError("no")

            return fail
        if name not in (b"good", b"slow"):
            return None

        def start(stream: Stream) -> Endpoint:
            self.endpoints.append(StandInEndpoint(stream, consumes=name == b"good"))
            return self.endpoints[-1]

        return start

    def send(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> list[object]:
        self.sent.clear()
        self.streams.handle(Packet(command, arg0, arg1, payload))
        return list(self.sent)


@pytest.fixture
def conversation() -> Conversation:
    return Conversation()


def test_open_is_answered(conversation: Conversation) -> None:
    assert conversation.send(OPEN, 7, 0, b"good\0") == [(OKAY, 1, 7, b"")]
    assert conversation.send(OPEN, 8, 0, b"good") == [(OKAY, 2, 8, b"")]
    assert conversation.send(OPEN, 9, 0, b"unknown\0") == [(CLSE, 0, 9, b"")]
    assert conversation.send(OPEN, 9, 0, b"broken\0") == [(OKAY, 3, 9, b""), (CLSE, 3, 9, b"")]
    assert conversation.send(OPEN, 0, 0, b"good\0") == []
    assert len(conversation.streams) == 2


def test_data_is_acknowledged_when_consumed(conversation: Conversation) -> None:
    conversation.send(OPEN, 7, 0, b"good")
    assert conversation.send(WRTE, 7, 1, b"data") == [(OKAY, 1, 7, b"")]
    conversation.send(OPEN, 8, 0, b"slow")
    assert conversation.send(WRTE, 8, 2, b"data") == []
    conversation.endpoints[1].stream.acknowledge()
    conversation.endpoints[1].stream.acknowledge()
    assert conversation.sent == [(OKAY, 2, 8, b"")]
    assert [endpoint.events for endpoint in conversation.endpoints] == [[b"data"], [b"data"]]


def test_what_a_server_sends_without_waiting_is_taken_in_order(conversation: Conversation) -> None:
    """As adb's does with what a client had written that is gone."""
    conversation.send(OPEN, 8, 0, b"slow")
    conversation.send(WRTE, 8, 1, b"one")
    assert conversation.send(WRTE, 8, 1, b"two") == []
    assert conversation.send(CLSE, 8, 1) == [(CLSE, 1, 8, b"")]
    assert conversation.endpoints[0].events == [b"one", b"two", "closed"]


def test_a_host_that_never_waits_is_cut_off(conversation: Conversation) -> None:
    conversation.send(OPEN, 8, 0, b"slow")
    writes = [b"%d" % number for number in range(8)]
    assert [conversation.send(WRTE, 8, 1, data) for data in writes] == [[]] * len(writes)
    assert conversation.send(WRTE, 8, 1, b"more") == [(CLSE, 1, 8, b"")]
    assert conversation.endpoints[0].events == [*writes, "closed"]


def test_one_write_is_under_way(conversation: Conversation) -> None:
    conversation.send(OPEN, 7, 0, b"good")
    endpoint = conversation.endpoints[0]
    assert conversation.send(OKAY, 7, 1) == []
    assert endpoint.events == [], "an OKAY that answers nothing"
    conversation.sent.clear()
    endpoint.stream.write(b"out")
    assert not endpoint.stream.ready
    assert conversation.sent == [(WRTE, 1, 7, b"out")]
    conversation.send(OKAY, 7, 1)
    assert endpoint.stream.ready
    assert endpoint.events == ["writable"]


@pytest.mark.parametrize("remote", [7, 0])
def test_the_host_closes(conversation: Conversation, remote: int) -> None:
    conversation.send(OPEN, 7, 0, b"good")
    assert conversation.send(CLSE, remote, 1) == [(CLSE, 1, 7, b"")]
    assert conversation.endpoints[0].events == ["closed"]
    assert conversation.send(CLSE, 7, 1) == []
    assert conversation.send(WRTE, 7, 1, b"late") == []
    assert len(conversation.streams) == 0


def test_the_device_closes(conversation: Conversation) -> None:
    conversation.send(OPEN, 7, 0, b"good")
    conversation.endpoints[0].stream.close()
    conversation.endpoints[0].stream.close()
    assert conversation.sent == [(OKAY, 1, 7, b""), (CLSE, 1, 7, b"")]
    assert conversation.endpoints[0].events == []


def test_the_connection_ends(conversation: Conversation) -> None:
    for number in (7, 8, 9):
        conversation.send(OPEN, number, 0, b"good")
    conversation.sent.clear()
    conversation.streams.close_all()
    assert [endpoint.events for endpoint in conversation.endpoints] == [["closed"]] * 3
    assert conversation.sent == []


@pytest.mark.parametrize("command", [WRTE, OKAY, CLSE])
@pytest.mark.parametrize(("arg0", "arg1"), [(6, 1), (7, 2), (1, 7), (7, 0xFFFFFFFF)])
def test_packets_of_unknown_streams_are_ignored(
    conversation: Conversation, command: int, arg0: int, arg1: int
) -> None:
    conversation.send(OPEN, 7, 0, b"good")
    assert conversation.send(command, arg0, arg1, b"x") == []
    assert conversation.endpoints[0].events == []


def test_the_number_of_streams_is_bounded(conversation: Conversation) -> None:
    for number in range(MAX_STREAMS):
        conversation.send(OPEN, number + 1, 0, b"good")
    assert conversation.send(OPEN, 1, 0, b"good") == [(CLSE, 0, 1, b"")]
    conversation.endpoints[5].stream.close()
    assert conversation.send(OPEN, 1, 0, b"good") == [(OKAY, MAX_STREAMS + 1, 1, b"")]
