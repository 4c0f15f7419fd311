"""A channel sends and receives at once, keeps its deadline, and reads on when nobody takes more."""

import socket
import threading
import time

import pytest

from harness.core.deadline import Deadline
from harness.transport.deadline_socket import Channel


def test_both_directions_at_once_do_not_lock_up_and_keep_their_order() -> None:
    near, far = socket.socketpair()
    with near, far:
        channel = Channel(near, Deadline(60))
        data = bytes(range(256)) * 20_000
        for start in range(0, len(data), 1000):
            channel.queue(data[start : start + 1000])

        def echo() -> None:
            while piece := far.recv(1 << 16):
                far.sendall(piece)

        thread = threading.Thread(target=echo)
        thread.start()
        received = bytearray()
        while len(received) < len(data):
            received += channel.receive()
        near.shutdown(socket.SHUT_WR)
        thread.join()
        assert received == data
        assert channel.queued_bytes == 0


def test_the_deadline_holds_while_sending_and_while_receiving() -> None:
    near, far = socket.socketpair()
    with near, far:
        for queued in (0, 64 << 20):
            start = time.monotonic()
            channel = Channel(near, Deadline(0.1))
            channel.queue(bytes(queued))
            with pytest.raises(TimeoutError):
                channel.receive()
            assert 0.09 < time.monotonic() - start < 30


def test_the_deadline_holds_though_there_is_always_something_to_receive() -> None:
    near, far = socket.socketpair()
    with near, far:
        channel = Channel(near, Deadline(0.1))
        start = time.monotonic()

        def listen() -> None:
            while time.monotonic() - start < 60:
                far.sendall(b"more")
                assert channel.receive()

        with pytest.raises(TimeoutError):
            listen()
        assert time.monotonic() - start < 30


def test_the_last_word_is_heard_after_sending_failed() -> None:
    near, far = socket.socketpair()
    with near:
        channel = Channel(near, Deadline(5))
        far.sendall(b"last word")
        far.close()
        channel.queue(bytes(64 << 20))
        assert channel.receive() == b"last word"
        assert channel.send_error is not None
        with pytest.raises(EOFError):
            channel.receive()


def test_room_for_more_output_ends_the_wait() -> None:
    near, far = socket.socketpair()
    with near, far:
        channel = Channel(near, Deadline(5))
        channel.queue(b"little")
        assert channel.receive(room_below=100) == b""
