"""Commands for a board behind ssh."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path

import pytest
import yaml

from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.ssh_host import SSHD, SshHost
from tests.integration.transport.adb.faulty_link import FaultyLink

pytestmark = pytest.mark.needs(SSHD)


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
    assert "no.invalid" in written.read_text()
    again = board.qnn_harness("init", "--board", "no.invalid", "--lab", board.folder / "x.yaml")
    assert (again.returncode, "no.invalid" in again.stderr) == (3, True)
    wrong = board.qnn_harness("init", "--board", "ssh://x", "--lab", board.folder / "x.yaml")
    assert (wrong.returncode, "'ssh://x'" in wrong.stderr) == (2, True)

    listed = board.qnn_harness("devices", "--json", "--lab", board.file)
    (row,) = json.loads(listed.stdout)["devices"]
    assert (row["serial"], row["state"], row["health"]) == (login, "device", "good")
