"""`--resume` completes a run: what it lacks and what the lab failed in it, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.device_runs import ROOT, DeviceRuns

SUITE = '''"""Cases that note that they ran."""
from pathlib import Path

import pytest

from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(4))
def test_noted(bench, number):
    with Path(__file__).with_name("ran").open("a") as notes:
        notes.write(f"{number}\\n")
    bench.run(Plan((Step("noop"),))).check()
    assert number != 1
'''


@pytest.mark.slow
def test_only_what_has_no_verdict_runs(lab: DeviceRuns) -> None:
    suite = lab.write_suite(SUITE)
    lab.run(suites=suite, code=1)
    (run,) = lab.reports.glob("2*")
    journal = run / "results.jsonl"
    written = journal.read_text().splitlines(keepends=True)
    lines = [line for line in written if json.loads(line)["kind"] == "case"]
    lost = json.loads(lines[2])
    lost |= {"outcome": "error", "cause": "infra", "attempt": 3}
    # As a run leaves it in which one verdict was lost and that was killed while writing the next.
    journal.write_text("".join([*lines[:2], json.dumps(lost) + "\n"]) + lines[3][:50])
    suite.with_name("ran").unlink()

    part = lab.run("--resume", run.name, "-k", "2]", suites=suite, code=1)
    assert "= qnn-harness: the whole run, not only its resumed part =" in part.output
    assert "not run: 1 of 4 cases, not selected by this command" in part.output
    # the failure of the first part is still one
    lab.run("--resume", run.name, suites=suite, code=1)
    assert suite.with_name("ran").read_text().split() == ["2", "3"]
    assert list(lab.reports.glob("2*")) == [run]
    lines = journal.read_text().splitlines()
    records = [json.loads(line) for line in lines if line.endswith("}")]
    by_number = {record["axes"]["number"]: record for record in records if record["kind"] == "case"}
    outcomes = [by_number[number]["outcome"] for number in range(4)]
    assert outcomes == ["passed", "failed", "passed", "passed"]
    assert by_number[2]["attempt"] == 4
    assert len(json.loads((run / "run.json").read_text())["resumed"]) == 2

    lab.run("--resume", run.name, suites=suite, code=1)
    assert suite.with_name("ran").read_text().split() == ["2", "3"]


@pytest.mark.slow
def test_a_file_that_cannot_be_collected_is_why_nothing_ran(lab: DeviceRuns) -> None:
    suite = lab.write_suite(SUITE)
    suite.with_name("test_broken.py").write_text("import no_such_module\n")
    stopped = lab.run(suites=suite.parent, code=2)
    info = json.loads((lab.reports / "latest/run.json").read_text())
    assert "test_broken.py cannot be collected: ModuleNotFoundError" in info["problem"]
    assert "--resume" not in stopped.output


@pytest.mark.slow
def test_what_was_stopped_before_its_first_verdict_says_how_to_go_on(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    text = "import pytest\n@pytest.mark.device\ndef test_it(bench):\n    {}\n"
    suite = lab.write_suite(text.format("raise KeyboardInterrupt"))
    stopped = lab.run(suites=suite, code=2)
    assert stopped.output.count("--resume") == 1
    # what began it, a night, says itself how to go on
    told = lab.run("-o", f"qnn_problem_file={tmp_path / 'problem.json'}", suites=suite)
    assert (told.code, "--resume" in told.output) == (2, False), told.output
    suite.write_text(text.format("bench.measure(noted=1)"))
    completed = lab.run("--resume", "latest", suites=suite, code=0)
    assert [case["outcome"] for case in completed.cases] == ["passed"]


@pytest.mark.slow
def test_a_run_is_not_completed_by_what_asks_something_else_of_its_file(lab: DeviceRuns) -> None:
    shutil.copy(ROOT / "tests/field/executorch-3-contexts.pte", lab.folder / "model.pte")
    code, output, _ = lab.run_files("model.pte", "--rounds=1")
    assert code == 0, output
    (run,) = lab.reports.glob("2*")

    code, output, _ = lab.run_files("model.pte", "--rounds=1", "--resume=latest", "--graph=forward")
    assert code == 2, "its pass is none of the other case"
    assert f"error: {run}: " in output
    assert "now graph forward)" in output


FLAKY = (
    SUITE
    + """    if number == 2:
        times = Path(__file__).with_name("ran").read_text().split().count("2")
        assert times % 2, "now and then"


@pytest.mark.device
def test_lost(bench):
    from harness.core.errors import InfraError

    bench.measure(noted=1)
    if Path(__file__).with_name("ran").read_text().count("lost"):
        raise InfraError("the cable")
    with Path(__file__).with_name("ran").open("a") as notes:
        notes.write("lost\\n")


def test_plain():
    assert not Path(__file__).with_name("plain").exists()
"""
)


@pytest.mark.slow
def test_what_is_named_runs_again_so_often_and_nothing_else(lab: DeviceRuns) -> None:
    suite = lab.write_suite(FLAKY)
    first = lab.run(suites=suite, code=1)
    (run,) = lab.reports.glob("2*")
    cases = {case["axes"].get("number"): case["case"] for case in first.cases}
    times = lab.folder / "again.json"
    times.write_text(json.dumps({cases[2]: 3, cases[None]: 1}))
    suite.with_name("plain").touch()

    again = lab.run(
        "--resume",
        run.name,
        "-o",
        f"qnn_again={times}",
        "-o",
        "qnn_retries=0",
        suites=suite,
        code=1,
    )
    assert suite.with_name("ran").read_text().split() == ["0", "1", "2", "3", "lost", *"222"]
    ends = {name: [] for name in cases.values()}
    for case in again.cases:
        ends[case["case"]].append((case["attempt"], case["outcome"]))
    assert ends[cases[2]] == [(1, "passed"), (2, "failed"), (3, "passed"), (4, "failed")]
    # what the lab then lost takes no verdict back
    assert ends[cases[None]] == [(1, "passed")]
    times.write_text("[]")
    lab.run("--resume", run.name, "-o", f"qnn_again={times}", suites=suite, code=2)


DIES = '''"""Is killed at its very end, with all verdicts in its journal and no end."""
import os
import signal
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if Path(__file__).with_name("dies").exists():
        os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.mark.slow
def test_one_that_died_at_its_very_end_is_ended(lab: DeviceRuns) -> None:
    suite = lab.write_suite(f"{SUITE}\n\ndef test_plain():\n    pass\n")
    suite.with_name("conftest.py").write_text(DIES)
    suite.with_name("dies").touch()
    lab.run("-m", "", suites=suite)
    (run,) = lab.reports.glob("2*")
    assert json.loads((run / "run.json").read_text())["finished"] is None
    suite.with_name("dies").unlink()

    lab.run("--resume", run.name, "--collect-only", suites=suite, code=1)
    assert not (run / "report.html").exists(), "who only looks ends nothing"
    # a test without a device has no verdict that could be kept
    lab.run("-m", "", "--resume", run.name, suites=suite, code=1)
    info = json.loads((run / "run.json").read_text())
    assert (info["exit_code"], info["problem"]) == (1, None)
    assert info["finished"] > info["resumed"][0]["started"]
    assert {"report.html", "junit.xml"} <= {path.name for path in run.iterdir()}
    assert sorted(suite.with_name("ran").read_text().split()) == ["0", "1", "2", "3"]

    # a test without a device that passes takes no failure away
    lab.run("-m", "", "--resume", run.name, suites=suite, code=1)
    assert json.loads((run / "run.json").read_text()) == info
