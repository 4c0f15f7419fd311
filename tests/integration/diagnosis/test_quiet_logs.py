"""Logs in which no NPU failed are explained by nothing: real programs write them, here and now.

By day a few; by night all of `tests/quiet`. Runs of all engines that succeed are in
`tests/nightly/test_explain_nightly.py`. A program runs in a folder whose name has words of ours, as
a project's that uses QNN would.
"""

import io
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from harness.diagnosis.explain_log import explain
from harness.diagnosis.log_reader import read_log
from tests.android.bionic import x64_root
from tests.needed import C_COMPILERS, need
from tests.processes import run_to_end

ROWS: Final = Path(__file__).parents[2] / "quiet" / "failures.txt"
FOLDER: Final = "qnn-htp-genie"
_LONGEST_S: Final = 120
_DATA: Final = bytes(range(1, 256)) * 16


@dataclass(frozen=True)
class Failure:
    """A program, and the line of the shell in which it fails."""

    program: str
    line: str

    @property
    def here(self) -> bool:
        """Return whether this computer has the program."""
        return shutil.which(self.program) is not None

    def log(self, parent: Path) -> bytes:
        """Run it in a new folder within that one, and return its output."""
        folder = parent / FOLDER
        folder.mkdir()
        (folder / "data.bin").write_bytes(_DATA)
        (folder / "data.bin").chmod(0o755)
        command, environment = ("bash", "-c", self.line), _environment(folder)
        return run_to_end(
            *command, cwd=folder, env=environment, text=False, timeout=_LONGEST_S
        ).stdout


def failures() -> list[Failure]:
    """All of them, whatever is here."""
    rows = ROWS.read_text("utf-8").splitlines()
    return [Failure(program, line) for program, _, line in (row.partition("\t") for row in rows)]


def _environment(folder: Path) -> dict[str, str]:
    variables = {
        key: os.environ[key] for key in ("PATH", "LANG", "RUSTUP_HOME") if key in os.environ
    }
    return variables | {"HOME": str(folder), "TMPDIR": str(folder)}


ENTER = Path(__file__).parents[2] / "android/enter.sh"
ANDROID_LINES = Path(__file__).parents[2] / "quiet/android.txt"
BY_DAY = {"python3": 12, "cc": 8, "bash": 6, "git": 2}
MOST_LOGS = 115
"""So many a computer makes that has what .ci/run installs."""


def answer(log: bytes) -> str | None:
    causes = explain(read_log(io.BytesIO(log)).lines).diagnoses
    return f"{causes[0].id} {causes[0].confidence}: {causes[0].lines[0].text}" if causes else None


@pytest.mark.slow
def test_a_few_programs_that_fail_by_day(tmp_path: Path) -> None:
    need(*C_COMPILERS)
    remaining, answers = Counter(BY_DAY), []
    for number, failing in enumerate(failures()):
        if remaining[failing.program] > 0:
            remaining[failing.program] -= 1
            (folder := tmp_path / str(number)).mkdir()
            answers.append((failing.line, answer(failing.log(folder))))
    assert [entry for entry in answers if entry[1]] == []
    assert len(answers) == sum(BY_DAY.values())


@pytest.mark.nightly
def test_every_program_that_fails(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    logs, answers = 0, []
    for number, failing in enumerate(failures()):
        if failing.here:
            (folder := tmp_path / str(number)).mkdir()
            log = failing.log(folder)
            logs += bool(log)
            answers.append((failing.line, answer(log)))
    programs = {failure.program for failure in failures() if failure.here}
    print(f"\n{logs} logs of {len(programs)} programs")
    record_property("logs of programs that fail", logs)
    assert [entry for entry in answers if entry[1]] == []
    assert logs >= MOST_LOGS


@pytest.mark.nightly
def test_what_androids_own_programs_say(tmp_path: Path) -> None:
    root, answers = x64_root(), []
    for line in ANDROID_LINES.read_text().splitlines():
        command = ("sh", ENTER, root, tmp_path, "/system/bin/sh", "-c", f"cd {tmp_path}; {line}")
        environment = {"PATH": "/system/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        completed = run_to_end(*command, env=environment, text=False, timeout=120)
        answers.append((line, answer(completed.stdout)))
    print(f"\n{len(answers)} logs of Android's programs")
    assert [entry for entry in answers if entry[1]] == []
