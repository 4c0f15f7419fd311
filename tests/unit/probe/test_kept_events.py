"""Stored events of a probe have no secrets, and read like the original ones."""

import json
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from harness.core.outgoing_text import log_without_secrets
from harness.probe import events
from harness.probe.events import MARK, kept_events
from tests.stand_in.events import event_line, parse_transcript

SECRET = "s3cr3t-can4ry"
SAID = (
    f"https://user:{SECRET}@host/x",
    f"https://host/x?token={SECRET}&a=1",
    f"Authorization: Bearer {SECRET}",
    f"password={SECRET}",
    f"Cookie: a=b; sid={SECRET}",
)


def event(number: int, content: str) -> bytes:
    return event_line(f'{{"n":{number},{content}'.encode())


def transcript(text: str, spell: str) -> bytes:
    """A short run whose device says a text in each of its ways, JSON spelt in one of several."""
    quoted = json.dumps(text)
    if spell == "escaped":
        quoted = quoted.replace(":", "\\u003a").replace("/", "\\/").replace("@", "\\u0040")
    if spell == "all escaped":
        quoted = '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'
    twice = f'"text":{quoted},' if spell == "twice" else ""
    return b"".join(
        [
            event(0, f'"event":"start","source":{quoted},"pid":7,"target":"x"'),
            f"noise {text}\n".encode(),
            event(1, f'"event":"begin","step":0,"verb":"noop","file":{quoted}'),
            event(2, f'"event":"log","step":0,"level":"error",{twice}"text":{quoted},"t_us":1'),
            event(3, f'"event":"end","step":0,"code":1,"message":{quoted},"data":{{{quoted}:1}}'),
            event(4, '"event":"done","steps":1,"failed":1,"elapsed_us":5'),
            MARK + f'{{"event":"log","text":{quoted}'.encode() + b"\n",
        ]
    )


@pytest.mark.parametrize("text", SAID)
@pytest.mark.parametrize("spell", ["plain", "escaped", "all escaped", "twice"])
def test_no_file_has_what_a_device_says_of_secrets(text: str, spell: str) -> None:
    raw = transcript(text, spell)
    safe = kept_events(raw)
    assert safe.count(b"\n") == raw.count(b"\n")
    assert SECRET.encode() not in safe
    for line in safe.split(b"\n"):
        with_json = line.partition(MARK)[2]
        assert SECRET not in (str(json.loads(with_json)) if with_json.endswith(b"}") else "")
    original, read = parse_transcript(raw), parse_transcript(safe)
    assert SECRET not in str(original.steps)
    assert read.malformed_count == 1
    for field in ("steps", "finished", "start", "malformed_count"):
        assert getattr(read, field) == getattr(original, field)
    assert kept_events(safe) == safe


def test_a_key_of_several_lines_between_events_is_not_kept() -> None:
    begin = event(0, '"event":"start","source":"x","pid":7,"target":"x"')
    key = b"-----BEGIN RSA PRIVATE KEY-----MIIEk3yk3yk3yk3yk3yk3y\n" + b"k3yk3yk3yk3yk3y\n" * 9
    safe = kept_events(begin + key + begin)
    assert b"k3y" not in safe
    assert safe.count(begin) == 2
    assert safe.count(b"\n") == 12


@pytest.mark.parametrize("end", ["-----END PRIVATE KEY-----", "password=x"])
def test_a_key_that_is_logged_a_line_at_a_time_is_not_kept(end: str) -> None:
    """Also among lines of others, behind a prefix, and where its end is lost."""
    body = ["MIIEk3yk3yk3yk3yk3yk3y", "tls: k3yk3yk3yk3yk3y", "QnnContext: cannot load it.", "k3y="]
    texts = ["-----BEGIN RSA PRIVATE KEY-----", *body, end]
    raw = event(0, '"event":"begin","step":0,"verb":"noop"') + b"".join(
        event(number, f'"event":"log","step":0,"level":"info","text":{json.dumps(text)},"t_us":1')
        for number, text in enumerate(texts, 1)
    )
    safe = kept_events(raw)
    assert b"k3y" not in safe
    assert b"QnnContext: cannot load it." in safe
    assert kept_events(safe) == safe
    original, read = (parse_transcript(stream).steps[0].logs for stream in (raw, safe))
    assert "k3y" not in str(original)
    assert original == read
    assert len(read) == len(texts)


def test_a_printed_key_with_events_between_its_lines_is_not_kept() -> None:
    begin = event(0, '"event":"start","source":"x","pid":7,"target":"x"')
    lines = b"-----BEGIN PRIVATE KEY-----", b"k3yk3yk3yk3yk3yk3yk3y", b"k3y="
    safe = kept_events(b"".join(line + b"\n" + begin for line in lines))
    assert b"k3y" not in safe
    assert safe.count(begin) == len(lines)


@given(st.lists(st.sampled_from([*b'\x1e\n\\/:{}u0041n"\xff\x00'])).map(bytes))
def test_what_has_no_secrets_stays(stream: bytes) -> None:
    assert kept_events(stream) == stream


def test_what_is_too_long_for_an_event_is_kept_as_a_line_of_a_log() -> None:
    line = event(0, f'"event":"log","step":0,"text":"{"x" * 99}","password":"{SECRET}"')
    assert SECRET.encode() not in kept_events(line)
    assert kept_events(line) != log_without_secrets(line), "an event is sealed anew"
    with mock.patch.object(events, "MAX_EVENT_BYTES", len(line) - 3):
        assert kept_events(line) == log_without_secrets(line)
    with mock.patch.object(events, "MAX_EVENT_BYTES", len(line) - 2):
        assert kept_events(line) != log_without_secrets(line)
