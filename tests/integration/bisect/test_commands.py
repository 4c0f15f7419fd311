"""The commands around a bisection: its log, replays, Ctrl-C, comparisons."""

import subprocess
import time
from pathlib import Path

import pytest

from harness.bisect.bad_condition import ANY_FAILURE
from harness.bisect.search_loop import judge, run_case
from harness.core.versions import QNN_WHEELS
from tests.integration.bisect.bisections import (
    PLAIN,
    SESSION,
    bisect,
    command,
    errors_of_interrupted,
    interrupted,
    refused,
)
from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.runtimes.real_layouts import qairt_tree
from tests.waiting import wait_for

QNN = list(QNN_WHEELS)


@pytest.mark.slow
@pytest.mark.needs("pgrep")
def test_ctrl_c_ends_everything_and_says_how_to_go_on(lab: DeviceRuns) -> None:
    words = ("--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0])
    process = lab.start(command(lab, *words), stderr=subprocess.PIPE)
    wait_for(lambda: list(lab.reports.glob("*-bisect/runs/*/output.txt")))
    time.sleep(3)
    assert "qnn-harness bisect --resume " in errors_of_interrupted(process)
    processes = subprocess.run(
        ["pgrep", "-f", str(lab.reports)], capture_output=True, text=True, check=False
    )
    assert not processes.stdout, processes.stdout
    stopped = bisect(lab, "--resume", "--timeout", "0s")
    assert (stopped.code, stopped.result["finished"]) == (3, False)


@pytest.mark.needs("pgrep")
@pytest.mark.nightly
def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    suite = tmp_path / "test_slow.py"
    suite.write_text("import time\n\ndef test_slow():\n    time.sleep(600)\n")
    start = time.monotonic()
    end = run_case(["-p", "no:cacheprovider", str(suite)], tmp_path / "reports", tmp_path, 4)
    assert time.monotonic() - start < 30
    assert (end.exit_code, end.record, end.folder) == (None, None, None)
    assert judge(end, ANY_FAILURE, None).answer == "unknown"
    processes = subprocess.run(
        ["pgrep", "-f", str(suite)], capture_output=True, text=True, check=False
    )
    assert not processes.stdout


@pytest.mark.slow
def test_corners_are_gone_on_with_after_ctrl_c(lab: DeviceRuns) -> None:
    """Only an old QNN with a new ORT fails: each axis is searched with the other at its bad end."""
    pairs = ("--good", f"qnn={QNN[1]},ort=1.27.0", "--bad", f"qnn={QNN[0]},ort=1.28.0")
    options = ("--case", SESSION, "--device", "sim-v73", *pairs)
    assert "qnn-harness bisect --resume " in interrupted(lab, *options, cwd=ROOT)
    # one that is begun and refused later does not stand in the way, and is not left behind
    logs = set(lab.reports.glob("*-bisect/log.jsonl"))
    assert bisect(lab, "--case", SESSION.replace("tiny", "huge"), "--axis", "qnn").code == 2
    assert set(lab.reports.glob("*-bisect/log.jsonl")) == logs
    completed = bisect(lab, "--resume")
    assert completed.code == 0, completed.errors
    answer = completed.result["answer"]
    assert (answer["kind"], answer["fails_with"]) == ("change", "both")
    assert {tuple(corner["at"]): corner["verdict"] for corner in answer["corners"]} == {
        (QNN[1], "1.27.0"): "good",
        (QNN[0], "1.28.0"): "bad",
        (QNN[0], "1.27.0"): "good",
        (QNN[1], "1.28.0"): "good",
    }
    searches = {search["axis"]: search for search in answer["searches"]}
    assert searches["qnn"]["held"] == {"ort": "1.28.0"}
    assert searches["qnn"]["answer"]["first_good"] == QNN[1]
    assert searches["ort"]["held"] == {"qnn": QNN[0]}
    assert searches["ort"]["answer"]["first_bad"] == "1.28.0"
    assert len(completed.answers) == len(completed.result["runs"]) == 4, "each pair is run once"
    # each axis has an edge of its own, with what changed in its libraries
    assert sorted(edge["axis"] for edge in completed.result["edges"]) == ["ort", "qnn"]
    changed = completed.result["libraries"]["ort"]["changed"]
    assert any("onnxruntime" in library["name"].rpartition("/")[2] for library in changed)
    assert completed.result["libraries"]["qnn"]["changed"]


def test_wrong_options_name_themselves(lab: DeviceRuns) -> None:
    options = ("--case", PLAIN, "--axis", "qnn")
    for arguments, message in (
        ((*options, "--match", ""), "--match: "),
        ((*options, "--timeout", "5"), "'5' is not a duration; write 5s, 5m or 5h"),
        ((*options, "--repeat", "0"), "'--repeat': "),
        ((*options, "--good", "qnn=2.47.0,ort=1.27.0"), "--axis: "),
        (("--resume", *options), "--case: "),
        (("--case", SESSION.replace("tiny", "huge"), "--axis", "qnn"), "--case: "),
    ):
        completed = refused(lab, *arguments)
        assert (completed.code, completed.result) == (2, {}), arguments
        assert message in completed.errors.splitlines()[-1], completed.errors
    assert not list(lab.reports.glob("*-bisect"))


def test_what_is_wrong_with_a_suite_is_no_answer(lab: DeviceRuns) -> None:
    suite = lab.folder / "test_mine.py"
    suite.write_text("def test_mine(bench)\n")
    completed = refused(lab, "--case", f"{suite}::test_mine", "--axis", "qnn")
    assert (completed.code, completed.result) == (2, {}), completed.errors
    assert suite.name in completed.errors.splitlines()[-1]
    assert not list(lab.reports.glob("*-bisect"))


@pytest.mark.nightly
def test_an_end_that_cannot_be_brought_together_is_left_out(
    lab: DeviceRuns, runtime_for: RuntimeFor
) -> None:
    # an SDK has no plug-in for ONNX Runtime, which PyPI's needs
    qairt_tree(lab.folder / "qairt", runtime_for(QNN[-1]))
    sdk = "runtimes:\n  - {name: sdk, kind: qairt, path: qairt}\n"
    lab.file.write_text(lab.file.read_text() + sdk)
    versions = f"{QNN[0]},{QNN[1]},sdk:{QNN[-1]}"
    options = ("--case", SESSION, "--axis", "qnn", "--device", "sim-v73", "--ort", "1.31.1")
    completed = bisect(lab, *options, "--qnn", versions)
    assert completed.code in (0, 1), completed.errors
    assert completed.answers[f"sdk:{QNN[-1]}",] == "untestable"
    settled = {
        point: answer for point, answer in completed.answers.items() if answer != "untestable"
    }
    assert set(settled) == {(QNN[0],), (QNN[1],)}
    kind = completed.result["answer"]["kind"]
    assert kind == ("change" if len(set(settled.values())) == 2 else "no-change")
