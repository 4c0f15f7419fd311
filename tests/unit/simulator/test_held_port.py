"""The port of a simulated device is its own, whether it listens or not."""

import errno
import socket

import pytest

from harness.simulator.supervisor import BoundPort


def taken_by_another(number: int) -> bool:
    """Return whether a socket that shares its port can listen on this one."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", number))
            other.listen()
        except OSError as error:
            return error.errno != errno.EADDRINUSE
        return True


def connect(port: BoundPort) -> None:
    """The side that closes first keeps the port for a minute (TIME_WAIT)."""
    with socket.create_connection(("127.0.0.1", port.number), timeout=60) as visitor:
        served, _ = port.socket.accept()
        served.close()
        assert visitor.recv(1) == b""


def test_nobody_else_gets_it_over_several_boots() -> None:
    port = BoundPort()
    number = port.number
    for _ in range(3):
        assert not taken_by_another(number)
        with pytest.raises(ConnectionRefusedError):
            connect(port)
        port.listen()
        assert not taken_by_another(number)
        connect(port)
        port.refuse()
        assert port.number == number
    assert not taken_by_another(number)
    port.socket.close()
    assert taken_by_another(number)
