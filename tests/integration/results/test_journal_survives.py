"""The journal against real deaths: SIGKILL in mid-run, several writers, a disk that fills up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results.journal import read_journal

WRITER = """
import sys
from pathlib import Path
from harness.results.journal import Journal
from tests.unit.results.records import record

journal = Journal(Path(sys.argv[1]))
name, most = sys.argv[2], int(sys.argv[3])
for number in range(most):
    journal.append(record(case=f"{name}-{number}", measurements={"load_us": [number] * 500}))
    print(number, flush=True)
"""

FILLS_UP = """
import resource, signal, sys
from pathlib import Path
from harness.core.errors import InfraError
from harness.results.journal import Journal
from tests.unit.results.records import record

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
journal = Journal(Path(sys.argv[1]))
written = []
for number in range(20):
    try:
        journal.append(record(case=str(number)))
        written.append(number)
    except InfraError as error:
        assert "cannot write" in str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.close()
print(*written)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def test_every_line_that_was_acknowledged_survives_a_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with start(WRITER, str(path), "a", "1000000") as process:
        try:
            acknowledged = [int(process.stdout.readline()) for _ in range(200)]
        finally:
            os.kill(process.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    contents = read_journal(path)
    cases = [record.case for record in contents.records]
    assert cases == [f"a-{number}" for number in range(len(cases))]
    assert len(cases) >= len(acknowledged) >= 200
    assert contents.damage == ()


def test_lines_of_several_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    writers = [start(WRITER, str(path), name, "150") for name in "abc"]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    contents = read_journal(path)
    assert contents.damage == ()
    for name in "abc":
        mine = [item.case for item in contents.records if item.case.startswith(name)]
        assert mine == [f"{name}-{number}" for number in range(150)]


@pytest.mark.parametrize("before", [b"", b'{"schema": 1, "ki'])
def test_a_line_that_did_not_fit_spoils_no_later_one(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(before)
    with start(FILLS_UP, str(path)) as process:
        out, _ = process.communicate(timeout=60)
    written = out.split()
    assert process.returncode == 0
    assert 15 <= len(written) < 20
    contents = read_journal(path)
    assert [record.case for record in contents.records] == written
    assert len(contents.damage) == (2 if before else 1)
