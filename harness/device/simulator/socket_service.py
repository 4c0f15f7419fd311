"""The services `tcp:` and `local...:`, which `adb forward` ends at: a socket of this host."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
from typing import Final

from harness.device.simulator.protocol import Stream

_READ_BYTES: Final = 128 * 1024
_LINGER_S: Final = 10.0
_TCP: Final = re.compile(r"tcp:(\d{1,5})")

SocketPlace = tuple[socket.AddressFamily, object]


def parse_socket(name: str) -> SocketPlace | None:
    """Which socket of this host a service such as `tcp:8080` names; None for another service.

    TCP is that of loopback, since all of the device is on this host.
    """
    if (found := _TCP.fullmatch(name)) and 0 < int(found[1]) < 65536:
        return socket.AF_INET, ("127.0.0.1", int(found[1]))
    kind, _, path = name.partition(":")
    if path and kind == "localabstract":
        return socket.AF_UNIX, f"\0{path}"
    if path and kind == "localfilesystem":
        return socket.AF_UNIX, path
    return None


class SocketSession:
    """Carries bytes both ways; opens the stream itself once the socket is connected."""

    def __init__(self, stream: Stream, place: SocketPlace) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._to_socket = bytearray()
        family, address = place
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = self._socket.connect_ex(address)  # type: ignore[arg-type] # as its family wants it
        if code == 0:
            self._connected()
        elif code == errno.EINPROGRESS:
            self._loop.add_writer(self._socket, self._connected)
        else:
            self._socket.close()
            raise OSError(code, os.strerror(code))

    def received(self, data: memoryview) -> bool:
        """Takes what the host sends; consumed once the socket has it."""
        self._to_socket += data
        self._send()
        return not self._to_socket

    def writable(self) -> None:
        """Reads on: the host has taken the last piece."""
        self._read_on()

    def closed(self) -> None:
        """Closes the socket, once it has what the host sent before it closed its end."""
        if not self._to_socket or self._stream.lost:
            self._close()
        elif self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.call_later(_LINGER_S, self._close)

    def _close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _connected(self) -> None:
        self._loop.remove_writer(self._socket)
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._end()
            return
        self._stream.opened()
        self._read_on()

    def _read_on(self) -> None:
        if not self._stream.closed:
            self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        try:
            data = self._socket.recv(min(_READ_BYTES, self._stream.max_write))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self._loop.remove_reader(self._socket)
        self._stream.write(data)

    def _send(self) -> None:
        try:
            while self._to_socket:
                del self._to_socket[: self._socket.send(self._to_socket)]
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._send)
            return
        except OSError:
            self._end()
            return
        self._loop.remove_writer(self._socket)
        self._stream.acknowledge()
        if self._stream.closed:
            self._close()

    def _end(self) -> None:
        self._close()
        self._stream.close()
