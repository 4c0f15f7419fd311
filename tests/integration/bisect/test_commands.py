"""The commands around a bisection: its log, replays, Ctrl-C, comparisons."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bisect.case_run import judge, run_case
from harness.bisect.match import ANY_FAILURE
from harness.bisect.specs import AxisSpec
from harness.bisect.state import LOG
from harness.cli.main import commands
from harness.qnn.versions import QNN_WHEELS
from tests.integration.bisect.bisections import PLAIN, SESSION, bisect, command
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection

QNN = list(QNN_WHEELS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bisection that is over."""
    runs = ScriptedRuns(lambda at, _: "failed" if at[0] >= QNN[2] else "passed")
    bisection = new_bisection(tmp_path, AxisSpec(axis="qnn", candidates=tuple(QNN)), runs)
    bisection.go_on()
    bisection.folder.close()
    return bisection.folder.path


def call(*arguments: object) -> tuple[int, str]:
    runner = CliRunner()
    done = runner.invoke(commands, [str(part) for part in arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value or 0, done.output


def test_the_log_is_shown(folder: Path) -> None:
    code, shown = call("bisect", "log", folder)
    assert code == 0
    assert f"bisecting qnn over 5 versions, {QNN[0]} to {QNN[-1]}: at most 4 runs" in shown
    assert f"last good {QNN[1]}, first bad {QNN[2]}" in shown
    assert call("bisect", "log", "--reports", folder.parent)[1] == shown
    assert call("bisect", "log", "--json", folder)[1] == (folder / LOG).read_text()


def test_a_log_can_be_replayed_without_running(folder: Path, tmp_path: Path) -> None:
    assert call("bisect", "replay", folder / LOG, "--no-run")[0] == 0
    lines = (folder / LOG).read_text().splitlines()
    kept = [line for line in lines if f'["{QNN[2]}"]' not in line and "concluded" not in line]
    edited = tmp_path / "edited.jsonl"
    edited.write_text("\n".join(kept) + "\n")
    code, shown = call("bisect", "replay", edited, "--no-run")
    assert (code, shown.startswith(f"next to run: {QNN[2]}")) == (1, True)
    edited.write_text("nonsense\n" + "\n".join(kept))
    with pytest.raises(Exception, match=r"edited.jsonl:1"):
        call("bisect", "replay", edited, "--no-run")


def test_ctrl_c_ends_everything_and_says_how_to_go_on(lab: DeviceRuns) -> None:
    process = subprocess.Popen(
        command(lab, "--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0]),
        cwd=ROOT,
        env=lab.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not list(lab.reports.glob("*-bisect/runs/*/output.txt")):
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(3)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "to go on: qnn-harness bisect --resume " in errors
    left = subprocess.run(
        ["pgrep", "-f", str(lab.reports)], capture_output=True, text=True, check=False
    )
    assert not left.stdout, left.stdout
    stopped = bisect(lab, "--resume", "--max-minutes", "0")
    assert (stopped.code, stopped.result["finished"]) == (3, False)
    assert "the time is over" in stopped.errors


def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    suite = tmp_path / "test_slow.py"
    suite.write_text("import time\n\ndef test_slow():\n    time.sleep(600)\n")
    began = time.monotonic()
    end = run_case(["-p", "no:cacheprovider", str(suite)], tmp_path / "reports", tmp_path, 4)
    assert time.monotonic() - began < 30
    assert (end.exit_code, end.record, end.folder) == (None, None, None)
    assert judge(end, ANY_FAILURE, None).answer == "unknown"
    left = subprocess.run(["pgrep", "-f", str(suite)], capture_output=True, text=True, check=False)
    assert not left.stdout


def test_a_comparison_says_what_to_bisect(lab: DeviceRuns) -> None:
    none = lab.folder / "known.yaml"
    none.write_text("schema: 1\nknown_issues: []\n")
    chosen = ("-k", "test_session and tiny", "--ort", "1.31.1", f"--known-issues={none}")
    before = lab.run(*chosen, "--qnn", QNN[1]).folder.joinpath("latest").resolve()
    after = lab.run(*chosen, "--qnn", QNN[0]).folder.joinpath("latest").resolve()
    base = [sys.executable, "-m", "harness.cli.main", "compare", "--lab", lab.file]
    done = subprocess.run(
        [str(part) for part in (*base, before, after, "--bisect", "--max-minutes", "5")],
        cwd=ROOT,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "1 x new: " in done.stdout
    assert f"--axis qnn --good {QNN[1]} --bad {QNN[0]}" in done.stdout
    # the older one is the bad one: what is found is the fix
    assert f"last bad {QNN[0]}, first good {QNN[1]}" in done.stdout
    same = [str(part) for part in (*base, before, before, "--json")]
    equal = subprocess.run(same, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (equal.returncode, json.loads(equal.stdout)["new"]) == (0, [])


def test_three_axes_are_slices_of_two(lab: DeviceRuns) -> None:
    done = bisect(
        lab,
        *("--case", SESSION, "--axis", "ort,qnn", "--device", "sim-v73"),
        *("--ort", "1.27.0,1.28.0", "--qnn", f"{QNN[0]},{QNN[1]}"),
        *("--compiler", f"{QNN[0]},{QNN[1]}", "--max-runs", "1"),
    )
    results = done.result
    assert isinstance(results, list)
    assert [one["held"]["compiler"] for one in results] == [QNN[0], QNN[1]]
    assert done.code == 1
