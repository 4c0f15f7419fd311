"""`--shard` divides a selection among machines; `merge` makes the whole run of what they found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.run.pytest_plugin.test_parallel import TWO_DEVICES, farm

SUITE = '''"""Cases of which one fails, and tests without a device."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("number", range(5))
def test_noop(bench, number):
    bench.run(Plan((Step("sleep", {"ms": str(400 if number == 0 else 1)}),))).check()
    assert number != 3

@pytest.mark.parametrize("number", range(3))
@pytest.mark.device
def test_placed_alone(bench, number):
    bench.run(Plan((Step("noop"),))).check()
'''


def outcomes(cases: list[dict[str, Any]]) -> dict[str, str]:
    return {case["case"]: case["outcome"] for case in cases}


def info(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


@pytest.mark.slow
def test_two_machines_make_the_run_that_one_would_have_made(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = farm(lab, tmp_path, TWO_DEVICES, SUITE)
    whole = lab.run(suites=suite)
    assert whole.code == 1, whole.output
    wanted = outcomes(whole.cases)
    assert len(wanted) == 16
    night = (lab.reports / "latest").resolve()
    runs, found = [], list[dict[str, Any]]()
    for number, more in ((1, ["-n", "2"]), (2, [])):
        (tmp_path / f"machine{number}").mkdir()
        other = DeviceRuns(tmp_path / f"machine{number}")
        other.file.write_text(TWO_DEVICES)
        words = ["--shard", f"{number}/2", "--shard-by", f"{night}/", *more]
        done = other.run(*words, suites=suite)
        assert "Traceback" not in done.output
        assert f"shard {number}/2 of 16 cases by the durations of {night.name}" in done.output
        runs.append((done.folder / "latest").resolve())
        found += done.cases
        assert info(runs[-1])["shard"]["number"] == number
        listed = json.loads((runs[-1] / "cases.json").read_text())["cases"]
        assert sorted(case["case"] for case in done.cases) == listed
    assert len(found) == len(outcomes(found)) == 16
    assert outcomes(found) == wanted
    done_merge = lab.qnn_harness("merge", *runs, "--reports", "merged")
    assert done_merge.returncode == 1, done_merge.stderr
    assert done_merge.stdout.startswith("16 of 16 cases have a verdict: 14 passed, 2 failed\n")
    merged = Finished(1, "", lab.folder / "merged")
    assert outcomes(merged.cases) == wanted
    latest = merged.folder / "latest"
    assert all((latest / log).is_file() for case in merged.cases for log in case["logs"])
    compared = lab.qnn_harness("compare", night, latest)
    assert compared.returncode == 0, compared.stdout
    assert lab.qnn_harness("report", latest).returncode == 0
    history = lab.qnn_harness("history", "--reports", "merged", "--json")
    assert history.returncode == 0, history.stderr


@pytest.mark.slow
def test_machines_whose_tests_say_other_things_make_no_run(lab: DeviceRuns, tmp_path: Path) -> None:
    """Names and numbers of cases are the same; what they do is not."""
    runs, codes = [], []
    changed = ("test_farm.py", "beside.py", "conftest.py")
    for number, more in ((1, ["-n", "2"]), (2, [])):
        machine = tmp_path / f"machine{number}"
        machine.mkdir()
        for name in changed:
            (machine / name).write_text(f"# of machine {number}\n")
        (machine / "unused.py").write_text(f"# of machine {number}\n")
        (machine / "same.py").write_text("")
        other = DeviceRuns(machine)
        suite = farm(other, machine, TWO_DEVICES, f"import beside, same  # {number}\n{SUITE}")
        done = other.run("--shard", f"{number}/2", "-k", "alone", *more, suites=suite)
        assert done.code == 0, done.output
        runs.append((done.folder / "latest").resolve())
        codes.append(info(runs[-1])["shard"]["code"])
    assert {*changed, "same.py"} <= codes[0].keys() == codes[1].keys()
    assert "unused.py" not in codes[0]
    refused = lab.qnn_harness("merge", *runs, "--reports", "merged")
    assert refused.returncode == 2, refused.stdout
    assert f"3 files: {', '.join(sorted(changed))};" in refused.stderr
    assert not (lab.folder / "merged").exists()
    suite.write_text(f"import beside, same  # again\n{SUITE}")
    resumed = other.run("--resume", "latest", "--shard", "2/2", "-k", "alone", suites=suite)
    assert resumed.code == 2, resumed.output
    assert (
        "the run to resume was of other test code or files: 1 file: test_farm.py" in resumed.output
    )


@pytest.mark.nightly
def test_a_lab_that_lacks_a_device_for_some_test_says_so_before_it_runs(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = farm(lab, tmp_path, TWO_DEVICES, SUITE.replace("device\n", "device(htp_arch=79)\n", 1))
    for number, words in ((1, ["-n", "2"]), (2, [])):
        done = lab.run("--any-device", "--shard", f"{number}/2", *words, suites=suite)
        told = "no device of this lab fits 5 tests: "
        assert done.output.count(told) == 1, done.output
        assert done.output.index(told) < done.output.index(" passed")
        run = (lab.reports / "latest").resolve()
        assert info(run)["shard"]["unfit"].startswith("5 tests: ")


@pytest.mark.parametrize(
    "words",
    [
        ["--shard", "0/3"],
        pytest.param(["--shard", "4/3"], marks=pytest.mark.nightly),
        pytest.param(["--shard", "x"], marks=pytest.mark.nightly),
        pytest.param(["--shard", ""], marks=pytest.mark.nightly),
        ["--shard", "0/3", "-n", "2"],
        pytest.param(["--shard", "1/17"], marks=pytest.mark.nightly),
        pytest.param(["--shard-by", "latest"], marks=pytest.mark.nightly),
        pytest.param(["--shard", "1/2", "--shard-by", "gone"], marks=pytest.mark.nightly),
    ],
)
def test_what_is_no_shard_is_wrong_input(lab: DeviceRuns, tmp_path: Path, words: list[str]) -> None:
    suite = farm(lab, tmp_path, TWO_DEVICES, SUITE)
    done = lab.run(*words, suites=suite)
    assert done.code == 2, done.output
    assert "Traceback" not in done.output
    assert re.search(r"--shard: |gone: is no run's folder", done.output), done.output
    assert not lab.reports.exists()


def test_a_plan_has_the_cases_of_the_shard_and_all_plans_have_all(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = farm(lab, tmp_path, TWO_DEVICES, SUITE)
    planned = []
    for number in (1, 2, 3):
        done = lab.run("--plan", "--shard", f"{number}/3", suites=suite)
        assert done.code == 0, done.output
        # a file beside the root folder has no name, and :: begins a line that steers a CI system
        planned.append(re.findall(r"test_\w+\[\S+\](?=  \()", done.output))
    assert len({case for cases in planned for case in cases}) == sum(map(len, planned)) == 16
    assert {len(cases) for cases in planned} == {5, 6}


@pytest.mark.nightly
def test_a_shard_is_completed_as_what_it_is(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = farm(lab, tmp_path, TWO_DEVICES, SUITE)
    first = lab.run("--shard", "1/2", "-x", suites=suite)
    run = (lab.reports / "latest").resolve()
    listed = json.loads((run / "cases.json").read_text())["cases"]
    journal = run / "results.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    cases = [line for line in lines if json.loads(line)["kind"] == "case"]
    journal.write_text("".join(cases[:2]))
    for words in ([], ["--shard", "2/2"], ["--shard", "1/3"]):
        refused = lab.run("--resume", run.name, *words, suites=suite)
        assert refused.code == 2, (words, refused.output, first.output)
        assert "--shard: " in refused.output
    assert lab.qnn_harness("merge", run).returncode == 2
    lab.run("--resume", run.name, "--shard", "1/2", suites=suite)
    done = Finished(0, "", lab.reports)
    assert sorted({case["case"] for case in done.cases}) == listed
    assert json.loads((run / "cases.json").read_text())["cases"] == listed
