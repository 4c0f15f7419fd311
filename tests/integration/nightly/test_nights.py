"""Nights on a simulated device: what is new is told, bisected, and followed until it is gone."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.nightly.night import STEPS, Night
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import LAB, DeviceRuns
from tests.integration.forked import run_module
from tests.integration.nightly.servers import Webhook
from tests.waiting import wait_for

SUITE = """import pytest

@pytest.mark.device(backend="htp")
def test_mine(bench):
    assert bench.placement.qnn < "2.49", "too new"
    bench.measure(noted=1)

@pytest.mark.device(backend="htp")
def test_other(bench):
    bench.measure(noted=1)
"""
# nobody listens there
UNREACHABLE = f"""  - {{name: phone, serial: "17", target: android-arm64, host: lab-pc}}
hosts:
  - {{name: lab-pc, host: {socket.gethostname()}, port: 9}}
runtimes:
  - name: away
    kind: maven
    repository: http://127.0.0.1:9/
    coordinates: com.qualcomm.qti:qnn-runtime
"""
OLD, NEW = "2.47.0", "2.51.0"


@pytest.fixture
def farm(lab: DeviceRuns) -> DeviceRuns:
    """A lab beside a suite that no QNN from 2.49 on passes."""
    (lab.folder / "pytest.ini").write_text("[pytest]\n")
    (lab.folder / "test_mine.py").write_text(SUITE)
    return lab


def words(qnn: str) -> list[str]:
    base = ["harness.cli.main", "nightly", "--timeout", "20m", "--json", "--"]
    return [*base, "-p", "no:cacheprovider", "--device", "sim-v73", "--qnn", qnn, "test_mine.py"]


def called(farm: DeviceRuns, *module: str) -> subprocess.CompletedProcess[str]:
    return run_module(module, farm.folder, farm.environment, 400)


def night(farm: DeviceRuns, qnn: str, *more: str) -> tuple[int, dict[str, Any], str]:
    completed = called(farm, *words(qnn), *more)
    return completed.returncode, json.loads(completed.stdout or "{}"), completed.stderr


def ended_when(
    farm: DeviceRuns, qnn: str, condition: Callable[[], object], number: signal.Signals
) -> int:
    """A night that gets a signal once something is there; return its exit code."""
    output = farm.folder / "output.txt"
    with output.open("wb") as stream:
        command = [sys.executable, "-m", *words(qnn)]
        process = farm.start(command, cwd=farm.folder, stdout=stream)
    wait_for(lambda: condition() or process.poll() is not None, seconds=200)
    assert process.poll() is None, output.read_text()
    process.send_signal(number)
    return process.wait(100)


def answers(farm: DeviceRuns) -> list[str]:
    lines = [
        json.loads(line)
        for log in farm.reports.glob("*-bisect/log.jsonl")
        for line in log.read_text().splitlines()
        if line.endswith("}")
    ]
    return [line["at"][0] for line in lines if line["kind"] == "answered"]


def runs(farm: DeviceRuns) -> list[Path]:
    return list(farm.reports.glob("2*/results.jsonl"))


@pytest.mark.slow
def test_what_is_new_is_bisected_and_followed_until_it_is_gone(farm: DeviceRuns) -> None:
    hook = Webhook()
    notify = f"notify: [{{name: chat, url: 'json://{hook.address}/'}}]\n"
    farm.file.write_text(LAB + notify)
    code, first, _ = night(farm, OLD)
    assert (code, first["base"], first["issues"], first["failed_on"]) == (0, None, [], [])
    assert hook.got == [], "nothing is new"
    farm.file.write_text(LAB + UNREACHABLE + notify)
    ended_when(farm, NEW, lambda: answers(farm), signal.SIGKILL)
    assert len(runs(farm)) == 2
    code, second, stderr = night(farm, NEW)
    assert code == 1, stderr
    assert second["base"] == first["run"]
    assert len(runs(farm)) == 2, "what had ended is not run again"
    assert "nightly: bisect (" in stderr
    assert "nightly: run (" not in stderr
    assert sorted(answers(farm)) == ["2.47.0", "2.48.40", "2.49.40", "2.51.0"], "each once"
    assert any(text.startswith("not fetched: away ") for text in second["warnings"]), second[
        "warnings"
    ]
    (issue,) = second["issues"]
    assert (issue["state"], issue["count"]) == ("open", 1)
    assert issue["search"]["answer"] == "last good 2.48.40, first bad 2.49.40"
    (file,) = farm.reports.glob("latest-nightly/issues/*.md")
    text = file.read_text()
    again = issue["example"]["command"]
    same = called(farm, *again, "-p", "no:cacheprovider", "--reports=again")
    assert (same.returncode, "too new" in same.stdout) == (1, True), same.stdout
    assert (farm.reports / issue["search"]["folder"] / "report.md").is_file()
    summary = (farm.reports / "latest-nightly/summary.md").read_text()
    assert "first bad 2.49.40" in summary
    assert second["verdict"] in summary
    assert "\n- host `lab-pc`: " in summary
    assert "\n- `phone`: " in summary
    (message,) = hook.got
    assert second["night"] in message["title"]
    assert issue["id"] in message["message"]
    (line,) = (line for line in text.splitlines() if line.startswith("- fails on "))
    assert f"  {line}" in message["message"].splitlines()
    history = farm.qnn_harness("history", "list", "--json", "::test_mine")
    assert len(json.loads(history.stdout)["cases"]) == 1
    Night.model_validate_json((farm.reports / "latest-nightly/nightly.json").read_bytes())

    code, third, stderr = night(farm, OLD)
    assert (code, third["base"]) == (0, second["run"]), stderr
    (closed,) = third["issues"]
    assert (closed["id"], closed["state"], closed["closed"]) == (
        issue["id"],
        "closed",
        third["started"],
    )
    (message,) = hook.got[1:]
    assert third["night"] in message["title"]
    hook.close()


@pytest.mark.nightly
@pytest.mark.parametrize(("step", "number"), [("run", signal.SIGTERM), ("bisect", signal.SIGINT)])
def test_one_that_is_ended_is_gone_on_with(
    farm: DeviceRuns, step: str, number: signal.Signals
) -> None:
    night(farm, OLD)
    conditions = {
        "run": lambda: [run for run in runs(farm) if "failed" in run.read_text()],
        "bisect": lambda: answers(farm),
    }
    assert ended_when(farm, NEW, conditions[step], number) == 130
    code, finished, stderr = night(farm, NEW)
    assert (code, len(runs(farm))) == (1, 2), stderr
    (issue,) = finished["issues"]
    assert issue["search"]["answer"] == "last good 2.48.40, first bad 2.49.40"
    assert len(answers(farm)) == 4


@pytest.mark.nightly
def test_a_step_whose_end_was_not_written_down_is_not_done_twice(farm: DeviceRuns) -> None:
    night(farm, OLD)
    _, finished, _ = night(farm, NEW)
    state = farm.reports / finished["night"] / "nightly.json"
    for number in range(len(STEPS)):
        content = json.loads(state.read_text())
        changes: dict[str, object] = {}
        changes |= {"issues": []} if number <= STEPS.index("compare") else {}
        changes |= {"run": None} if number <= STEPS.index("run") else {}
        state.write_text(json.dumps(content | changes | {"done": STEPS[:number]}))
        completed = farm.qnn_harness("nightly", "--resume", "--json", code=1)
        assert re.search(r"\((20:00|19:5\d) left\)", completed.stderr), "as it was asked for"
        again = json.loads(completed.stdout)
        assert {name: again[name] for name in ("run", "base", "failed_on", "issues", "done")} == {
            name: finished[name] for name in ("run", "base", "failed_on", "issues", "done")
        }
    assert len(runs(farm)) == 2
    assert len(answers(farm)) == 4


@pytest.mark.slow
def test_what_is_wrong_with_the_words_is_said(farm: DeviceRuns) -> None:
    assert farm.qnn_harness("nightly", "--timeout", "soon").returncode == 2
    farm.qnn_harness("nightly", "--resume", code=2)
    blocked = farm.qnn_harness("nightly", "--reports", "test_mine.py")
    assert (blocked.returncode, "test_mine.py" in blocked.stderr) == (2, True)
    assert "--resume" not in blocked.stderr, "there is no night"
    environment = farm.environment | {"QNN_HARNESS_HISTORY": "no/such/folder/x.sqlite"}
    elsewhere = run_module(["harness.cli.main", "nightly"], farm.folder, environment, 120)
    assert (elsewhere.returncode, "no such folder" in elsewhere.stderr) == (2, True)
    assert not list(farm.reports.glob("*-nightly")), "found out before all else"
    (farm.folder / "test_broken.py").write_text("import no_such_module\n")
    completed = farm.qnn_harness("nightly", "--", "-p", "no:cacheprovider", "test_broken.py")
    assert (completed.returncode, "test_broken.py" in completed.stderr) == (2, True)
    assert completed.stderr.splitlines()[-1].startswith("error: "), completed.stderr
    assert "nightly: run" not in completed.stderr, "found out before the fetch"
    secret = "--qnn=https://me:hidden@127.0.0.1:9/maven"
    refused = farm.qnn_harness("nightly", "--", "-p", "no:cacheprovider", secret)
    assert (refused.returncode, "127.0.0.1:9/maven" in refused.stderr) == (2, True)
    assert "hidden" not in refused.stdout + refused.stderr
    assert not list(farm.reports.glob("*-nightly")), "a night that was refused leaves no folder"


@pytest.mark.nightly
def test_an_issue_of_a_file_has_the_command_that_packs_it(
    farm: DeviceRuns, context_for: ContextFor
) -> None:
    model = farm.folder / "model.bin"
    model.write_bytes(context_for("tiny", NEW).path.read_bytes())
    completed = called(farm, *words(OLD)[:-1], "model.bin", "-k", "resident-1")
    assert completed.returncode == 1, completed.stderr
    (issue,) = json.loads(completed.stdout)["issues"]
    _, *command = issue["example"]["bundle"]
    assert farm.qnn_harness(*command, "--output", "case.zip").returncode == 0
    model.unlink()
    code, stderr, _ = farm.run_files("case.zip", "--device", "sim-v73", "--qnn", OLD)
    assert (code, "was not reproduced" in stderr) == (1, False), stderr
