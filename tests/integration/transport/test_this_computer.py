"""This computer as a device: what holds of one by adb holds of it."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from harness.core.errors import DeviceRefused, DeviceTimeout
from harness.transport.files import PushItem
from harness.transport.this_computer import ThisComputer
from tests.integration.device_runs import DeviceRuns
from tests.integration.transport.adb.remote import SLACK_S
from tests.integration.transport.shared_tests import *  # noqa: F403


@pytest.fixture
def caller() -> str:
    return "from harness.transport.this_computer import ThisComputer\ndevice = ThisComputer()"


@pytest.fixture
def device() -> ThisComputer:
    """By the name that the tests of adb's shell give it."""
    return ThisComputer()


@pytest.fixture
def any_device(device: ThisComputer) -> ThisComputer:
    return device


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("here") / "work")


def test_what_becomes_of_a_script_is_our_own_child(device: ThisComputer) -> None:
    completed = device.shell("exec cut -d' ' -f4 /proc/self/stat", timeout_s=60)
    assert int(completed.stdout) == os.getpid()
    variables = ThisComputer.for_plans({"ONLY": "this"}).shell("env", timeout_s=60).stdout.decode()
    names = {line.partition("=")[0] for line in variables.splitlines()}
    assert "ONLY" in names
    assert names <= {"ONLY", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "QNN_HARNESS_CALL"}


def test_a_process_that_closes_its_outputs_is_waited_for(device: ThisComputer) -> None:
    start = time.monotonic()
    completed = device.shell("exec >&- 2>&-; sleep 0.5; exit 4", timeout_s=60)
    assert (completed.exit_code, time.monotonic() - start > 0.5) == (4, True)


def test_what_ends_leftovers_leaves_plans_of_this_host_alone(device: ThisComputer) -> None:
    with ThreadPoolExecutor(1) as pool:
        plan = pool.submit(ThisComputer.for_plans({}).shell, "sleep 1; echo fine", timeout_s=60)
        time.sleep(0.3)
        assert device.end_leftovers(timeout_s=20)
        assert plan.result().stdout == b"fine\n"


def test_what_was_begun_in_the_background_goes_on_but_for_plans(device: ThisComputer) -> None:
    script = "sleep 50 >/dev/null 2>&1 </dev/null & echo $!"
    running = int(device.shell(script, timeout_s=60).stdout)
    os.kill(running, 0)
    assert device.end_leftovers(timeout_s=20)
    ended = int(ThisComputer.for_plans({}).shell(script, timeout_s=60).stdout)
    until = time.monotonic() + SLACK_S
    while Path(f"/proc/{ended}").exists() and time.monotonic() < until:
        if ") Z " in Path(f"/proc/{ended}/stat").read_text():
            return
        time.sleep(0.05)
    assert not Path(f"/proc/{ended}").exists()


def test_files_have_a_deadline(device: ThisComputer, folder: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as sparse:
        sparse.truncate(1 << 33)
    start = time.monotonic()
    with pytest.raises(DeviceTimeout):
        device.push([PushItem(big, f"{folder}/big")], timeout_s=0.05)
    with pytest.raises(DeviceTimeout):
        device.pull(str(big), tmp_path / "back", timeout_s=0.05, max_bytes=1 << 40)
    assert time.monotonic() - start < SLACK_S
    assert not (tmp_path / "back").exists()


def test_a_program_that_runs_is_replaced(device: ThisComputer, folder: str) -> None:
    program = f"{folder}/program"
    device.push([PushItem(Path("/bin/sleep"), program, 0o755)], timeout_s=60)
    with subprocess.Popen([program, "100"]) as process:
        device.push([PushItem(Path("/bin/true"), program, 0o755)], timeout_s=60)
        process.kill()
    assert device.shell(program, timeout_s=60).ok


def test_it_is_not_rebooted(device: ThisComputer) -> None:
    with pytest.raises(DeviceRefused):
        device.reboot(timeout_s=5)


SUITE = '''"""Two cases on this computer."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("number", range(2))
def test_some(bench, number):
    bench.run(Plan((Step("noop"),) + (Step("crash", {"signal": "11"}),) * number)).check()
'''


def test_cases_run_on_it(tmp_path: Path) -> None:
    suite, lab = tmp_path / "test_here.py", DeviceRuns(tmp_path)
    suite.write_text(SUITE)
    here = {"name": "here", "transport": "local", "soc": "QCS8550", "workdir": f"{tmp_path}/work"}
    lab.file.write_text(yaml.safe_dump({"schema": 1, "devices": [here]}))
    finished = lab.run("-n", "1", suites=suite, code=1)
    assert sorted(case["outcome"] for case in finished.cases) == ["crashed", "passed"]
    assert {case["device"]["serial"] for case in finished.cases} == {"this-computer"}
