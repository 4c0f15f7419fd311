"""Authentication of hosts by the harness's RSA key, which only this account can read.

The format of adbkey.pub is that of AOSP's libcrypto_utils (android_pubkey): base64 of word count,
-1/n[0] mod 2**32, modulus and R**2 mod n in little endian, exponent; then a comment.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

TOKEN_BYTES: Final = 20
_MODULUS_BYTES: Final = 256
_ENCODED: Final = struct.Struct(f"<II{_MODULUS_BYTES}s{_MODULUS_BYTES}sI")
_MAX_TEXT_BYTES: Final = 4096

# DER of DigestInfo { SHA-1, NULL, 20 bytes } up to the digest itself (RFC 8017, 9.2).
_SHA1_PREFIX: Final = bytes.fromhex("3021300906052b0e03021a05000414")


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
