"""Text that is printed or stored cannot steer a terminal, and gives access to nothing."""

import io
import json
import re
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

import harness
from harness.core import outgoing_text
from harness.core.errors import ConfigError, DeviceError, InfraError
from harness.core.outgoing_text import (
    CONTINUED,
    LINE_WAS_CUT,
    OutgoingStream,
    continued,
    counted,
    log_without_secrets,
    outgoing,
    printable,
    without_commands,
    without_secrets,
    without_secrets_in,
)
from tests.integration.hostile_words import COMMANDS


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://user:s3cret@host/x", "https://***@host/x"),
        ("HTTP://u:s3@cret@host", "HTTP://***@host"),
        ("http://u:s3/c?r#et@host/x", "http://***@host/x"),
        ("'https://user:s3cre...'", "'https://***"),
        ("https://host/x?access_token=s3cret&y=1", "https://host/x?access_token=***&y=1"),
        ("https://h/x?a=1&X-Amz-Signature=s3cret#z", "https://h/x?a=1&X-Amz-Signature=***#z"),
        ("/lab/https:/u:s3cret@h/x: no such file", "/lab/https:/***@h/x: no such file"),
        ("--index-url=https://u:s3cret@h/ --x", "--index-url=https://***@h/ --x"),
    ],
)
def test_secrets_are_taken_out(text: str, safe: str) -> None:
    assert without_secrets(text) == safe
    assert without_secrets_in({text: [text, {"x": (text, 1, None)}]}) == {
        safe: [safe, {"x": [safe, 1, None]}]
    }
    assert str(InfraError(text)) == safe
    assert "s3c" not in str(ConfigError(text, file=text, field=text, choices=[text]))
    assert "s3c" not in str(DeviceError(text, serial=text, command=text, output=text.encode()))


def test_what_steers_a_terminal_is_shown() -> None:
    assert printable("a\x1b]0;x\x07b\x9b1m\x00\x7f\r\u202ec\ud800") == (
        r"a\x1b]0;x\x07b\u009b1m\x00\u007f\x0d\u202ec\ud800"
    )
    raw = json.dumps("\u202e\x9b\x7f\U000e0001", ensure_ascii=False)
    assert printable(raw).isascii()
    assert json.loads(printable(raw)) == json.loads(raw)
    assert printable("a\tb\r\nc\n é 漢 👍") == "a\tb\nc\n é 漢 👍"
    assert str(InfraError("\x1b[8m")) == r"\x1b[8m"


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Authorization: Bearer s3cret-x.y", "Authorization: Bearer ***"),
        ('{"authorization": "Basic dTpzM2NyZXQ="}', '{"authorization": "Basic ***"}'),
        ("Proxy-Authorization: s3cret", "Proxy-Authorization: ***"),
        ("GET / with bearer s3cret-s3cret-s3cret", "GET / with bearer ***"),
        ("Set-Cookie: sid=s3cret; Path=/", "Set-Cookie: ***"),
        ("password=s3cret, user=u", "password=***, user=u"),
        ("MY_API_KEY='s3cret'", "MY_API_KEY='***'"),
        (f"ghp_{'s3c' * 9} was refused", "*** was refused"),
        (f"a glpat-{'s3c' * 9}", "a ***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        (f"hf_{'s3c' * 12} was refused", "*** was refused"),
        ('"password": "correct s3cret battery", "x": 1', '"password": "***", "x": 1'),
        ("password: \x1b[1ms3cret", None),
        ('{"password": "s3cret', '{"password": "***'),
        ('{"clientSecret":"s3cret","dbPassword" : "s3cret"}', None),
        ("--password s3cret --token s3cret --hub-token=s3cret --x", None),
        ("HF_TOKEN=s3cret-s3cret-s3cret x", "HF_TOKEN=*** x"),
        ('"token": "s3cret.s3cret.s3cret"', '"token": "***"'),
        (
            'Authorization: Digest username="s3c", realm="s3c", response="s3cret"; x',
            "Authorization: Digest ***; x",
        ),
        (
            "Authorization: AWS4-HMAC-SHA256 Credential=s3c/x, SignedHeaders=h, Signature=s3c\nx",
            "Authorization: ***\nx",
        ),
        ("I x: -----BEGIN RSA PRIVATE KEY-----\nI x: s3cretS3cret+S3cret\nI x: -----END", None),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,0123\n\ns3cretS3cret\n-----END",
            None,
        ),
        (f"x npm_{'s3c' * 12} y", "x *** y"),
        (f"pypi-AgEIcHlwaS5vcmc{'s3c' * 20}", "***"),
        (f"sk-proj-{'s3c' * 20} sk-{'s3c' * 16}", "*** ***"),
        (f"key AIza{'s3c' * 11}s3 ya29.{'s3c' * 9} GOCSPX-{'s3c' * 9}s", "key *** *** ***"),
    ],
)
def test_what_gives_access_is_taken_out_of_any_text(text: str, safe: str | None) -> None:
    assert "s3c" not in without_secrets(text)
    assert safe is None or without_secrets(text) == safe
    hidden = json.dumps(text).replace(":", r"\u003a").replace("/", r"\/").encode()
    for line in (text.encode(), json.dumps(text).encode(), hidden):
        cleaned = log_without_secrets(b"first\n" + line + b"\nlast \xff\x00")
        assert b"s3c" not in cleaned.replace(rb"\n", b"\n")
        assert cleaned.startswith(b"first\n")
        assert cleaned.endswith(b"\nlast \xff\x00")


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/a@b",
        "http://[::1]:8080/x and http://h:80, http://h:80.",
        "user@host: 10 x 5; key=1",
        "https://h/x?y=1&z=2",
        "tests/test_x.py::test_y[a-b@c]",
        "a token of QNN: 5",
        "bearer of news",
        "secretly: no",
        "eos_token=128009 eosToken: <|end_of_text_of_128009|>",
        "unexpected token: QnnContext_createFromBinary",
        "secret: ''",
        "/etc/passwd: Permission denied",
        "--password-file x",
        "npm_config_cache sk-learn disk-1234 task-force pypi-mirror AIza",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
    assert log_without_secrets(text.encode()) == text.encode()


