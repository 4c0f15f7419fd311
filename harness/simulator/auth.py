"""Authentication of hosts: only this account of the computer, with the harness's RSA key.

The format of adbkey.pub is that of AOSP's libcrypto_utils (android_pubkey): base64 of word count,
-1/n[0] mod 2**32, modulus and R**2 mod n in little endian, exponent; then a comment. A TCP port of
this computer is open to every account. Linux tells in /proc/net/tcp which user made a socket
(proc(5)); the other end of a loopback connection stands there too, with addresses and ports the
other way round.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOKEN_BYTES: Final = 20
_MODULUS_BYTES: Final = 256
_ENCODED: Final = struct.Struct(f"<II{_MODULUS_BYTES}s{_MODULUS_BYTES}sI")
_MAX_TEXT_BYTES: Final = 4096

# DER of DigestInfo { SHA-1, NULL, 20 bytes } up to the digest itself (RFC 8017, 9.2).
_SHA1_PREFIX: Final = bytes.fromhex("3021300906052b0e03021a05000414")

_ESTABLISHED: Final = 1
# The kernel returns a table in pieces, and a socket can move from one to another in between.
_LOOKS: Final = 5
# The bytes before an IPv4 address in its own table, and in that of IPv6.
_FORMS: Final = (b"", bytes(10) + b"\xff\xff")
_WHOLE_MAP: Final = ["0", "0", "4294967295"]

HostPort = tuple[str, int]


@dataclass(frozen=True)
class PublicKey:
    """A 2048-bit RSA key as adb uses it."""

    modulus: int
    exponent: int

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.modulus.to_bytes(_MODULUS_BYTES, "big")).hexdigest()[:16]


def parse_public_key(text: bytes) -> PublicKey:
    """Parse an adbkey.pub file, or the payload of AUTH RSAPUBLICKEY.

    Raises ValueError saying what is wrong with it.
    """
    if len(text) > _MAX_TEXT_BYTES:
        raise ValueError(f"an adb public key is at most {_MAX_TEXT_BYTES} bytes long")
    words = text.rstrip(b"\0").split(None, 1)
    try:
        raw = base64.b64decode(words[0] if words else b"", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not an adb public key: {error}") from error
    if len(raw) != _ENCODED.size:
        raise ValueError(f"not an adb public key: {len(raw)} bytes instead of {_ENCODED.size}")
    word_count, n0_inverse, modulus_bytes, _, exponent = _ENCODED.unpack(raw)
    modulus = int.from_bytes(modulus_bytes, "little")
    if word_count * 4 != _MODULUS_BYTES or modulus.bit_length() != _MODULUS_BYTES * 8:
        raise ValueError("not an adb public key: its modulus does not have 2048 bits")
    if modulus * n0_inverse % 2**32 != 2**32 - 1 or exponent not in (3, 65537):
        raise ValueError("not an adb public key: its numbers do not belong together")
    return PublicKey(modulus, exponent)


def verify(key: PublicKey, token: bytes, signature: bytes) -> bool:
    """Return whether `signature` is the key's PKCS #1 v1.5 signature of `token`.

    adb signs the 20 random bytes as if they were a SHA-1 digest.
    """
    if len(token) != TOKEN_BYTES or len(signature) != _MODULUS_BYTES:
        return False
    number = int.from_bytes(signature, "big")
    if number >= key.modulus:
        return False
    actual = pow(number, key.exponent, key.modulus).to_bytes(_MODULUS_BYTES, "big")
    tail = b"\0" + _SHA1_PREFIX + token
    expected = b"\0\1" + b"\xff" * (_MODULUS_BYTES - 2 - len(tail)) + tail
    return hmac.compare_digest(actual, expected)


def is_ours(connected: socket.socket, proc: Path = Path("/proc")) -> bool:
    """Return whether the other end of an IPv4 connection belongs to the user of this process.

    False if that is unknown: it has closed already, or /proc does not list it.
    """
    try:
        local, remote = connected.getsockname(), connected.getpeername()
        foreign = int((proc / "sys/kernel/overflowuid").read_text())
        if os.geteuid() == foreign and (proc / "self/uid_map").read_text().split() != _WHOLE_MAP:
            return False  # it cannot be told from foreign accounts
        for _ in range(_LOOKS):
            user = _user_of(remote, local, proc)
            # The connection still stands, so that the user found is that of this connection: nobody
            # else can have used its ports in between.
            state = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if state != _ESTABLISHED:
                return False
            if user is not None:
                return user == os.geteuid()
    except (OSError, ValueError):
        return False
    return False


def owner_in(table: str, local: HostPort, remote: HostPort) -> int | None:
    """Return the user of an established connection from the text of /proc/net/tcp or tcp6.

    None if it is not listed, or its process has closed it: the kernel gives such a socket
    to root. Raises ValueError for a malformed line.
    """
    ends = {(_table_address(local, form), _table_address(remote, form)) for form in _FORMS}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10:
            raise ValueError(f"unknown line {line!r}")
        if (fields[1], fields[2]) in ends:
            alive = int(fields[3], 16) == _ESTABLISHED and int(fields[9]) != 0
            return int(fields[7]) if alive else None
    return None


def _user_of(local: HostPort, remote: HostPort, proc: Path) -> int | None:
    tables = (proc / "net/tcp", proc / "net/tcp6")  # without IPv6 there is one
    texts = (table.read_text("ascii") for table in tables if table.exists())
    users = (owner_in(text, local, remote) for text in texts)
    return next((user for user in users if user is not None), None)


def _table_address(address: HostPort, form: bytes) -> str:
    host = form + socket.inet_aton(address[0])
    # the kernel prints each word as a number of this computer's byte order
    words = struct.unpack(f"={len(host) // 4}I", host)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
