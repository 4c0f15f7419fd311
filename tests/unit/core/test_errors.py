"""The codes and data of the harness's errors, by which programs tell them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import (
    ConfigError,
    DeviceError,
    DeviceFull,
    DeviceHot,
    DeviceLost,
    DeviceRefused,
    DeviceTimeout,
    HarnessError,
    InfraError,
    InternalError,
    NoLabError,
    NotYet,
    VersionError,
)
from harness.lab.lease import DeviceHeld, LeaseLost
from harness.labgrid.keeper import NotACoordinator


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (HarnessError, "harness"),
        (ConfigError, "config"),
        (NoLabError, "no-lab"),
        (VersionError, "version"),
        (InfraError, "infra"),
        (NotYet, "not-yet"),
        (DeviceError, "device"),
        (DeviceLost, "device-lost"),
        (DeviceTimeout, "device-timeout"),
        (DeviceRefused, "device-refused"),
        (DeviceFull, "device-full"),
        (DeviceHot, "device-hot"),
        (DeviceHeld, "device-held"),
        (LeaseLost, "lease-lost"),
        (NotACoordinator, "not-a-coordinator"),
        (InternalError, "internal"),
    ],
)
def test_the_code_of_a_kind_of_error_is_stable(kind: type[HarnessError], code: str) -> None:
    assert kind.code == code


def test_the_data_of_an_error() -> None:
    file = Path("devices.yaml")
    mistake = ConfigError("unknown value", file=file, line=3, field="devices.0.soc", choices=[1, 2])
    assert mistake.data == {
        "problem": "unknown value",
        "file": file,
        "line": 3,
        "field": "devices.0.soc",
        "choices": ["1", "2"],
        "more": (),
    }
    lost = DeviceLost("closed", serial="1a2b", command="true", output=b"x")
    assert lost.data == {"problem": "closed", "serial": "1a2b", "command": "true", "output": b"x"}
