"""`qnn-harness explain`: what it prints of a log, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.explain import explain
from harness.cli.main import commands, main
from tests.unit.diagnosis.failure_rows import LOG_ROWS

SKEL_CHAIN = LOG_ROWS[0][1]
NO_PD = "Failed to find available PD for contextId 9 on deviceId 0 coreId 0 with context size"
MISSING = 'Failed in loading stub: dlopen failed: library "libQnnHtpV79Stub.so" not found'


Ended = Callable[..., tuple[object, str, str]]


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ended:
    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["qnn-harness", "explain", *arguments])
        with pytest.raises(SystemExit) as raised:
            main()
        printed = capsys.readouterr()
        return raised.value.code, printed.out, printed.err

    return run


def test_the_answer_comes_first_and_what_follows_from_it_behind(
    tmp_path: Path, ended: Ended
) -> None:
    log = tmp_path / "app.log"
    log.write_text(f"hello\n{MISSING}\nFailed to load skel, error: 4000\n")
    code, out, _ = ended(str(log))
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("stub-missing (known): the stub (libQnnHtpV..Stub.so)")
    assert lines[1] == f"  line 2: {MISSING}"
    assert "  see https://github.com/pytorch/executorch/issues/8454" in lines
    behind = lines.index("less sure, or only following from it:")
    assert lines[behind + 1].startswith("  stub-not-loaded (likely): ")


def test_numbers_of_the_dsp_are_named() -> None:
    completed = CliRunner().invoke(explain, input=SKEL_CHAIN)
    assert completed.output.splitlines()[-1].startswith("0x80000406 is AEE_EUNABLETOLOAD: ")


def test_json_has_the_answer_first() -> None:
    completed = CliRunner().invoke(explain, ["--json"], input=SKEL_CHAIN)
    keys = json.loads(completed.output)
    assert list(keys) == ["schema", "diagnoses", "numbers"]
    first = keys["diagnoses"][0]
    keys = ["id", "confidence", "words", "fix", "threads", "lines", "process", "failure"]
    assert list(first) == keys
    assert (first["id"], first["confidence"]) == ("skel-not-found", "likely")
    assert first["lines"][0]["number"] == 1
    assert "qnn_open failed, 0x80000406" in first["lines"][0]["text"]


def test_failures_of_two_processes_are_told_apart(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    log.write_text(
        "12-07 04:15:01.000    10    10 E tag : QnnDsp <E> qnn_open failed, 0x80000406\n"
        "12-07 04:15:01.100    11    11 E tag : QnnDsp <E> Request feature vtcm size with value "
        "8 unsupported\n"
    )
    _, out, _ = ended(str(log))
    lines = out.splitlines()
    assert lines[0].startswith("other-vtcm-size (known): ")
    other = lines.index("another failure, of process 10:")
    assert lines[other + 1].startswith("skel-not-found (likely): ")


def test_an_empty_log_is_called_so(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    log.touch()
    assert ended(str(log))[:2] == (1, "the log is empty\n")


def test_a_second_stated_cause_is_not_called_less_sure(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    log.write_text(f"{MISSING}\nGPE deserialize: bad magic\nFailed to load skel, error: 4000\n")
    lines = ended(str(log))[1].splitlines()
    messages = [line for line in lines if "(known)" in line or line.endswith(":")]
    assert messages[1] == "also:"
    assert messages[2].startswith("  ")
    assert messages[3] == "less sure, or only following from it:"


def test_for_a_dll_the_help_speaks_of_windows(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    log.write_text("FileNotFoundError: Could not find module 'C:\\sdk\\QnnHtp.dll'\n")
    out = ended(str(log))[1]
    assert out.startswith("backend-not-loaded (known): ")
    assert "on Windows" in out


def test_a_log_that_tells_nothing_ends_with_1(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    log.write_text("all is well\n")
    code, out, _ = ended(str(log))
    assert code == 1
    assert out.startswith("nothing in the one line is recognised as a cause\nno line says ERROR")
    code, out, _ = ended(str(log), "--json")
    assert (code, json.loads(out)) == (1, {"schema": 1, "diagnoses": [], "numbers": []})


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("begun\n\nERROR: odd\nERROR: odder\n", 3),
        ("[ERROR] odd\n", 1),
        ("QNN_GRAPH_NO_ERROR\nMax error 3\nERRORS 0\n", None),
    ],
)
def test_of_a_log_without_a_cause_the_first_line_that_says_error_is_named(
    text: str, first: int | None, tmp_path: Path, ended: Ended
) -> None:
    log = tmp_path / "app.log"
    log.write_text(text)
    code, out, _ = ended(str(log))
    told = f"line {first} is the first that says ERROR: " if first else "no line says ERROR either"
    assert (code, out.splitlines()[1].startswith(told)) == (1, True), out


def test_a_log_that_is_not_there_is_wrong_input(tmp_path: Path, ended: Ended) -> None:
    code, _, err = ended(str(tmp_path / "none.log"))
    assert code == 2
    assert f"cannot read the log {tmp_path}/none.log: No such file" in err


def test_words_of_a_log_steer_no_terminal() -> None:
    completed = CliRunner().invoke(commands, ["explain"], input=f"\x1b]0;x\x07{MISSING}")
    assert "\x1b" not in completed.output
    assert "\x07" not in completed.output


def test_a_reader_that_went_away_is_no_negative_answer() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        completed = subprocess.run(
            [sys.executable, "-m", "harness.cli.main", "explain"],
            input=MISSING.encode(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert (completed.returncode, completed.stderr) == (0, b"")


def test_closed_input_is_wrong_input(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    code, _, err = ended()
    assert code == 2
    assert "standard input is closed" in err


def test_a_log_that_gzip_packed_is_read(tmp_path: Path, ended: Ended) -> None:
    packed = gzip.compress(SKEL_CHAIN.encode())
    (log := tmp_path / "app.log.gz").write_bytes(packed)
    assert ended(str(log))[1].startswith("skel-not-found (likely): ")
    log.write_bytes(packed[: len(packed) // 2])
    code, _, err = ended(str(log))
    assert (code, f"cannot read the log {log}: Compressed file ended" in err) == (2, True)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"PK\3\4", "was packed by zip"),
        (b"\xfd7zXZ\0", "was packed by xz"),
        (b"\x7fELF\2\1\1" + bytes(range(32)) * 8, "is not text"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, ended: Ended, start: bytes, text: str) -> None:
    (log := tmp_path / "app.log").write_bytes(start + bytes(600))
    code, out, err = ended(str(log))
    assert (code, out, text in err) == (2, "", True)


def test_a_log_of_windows_or_with_some_odd_bytes_is_one(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    for odd in (SKEL_CHAIN.encode("utf-16"), SKEL_CHAIN.replace("\n", "\0\n").encode()):
        log.write_bytes(odd)
        assert ended(str(log))[1].startswith("skel-not-found (likely): ")
