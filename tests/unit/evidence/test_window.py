"""Android's log formats, a case's own time in them, and logs that make no sense."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from harness.evidence.device_replies import (
    AVC_PATTERN,
    DSP_PATTERN,
    DeviceClock,
    age_s,
    changed,
    kernel_window,
    matching,
    npu_lines,
    parse_log_line,
    table,
    window,
)
from tests.properties import reached, reaches

NOW = DeviceClock(datetime(2024, 5, 21, 12, 35, 0))


@pytest.mark.parametrize(
    ("line", "age", "tag"),
    [
        ("05-21 12:34:56.789  1234  5678 E QnnDsp  : <E> x", 3.211, "QnnDsp"),
        ("05-21 12:34:56.789  1234  5678 I adsprpc: a: b", 3.211, "adsprpc"),
        ("05-21 12:34:59.000  1234  5678 W a b c: ", 1.0, "a b c"),
        (" 05-21 12:34:59.000  1234  5678 I [Qnn ExecuTorch]: m", 1.0, "[Qnn ExecuTorch]"),
        ("05-21 12:34:59.000  1  2 F DEBUG   : pid: 7", 1.0, "DEBUG"),
        ("05-21 12:35:01.000     1     2 D future: m", -1.0, "future"),
        ("12-31 23:59:59.000     1     2 D old: m", 141 * 86400 + 45301, "old"),
        ("02-29 12:35:00.000     1     2 D leap: m", 82 * 86400, "leap"),
    ],
)
def test_formats(line: str, age: float, tag: str) -> None:
    entry = parse_log_line(line)
    assert entry is not None
    assert entry.tag == tag
    assert age_s(entry, NOW) == pytest.approx(age, abs=1e-5)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--------- beginning of main",
        "\tat com.example.Main(Main.java:1)",
        "13-41 12:34:56.789  1234  5678 E Tag: x",
        "05-21 25:34:56.789  1234  5678 E Tag: x",
        "05-21 12:34:56  1234  5678 E Tag: x",
        "E/Tag(1234): x",
        "\x00\xff\ufffd",
        "05-21 12:34:56.789  1234  5678 E no end of the tag",
    ],
)
def test_what_is_no_entry(line: str) -> None:
    assert parse_log_line(line) is None


@pytest.mark.parametrize(
    ("line", "now", "age"),
    [
        # of lines without a year those of the last half year and the coming one are told apart
        ("11-01 12:35:00.000", datetime(2024, 5, 21, 12, 35), -164 * 86400),
        ("12-15 12:35:00.000", datetime(2024, 5, 21, 12, 35), 158 * 86400),
        ("01-01 00:00:00.500", datetime(2023, 12, 31, 23, 59, 59), -1.5),
        # a leap day that never was
        ("02-29 00:00:00.000", datetime(2022, 6, 1), -1),
        ("02-29 00:00:00.000", datetime(1, 1, 1), -1),
    ],
)
def test_the_age_of_a_line_of_another_year(line: str, now: datetime, age: float) -> None:
    entry = parse_log_line(f"{line}     1     2 D t: m")
    assert entry is not None
    assert age_s(entry, DeviceClock(now)) == age


def test_a_window_keeps_what_belongs_to_its_lines() -> None:
    text = (
        "--------- beginning of main\n"
        "05-21 12:34:00.000     1     2 I a: old\n"
        "old continuation\n"
        "05-21 12:34:59.000     1     2 I a: new\n"
        "\ufffd\x00 garbage\n"
    )
    inside, left_out = window(text, NOW, 10)
    assert inside.split("\n") == [
        "--------- beginning of main",
        "05-21 12:34:59.000     1     2 I a: new",
        "\ufffd\x00 garbage",
        "",
    ]
    assert left_out == 2


@reaches(0.3)
@given(st.text(alphabet="0123456789:-. VE\n\tx+\0", max_size=300), st.floats(0, 1e9))
def test_no_text_upsets_a_window(text: str, last_s: float) -> None:
    inside, left_out = window(text, NOW, last_s)
    if inside or left_out:
        reached()
    assert inside.count("\n") + left_out <= text.count("\n") + 1
    kernel_window(text, last_s)
    npu_lines(text)


@given(st.integers(0, 400 * 86400), st.integers(0, 170 * 86400), st.integers(0, 170 * 86400))
def test_an_entry_is_inside_exactly_if_it_is_young_enough(now: int, age: int, last: int) -> None:
    local = datetime(2023, 12, 1) + timedelta(seconds=now)
    line = (local - timedelta(seconds=age)).strftime("%m-%d %H:%M:%S.000     1     2 I t: m")
    inside, _ = window(line, DeviceClock(local), last)
    assert bool(inside) == (age <= last)


def test_kernel_logs() -> None:
    text = (
        "[    1.000000] old\n<6>[   99.999] old too\n[  100.000001][T123] new\nmore\n"
        "[ 12345.678901] remoteproc remoteproc1: crash detected in cdsp\n"
    )
    inside, left_out = kernel_window(text, 100.0)
    assert inside.splitlines()[0] == "[  100.000001][T123] new"
    assert left_out == 2
    assert matching({"dmesg": inside}, DSP_PATTERN).startswith("dmesg: [ 12345.678901] remoteproc")


def test_tags() -> None:
    def line(tag: str) -> str:
        return f"05-21 12:34:59.000     1     2 I {tag}: {tag}\n"

    tags = ["vendor.adsprpc", "QnnDsp", "[Qnn ExecuTorch]", "onnxruntime", "libc"]
    kept = "".join(map(line, tags))
    crash = line("DEBUG") + "backtrace:\n"
    assert npu_lines(f"{kept}{line('libcamera')}and more\n{crash}") == kept + crash


def test_denials() -> None:
    denied = 'type=1400 audit(0.0:9): avc:  denied  { read } for comm="qnn-probe"'
    assert matching({"logcat": f"x\n{denied}\n"}, AVC_PATTERN) == f"logcat: {denied}\n"


def test_tables() -> None:
    before = table("remoteproc0/name=cdsp\nremoteproc0/state=running\nnonsense\n")
    after = table("remoteproc0/name=cdsp\nremoteproc0/state=crashed\nnew=1\n")
    assert changed(before, after) == [
        "new: not there -> 1",
        "remoteproc0/state: running -> crashed",
    ]
    assert changed(before, before) == []


def test_an_entry_as_old_as_the_window_is_inside() -> None:
    text = "05-21 12:34:50.000     1     2 I a: x"
    assert window(text, NOW, 10) == (text, 0)
    assert window(text, NOW, 9.999) == ("", 1)
    kernel = "[  100.000001] x"
    assert kernel_window(kernel, 100.000001) == (kernel, 0)
    assert kernel_window(kernel, 100.000002) == ("", 1)
    assert kernel_window(kernel, None) == (kernel, 0)


def test_lines_before_the_first_entry_are_nobodys() -> None:
    entry = "05-21 12:34:59.000     1     2 I adsprpc: a\n"
    other = "05-21 12:34:59.000     1     2 I other: b\n"
    log = npu_lines(f"first\n{entry}\nmore\n{other}more of the other\n")
    assert log == f"{entry}more\n"
    assert npu_lines("nothing\n") == ""
    assert table("a=1\na = 2\nb= x=y \nnone\n") == {"a": "1", "a ": "2", "b": "x=y"}
