"""Commands and runs of pytest on a board behind ssh, also while its link is cut and stalls."""

from __future__ import annotations

import getpass
import json
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
import yaml

from harness.results.case_names import split_node_id
from tests.faults.control import VARIABLE, controlled
from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.ssh_host import SSHD, SshHost
from tests.integration.transport.adb.faulty_link import FaultyLink

pytestmark = pytest.mark.needs(SSHD)

SUITE = '''"""Cases on a board, whose link goes away in the middle of one of them."""
import pytest
from harness.probe.plan import Plan, Step
from tests.faults.control import ask

@pytest.mark.device
@pytest.mark.parametrize("number", range(4))
def test_some(bench, number):
    if number == 1:
        ask("lose")
    steps = [Step("sleep", {"ms": "500"})] + [Step("crash", {"signal": "11"})] * (number == 2)
    bench.run(Plan(tuple(steps))).check()
'''


@pytest.fixture
def board(sshd: SshHost, link: FaultyLink, tmp_path: Path) -> DeviceRuns:
    """A lab of one board."""
    lab = DeviceRuns(tmp_path)
    described = {
        "name": "board",
        "transport": "ssh",
        "address": f"{getpass.getuser()}@{link.address}",
        "soc": "QCS8550",
        "workdir": str(tmp_path / "board"),
        # it is this computer, which other tests keep busy
        "gate": {"max_temperature_c": 150, "max_busy_percent": 100},
    }
    lab.file.write_text(yaml.safe_dump({"schema": 1, "devices": [described]}))
    lab.environment["PATH"] = os.environ["PATH"]
    return lab


def test_a_board_from_its_address_to_its_health(board: DeviceRuns, link: FaultyLink) -> None:
    login, written = f"{getpass.getuser()}@{link.address}", board.folder / "new.yaml"
    written_lab = board.qnn_harness(
        "init", "--board", login, "--board", "no.invalid", "--lab", written
    )
    assert written_lab.returncode == 0, written_lab.stderr
    (device, simulated) = yaml.safe_load(written.read_text())["devices"]
    assert (device["transport"], device["address"]) == ("ssh", login)
    assert (device["target"], simulated["enabled"]) == ("linux-x64", False)
    assert "# left out: no.invalid: " in written.read_text()
    again = board.qnn_harness("init", "--board", "no.invalid", "--lab", board.folder / "x.yaml")
    assert (again.returncode, "no board answers: no.invalid: " in again.stderr) == (3, True)
    wrong = board.qnn_harness("init", "--board", "ssh://x", "--lab", board.folder / "x.yaml")
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (
        2,
        "error: --board: 'ssh://x' is not [user@]host[:port]",
    )

    listed = board.qnn_harness("devices", "--json", "--lab", board.file)
    (row,) = json.loads(listed.stdout)["devices"]
    assert (row["serial"], row["state"], row["health"]) == (login, "device", "good")


@pytest.mark.slow
def test_a_link_that_is_lost_and_found_in_a_run(
    board: DeviceRuns, link: FaultyLink, tmp_path: Path
) -> None:
    suite = tmp_path / "test_board.py"
    suite.write_text(SUITE)
    lost: list[str] = []

    def lose(command: str) -> None:
        if not lost:
            lost.append(command)
            threading.Timer(0.2, link.cut).start()
            threading.Timer(3, link.resume).start()

    control = tmp_path / "control"
    with controlled(control, lose):
        finished = board.run(suites=suite, **{VARIABLE: str(control)})
    assert finished.code == 1, finished.output
    last = {split_node_id(case["case"])[1]: case for case in finished.cases}
    assert Counter(case["outcome"] for case in last.values()) == {"passed": 3, "crashed": 1}
    others = [case for case in finished.cases if case not in last.values()]
    assert {(case["outcome"], case["cause"]) for case in others} <= {("error", "infra")}
    assert lost
    assert {case["device"]["serial"] for case in finished.cases} == {
        f"{getpass.getuser()}@{link.address}"
    }
