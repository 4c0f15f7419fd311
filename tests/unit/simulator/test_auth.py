"""Authentication: RSA signatures by keys of the real `adb keygen`."""

from __future__ import annotations

import base64
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import adbutils
import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator.auth import PublicKey, parse_public_key, verify

TOKEN = bytes(range(20))
SHA1_INFO = bytes.fromhex("3021300906052b0e03021a05000414")


@dataclass(frozen=True)
class KeyPair:
    public_text: bytes
    modulus: int
    exponent: int
    private: int

    def sign(self, token: bytes, info: bytes = SHA1_INFO, padding: int | None = None) -> bytes:
        tail = b"\0" + info + token
        filling = 256 - 2 - len(tail) if padding is None else padding
        block = (b"\0\1" + b"\xff" * filling + tail).ljust(256, b"\0")
        number = pow(int.from_bytes(block, "big"), self.private, self.modulus)
        return number.to_bytes(256, "big")


def der_integers(data: bytes) -> list[int]:
    """All integers of a DER structure, in order; looks into sequences and octet strings."""
    integers = []
    while data:
        tag, length, data = data[0], data[1], data[2:]
        if length & 0x80:
            size = length & 0x7F
            length, data = int.from_bytes(data[:size], "big"), data[size:]
        content, data = data[:length], data[length:]
        if tag == 0x02:
            integers.append(int.from_bytes(content, "big"))
        elif tag in (0x30, 0x04):
            integers += der_integers(content)
    return integers


def generate(folder: Path) -> KeyPair:
    adb = Path(adbutils.__file__).parent / "binaries" / "adb"
    environment = {"HOME": str(folder), "PATH": os.defpath}
    subprocess.run(
        [adb, "keygen", folder / "key"],
        env=environment,
        check=True,
        capture_output=True,
        timeout=60,
    )
    lines = (folder / "key").read_text().splitlines()
    der = base64.b64decode("".join(line for line in lines if not line.startswith("-")))
    # PKCS #8: version, algorithm, then version, modulus, exponent, private exponent, ...
    _, _, modulus, exponent, private, *_ = der_integers(der)
    return KeyPair((folder / "key.pub").read_bytes(), modulus, exponent, private)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return generate(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def other_pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return generate(tmp_path_factory.mktemp("other"))


def test_parses_what_adb_writes(pair: KeyPair) -> None:
    key = parse_public_key(pair.public_text)
    assert key == PublicKey(pair.modulus, pair.exponent)
    assert parse_public_key(pair.public_text.split()[0] + b"\0") == key
    assert len(key.fingerprint) == 16


def test_accepts_the_key_and_no_other(pair: KeyPair, other_pair: KeyPair) -> None:
    key = parse_public_key(pair.public_text)
    assert verify(key, TOKEN, pair.sign(TOKEN))
    assert not verify(key, TOKEN, other_pair.sign(TOKEN))
    assert not verify(key, bytes(20), pair.sign(TOKEN))


def test_padding_must_be_exact(pair: KeyPair) -> None:
    key = parse_public_key(pair.public_text)
    sha256_info = bytes.fromhex("3031300d060960864801650304020105000420")
    assert not verify(key, TOKEN, pair.sign(TOKEN, info=sha256_info))
    assert not verify(key, TOKEN, pair.sign(TOKEN, info=b""))
    # the forgery of Bleichenbacher: less padding, rubbish behind the digest
    assert not verify(key, TOKEN, pair.sign(TOKEN, padding=8))


@pytest.mark.parametrize("change", [b"", b"\0", b"\0" * 256, b"\xff" * 256, b"\0" * 257])
def test_impossible_signatures(pair: KeyPair, change: bytes) -> None:
    assert not verify(parse_public_key(pair.public_text), TOKEN, change)


def test_trivial_numbers_are_no_signature(pair: KeyPair) -> None:
    key = parse_public_key(pair.public_text)
    for number in (1, key.modulus - 1, int.from_bytes(pair.sign(TOKEN), "big") ^ 1):
        assert not verify(key, TOKEN, number.to_bytes(256, "big"))
    beyond = int.from_bytes(pair.sign(TOKEN), "big") + key.modulus
    if beyond.bit_length() <= 2048:
        assert not verify(key, TOKEN, beyond.to_bytes(256, "big"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "instead of"),
        (b"\0", "instead of"),
        (b"not base64!", "not an adb public key"),
        (base64.b64encode(bytes(100)), "100 bytes"),
        (base64.b64encode(bytes(524)), "2048 bits"),
        (b"A" * 5000, "at most"),
    ],
)
def test_refuses_what_is_no_key(text: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_public_key(text)


@settings(deadline=None)
@given(st.integers(0, 523), st.integers(1, 255))
def test_refuses_a_key_with_inconsistent_numbers(position: int, flip: int) -> None:
    modulus = (1 << 2047) | 1
    inverse = 2**32 - pow(modulus, -1, 2**32)
    head = (64).to_bytes(4, "little") + inverse.to_bytes(4, "little")
    raw = bytearray(
        head + modulus.to_bytes(256, "little") + bytes(256) + (65537).to_bytes(4, "little")
    )
    assert parse_public_key(base64.b64encode(raw)).modulus == modulus
    raw[position] ^= flip
    try:
        changed = parse_public_key(base64.b64encode(raw))
    except ValueError:
        return
    # only the part that is derived from the modulus, or high bits of it, can change unnoticed
    assert 264 <= position < 520 or changed.modulus != modulus


@settings(deadline=None)
@given(st.binary(max_size=800))
def test_any_bytes_are_a_key_or_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_public_key(text)
