"""How a device's power is switched: what devices.yaml may say, and which command that becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.device.lab.inventory import load_lab
from harness.device.lab.power import Power
from harness.ground.errors import ConfigError, InfraError
from harness.ground.host.outliving import run_outliving


def lab(tmp_path: Path, power: object, **device: object) -> Path:
    file = tmp_path / "devices.yaml"
    hosts = [{"name": "far", "host": "far.example.com"}, {"name": "near", "host": "127.0.0.1"}]
    one = {"name": "desk", "serial": "1a2b", "power": power} | device
    shown = {key: value for key, value in one.items() if value is not None}
    file.write_text(yaml.safe_dump({"schema": 1, "hosts": hosts, "devices": [shown]}))
    return file


@pytest.mark.parametrize(
    ("power", "device", "command"),
    [
        ({"cycle": "plug 3 off; plug 3 on"}, {}, ["sh", "-c", "plug 3 off; plug 3 on"]),
        ({"cycle": "x"}, {"host": "far"}, ["sh", "-c", "x"]),
        (
            {"hub": "1-1.4", "port": 2},
            {"host": "near"},
            ["uhubctl", "-l", "1-1.4", "-p", "2", "-a", "cycle", "-d", "5"],
        ),
        ({"hub": "2", "port": 1}, {}, ["uhubctl", "-l", "2", "-p", "1", "-a", "cycle", "-d", "5"]),
    ],
)
def test_what_is_run(
    tmp_path: Path, power: dict[str, object], device: dict[str, object], command: list[str]
) -> None:
    (config,) = load_lab(lab(tmp_path, power, **device)).devices
    assert config.power is not None
    assert config.power.command == command


@pytest.mark.parametrize(
    ("power", "device", "said"),
    [
        ({}, {}, "must have `cycle`, a command, or `hub` and `port`"),
        ({"hub": "1-1"}, {}, "must have `cycle`"),
        ({"port": 1}, {}, "must have `cycle`"),
        ({"cycle": "x", "hub": "1-1", "port": 1}, {}, "must have `cycle`"),
        ({"hub": "1-1; reboot", "port": 1}, {}, "the place of a USB hub"),
        ({"hub": "-a", "port": 1}, {}, "the place of a USB hub"),
        ({"hub": "1-1", "port": 0}, {}, "port"),
        ({"cycle": ""}, {}, "cycle"),
        ({"hub": "1-1", "port": 1}, {"host": "far"}, "the device is elsewhere"),
        (
            {"hub": "1-1", "port": 1},
            {"serial": None, "address": "adb://far.example.com/1a2b"},
            "the device is elsewhere",
        ),
        ({"cycle": "x"}, {"serial": None, "transport": "local"}, "does not switch its own"),
        ({"cycle": "x"}, {"serial": None, "simulated": True, "soc": "SM8550"}, "none of its own"),
        ({"reset": "x"}, {}, "reset"),
    ],
)
def test_what_is_no_power(
    tmp_path: Path, power: dict[str, object], device: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_lab(lab(tmp_path, power, **device))


def test_a_command_that_goes_wrong_says_how(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="the command of `power` ended with 3: no such plug"):
        Power(cycle="echo trying; echo no such plug >&2; exit 3").switch()
    Power(cycle=f"echo done >{tmp_path}/done").switch()
    assert (tmp_path / "done").read_text() == "done\n"


def test_a_command_that_is_not_there_or_does_not_end() -> None:
    with pytest.raises(InfraError, match="uhubctl does not start"):
        run_outliving(["/nowhere/uhubctl"], what="uhubctl", within_s=1)
    with pytest.raises(InfraError, match=r"it took more than 0\.2 s"):
        run_outliving(["sleep", "60"], what="it", within_s=0.2)