def test_a_key_whose_end_is_cut_off_is_taken_out_behind_what_a_log_puts_before_its_lines() -> None:
    key = "-----BEGIN EC PRIVATE KEY-----\ntls: s3cretS3cretS3cret\ntls: s3cretS3c"
    safe = "-----BEGIN EC PRIVATE KEY-----\ntls: ***\ntls: ***"
    assert without_secrets(key) == without_secrets(safe) == safe
    assert log_without_secrets(key.encode()) == safe.encode()


@pytest.mark.parametrize("name", ["password", "db_password", "apiKey", "HF_SESSION_TOKEN"])
def test_a_value_whose_name_is_its_key_is_taken_out(name: str) -> None:
    content = {"measurements": [{name: "s3cret s3cret", "figure": 1}], f"{name}_file": "kept"}
    safe = {"measurements": [{name: "***", "figure": 1}], f"{name}_file": "kept"}
    assert without_secrets_in(content) == safe
    assert without_secrets_in(safe) == safe


NAMES = ("password", "dbPassword", "HF_TOKEN", "api_key", "Authorization", "psk", "kept")
VALUES = st.text(st.sampled_from("aB3.\\\"' ,=:-{[\n\u00e9"), max_size=30)
TEXTS_WITH_SECRETS = st.recursive(
    VALUES | st.builds("{}{}{}".format, st.sampled_from(NAMES), st.sampled_from("=: "), VALUES),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=3) | st.lists(inner),
    max_leaves=6,
)


@given(TEXTS_WITH_SECRETS, st.integers(1, 3))
def test_json_without_secrets_is_json_with_the_same_names(value: object, times: int) -> None:
    for _ in range(times):  # JSON in a text of JSON
        text = json.dumps(value)
        value = {"said": text}
    line = log_without_secrets(text.encode()).decode()
    content = json.loads(line)
    if isinstance(content, dict):
        assert content.keys() == json.loads(text).keys()
    assert log_without_secrets(line.encode()).decode() == line


# As agents of CI systems look for what they obey, written apart from what breaks it.
def obeyed(log: str) -> list[str]:
    return [
        line
        for line in re.split("[\n\r]", log)
        if re.match("::[A-Za-z-]{1,20}(?: |::)", re.sub("\x1b\\[[0-9;]*m", "", line).lstrip())
        or any(word in line.lower() for word in ("##[", "##vso[", "##teamcity["))
        or re.search(r"section_(?:start|end):|travis_(?:fold|time):", line)
    ]


PIECES = [*COMMANDS, *"\n\r\t :#[]", "::", "::err", "or", " ", "##", "vso"]
PIECES += ["section_", "start:", "\x1b[31m", "a", "\xa0"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_text_steers_a_ci_system(text: str) -> None:
    assert obeyed(outgoing(text)) == []
    assert outgoing(outgoing(text)) == outgoing(text)
    error = str(InfraError(f"said: {text}"))
    assert obeyed(error) == []
    assert all(line.startswith(CONTINUED) for line in error.split("\n")[1:])
    assert str(InfraError(error)) == error
    message = json.dumps([text, {text: text}], indent=2)
    assert obeyed(without_commands(message)) == []
    assert json.loads(without_commands(message)) == json.loads(message)


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*PIECES, " " * 70, "x" * 70]), max_size=16))
def test_nothing_written_piece_by_piece_steers_a_ci_system(pieces: list[str]) -> None:
    written = io.StringIO()
    stream = OutgoingStream(written)
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    assert obeyed(written.getvalue()) == []
    assert written.getvalue() == without_commands("".join(pieces))


