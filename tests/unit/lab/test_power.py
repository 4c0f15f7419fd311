"""`power` of devices.yaml, and the command that it becomes."""

from pathlib import Path

import pytest
import yaml

from harness.core.errors import InfraError
from harness.core.guarded_process import start_daemon
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab


def switch(tmp_path: Path, power: str) -> None:
    file = tmp_path / "devices.yaml"
    entry = {"name": "desk", "serial": "1a2b", "power": power}
    file.write_text(yaml.safe_dump({"schema": 1, "devices": [entry]}))
    with OpenLab(load_lab(file), key_folder=tmp_path, storage_root=tmp_path) as opened:
        opened.device("desk").power_cycle()


def test_a_command_that_goes_wrong_says_how(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=" 3: no such plug"):
        switch(tmp_path, "echo trying; echo no such plug >&2; exit 3")
    switch(tmp_path, f"echo done >{tmp_path}/done")
    assert (tmp_path / "done").read_text() == "done\n"


def test_a_command_that_is_not_there_or_does_not_end() -> None:
    with pytest.raises(InfraError, match="uhubctl"):
        start_daemon(["/nowhere/uhubctl"], title="uhubctl", within_s=1)
    with pytest.raises(InfraError, match=r"0\.2 s"):
        start_daemon(["sleep", "60"], title="it", within_s=0.2)
