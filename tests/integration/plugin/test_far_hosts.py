"""Runs on devices that hang on another computer."""

import os
import threading
import time
from pathlib import Path

import pytest
import yaml

from harness.core.deadline import Deadline
from tests.faults.control import VARIABLE, controlled
from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.ssh_host import SSHD, SshHost
from tests.integration.plugin.test_parallel import SUITE
from tests.waiting import wait_for

pytestmark = pytest.mark.needs(SSHD)


@pytest.mark.slow
def test_devices_by_their_addresses_without_a_lab(
    lab: DeviceRuns, far: SshHost, tmp_path: Path
) -> None:
    suite = tmp_path / "test_far.py"
    suite.write_text(SUITE)
    lab.file.unlink()
    lab.environment |= {name: os.environ[name] for name in ("PATH", "XDG_RUNTIME_DIR")}
    serials = [device.address for device in far.devices]
    urls = [f"ssh://{far.login}/{serials[0]}", f"adb://127.0.0.1:{far.adb.port}/{serials[1]}"]
    completed = lab.run("-n", "auto", *(f"--device={url}" for url in urls), suites=suite, code=0)
    assert len(completed.cases) == 8
    devices = {(case["device"]["serial"], case["device"]["soc"]) for case in completed.cases}
    assert devices == {(serial, "QCS8550") for serial in serials}
    assert far.begun() == 1
    wait_for(lambda: not far.tunnels())


LOST_SUITE = '''"""Cases on devices whose host goes away in the middle of one of them."""
import pytest
from harness.probe.plan import Plan, Step
from tests.faults.control import ask

@pytest.mark.device
@pytest.mark.parametrize("number", range(4))
def test_some(bench, number):
    if number == 1 and bench.device.name == "far-0":
        ask("lose")
    bench.run(Plan((Step("sleep", {"ms": "300"}),))).check()
'''


@pytest.mark.slow
def test_a_host_that_is_lost_and_found_in_a_run(
    lab: DeviceRuns, far: SshHost, tmp_path: Path
) -> None:
    suite = tmp_path / "test_far.py"
    suite.write_text(LOST_SUITE)
    lab.file.write_text(yaml.safe_dump(far.lab()))
    lost: list[int] = []

    def come_back() -> None:
        """Once somebody has looked for it in vain."""
        deadline = Deadline(120)
        while not list(runtime.glob("*/*.away")) and not deadline.expired:
            time.sleep(0.05)
        far.start()

    def lose(_command: str) -> None:
        if not lost:
            lost.append(far.begun())
            far.stop()
            back.start()

    runtime, back = Path(os.environ["XDG_RUNTIME_DIR"]), threading.Thread(target=come_back)
    control = tmp_path / "control"
    with controlled(control, lose):
        lab.environment |= {name: os.environ[name] for name in ("PATH", "XDG_RUNTIME_DIR")}
        completed = lab.run("-n", "2", suites=suite, **{VARIABLE: str(control)})
        back.join(120)
    assert completed.code == 0, completed.output
    last = {case["case"]: case for case in completed.cases}
    assert [case["outcome"] for case in last.values()] == ["passed"] * 8
    again = [case for case in completed.cases if case["outcome"] != "passed"]
    assert again
    assert {(case["outcome"], case["cause"]) for case in again} == {("error", "infra")}
    assert not [event for event in completed.events if event["event"] == "quarantine"]
    assert far.begun() - lost[0] <= 8
    wait_for(lambda: not far.tunnels())
