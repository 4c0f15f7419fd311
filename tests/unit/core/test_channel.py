"""Workers tell their controller what they are at, and nothing of that can stop or break a run."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from harness.core.channel import Listener, Sender, _address
from harness.core.facts import FACTS, Lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    long = tmp_path / ("x" * 120)  # longer than the address of a socket may be
    long.mkdir()
    return long


def heard(listener: Listener) -> list[tuple[str, dict[str, object]]]:
    """Return the waiting messages without facts that are None."""
    return [
        (device, {name: fact for name, fact in facts.items() if fact is not None})
        for device, facts in listener.waiting()
    ]


def test_a_message_has_all_that_is_known_of_a_device(folder: Path) -> None:
    listener, sender = Listener(folder), Sender(folder)
    sender("R5CX", {"name": "phone", "degrees": 40.0})
    sender("phone", {"case": "a.py::té\x1b[2Jst"})
    assert heard(listener) == [
        ("phone", {"degrees": 40.0}),
        ("phone", {"degrees": 40.0, "case": "a.py::té\\x1b[2Jst"}),
    ]
    assert heard(listener) == []
    assert stat.S_ISSOCK((folder / "live").stat().st_mode)


def test_a_case_that_is_over_is_over_for_the_controller_too(folder: Path) -> None:
    listener, sender, lines = Listener(folder), Sender(folder), Lines()
    sender("phone", {"degrees": 40.0})
    sender("phone", {"case": "a.py::test"})
    sender("phone", {"doing": "pushing", "done": 1, "total": 2, "unit": "MB"})
    sender("phone", {"case": None})
    assert [lines.merge(*message) for message in listener.waiting()][-1] == (
        "phone",
        {"degrees": 40.0},
    )


def test_a_full_or_closed_channel_stops_no_worker(folder: Path) -> None:
    listener, sender = Listener(folder), Sender(folder)
    for number in range(5000):
        sender("phone", {"step": number})
    assert next(listener.waiting()) == ("phone", dict.fromkeys(FACTS) | {"step": 0})
    assert len(heard(listener)) < 5000
    sender("phone", {"step": 7})
    assert heard(listener)[-1] == ("phone", {"step": 7})
    listener.close()
    sender("phone", {"step": 8})


def test_the_longest_message_arrives(folder: Path) -> None:
    listener, sender = Listener(folder), Sender(folder)
    long = "\U0001f9ea" * 5000
    sender(long, dict.fromkeys(["case", "verb", "doing", "unit"], long))
    ((device, facts),) = heard(listener)
    assert len(device) == 200
    assert {len(str(fact)) for fact in facts.values()} == {200}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'["phone"]',
        b'["phone", 3]',
        b'{"a": 1}',
        b"[" * 8000,
        b"x" * 100_000,
        b'["phone", {"case": "' + b"x" * 8192 + b'"}]',
        b"1" * 5000,
    ],
)
def test_what_is_no_message_is_passed_over(folder: Path, message: bytes) -> None:
    listener, sender = Listener(folder), Sender(folder)
    other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with _address(folder) as address:
        other.connect(address)
    other.send(message)
    sender("phone", {"verb": "noop"})
    assert heard(listener) == [("phone", {"verb": "noop"})]


def test_nobody_listens(folder: Path) -> None:
    with pytest.raises(OSError):
        Sender(folder)
