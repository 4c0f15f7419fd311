"""A fault of the lab is tried again and never becomes a verdict; every attempt is recorded."""

from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns, Finished

SUITE = '''"""Cases that end their own device, the first of them only once."""
import contextlib
import os
import signal
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.probe.plan import Plan, Step

NOOP = Plan((Step("noop"),))


def end_device(bench):
    (simulated,) = bench.case.prepared.provisioned.lab_device.lab.simulation.devices.values()
    os.kill(simulated.pid, signal.SIGKILL)
    with contextlib.suppress(InfraError):
        while True:
            bench.device.transport.shell("true", timeout_s=60)


@pytest.mark.device
def test_unlucky_once(bench):
    mark = Path(__file__).with_name("mark")
    if not mark.exists():
        mark.touch()
        end_device(bench)
    bench.run(NOOP).check()


@pytest.mark.device
def test_after_it(bench):
    bench.run(NOOP).check()


@pytest.mark.device
def test_unlucky_always(bench):
    end_device(bench)
    bench.run(NOOP).check()


@pytest.mark.device
def test_on_the_same_device(bench):
    bench.run(NOOP).check()


@pytest.mark.device
def test_taking_its_storage(bench):
    storage = Path(bench.device.workdir).parents[3]
    storage.rename(storage.with_name("taken"))
    storage.write_text("in the way of a new one")
    end_device(bench)
    bench.run(NOOP).check()


@pytest.mark.device
def test_on_the_lost_device(bench):
    bench.run(NOOP).check()
'''


@pytest.mark.slow
def test_the_lab_is_tried_again_and_given_up_in_the_end(lab: DeviceRuns) -> None:
    completed = lab.run(suites=lab.write_suite(SUITE), code=3)
    attempts = {
        name: [(case["attempt"], case["outcome"], case["cause"]) for case in cases]
        for name, cases in completed.by_test.items()
    }
    assert attempts == {
        "test_unlucky_once": [(1, "error", "infra"), (2, "passed", None)],
        "test_after_it": [(1, "passed", None)],
        "test_unlucky_always": [(number, "error", "infra") for number in (1, 2, 3)],
        "test_on_the_same_device": [(1, "passed", None)],
        "test_taking_its_storage": [(1, "error", "infra")],
        "test_on_the_lost_device": [(1, "error", "infra")],
    }
    steps = [(event["event"], event["state"]) for event in completed.events]
    assert steps[0] == ("reconnect", "good")
    assert steps[-2:] == [("restart-server", "bad"), ("quarantine", "bad")]
    assert list((lab.folder / "quarantine").iterdir())
    assert "qnn-harness devices recover sim-v73" in completed.output


OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "",
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_EXTRA_INDEX_URL": "",
}


def says_once(completed: Finished, text: str) -> None:
    assert len([line for line in completed.output.splitlines() if text in line]) == 1
    assert "Traceback" not in completed.output, completed.output


def test_no_network_on_the_first_run(lab: DeviceRuns, tmp_path: Path) -> None:
    completed = lab.run(
        "-k", "tiny and 66", QNN_HARNESS_CACHE=str(tmp_path / "cache"), **OFFLINE, code=3
    )
    says_once(completed, "onnxruntime-qnn")
    ends = [(case["outcome"], case["cause"], case["attempt"]) for case in completed.cases]
    assert ends == [("error", "infra", 1)] * 3


@pytest.mark.slow
def test_a_full_device(lab: DeviceRuns) -> None:
    lab.file.write_text(lab.file.read_text() + "    storage_limit_mb: 30\n")
    completed = lab.run("-k", "tiny and 66", code=3)
    says_once(completed, "No space left on device")
    assert not any(path.stat().st_size for path in (lab.folder / "simulated").rglob("*.so"))
