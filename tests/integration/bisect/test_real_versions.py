"""Bisections of the real libraries on the simulated lab, beside a run of every version."""

import shutil
from pathlib import Path

import pytest

from harness.core.versions import QNN_WHEELS
from tests.integration.bisect.bisections import (
    PLAIN,
    RESIDENT,
    bisect,
    bisect_stand_in,
    every_version,
)
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import DeviceRuns

QNN = list(QNN_WHEELS)


def changes(truth: list[str]) -> list[int]:
    return [i for i in range(1, len(truth)) if truth[i] != truth[i - 1]]


@pytest.mark.nightly
def test_which_runtime_keeps_the_budget(lab: DeviceRuns) -> None:
    truth = every_version(lab, "io-heavy and resident and 66", "--qnn", "all", "--compiler", QNN[0])
    verdicts = [truth[QNN[0], version] for version in QNN]
    completed = bisect(lab, "--case", RESIDENT, "--axis", "qnn", "--compiler", QNN[0])
    assert completed.code == 0, completed.errors
    (change,) = changes(verdicts)
    answer = completed.result["answer"]
    assert (answer["last_good"], answer["first_bad"]) == (QNN[change - 1], QNN[change])
    assert len(completed.result["runs"]) <= 4
    error = completed.bad_side["record"]["error"]
    assert (error["code"], error["symbol"]) == (1002, "QNN_COMMON_ERROR_MEM_ALLOC")
    backend = next(
        library
        for library in completed.result["libraries"]["qnn"]["changed"]
        if library["name"].endswith("libQnnHtp.so")
    )
    assert backend["size_after"] != backend["size_before"]
    assert completed.result["versions"]["qnn"][QNN[change]] is not None
    # stdout is the result and nothing else; stderr says what goes on, a line each
    error_lines = completed.errors.splitlines()
    assert completed.result["most_runs"] == 4
    assert (Path(error_lines[1]) / "log.jsonl").is_file()
    assert len(error_lines) == 2 + len(completed.result["runs"])
    # the newest run of pytest's own is still what it was
    assert not (lab.reports / "latest").resolve().name.endswith("bisect")


@pytest.mark.slow
def test_which_compiler_an_old_runtime_refuses(lab: DeviceRuns) -> None:
    completed = bisect(lab, "--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0])
    assert completed.code == 0, completed.errors
    # it refuses whatever is newer than it
    assert completed.result["answer"]["first_bad"] == QNN[1]
    assert completed.bad_side["record"]["error"]["code"] == 5000
    assert len(completed.result["runs"]) <= 4


@pytest.mark.nightly
def test_a_flaky_backend(lab: DeviceRuns, tmp_path: Path) -> None:
    """A bad version fails in half of its runs: one failure makes it bad, and the rate is told."""
    few = ("--qnn", f"{QNN[0]},{QNN[2]}", "--repeat", "6")
    completed = bisect_stand_in(lab, tmp_path / "stand-in", QNN[2], *few, FLAKY_RATE="0.5")
    assert completed.code == 0, completed.errors
    answer = completed.result["answer"]
    assert (answer["first_bad"], completed.result["repeat"]) == (QNN[2], 6)
    of_bad = [run["answer"] for run in completed.result["runs"] if run["at"] == [QNN[2]]]
    (flaky,) = answer["flaky"]
    assert (flaky["at"], flaky["failed"], flaky["runs"]) == ([QNN[2]], of_bad.count("bad"), 6)
    assert (1 - flaky["failed"] / 6) ** flaky["repeats"] < 0.01
    assert completed.bad_side["record"]["error"]["code"] == 1100


@pytest.mark.nightly
def test_a_lost_device_moves_the_search_to_one_like_it(lab: DeviceRuns) -> None:
    device = lab.file.read_text().partition("devices:\n")[2]
    lab.file.write_text(lab.file.read_text() + device.replace("sim-v73", "sim-spare"))
    # a file where the storage of the device should be: it can never be started
    storage = lab.folder / "simulated" / "sim-v73"
    storage.parent.mkdir(parents=True, exist_ok=True)
    storage.write_text("")
    completed = bisect(lab, "--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0])
    assert completed.code == 0, completed.errors
    assert completed.result["answer"]["first_bad"] == QNN[1]
    good = [run["device"] for run in completed.result["runs"] if run["answer"] != "unknown"]
    assert set(good) == {"sim-spare"}
    assert all("[qcs8550-htp-" in run["case"] for run in completed.result["runs"] if run["case"])


@pytest.mark.nightly
def test_which_runtime_gives_other_outputs(lab: DeviceRuns, context_for: ContextFor) -> None:
    """MobileNet-v2 in half precision gives other outputs from QNN 2.48 on, and all of them pass."""
    file = lab.folder / "net.bin"
    shutil.copyfile(context_for("mobilenet-v2", "2.47.0").path, file)
    case = f"{file}::test_contexts[sim-v73-htp-2.51.0-net.bin-resident-1]"
    options = ("--case", case, "--axis", "qnn", "--good", QNN[0])
    completed = bisect(lab, *options, "--match", "drift:0")
    assert completed.code == 0, completed.errors
    answer = completed.result["answer"]
    assert (answer["last_good"], answer["first_bad"]) == (QNN[0], "2.48.40")
    assert len(completed.result["runs"]) <= 4
    # half precision has no steps, so that it is beyond none of them
    completed = bisect(lab, *options, "--match", "drift:1", "--qnn", f"{QNN[0]},{QNN[-1]}")
    assert completed.answers == {(QNN[0],): "good", (QNN[-1],): "good"}
    # a case whose outputs nobody keeps can tell nothing of them
    completed = bisect(lab, *options[2:], "--match", "drift:0", "--case", PLAIN)
    assert completed.code == 2