def test_a_name_of_a_test_is_printed_as_it_is() -> None:
    """Of a file beside the root folder pytest tells no path."""
    name = "::test_it[sim-1] - AssertionError: a::b"
    assert outgoing(name) == name
    assert outgoing(f"  {name}") == f"  {name}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31;1ma::b\x1b[0m\tc\n", "\x1b[31;1ma::b\x1b[0m\tc\n"),
        ("\rgw0 [1] / gw1 C", "\rgw0 [1] / gw1 C"),
        ("\r\r\x1b[2K", "\r\\x0d\\x1b[2K"),
        ("all well\r\x1b[0K", "all well\\x0d\\x1b[0K"),
        ("\x1b[33mUserWarning: password=s3cret\x1b[0m", "\x1b[33mUserWarning: password=***\x1b[0m"),
        ("\x1b]0;title\x07\x1b[8m\u202e", "\\x1b]0;title\\x07\x1b[8m\\u202e"),
    ],
)
def test_who_is_not_trusted_has_colours_and_its_line_again(text: str, shown: str) -> None:
    written = io.StringIO()
    stream = OutgoingStream(written, trusted=False)
    assert stream.write(text) == len(text)
    assert written.getvalue() == shown
    free = io.StringIO()
    OutgoingStream(free).write(text)
    assert free.getvalue() == text


def test_no_escape_of_json_hides_the_name_of_a_secret() -> None:
    cleaned = log_without_secrets(rb'{"\u0070ass\u0077ord\u003D": 1, "x": "\u0070assword=s3cret"}')
    assert b"s3cret" not in cleaned
    assert b'"x": "password=***"' in cleaned


@given(st.text() | st.text("ab:/@?#&=. token\x1b\u202e\ud800", max_size=60))
def test_what_went_out_can_go_out_again(text: str) -> None:
    safe = outgoing(text)
    assert outgoing(safe) == safe
    assert safe.encode() is not None
    assert not any(ord(char) < 32 and char not in "\n\t" for char in safe)


URL_PIECES = ("://x:a", "://", "a://b@", "?token", "://x:1/?key=", "\x1b")
SECRET_PIECES = ("password='", '--x-token=\\"', "token=aaaaaaaa", "PRIVATE KEY-----", "a=b, ")


@pytest.mark.parametrize("piece", [*URL_PIECES, *SECRET_PIECES])
def test_time_is_linear(piece: str) -> None:
    start = time.process_time()
    outgoing("Authorization: ://" + piece * (300_000 // len(piece)))
    assert time.process_time() - start < 20


# What runs on a device or beside it, and answers programs; and the one place of each kind.
PRINTS_ITSELF = {
    "core/guardian.py",
    "cli/say.py",
    "cli/doctor.py",
    "cli/devices.py",
    "models/compile_worker.py",
    "models/shapes_worker.py",
    "plugin/live_progress.py",  # what it draws is clean already
    "reduce/reproduce.py",
    "plugin/terminal.py",
    "engines/litert.py",  # a command of a README
}


def test_whatever_is_printed_goes_through_one_place() -> None:
    printing = re.compile(r"\bprint\(|click\.s?echo\(|\.write_line\(|\.print\(")
    root = Path(harness.__file__).parent
    leaks = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if printing.search(path.read_text()) and "simulator" not in path.parts
    }
    assert leaks == PRINTS_ITSELF


def test_of_a_long_line_that_may_have_secrets_the_beginning_is_kept() -> None:
    with mock.patch.object(outgoing_text, "MOST_LINE_BYTES", 100):
        cleaned = log_without_secrets(b"password=b %b\nthen\n%b" % (b"x" * 90, b"x" * 200))
    assert cleaned == b"password=*** %b%b\nthen\n%b" % (b"x" * 89, LINE_WAS_CUT, b"x" * 200)


def test_things_are_counted_and_lines_continued() -> None:
    assert [counted(number, "case") for number in (0, 1, 2)] == ["0 cases", "1 case", "2 cases"]
    assert [counted(number, "box", "boxes") for number in (1, 2)] == ["1 box", "2 boxes"]
    assert continued("a\nb\n  | c") == "a\n  | b\n  | c"
    assert continued(continued("a\nb\n\n")) == continued("a\nb\n\n") == "a\n  | b\n  | \n  | "
