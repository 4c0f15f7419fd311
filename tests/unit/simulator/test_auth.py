"""Authentication: RSA signatures by keys of the real `adb keygen`, owners of connections."""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import adbutils
import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator.auth import PublicKey, is_ours, owner_in, parse_public_key, verify
from tests.properties import reached, reaches

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


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  ...\n"
DEVICE = ("127.0.0.1", 0x1234)
HOST = ("127.0.0.1", 0xABCD)


def line(
    local: str, remote: str, *, state: str = "01", user: int = 7, inode: int = 99, number: int = 0
) -> str:
    return (
        f"{number:4}: {local} {remote} {state} 00000000:00000000 00:00000000 00000000"
        f" {user:5}        0 {inode} 1 0000000000000000 20 4 30 10 -1\n"
    )


def address(host: str, port: int) -> str:
    (word,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{word:08X}:{port:04X}"


def mapped(host: str, port: int) -> str:
    words = struct.unpack("=4I", bytes(10) + b"\xff\xff" + socket.inet_aton(host))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


OURS, THEIRS = address(*DEVICE), address(*HOST)
TABLES = [
    ("there", line(THEIRS, OURS), 7),
    ("through IPv6", line(mapped(*HOST), mapped(*DEVICE)), 7),
    ("only the device's end", line(OURS, THEIRS), None),
    ("another port", line(address("127.0.0.1", 0xABCE), OURS), None),
    ("another address", line(address("127.0.0.2", 0xABCD), OURS), None),
    ("to another device", line(THEIRS, address("127.0.0.1", 0x1235)), None),
    ("it listens", line(THEIRS, "00000000:0000", state="0A"), None),
    ("closed by its process, so root's", line(THEIRS, OURS, user=0, inode=0), None),
    ("about to end", line(THEIRS, OURS, state="05"), None),
    ("ended", line(THEIRS, OURS, state="06", user=0, inode=0), None),
    ("nothing", "", None),
    ("after others", line(OURS, THEIRS, user=1) + line(THEIRS, OURS), 7),
]


@pytest.mark.parametrize(("case", "lines", "user"), TABLES, ids=[row[0] for row in TABLES])
def test_the_owner_of_the_other_end(case: str, lines: str, user: int | None) -> None:
    assert owner_in(HEAD + lines, HOST, DEVICE) == user


ADDRESSES = st.tuples(
    st.integers(0, 2**32 - 1).map(lambda number: socket.inet_ntoa(struct.pack("!I", number))),
    st.integers(1, 65535),
)


@reaches(0.5)
@given(st.dictionaries(st.tuples(ADDRESSES, ADDRESSES), st.integers(0, 2**32 - 2)), st.booleans())
def test_the_exact_pair_and_no_other_counts(
    owners: dict[tuple[tuple[str, int], tuple[str, int]], int], ipv6: bool
) -> None:
    form = mapped if ipv6 else address
    table = HEAD + "".join(
        line(form(*local), form(*remote), user=user) for (local, remote), user in owners.items()
    )
    for (local, remote), user in owners.items():
        reached()
        assert owner_in(table, local, remote) == user
        if (remote, local) not in owners:
            assert owner_in(table, remote, local) is None


@pytest.mark.parametrize("lines", ["cut", "   0: 0100007F:1 x"])
def test_what_is_no_table_is_an_error(lines: str) -> None:
    with pytest.raises(ValueError, match="unknown line"):
        owner_in(HEAD + lines, HOST, DEVICE)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A host's end of a connection, and the device's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = socket.create_connection(listening.getsockname(), timeout=60)
        device, _ = listening.accept()
    with host, device:
        yield host, device


def proc_with(
    folder: Path, table: str, *, foreign: int = 65534, uid_map: str = "0 0 4294967295"
) -> Path:
    for name, text in (
        ("net/tcp", table),
        ("sys/kernel/overflowuid", f"{foreign}\n"),
        ("self/uid_map", f"{uid_map}\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_connection_of_ours(ends: tuple[socket.socket, socket.socket]) -> None:
    assert is_ours(ends[1])


def test_one_that_ended_is_nobodys(ends: tuple[socket.socket, socket.socket]) -> None:
    host, device = ends
    host.shutdown(socket.SHUT_WR)
    device.recv(1)
    assert not is_ours(device)
    host.close()
    assert not is_ours(device)
    device.close()
    assert not is_ours(device)


def test_what_cannot_be_told_is_refused(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    host, device = ends
    table = line(address(*host.getsockname()), address(*device.getsockname()), user=os.geteuid())
    assert is_ours(device, proc_with(tmp_path, HEAD + table))
    assert not is_ours(device, proc_with(tmp_path, HEAD))
    assert not is_ours(device, proc_with(tmp_path, HEAD + "nonsense\n"))
    assert not is_ours(device, tmp_path / "nowhere")
    other = table.replace(f" {os.geteuid():5} ", " 12345 ")
    assert not is_ours(device, proc_with(tmp_path, HEAD + other))


def test_a_user_id_that_all_foreign_users_share_says_nothing(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    host, device = ends
    me = os.geteuid()
    table = HEAD + line(address(*host.getsockname()), address(*device.getsockname()), user=me)
    assert not is_ours(device, proc_with(tmp_path, table, foreign=me, uid_map="0 1000 1"))
    assert not is_ours(device, proc_with(tmp_path, table, foreign=me, uid_map=""))
    assert is_ours(device, proc_with(tmp_path, table, foreign=me))
