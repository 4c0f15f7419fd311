"""One adb server connected to the device: who it is, then its streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from harness.device.simulator import protocol
from harness.device.simulator.auth import TOKEN_BYTES, PublicKey, is_ours, parse_public_key, verify
from harness.device.simulator.protocol import (
    AdbPacketReader,
    BadPacket,
    Packet,
    Payload,
    Streams,
    StreamService,
)

HELLO_S: Final = 10.0
"""How long a connection may stay without a first packet, in seconds."""

MAX_CONNECTIONS: Final = 64
"""Above this number the oldest one that has not shown the right key is dropped."""

_MAX_SIGNATURES: Final = 256
_JOINED_BYTES: Final = 16 * 1024
# Far above one write per stream in use: only a host that does not read gets there.
_HIGH_WATER_BYTES: Final = 16 << 20


class Connection(asyncio.BufferedProtocol):
    """The device's end of a connection.

    `banner` is what the device tells of itself, `key` the only one that it lets in; `others` holds
    all connections of the device.
    """

    def __init__(
        self,
        banner: bytes,
        key: PublicKey,
        find_service: Callable[[bytes], StreamService | None],
        note: Callable[[str], None],
        others: dict[Connection, None],
    ) -> None:
        self._banner = banner
        self._key = key
        self._find_service = find_service
        self._note = note
        self._others = others
        self._transport: asyncio.Transport | None = None
        self._reader = AdbPacketReader(protocol.MAX_HANDSHAKE_PAYLOAD)
        self._streams: Streams | None = None
        self._version = 0
        self._max_payload = 0
        self._token: bytes | None = None
        self._signatures = 0
        self._hello: asyncio.TimerHandle | None = None

    @property
    def online(self) -> bool:
        return self._streams is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A host has connected; who is of another account than we are is sent away unheard."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not is_ours(transport.get_extra_info("socket")):
            self._note("connection refused: it is not of the account that runs this device")
            self.drop()
            return
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._hello = asyncio.get_running_loop().call_later(HELLO_S, self.drop)
        self._others[self] = None
        if len(self._others) > MAX_CONNECTIONS:
            for other in self._others:
                if not other.online:
                    other.drop()
                    break

    def connection_lost(self, error: Exception | None) -> None:
        """The host is gone."""
        self._others.pop(self, None)
        self._transport = None
        if self._hello is not None:
            self._hello.cancel()
        self._offline()

    def drop(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """The host does not read: until it does, nothing more is taken from it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The host has read."""
        if self._transport is not None:
            self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where asyncio puts what arrives next."""
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Handles all packets that are complete now."""
        self._reader.filled(nbytes)
        try:
            while self._transport is not None and (packet := self._reader.next()) is not None:
                self._handle(packet)
        except BadPacket as error:
            self._note(f"connection dropped: {error}")
            self.drop()

    def _handle(self, packet: Packet) -> None:
        if packet.command == protocol.CNXN:
            self._check(packet, packet.arg0)
            self._greet(packet)
            return
        if not self._version:
            raise BadPacket("the first packet is not CNXN")
        self._check(packet, self._version)
        if packet.command == protocol.AUTH:
            self._authenticate(packet)
        elif self._streams is not None:
            self._streams.handle(packet)
        # adbd ignores everything else from a host that is not online

    def _check(self, packet: Packet, version: int) -> None:
        if version < protocol.VERSION and packet.checksum != protocol.checksum([packet.payload]):
            raise BadPacket("wrong checksum")

    def _greet(self, packet: Packet) -> None:
        if self._hello is not None:
            self._hello.cancel()
        self._offline()
        if packet.arg1 < protocol.MIN_PAYLOAD:
            raise BadPacket(f"maximum payload of {packet.arg1} bytes")
        self._version = min(packet.arg0, protocol.VERSION)
        self._max_payload = min(packet.arg1, protocol.MAX_PAYLOAD)
        self._challenge()

    def _challenge(self) -> None:
        self._token = os.urandom(TOKEN_BYTES)
        self._send_checked(protocol.AUTH, protocol.AUTH_TOKEN, 0, self._token)

    def _authenticate(self, packet: Packet) -> None:
        payload = bytes(packet.payload)
        if packet.arg0 == protocol.AUTH_SIGNATURE and self._token is not None:
            token, self._token = self._token, None
            self._signatures += 1
            if verify(self._key, token, payload):
                self._online()
            elif self._signatures >= _MAX_SIGNATURES:
                raise BadPacket("too many signatures by unknown keys")
            else:
                self._challenge()
        elif packet.arg0 == protocol.AUTH_RSAPUBLICKEY and self._streams is None:
            # A phone would ask its user now. Nobody is asked here: the host stays unauthorized.
            try:
                offered = parse_public_key(payload).fingerprint
            except ValueError as error:
                offered = f"({error})"
            self._note(f"refused key {offered}, only {self._key.fingerprint} is accepted")

    def _online(self) -> None:
        self._reader.resize(protocol.MAX_PAYLOAD)
        self._streams = Streams(self._send, self._find_service, max_payload=self._max_payload)
        self._send_checked(protocol.CNXN, protocol.VERSION, protocol.MAX_PAYLOAD, self._banner)
        self._note("host connected")

    def _offline(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.close_all()

    def _send_checked(self, command: int, arg0: int, arg1: int, payload: bytes) -> None:
        """Sends a packet of the handshake, whose checksum any host may want to check."""
        if self._transport is not None:
            check = protocol.checksum([payload])
            self._transport.write(
                protocol.encode(Packet(command, arg0, arg1, payload, checksum=check))
            )

    def _send(self, command: int, arg0: int, arg1: int, payload: Payload) -> None:
        if self._transport is None:
            return
        check = 0 if self._version >= protocol.VERSION else protocol.checksum([payload])
        head = protocol.header(command, arg0, arg1, len(payload), check)
        if len(payload) <= _JOINED_BYTES:
            self._transport.write(head + payload)
        else:
            self._transport.write(head)
            self._transport.write(payload)
