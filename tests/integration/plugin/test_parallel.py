"""pytest-xdist with several devices: each runs one case at a time, and there is one journal."""

import json
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.integration.device_runs import DeviceRuns, Finished, misnamed

TWO_DEVICES = """schema: 1
devices:
  - {name: sim-a, simulated: true, soc: QCS8550}
  - {name: sim-b, simulated: true, soc: QCS8550}
"""
SUITE = '''"""Cases that say which worker they ran on."""
import os
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("number", range(4))
def test_noop(bench, number):
    bench.measure(worker=os.environ.get("PYTEST_XDIST_WORKER", "none"))
    bench.run(Plan((Step("noop"),))).check()

def test_without_a_device():
    pass
'''


def farm(lab: DeviceRuns, folder: Path, devices: str, suite: str) -> Path:
    """Gives the lab its devices, and writes the suite that runs on them."""
    lab.file.write_text(devices)
    path = folder / "test_farm.py"
    path.write_text(suite)
    return path


def workers_of(completed: Finished) -> dict[str, set[str]]:
    """Return the workers that ran cases on each device."""
    used: dict[str, set[str]] = {}
    for case in completed.cases:
        used.setdefault(case["device"]["name"], set()).add(case["measurements"]["worker"])
    return used


def counted_in(file: Path) -> tuple[set[str | None], set[str | None], int]:
    """Return the numbers of tests and errors in the head of a junit.xml, and the real ones."""
    root = ElementTree.parse(file).getroot()
    suites = [*root.iter("testsuite")]
    counted = [{suite.get(name) for suite in suites} for name in ("tests", "errors")]
    return counted[0], counted[1], len([*root.iter("testcase")])


def overlapping(cases: list[dict[str, Any]]) -> list[str]:
    """The cases that began on a device before the one before had ended there."""
    spans = sorted(
        (case["device"]["name"], datetime.fromisoformat(case["started"]), case) for case in cases
    )
    rounding = timedelta(seconds=0.01)
    return [
        after["case"]
        for (device, start, case), (next_device, next_began, after) in pairwise(spans)
        if device == next_device
        and start + timedelta(seconds=case["duration_s"]) > next_began + rounding
    ]


