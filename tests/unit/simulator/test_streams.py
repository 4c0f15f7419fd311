"""Streams and their flow control, packet by packet."""

from __future__ import annotations

import pytest

from harness.simulator.protocol import CLSE, OKAY, OPEN, WRTE, Packet
from harness.simulator.streams import MAX_STREAMS, Data, Endpoint, Service, Stream, Streams


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

    def _send(self, command: int, arg0: int, arg1: int, payload: Data) -> None:
        self.sent.append((command, arg0, arg1, bytes(payload)))

    def _find(self, name: bytes) -> Service | None:
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

    def says(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> list[object]:
        self.sent.clear()
        self.streams.handle(Packet(command, arg0, arg1, payload))
        return list(self.sent)


@pytest.fixture
def conversation() -> Conversation:
    return Conversation()


def test_open_is_answered(conversation: Conversation) -> None:
    assert conversation.says(OPEN, 7, 0, b"good\0") == [(OKAY, 1, 7, b"")]
    assert conversation.says(OPEN, 8, 0, b"good") == [(OKAY, 2, 8, b"")]
    assert conversation.says(OPEN, 9, 0, b"unknown\0") == [(CLSE, 0, 9, b"")]
    assert conversation.says(OPEN, 9, 0, b"broken\0") == [(OKAY, 3, 9, b""), (CLSE, 3, 9, b"")]
    assert conversation.says(OPEN, 0, 0, b"good\0") == []
    assert len(conversation.streams) == 2


def test_data_is_acknowledged_when_consumed(conversation: Conversation) -> None:
    conversation.says(OPEN, 7, 0, b"good")
    assert conversation.says(WRTE, 7, 1, b"data") == [(OKAY, 1, 7, b"")]
    conversation.says(OPEN, 8, 0, b"slow")
    assert conversation.says(WRTE, 8, 2, b"data") == []
    conversation.endpoints[1].stream.acknowledge()
    conversation.endpoints[1].stream.acknowledge()
    assert conversation.sent == [(OKAY, 2, 8, b"")]
    assert [endpoint.events for endpoint in conversation.endpoints] == [[b"data"], [b"data"]]


def test_a_host_that_does_not_wait_is_cut_off(conversation: Conversation) -> None:
    conversation.says(OPEN, 8, 0, b"slow")
    conversation.says(WRTE, 8, 1, b"one")
    assert conversation.says(WRTE, 8, 1, b"two") == [(CLSE, 1, 8, b"")]
    assert conversation.endpoints[0].events == [b"one", "closed"]


def test_one_write_is_under_way(conversation: Conversation) -> None:
    conversation.says(OPEN, 7, 0, b"good")
    endpoint = conversation.endpoints[0]
    assert conversation.says(OKAY, 7, 1) == []
    assert endpoint.events == [], "an OKAY that answers nothing"
    conversation.sent.clear()
    endpoint.stream.write(b"out")
    assert not endpoint.stream.ready
    assert conversation.sent == [(WRTE, 1, 7, b"out")]
    conversation.says(OKAY, 7, 1)
    assert endpoint.stream.ready
    assert endpoint.events == ["writable"]


@pytest.mark.parametrize("remote", [7, 0])
def test_the_host_closes(conversation: Conversation, remote: int) -> None:
    conversation.says(OPEN, 7, 0, b"good")
    assert conversation.says(CLSE, remote, 1) == [(CLSE, 1, 7, b"")]
    assert conversation.endpoints[0].events == ["closed"]
    assert conversation.says(CLSE, 7, 1) == []
    assert conversation.says(WRTE, 7, 1, b"late") == []
    assert len(conversation.streams) == 0


def test_the_device_closes(conversation: Conversation) -> None:
    conversation.says(OPEN, 7, 0, b"good")
    conversation.endpoints[0].stream.close()
    conversation.endpoints[0].stream.close()
    assert conversation.sent == [(OKAY, 1, 7, b""), (CLSE, 1, 7, b"")]
    assert conversation.endpoints[0].events == []


def test_the_connection_ends(conversation: Conversation) -> None:
    for number in (7, 8, 9):
        conversation.says(OPEN, number, 0, b"good")
    conversation.sent.clear()
    conversation.streams.close_all()
    assert [endpoint.events for endpoint in conversation.endpoints] == [["closed"]] * 3
    assert conversation.sent == []


@pytest.mark.parametrize("command", [WRTE, OKAY, CLSE])
@pytest.mark.parametrize(("arg0", "arg1"), [(6, 1), (7, 2), (1, 7), (7, 0xFFFFFFFF)])
def test_packets_of_unknown_streams_are_ignored(
    conversation: Conversation, command: int, arg0: int, arg1: int
) -> None:
    conversation.says(OPEN, 7, 0, b"good")
    assert conversation.says(command, arg0, arg1, b"x") == []
    assert conversation.endpoints[0].events == []


def test_the_number_of_streams_is_bounded(conversation: Conversation) -> None:
    for number in range(MAX_STREAMS):
        conversation.says(OPEN, number + 1, 0, b"good")
    assert conversation.says(OPEN, 1, 0, b"good") == [(CLSE, 0, 1, b"")]
    conversation.endpoints[5].stream.close()
    assert conversation.says(OPEN, 1, 0, b"good") == [(OKAY, MAX_STREAMS + 1, 1, b"")]
