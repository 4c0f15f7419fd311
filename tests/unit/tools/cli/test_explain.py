"""`qnn-harness explain`: what it prints of a log, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.tools.cli.explain import explain
from harness.tools.cli.main import commands, main
from tests.unit.verdict.failure.log_rows import SKEL_CHAIN

MISSING = 'Failed in loading stub: dlopen failed: library "libQnnHtpV79Stub.so" not found'


Ended = Callable[..., tuple[object, str, str]]


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ended:
    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["qnn-harness", "explain", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return left.value.code, printed.out, printed.err

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
    done = CliRunner().invoke(explain, input=SKEL_CHAIN)
    assert done.output.splitlines()[-1].startswith("0x80000406 is AEE_EUNABLETOLOAD: ")


def test_json_has_the_answer_first() -> None:
    done = CliRunner().invoke(explain, ["--json"], input=SKEL_CHAIN)
    told = json.loads(done.output)
    assert list(told) == ["schema", "diagnoses"]
    first = told["diagnoses"][0]
    assert list(first) == ["id", "confidence", "words", "fix", "threads", "lines"]
    assert (first["id"], first["confidence"]) == ("skel-not-found", "likely")
    assert first["lines"][0]["number"] == 1
    assert "qnn_open failed, 0x80000406" in first["lines"][0]["text"]


def test_a_log_that_tells_nothing_ends_with_1(tmp_path: Path, ended: Ended) -> None:
    log = tmp_path / "app.log"
    log.write_text("all is well\n")
    code, out, _ = ended(str(log))
    assert code == 1
    assert out.startswith("nothing in the 1 lines is recognised as a cause")
    code, out, _ = ended(str(log), "--json")
    assert (code, json.loads(out)) == (1, {"schema": 1, "diagnoses": []})


def test_a_log_that_is_not_there_is_wrong_input(tmp_path: Path, ended: Ended) -> None:
    code, _, err = ended(str(tmp_path / "none.log"))
    assert code == 2
    assert f"cannot read the log {tmp_path}/none.log: No such file" in err


def test_words_of_a_log_steer_no_terminal() -> None:
    done = CliRunner().invoke(commands, ["explain"], input=f"\x1b]0;x\x07{MISSING}")
    assert "\x1b" not in done.output
    assert "\x07" not in done.output


def test_a_reader_that_went_away_is_no_negative_answer() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "harness.tools.cli.main", "explain"],
            input=MISSING.encode(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_input_is_wrong_input(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    code, _, err = ended()
    assert code == 2
    assert "standard input is closed" in err
