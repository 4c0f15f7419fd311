"""Another device at the same place is noticed; one that says nothing is believed."""

import subprocess
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.lab import identity
from harness.lab.device_config import DeviceConfig
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


def refused_unless(same: bool) -> AbstractContextManager[object]:
    return nullcontext() if same else pytest.raises(InfraError)


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
    with refused_unless(same):
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
    with refused_unless(same):
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
    with refused_unless(same):
        assert carried.look(device, "/w") == now


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
    assert bool(completed.stderr) is not fine


@pytest.mark.parametrize(
    ("machine", "configured", "target"),
    [
        ("x86_64", None, "linux-x64"),
        ("x86_64", "linux-x64", "linux-x64"),
        ("", "linux-arm64", "linux-arm64"),  # it did not say: its lab may
        ("mips64", "linux-x64", None),
        ("aarch64", "linux-x64", None),
        ("", None, None),
    ],
)
def test_what_a_device_says_it_is_is_no_mistake_of_the_users(
    machine: str, configured: str | None, target: str | None
) -> None:
    entry = {"name": "d", "serial": "17", "soc": "QCS8550", "target": configured}
    config = DeviceConfig.model_validate({key: value for key, value in entry.items() if value})
    facts = parse_facts(f"@qnn-harness:machine\n{machine}\n@qnn-harness:libc\n")
    assert facts.machine == (machine or None)
    if target is not None:
        assert require_target(config, facts, "17") == target
        return
    with pytest.raises(WrongTarget) as caught:
        require_target(config, facts, "17")
    assert (caught.value.cause, caught.value.exit_code) == ("infra", 3)
