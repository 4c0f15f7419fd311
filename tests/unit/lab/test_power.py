"""`power` of devices.yaml, and the command that it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.core.errors import ConfigError, InfraError
from harness.core.guard import start_daemon
from harness.lab.attach import OpenLab
from harness.lab.inventory import load_lab


def lab(tmp_path: Path, power: object, **device: object) -> Path:
    file = tmp_path / "devices.yaml"
    hosts = [{"name": "far", "host": "far.example.com"}, {"name": "near", "host": "127.0.0.1"}]
    entry = {"name": "desk", "serial": "1a2b", "power": power} | device
    shown = {key: value for key, value in entry.items() if value is not None}
    file.write_text(yaml.safe_dump({"schema": 1, "hosts": hosts, "devices": [shown]}))
    return file


@pytest.mark.parametrize(
    ("power", "device", "problem"),
    [
        ("", {}, "power"),
        ({"cycle": "x"}, {}, "power"),
        ("x", {"serial": None, "transport": "local"}, "is a key of"),
        ("x", {"serial": None, "simulated": True, "soc": "SM8550"}, "is a key of"),
    ],
)
def test_what_is_no_power(
    tmp_path: Path, power: object, device: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_lab(lab(tmp_path, power, **device))


def switch(tmp_path: Path, power: str) -> None:
    described = load_lab(lab(tmp_path, power))
    with OpenLab(described, key_folder=tmp_path, storage_root=tmp_path) as opened:
        opened.device("desk").power_cycle()


def test_a_command_that_goes_wrong_says_how(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="the command of `power` ended with 3: no such plug"):
        switch(tmp_path, "echo trying; echo no such plug >&2; exit 3")
    switch(tmp_path, f"echo done >{tmp_path}/done")
    assert (tmp_path / "done").read_text() == "done\n"


def test_a_command_that_is_not_there_or_does_not_end() -> None:
    with pytest.raises(InfraError, match="uhubctl does not start"):
        start_daemon(["/nowhere/uhubctl"], title="uhubctl", within_s=1)
    with pytest.raises(InfraError, match=r"it took more than 0\.2 s"):
        start_daemon(["sleep", "60"], title="it", within_s=0.2)
