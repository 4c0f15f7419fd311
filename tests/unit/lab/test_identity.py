"""Another device at the same place is noticed; one that says nothing is believed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.core.socs import TARGETS
from harness.lab import identity
from harness.lab.devices import DeviceConfig
from harness.lab.facts import parse_facts
from harness.lab.identity import (
    CarriedId,
    DeviceId,
    WrongTarget,
    require_same_device,
    require_serial,
    require_target,
)
from harness.transport.this_computer import ThisComputer


@pytest.mark.parametrize(
    ("first", "now", "same"),
    [
        (["serial number a"], ["serial number a"], True),
        (["serial number a"], ["serial number b"], False),
        ([], ["serial number b"], True),
        (["serial number a"], [], True),
        # the first answer was damaged, so that its number was not read
        (["machine-id m"], ["serial number a", "machine-id m"], True),
        (["machine-id m"], ["serial number a", "machine-id n"], False),
        (["machine-id m"], ["serial number a"], True),
        # two boards with one image of their system
        (["serial number a", "machine-id m"], ["serial number b", "machine-id m"], False),
        (["SoC serial number 1", "machine-id m"], ["SoC serial number 2", "machine-id m"], False),
    ],
)
def test_what_a_device_says(first: list[str], now: list[str], same: bool) -> None:
    if same:
        require_same_device("x", first, now)
    else:
        with pytest.raises(InfraError, match="another device answers"):
            require_same_device("x", first, now)


@pytest.mark.parametrize(
    ("serial", "reported", "same"),
    [
        ("1a2b", "1a2b", True),
        ("1a2b", "3c4d", False),
        ("1a2b", None, True),
        ("10.0.0.1:5555", "3c4d", True),
        ("emulator-5554", "3c4d", True),
        ("adb-1a2b-Xy._adb-tls-connect._tcp", "3c4d", True),
    ],
)
def test_the_serial_of_a_device_on_usb(serial: str, reported: str | None, same: bool) -> None:
    if same:
        require_serial(serial, reported)
    else:
        with pytest.raises(InfraError, match="another device answers"):
            require_serial(serial, reported)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (None, True),
        (DeviceId("/f", "a", existed=True), True),
        (DeviceId("/f", "b", existed=True), False),
        (DeviceId("/f", "b", existed=False), True),  # emptied, and given a new one
    ],
)
def test_the_id_on_a_device(
    now: DeviceId | None, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "give_device_id", lambda way, workdir: now)
    device = ThisComputer()
    assert CarriedId().look(device, "/w") == now
    carried = CarriedId()
    carried.known = {"a", "c"}
    if same:
        assert carried.look(device, "/w") == now
    else:
        with pytest.raises(InfraError, match="another device answers"):
            carried.look(device, "/w")


@pytest.mark.parametrize(
    "shell", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("dash", "bash")]
)
@pytest.mark.parametrize(
    ("content", "fine"), [("right\n", True), ("wrong\n", False), ("", False), (None, False)]
)
def test_the_shell_that_starts_a_probe_checks_it(
    shell: str, content: str | None, fine: bool, tmp_path: Path
) -> None:
    path = tmp_path / "it's a file"
    if content is not None:
        path.write_text(content)
    script = DeviceId(str(path), "right", existed=True).check() + "echo started"
    completed = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=False)
    assert (completed.stdout == "started\n") is fine
    assert ("another device answers" in completed.stderr) is not fine


@pytest.mark.parametrize(
    ("machine", "configured", "message"),
    [
        ("x86_64", None, "linux-x64"),
        ("x86_64", "linux-x64", "linux-x64"),
        ("", "linux-arm64", "linux-arm64"),  # it did not say: its lab may
        ("mips64", None, "is no known target: .*mips64"),
        ("mips64", "linux-x64", "is no known target: .*mips64"),
        ("aarch64", "linux-x64", "devices.yaml says that d is linux-x64, and the device itself"),
        ("", None, "is no known target: "),
    ],
)
def test_what_a_device_says_it_is_is_no_mistake_of_the_users(
    machine: str, configured: str | None, message: str
) -> None:
    entry = {"name": "d", "serial": "17", "soc": "QCS8550", "target": configured}
    config = DeviceConfig.model_validate({key: value for key, value in entry.items() if value})
    facts = parse_facts(f"@qnn-harness:machine\n{machine}\n@qnn-harness:libc\n")
    assert facts.machine == (machine or None)
    if message in TARGETS:
        assert require_target(config, facts, "17") == message
        return
    with pytest.raises(WrongTarget, match=message) as caught:
        require_target(config, facts, "17")
    assert (caught.value.cause, caught.value.exit_code) == ("infra", 3)
