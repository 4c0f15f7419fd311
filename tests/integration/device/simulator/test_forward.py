"""adb forward to sockets of the device, and the services behind it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.device.simulator.conftest import DEADLINE_S, OnDevice, receive

CONTENT = os.urandom(3 << 20)


@contextmanager
def serving(listening: socket.socket, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    def accept() -> None:
        with listening.accept()[0] as connection:
            connection.settimeout(DEADLINE_S)
            serve(connection)

    listening.settimeout(DEADLINE_S)
    thread = threading.Thread(target=accept)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def echo(connection: socket.socket) -> None:
    connection.sendall(receive(connection, len(CONTENT)))


def forwarded(shared: OnDevice, service: str) -> socket.socket:
    port = int(shared("forward", "tcp:0", service).stdout)
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)


def test_megabytes_there_and_back(shared: OnDevice, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with serving(listening, echo), forwarded(shared, f"tcp:{port}") as client:
        threading.Thread(target=client.sendall, args=(CONTENT,)).start()
        assert receive(client, len(CONTENT)) == CONTENT
        assert client.recv(1) == b""
    assert b"tcp:" in shared("forward", "--list").stdout
    assert shared("forward", "--remove-all").returncode == 0


def test_sockets_with_names(shared: OnDevice, tmp_path: Path) -> None:
    names = {
        "localabstract:of-a-test": "\0of-a-test",
        f"localfilesystem:{tmp_path}/s": f"{tmp_path}/s",
    }
    for service, address in names.items():
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen()
            with serving(listening, lambda end: end.sendall(b"hello")):
                stream = shared.adb.open(shared.device.address, service)
                assert receive(stream, 6) == b"hello"
                stream.close()


def test_the_other_ends_close(shared: OnDevice, listening: socket.socket) -> None:
    heard: list[bytes] = []
    with serving(listening, lambda end: heard.append(receive(end, 2 * len(CONTENT)))):
        stream = shared.adb.open(shared.device.address, f"tcp:{listening.getsockname()[1]}")
        stream.sendall(CONTENT)
        stream.close()
    assert heard == [CONTENT]


def test_nobody_listens(shared: OnDevice, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    listening.close()
    with pytest.raises(ConnectionError, match="FAIL"):
        shared.adb.open(shared.device.address, f"tcp:{port}")
    with forwarded(shared, f"tcp:{port}") as client:
        assert client.recv(1) == b""
