"""Packets and marks are found however the stream was cut, and nonsense is refused."""

import itertools
import subprocess

import pytest
from hypothesis import given, strategies as st

from harness.transport.shell_protocol import (
    CLOSE_STDIN_PACKET,
    EXIT,
    STDERR,
    STDOUT,
    Banner,
    LastMark,
    MarkedStreams,
    PacketReader,
    exit_status,
    header,
    marked_script,
    v2_script,
)
from harness.transport.transport_errors import ProtocolError

TOKEN = "0123456789abcdef"


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({c % (len(data) + 1) for c in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@given(
    st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=50)), max_size=10),
    st.integers(0, 255),
    CUTS,
)
def test_packets_survive_any_cut(
    packets: list[tuple[int, bytes]], status: int, cuts: list[int]
) -> None:
    stream = b"".join(header(kind, len(data)) + data for kind, data in packets)
    stream += header(EXIT, 1) + bytes([status])
    reader = PacketReader()
    seen = [packet for piece in cut(stream, cuts) for packet in reader.feed(piece)]
    assert seen[-1] == (EXIT, bytes([status]))
    for kind in (STDOUT, STDERR):
        want = b"".join(data for k, data in packets if k == kind)
        assert b"".join(data for k, data in seen if k == kind) == want


@pytest.mark.parametrize("bad", [header(0, 1), CLOSE_STDIN_PACKET, header(9, 1), header(EXIT, 2)])
def test_what_a_device_never_sends_is_refused(bad: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(PacketReader().feed(bad))


def test_a_packet_of_4_gb_is_handed_on_piece_by_piece() -> None:
    reader = PacketReader()
    assert list(reader.feed(header(STDOUT, 0xFFFFFFFF) + b"abc")) == [(STDOUT, b"abc")]
    assert list(reader.feed(b"def")) == [(STDOUT, b"def")]


def test_a_status_is_a_code_or_a_signal() -> None:
    codes = [0, 1, 128, 193, 255]
    assert [exit_status(status) for status in codes] == [(code, None) for code in codes]
    assert [exit_status(status) for status in (129, 137, 192)] == [(None, 1), (None, 9), (None, 64)]


@given(st.binary(max_size=40), st.binary(max_size=200), CUTS)
def test_the_banner_is_taken_out(before: bytes, after: bytes, cuts: list[int]) -> None:
    mark = b"\x1e" + TOKEN.encode() + b" 4711\n"
    banner = Banner(TOKEN)
    received = b"".join(banner.feed(piece) for piece in cut(before + mark + after, cuts))
    assert received == before + after
    assert banner.group == 4711


@pytest.mark.parametrize("group", [b"0", b"1"])
def test_a_group_that_is_not_ours_alone_is_not_taken(group: bytes) -> None:
    banner = Banner(TOKEN)
    banner.feed(b"\x1e" + TOKEN.encode() + b" " + group + b"\n")
    assert banner.group is None


def test_a_missing_banner_does_not_hold_output_back_for_ever() -> None:
    banner = Banner(TOKEN)
    data = b"x" * 100_000
    assert banner.feed(data) == data
    assert banner.feed(b"y") == b"y"


SHELLS = [
    pytest.param(command, marks=pytest.mark.needs(command[0]))
    for command in (["dash"], ["bash"], ["mksh"], ["busybox", "sh"], ["sh"])
]
SCRIPTS = [
    ("exit 7", 7),
    ("", 0),
    ("# only a comment", 0),
    ("\nfalse", 1),
    ("set -- 'a b'\n[ \"$1\" = 'a b' ]", 0),
    ("cat <<X >/dev/null\ny\nX\nexit 3", 3),
    ("kill -9 $$", 137),
    ("echo 'unterminated", 2),
]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(("script", "status"), SCRIPTS)
def test_wrapped_scripts_end_as_they_would_alone(
    shell: list[str], script: str, status: int
) -> None:
    completed = subprocess.run(
        [*shell, "-c", v2_script(script, TOKEN)], capture_output=True, check=False
    )
    banner = Banner(TOKEN)
    banner.feed(completed.stderr)
    # a first line that cannot be parsed is not begun, and starts nothing that would need ending
    assert banner.group is not None or "unterminated" in script
    code = completed.returncode if completed.returncode >= 0 else 128 - completed.returncode
    # mksh and bash have their own status for a syntax error
    assert code == status or (status == 2 and code in (1, 2))


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(("script", "status"), SCRIPTS)
def test_what_tells_the_status_of_a_script_is_not_of_its_group(
    shell: list[str], script: str, status: int
) -> None:
    marked = marked_script(f"echo $QNN_HARNESS_CALL $$;{script}", TOKEN, "feed")
    # a login shell may print before it does what it is told
    noisy = f"echo welcome;echo 'no \x1e mark' >&2;{marked}"
    completed = subprocess.run([*shell, "-c", noisy], capture_output=True, check=False)
    streams, banner = MarkedStreams("feed"), Banner(TOKEN)
    printed = streams.feed(STDOUT, completed.stdout) + streams.rest(STDOUT)
    errors = banner.feed(streams.feed(STDERR, completed.stderr) + streams.rest(STDERR))
    assert streams.status == status or (status == 2 and streams.status in (1, 2))
    if "unterminated" not in script:
        assert printed.decode().split() == [TOKEN, str(banner.group)]
        # what the shell that tells prints of a crash is no word of the script's
        assert errors == b""
    # nothing that looks for the token finds who tells by its command line
    assert f"QNN_HARNESS_CALL={TOKEN}" not in marked


def test_who_tells_outlives_a_group_that_is_ended() -> None:
    marked = marked_script("kill -9 -$$", TOKEN, "feed")
    completed = subprocess.run(["sh", "-c", marked], capture_output=True, check=False)
    streams = MarkedStreams("feed")
    streams.feed(STDERR, completed.stderr)
    assert streams.status == 137


def test_what_a_login_shell_says_that_runs_nothing_is_all_there_is() -> None:
    streams = MarkedStreams("feed")
    assert streams.feed(STDOUT, b"not available\n") == b""
    assert streams.rest(STDOUT) == b"not available\n"
    assert (streams.rest(STDERR), streams.status) == (b"", None)


@given(st.binary(max_size=300), st.integers(0, 255), st.binary(max_size=30), CUTS)
def test_the_last_mark_is_taken_out(
    output: bytes, status: int, behind: bytes, cuts: list[int]
) -> None:
    stream = output + b"\x1e" + TOKEN.encode() + b" =%d\n" % status + behind
    last = LastMark(TOKEN)
    received = b"".join(last.feed(piece) for piece in cut(stream, cuts)) + last.rest()
    assert (received, last.status) == (output + behind, status)
