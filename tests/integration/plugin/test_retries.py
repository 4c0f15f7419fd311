"""A fault of the lab is tried again and never becomes a verdict; every attempt is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.plugin.test_parallel import PATIENT

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
    (simulated,) = bench.case.target.provisioned.lab_device.lab.simulation.devices.values()
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

TWIN_SUITE = '''"""A case that the lab survives on one device only."""
import pytest

from harness.core.errors import InfraError
from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_picky(bench):
    if bench.device.name != "sim-b":
        raise InfraError("not here")
    bench.run(Plan((Step("noop"),))).check()
'''


@pytest.mark.slow
def test_the_lab_is_tried_again_and_given_up_in_the_end(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "suite" / "test_lab.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    completed = lab.run(suites=suite)
    assert completed.code == 3, completed.output
    attempts: dict[str, list[tuple[int, str, str | None]]] = {}
    for case in completed.cases:
        name = case["case"].rpartition("::")[2].partition("[")[0]
        attempt = (case["attempt"], case["outcome"], case["cause"])
        attempts.setdefault(name, []).append(attempt)
    assert attempts == {
        "test_unlucky_once": [(1, "error", "infra"), (2, "passed", None)],
        "test_after_it": [(1, "passed", None)],
        "test_unlucky_always": [(number, "error", "infra") for number in (1, 2, 3)],
        "test_on_the_same_device": [(1, "passed", None)],
        "test_taking_its_storage": [(1, "error", "infra")],
        "test_on_the_lost_device": [(1, "error", "infra")],
    }
    assert "3 passed, 3 errors" in completed.output
    steps = [(event["event"], event["state"]) for event in completed.events]
    assert steps[0] == ("reconnect", "good")
    assert steps[-2:] == [("restart-server", "bad"), ("quarantine", "bad")]
    assert list((lab.folder / "quarantine").iterdir())
    assert "in quarantine" in completed.output
    assert "qnn-harness devices heal sim-v73" in completed.output


@pytest.mark.nightly
def test_a_quarantined_device_that_is_well_again_is_taken_back(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    suite = tmp_path / "suite" / "test_lab.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    assert lab.run("-k", "storage", suites=suite).code == 3
    assert list((lab.folder / "quarantine").iterdir())
    # what was in its storage's place is gone: each run has an instance of its own
    again = lab.run("-k", "on_the_same", suites=suite)
    assert again.code == 0, again.output
    assert [event["event"] for event in again.events] == ["healed"]
    assert not list((lab.folder / "quarantine").iterdir())


TWINS = """schema: 1
devices:
  - {name: sim-a, simulated: true, soc: QCS8550, pool: both}
  - {name: sim-b, simulated: true, soc: QCS8550, pool: both}
"""


@pytest.mark.parametrize(
    ("option", "ran", "code"),
    [
        ("--device=both", [("both", "sim-a", "error"), ("both", "sim-b", "passed")], 0),
        pytest.param(
            "--each-device",
            [*[("sim-a", "sim-a", "error")] * 3, ("sim-b", "sim-b", "passed")],
            3,
            marks=pytest.mark.slow,
            id="each",
        ),
    ],
)
def test_the_next_attempt_is_made_where_the_name_of_the_case_says(
    lab: DeviceRuns, tmp_path: Path, option: str, ran: list[tuple[str, str, str]], code: int
) -> None:
    lab.file.write_text(TWINS)
    suite = tmp_path / "suite" / "test_lab.py"
    suite.parent.mkdir()
    suite.write_text(TWIN_SUITE)
    suite.with_name("conftest.py").write_text(PATIENT)
    completed = lab.run(option, suites=suite)
    assert completed.code == code, completed.output
    cases = [
        (case["case"].partition("[")[2].partition("-htp")[0], case) for case in completed.cases
    ]
    assert [(name, case["device"]["name"], case["outcome"]) for name, case in cases] == ran
