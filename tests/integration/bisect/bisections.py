"""Runs `qnn-harness bisect` as a user would, and every version beside it to know the truth."""

import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.forked import run_module
from tests.integration.in_process import qnn_harness
from tests.stand_in.build import build_htp
from tests.waiting import wait_for

TIMEOUT_S = 1200
RESIDENT = (
    "suites/test_context_count.py::test_context_count[sim-v73-htp-2.51.0-io-heavy-56mb-resident-66]"
)
PLAIN = "suites/test_context_count.py::test_context_count[sim-v73-htp-2.51.0-tiny-sequential-1]"
SESSION = "suites/test_ort_sessions.py::test_session[tiny]"


@dataclass(frozen=True)
class Done:
    """The end of a bisection; `result` is empty where it printed none."""

    code: int
    result: dict[str, Any]
    errors: str

    @property
    def bad_side(self) -> dict[str, Any]:
        """The run on the newer side of the first change."""
        return dict(self.result["runs"][self.result["edges"][0]["after"] - 1])

    @property
    def answers(self) -> dict[tuple[str, ...], str]:
        return {tuple(run["at"]): run["answer"] for run in self.result["runs"]}


def command(lab: DeviceRuns, *arguments: object) -> list[str]:
    base = [sys.executable, "-m", "harness.cli.main", "bisect"]
    base += [] if "--resume" in arguments else ["--lab", lab.file]
    return [str(part) for part in (*base, "--reports", lab.reports, "--json", *arguments)]


def bisect(lab: DeviceRuns, *arguments: object, **settings: str) -> Done:
    words = command(lab, *arguments)[2:]
    return done_of(run_module(words, ROOT, lab.environment | settings, TIMEOUT_S))


def done_of(completed: subprocess.CompletedProcess[str]) -> Done:
    result = json.loads(completed.stdout) if completed.stdout.strip() else {}
    return Done(completed.returncode, result, completed.stderr)


def refused(lab: DeviceRuns, *arguments: object) -> Done:
    """Return the end of a bisection with wrong input, which needs no process of its own."""
    return done_of(qnn_harness(*command(lab, *arguments)[3:], environment=lab.environment))


def killed_after(lab: DeviceRuns, seconds: float, *arguments: object) -> int | None:
    """Kills a bisection with SIGKILL, a new one so long after its log was begun.

    Its exit code if it was over before.
    """
    logs = len(list(lab.reports.glob("*-bisect/log.jsonl")))
    process = lab.start(command(lab, *arguments), stdout=subprocess.DEVNULL)
    if "--resume" not in arguments:
        wait_for(lambda: len(list(lab.reports.glob("*-bisect/log.jsonl"))) > logs)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        return None


def interrupted(lab: DeviceRuns, *arguments: object, cwd: Path) -> str:
    """Return the stderr of a bisection that gets Ctrl-C once a run has answered."""
    process = lab.start(command(lab, *arguments), cwd=cwd, stderr=subprocess.PIPE)
    logs = "*-bisect/log.*"
    wait_for(
        lambda: any('"answered"' in log.read_text() for log in lab.reports.glob(logs)), seconds=300
    )
    return errors_of_interrupted(process)


def errors_of_interrupted(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    return errors


def require_nothing_made_twice(lab: DeviceRuns, completed: Done) -> int:
    """Each place was answered once, and asked again only after a death; how many deaths it saw."""
    text = (lab.reports / completed.result["bisect"] / "log.jsonl").read_text()
    log = [json.loads(line) for line in text.splitlines()]
    answers = [tuple(entry["at"]) for entry in log if entry["kind"] == "answered"]
    assert len(answers) == len(set(answers)) <= 4
    kinds = [entry["kind"] for entry in log]
    for before, after in itertools.pairwise(kinds):
        assert (before, after) != ("asked", "asked")
    assert kinds.count("asked") <= len(answers) + kinds.count("resumed")
    return kinds.count("resumed")


def bisect_stand_in(
    lab: DeviceRuns, folder: Path, first_bad: str, *more: str, **settings: str
) -> Done:
    """Bisects the runtime with a backend that does what tests.stand_in.flaky tells it."""
    folder.mkdir()
    build_htp(folder)
    return bisect(
        lab,
        *("--case", PLAIN, "--axis", "qnn", "--compiler", "2.47.0"),
        *more,
        *("--", "-p", "tests.stand_in.as_backend", "-p", "tests.stand_in.flaky"),
        **{"STAND_IN_FOLDER": str(folder), "FLAKY_FROM": first_bad, "FLAKY_SEED": "6"} | settings,
    )


def every_version(lab: DeviceRuns, chosen: str, *arguments: str) -> dict[tuple[str, str], str]:
    """{(compiler, qnn) or (ort, qnn): good or bad} of a case with all versions, in one run."""
    completed = lab.run("-k", chosen, *arguments)
    outcomes = {}
    for case in completed.cases:
        axes = case["axes"]
        first = axes["ort"] if axes["ort"] is not None else axes["compiler"]
        assert case["outcome"] in ("passed", "failed", "crashed", "hung"), case
        outcomes[str(first), str(axes["qnn"])] = "good" if case["outcome"] == "passed" else "bad"
    assert outcomes, completed.output
    return outcomes
