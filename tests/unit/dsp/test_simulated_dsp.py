"""The limits of a simulated board's DSP, and the replies that are read from it."""

import os
import re
from dataclasses import fields
from pathlib import Path

import pytest

from harness.dsp.emulator import NATIVE
from harness.dsp.replies import DspReply, clear_replies, log_end, log_size, read_replies, read_votes
from harness.dsp.simulated_dsp import DspLimits

NAMES = tuple(limit.name for limit in fields(DspLimits))


def test_the_library_has_the_same_limits_with_the_same_defaults() -> None:
    source = (NATIVE / "board.c").read_text()
    declared = re.search(r"long ([\w, ]+);", (NATIVE / "board.h").read_text())
    defaults = re.search(r"struct limits told = \{([\d, ]+)\}", source)
    assert declared is not None
    assert defaults is not None
    assert declared[1].split(", ") == list(NAMES)
    assert [int(number) for number in defaults[1].split(",")] == [
        getattr(DspLimits(), name) for name in NAMES
    ]


def test_what_was_said_is_read_once_each_until_it_is_forgotten(tmp_path: Path) -> None:
    assert read_replies(tmp_path) == ()
    lines = (
        "kernel\topen\t0x72\tno session is left",
        "emulator\tinvoke\tSIGILL\tvadd\tat 0x10",
        "kernel\topen\t0x72\tno session is left",
        "kernel\tma\x1bp\t0x1\u2028\tdamaged",
        *("other\topen\t0x72\tx", "kernel\topen", "kernel\t\t0x1\tx", "", "kernel"),
    )
    (tmp_path / "said").write_text("".join(f"{line}\n" for line in lines) + lines[0])
    assert read_replies(tmp_path) == (
        DspReply(by="kernel", call="open", answer="0x72", words="no session is left"),
        DspReply(by="emulator", call="invoke", answer="SIGILL", words="vadd?at 0x10"),
        DspReply(by="kernel", call="ma?p", answer="0x1?", words="damaged"),
    )
    clear_replies(tmp_path)
    clear_replies(tmp_path)
    assert read_replies(tmp_path) == ()


def test_votes_are_read_until_they_are_forgotten(tmp_path: Path) -> None:
    assert read_votes(tmp_path) == []
    lines = ("vote\tHAP_power_set\t0\tnothing", "vote\tx", "open\tx\t0\ty", "vote\ta\t0\tcut")
    (tmp_path / "votes").write_text("\n".join(lines))
    assert read_votes(tmp_path) == ["HAP_power_set: nothing"]
    clear_replies(tmp_path)
    assert read_votes(tmp_path) == []


def test_the_end_of_the_log_is_what_was_printed_since(tmp_path: Path) -> None:
    assert (log_size(tmp_path), log_end(tmp_path, 0, 9)) == (0, (b"", False))
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    begin = log_size(tmp_path)
    log.write_bytes(b"before\nsince\n")
    assert log_end(tmp_path, begin, 100) == (b"since\n", False)
    assert log_end(tmp_path, begin, 3) == (b"ce\n", True)
    assert log_end(tmp_path, 99, 100) == (b"", False)


def test_what_stands_in_the_logs_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="is not a regular file"):
        log_end(tmp_path, 0, 9)


def test_an_emulator_that_bailed_out_is_heard(tmp_path: Path) -> None:
    """As GLib words it for QEMU 10.0.13 at a word that it does not know."""
    before = b"ERROR:../target/hexagon/decode.c:1:of_an_earlier_case: x\n"
    last = b"ERROR:../target/hexagon/decode.c:529:decode_insns: code should not be reached\n"
    after = b"loaded\n**\n" + last + b"Bail out! " + last
    (tmp_path / "log").write_bytes(before + after)
    (tmp_path / "said").write_text("kernel\tprocess\t0x8000040d\tended by signal 6\n")
    assert read_replies(tmp_path, len(before)) == (
        DspReply(by="kernel", call="process", answer="0x8000040d", words="ended by signal 6"),
        DspReply(
            by="emulator", call="process", answer="SIGABRT", words="an instruction (decode_insns)"
        ),
    )


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("kernel\tx\t1\ty\n")
    (tmp_path / "said").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="said"):
        read_replies(tmp_path)


def test_a_file_without_an_end_is_read_as_far_as_is_needed(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(
        "".join(f"kernel\tmap\t{n:#x}\t{'x' * 500}\n" for n in range(9999))
    )
    read = read_replies(tmp_path)
    assert 0 < len(read) <= 500
    assert all(len(profile.words) == 300 for profile in read)
