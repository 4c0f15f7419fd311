"""`qnn-harness explain`: its answers, and its exit codes."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.integration.in_process import qnn_harness
from tests.snapshots import Snapshot
from tests.unit.diagnosis.failure_rows import LOG_ROWS

SKEL_CHAIN = LOG_ROWS[0][1]
MISSING = 'Failed in loading stub: dlopen failed: library "libQnnHtpV79Stub.so" not found'
OF_THE_RULE = re.compile(r" *(?:what |how |see )")
TWO_PROCESSES = (
    "12-07 04:15:01.000    10    10 E tag : QnnDsp <E> qnn_open failed, 0x80000406\n"
    "12-07 04:15:01.100    11    11 E tag : QnnDsp <E> Request feature vtcm size with value 8 "
    "unsupported\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(f"hello\n{MISSING}\n", 0, id="a cause and what follows from it"),
        pytest.param(f"{MISSING}\nGPE deserialize: bad magic\n", 0, id="two stated causes"),
        pytest.param(TWO_PROCESSES, 0, id="two processes"),
        pytest.param("", 1, id="empty"),
        pytest.param("all is well\nQNN_GRAPH_NO_ERROR\nMax error 3\nERRORS 0\n", 1, id="no ERROR"),
        pytest.param("begun\n\nERROR: odd\nERROR: odder\n", 1, id="an unknown ERROR"),
        pytest.param(
            "12-07 04:15:01.000 7 7 E tag : QnnGraph_execute failed, error 0x1773\n",
            0,
            id="a place",
        ),
    ],
)
def test_answers(log: Path, text: str, code: int, snapshot: Snapshot) -> None:
    log.write_text(text)
    completed = qnn_harness("explain", log)
    # the rest are words of the rules
    own = [line for line in completed.stdout.splitlines() if not OF_THE_RULE.match(line)]
    assert [re.sub(r"(\((?:known|likely)\)): .*", r"\1", line) for line in own] == snapshot
    assert completed.returncode == code


def test_words_of_a_log_steer_no_terminal(log: Path) -> None:
    log.write_text(f"\x1b]0;x\x07{MISSING}")
    assert not {"\x1b", "\x07"} & {*qnn_harness("explain", log).stdout}


def test_for_a_dll_the_help_speaks_of_windows(log: Path) -> None:
    log.write_text("FileNotFoundError: Could not find module 'C:\\sdk\\QnnHtp.dll'\n")
    assert "on Windows" in qnn_harness("explain", log).stdout


def test_json_has_the_answer_first(log: Path) -> None:
    log.write_text(SKEL_CHAIN)
    content = json.loads(qnn_harness("explain", log, "--json").stdout)
    assert list(content) == ["schema", "level", "located", "diagnoses", "numbers"]
    assert content["level"] == "cause"
    assert content["located"]["code"]["symbol"] == "AEE_EUNABLETOLOAD"
    assert content["numbers"][0].startswith("0x80000406 is AEE_EUNABLETOLOAD: ")
    first = content["diagnoses"][0]
    keys = ["id", "confidence", "words", "fix", "threads", "lines", "process", "failure"]
    assert list(first) == keys
    assert (first["id"], first["confidence"]) == ("skel-not-found", "likely")
    assert first["lines"][0]["number"] == 1
    assert "qnn_open failed, 0x80000406" in first["lines"][0]["text"]
    log.write_text("all is well\n")
    completed = qnn_harness("explain", log, "--json")
    nothing = {"schema": 1, "level": "nothing", "located": None, "diagnoses": [], "numbers": []}
    assert (completed.returncode, json.loads(completed.stdout)) == (1, nothing)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"PK\3\4", id="zip"),
        pytest.param(b"\xfd7zXZ\0", id="xz"),
        pytest.param(b"\x7fELF\2\1\1" + bytes(range(32)) * 8, id="elf"),
    ],
)
def test_no_log_is_wrong_input(log: Path, content: bytes, snapshot: Snapshot) -> None:
    log.write_bytes(content + bytes(600))
    completed = qnn_harness("explain", log)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == snapshot


def test_a_log_that_cannot_be_read_is_wrong_input(log: Path) -> None:
    for reason in ("No such file", "Compressed file ended"):
        completed = qnn_harness("explain", log)
        assert (completed.returncode, f"{log}: {reason}" in completed.stderr) == (2, True)
        log.write_bytes(gzip.compress(SKEL_CHAIN.encode())[:100])


def test_closed_input_is_wrong_input(monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot) -> None:
    monkeypatch.setattr("sys.stdin", None)
    completed = qnn_harness("explain")
    assert completed.returncode == 2
    assert completed.stderr == snapshot


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(SKEL_CHAIN.encode()),
        SKEL_CHAIN.encode("utf-16"),
        SKEL_CHAIN.replace("\n", "\0\n").encode(),
    ],
    ids=["gzip", "UTF-16", "odd bytes"],
)
def test_other_encodings_of_a_log(log: Path, content: bytes) -> None:
    log.write_bytes(content)
    assert qnn_harness("explain", log).stdout.startswith("cause: skel-not-found (likely): ")