@pytest.mark.slow
def test_each_device_runs_one_case_at_a_time_and_the_run_has_one_journal(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = farm(lab, tmp_path, TWO_DEVICES, SUITE)
    completed = lab.run("-n", "auto", suites=suite, code=0)
    assert len(completed.cases) == len({case["case"] for case in completed.cases}) == 8
    used = workers_of(completed)
    assert used.keys() == {"sim-a", "sim-b"}
    assert len({name for names in used.values() for name in names}) == 2
    assert overlapping(completed.cases) == []
    runs = list(lab.reports.glob("2*"))
    assert len(runs) == 1
    assert json.loads((runs[0] / "run.json").read_text())["exit_code"] == 0
    assert all((runs[0] / log).is_file() for case in completed.cases for log in case["logs"])


POOL = """schema: 1
devices:
  - {name: sim-a, simulated: true, soc: QCS8550, pool: farm}
  - {name: sim-b, simulated: true, soc: QCS8550, pool: farm}
"""
SICK_SUITE = '''"""Cases of two devices, one of which is lost in the middle of them."""
import os
import signal
from pathlib import Path

import pytest

from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(5))
def test_some(bench, number):
    if number == 2 and bench.device.name == "sim-a":
        storage = Path(bench.device.workdir).parents[3]
        lab = bench.case.prepared.provisioned.lab_device.lab
        os.kill(lab.simulation.devices["sim-a"].pid, signal.SIGKILL)
        storage.rename(storage.with_name("away"))
        storage.write_text("in the way of a new one")
    bench.measure(worker=os.environ.get("PYTEST_XDIST_WORKER", "none"))
    bench.run(Plan((Step("sleep", {"ms": "200"}),))).check()
'''


@pytest.mark.slow
def test_a_case_whose_name_has_a_device_has_its_verdict_from_there_or_none(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = farm(lab, tmp_path, POOL, SICK_SUITE)
    completed = lab.run("--spread=device", "-n", "2", "-o", "qnn_retries=1", suites=suite, code=3)
    assert misnamed(completed.cases) == []
    last = {case["case"]: case for case in completed.cases}
    assert len(last) == 10
    lost = [case for case in last.values() if case["outcome"] == "error"]
    assert lost
    for case in lost:
        assert "[sim-a-" in case["case"]
        assert (case["cause"], case["device"]["name"]) == ("infra", "sim-a"), case["error"]
    others = [case for case in last.values() if case not in lost]
    assert {case["outcome"] for case in others} == {"passed"}
    assert sum("[sim-b-" in case["case"] for case in others) == 5


POOL_SUITE = '''"""Cases of a pool, one of them a long one."""
import os

import pytest

from harness.probe.plan import Plan, Step


@pytest.fixture(scope="module")
def shared():
    with open(os.environ["SHARED"], "a") as file:
        file.write("up\\n")
    yield
    with open(os.environ["SHARED"], "a") as file:
        file.write("down\\n")


@pytest.mark.device
@pytest.mark.parametrize("number", range(8))
def test_some(bench, number, shared):
    bench.measure(worker=os.environ.get("PYTEST_XDIST_WORKER", "none"))
    bench.run(Plan((Step("sleep", {"ms": "2500" if number == 0 else "200"}),))).check()
'''


# on a machine that is busy enough, the next device takes the cases of one that is not ready yet
PATIENT = """from harness.plugin import device_run

device_run._PATIENCE_S = 600.0
"""


@pytest.mark.slow
def test_devices_of_a_pool_share_cases_and_none_waits(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = farm(lab, tmp_path, POOL, POOL_SUITE)
    (tmp_path / "conftest.py").write_text(PATIENT)
    shared = tmp_path / "shared"
    for _ in range(2):
        shared.unlink(missing_ok=True)
        completed = lab.run("-n", "auto", suites=suite, SHARED=str(shared), code=0)
        cases = {case["case"].partition("[")[2]: case for case in completed.cases}
        assert len(completed.cases) == len(cases) == 8
        assert all(name.startswith("farm-htp-") for name in cases)
        assert {device: len(names) for device, names in workers_of(completed).items()} == {
            "sim-a": 1,
            "sim-b": 1,
        }
        # what a module shares is set up once in each worker, and goes again
        assert sorted(shared.read_text().split()) == ["down", "down", "up", "up"]
    # the second time it is known which one is long: a device begins with it, once it is ready
    (long,) = (case for name, case in cases.items() if name.endswith("-0]"))
    others = [case for case in completed.cases if case["device"]["name"] == long["device"]["name"]]
    assert long["started"] == min(case["started"] for case in others)


KINDS = """schema: 1
devices:
  - {name: sim-a, simulated: true, soc: QCS8550, prepares_gpu: false}
  - {name: sim-b, simulated: true, soc: QCS8550}
  - {name: sim-c, simulated: true, soc: SM8650}
"""
KINDS_SUITE = (
    SUITE
    + """
@pytest.mark.device(htp_arch=75)
def test_new(bench):
    bench.run(Plan((Step("noop"),))).check()

@pytest.mark.device(htp_arch=81)
def test_newest(bench):
    pass
"""
)


@pytest.mark.slow
def test_cases_of_any_device_or_of_each_kind(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = farm(lab, tmp_path, KINDS, KINDS_SUITE)
    completed = lab.run("--spread=any", "-n", "auto", suites=suite, code=0)
    (unfit,) = (case for case in completed.cases if case["device"] is None)
    assert (unfit["outcome"], unfit["cause"], unfit["attempt"]) == ("unsupported", None, 1)
    assert unfit["case"].endswith("[no-device]")
    assert "sim-c: needs htp_arch 81, has 75" in unfit["error"]["message"]
    placed = [case for case in completed.cases if case["device"] is not None]
    ran = {case["case"].partition("::")[2]: case["device"]["name"] for case in placed}
    assert len(placed) == len(ran) == 5
    again = lab.run("--spread=any", "-n", "auto", "--resume", "latest", suites=suite)
    assert len(again.cases) == 6, again.output
    assert ran.pop("test_new[any-htp-2.51.0]") == "sim-c"
    assert sorted(ran) == [f"test_noop[any-htp-2.51.0-{number}]" for number in range(4)]
    # by their kinds
    completed = lab.run("--spread=soc", "-n", "auto", "-k", "noop", suites=suite, code=0)
    assert len(completed.cases) == 12
    assert {case["device"]["name"]: case["axes"]["soc"] for case in completed.cases} == {
        "sim-a": "qcs8550-linux-x64",
        "sim-b": "qcs8550-linux-x64-2",
        "sim-c": "sm8650",
    }
    assert all(f"[{case['axes']['soc']}-htp-" in case["case"] for case in completed.cases)


DYING_SUITE = """from pathlib import Path
import pytest

DIED = Path(__file__).with_name("died")

@pytest.mark.device
@pytest.mark.parametrize("number", range(8))
def test_some(bench, number):
    bench.measure(noted=1)
    assert number != 5 or DIED.exists()
"""
DYING = """import os
import signal
import threading
import time
from pathlib import Path

import pytest

DIED = Path(__file__).with_name("died")
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
EACH, DIES_AT = os.environ["DIES_AT"].startswith("each "), os.environ["DIES_AT"].split()[-1]


def die_at(moment):
    if WORKER and moment == DIES_AT and (EACH or not DIED.exists()):
        DIED.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def pytest_collection_finish():
    if WORKER == "gw1" and DIES_AT == "collected":
        time.sleep(2)  # nobody has work before all have collected
    threading.Timer(0.2, die_at, ["collected"]).start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if report.nodeid.endswith("-5]"):
        die_at(report.when)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("-5]"):
        die_at("end")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "options", "code", "summary"),
    [
        ("collected", "--reruns=1", 0, " 8 passed"),
        ("call", "--dist=loadfile", 0, " 8 passed, 1 retried"),
        ("call", "--resume=latest", 0, " 6 passed, 1 retried"),
        # it had told of its setup and call, and not of its end
        ("teardown", "", 0, " 8 passed, 1 retried"),
        # it had told of that, too: the case is over
        ("end", "", 1, " 1 failed, 7 passed"),
        ("each call", "-o qnn_retries=1", 3, " 7 passed, 1 error, 1 retried"),
    ],
)
def test_a_worker_that_dies_is_replaced_and_costs_no_verdict(
    lab: DeviceRuns, tmp_path: Path, moment: str, options: str, code: int, summary: str
) -> None:
    suite = farm(lab, tmp_path, POOL, DYING_SUITE)
    (tmp_path / "conftest.py").write_text(DYING)
    if "--resume" in options:
        assert lab.run("-k", "-0] or -7]", suites=suite, DIES_AT="never").code == 0
    completed = lab.run("-n", "2", *options.split(), suites=suite, DIES_AT=moment)
    assert (tmp_path / "died").exists()
    assert completed.code == code, completed.output
    assert summary in completed.output.splitlines()[-1]
    assert "INTERNALERROR" not in completed.output
    assert ("ERROR at ??? of test_some[" in completed.output) == (moment == "each call")
    if moment != "each call":
        assert len(completed.cases) == len({case["case"] for case in completed.cases}) == 8
        assert counted_in(completed.folder / "latest/junit.xml") == ({"8"}, {"0"}, 8)


def test_wrong_input_is_said_once_and_before_any_worker_starts(lab: DeviceRuns) -> None:
    completed = lab.run("-n", "2", "--qnn", "2.99.0", code=2)
    assert completed.output.count("2.99.0") == 1
    assert not lab.reports.exists()
