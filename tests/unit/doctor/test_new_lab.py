"""The file that `init` writes: names, SoCs, and that it can always be read."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.core.files import scratch_folder
from harness.core.socs import Target, near_socs
from harness.doctor.new_lab import lab_text
from harness.lab import new_devices
from harness.lab.device_config import DEFAULT_WORKDIR, AdbDeviceConfig
from harness.lab.facts import DeviceAnswers, DeviceFacts, parse_answers
from harness.lab.inventory import Lab, free_name, load_lab
from harness.lab.lab_device import AttachedDevice
from harness.lab.new_devices import (
    FoundDevice,
    find_devices,
    identify_soc,
    with_hardware,
)
from harness.transport.adb_address import USER_SERVER, TcpAddress
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer, SeenDevice
from harness.transport.device import Transport
from tests.snapshots import Snapshot
from tests.unit.doctor.answers import BOARD, PHONE
from tests.unit.doctor.test_device_checks import FACTS

SKEL = "/vendor/lib/rfsa/adsp/libQnnHtpV75Skel.so"
OTHER_SKEL = "/vendor/dsp/cdsp/libQnnHtpV73Skel.so"


def found(facts: DeviceFacts = FACTS, text: str = PHONE, **changes: str) -> FoundDevice:
    fields = {"name": "desk", "serial": "1a2b", "workdir": DEFAULT_WORKDIR} | changes
    device = AttachedDevice(
        config=AdbDeviceConfig(name="desk", serial="1a2b"),
        transport=AdbDevice("1a2b", AdbServer()),
        facts=facts,
        target=facts.target or "android-arm64",
        workdir=fields["workdir"],
    )
    return FoundDevice(fields["name"], fields["serial"], device, parse_answers(text))


def loaded(
    *devices: FoundDevice, address: TcpAddress = USER_SERVER, simulated: bool = False
) -> tuple[Lab, str]:
    text = lab_text(devices, address, simulated=simulated, day="2026-11-22")
    with scratch_folder() as folder:
        file = folder / "devices.yaml"
        file.write_text(text)
        return load_lab(file), text


def test_what_a_device_is(snapshot: Snapshot) -> None:
    reported: list[tuple[str | None, int | None, list[str]]] = [
        ("SM8650", 557, []),
        ("QCS610", None, [SKEL]),
        ("KALAMA", 519, []),
        (None, 557, []),
        ("SM8650-AC", None, [SKEL]),
        ("Tensor G3", None, []),
        ("SM9999", None, [SKEL, OTHER_SKEL]),
        (None, None, ["/x/libQnnHtpV12Skel.so"]),
    ]
    socs = [identify_soc(replace(FACTS, soc=soc, soc_id=n), skels) for soc, n, skels in reported]
    assert [(soc.name, soc.htp_arch) for soc in socs] == [
        ("SM8650", 75),
        ("QCS610", None),
        ("SM8550", 73),
        ("SM8650", 75),
        ("SM8650-AC", 75),
        (None, None),
        ("SM9999", None),
        (None, None),
    ]
    assert [soc.why for soc in socs] == snapshot


def test_names_of_socs_that_are_close() -> None:
    assert near_socs("sm8650-ac")[0] == "SM8650"
    assert near_socs("QCS-8550")[0] == "QCS8550"
    assert near_socs("Tensor") == []
    assert near_socs("x" * 100_000) == []


def test_names() -> None:
    names: list[str] = []
    for model, target in (
        *(("SM_S921U", "android-arm64"), ("SM-S921U", ""), ("", "android-arm64")),
        *(("", "linux-arm64"), ("", "")),
    ):
        names.append(free_name(model, target, names))
    assert names == ["sm-s921u", "sm-s921u-2", "phone", "board", "phone-2"]
    assert free_name("..\n", "linux-x64", []) == "board"


def test_a_state_is_called_as_adb_calls_it() -> None:
    class MockServer(AdbServer):
        def devices(self, *, timeout_s: float = 1.0) -> list[SeenDevice]:
            return [SeenDevice("1a", "no permissions"), SeenDevice("2b", "rescue")]

    near, other = find_devices(MockServer())
    assert near.problem.startswith("no permissions: ")
    assert other.problem.startswith("rescue: ")


class TestAddresses:
    """Devices that `--device` names by their addresses."""

    URL = "adb://lab-pc.invalid/1a2b"

    @pytest.fixture(autouse=True)
    def says(self, monkeypatch: pytest.MonkeyPatch) -> list[FoundDevice]:
        listed = [found(workdir="/opt/x")]
        monkeypatch.setattr(new_devices, "_visit", lambda *mock_arguments: listed[0])
        return listed

    def added(self, file: Path, *urls: str) -> Lab:
        return with_hardware(load_lab(file, names=urls))

    def test_one_becomes_a_device_of_the_lab(self, tmp_path: Path) -> None:
        lab = self.added(tmp_path / "devices.yaml", self.URL, self.URL)
        (config,) = lab.devices
        assert lab.find(self.URL) is config
        assert isinstance(config, AdbDeviceConfig)
        shown = (config.name, config.address, config.serial, config.soc, config.workdir)
        assert shown == ("1a2b", self.URL, "1a2b", "SM8650", "/opt/x")
        assert (config.target, config.htp_arch) == ("android-arm64", 75)

    def test_one_that_the_lab_has_is_that_one(self, tmp_path: Path) -> None:
        file = tmp_path / "lab.yaml"
        file.write_text(f"schema: 1\ndevices: [{{name: desk, address: '{self.URL}'}}]")
        (known,) = load_lab(file).devices
        assert self.added(file, same := "adb://LAB-PC.invalid:5037/1a2b").select([same]) == [known]
        more = self.added(file, other := "adb://other.invalid/1a2b")
        assert [device.name for device in more.select()] == ["desk", "1a2b"]
        (added,) = more.select([other])
        assert isinstance(added, AdbDeviceConfig)
        assert added.address == other

    def test_one_that_does_not_say_what_it_is(
        self, says: list[FoundDevice], tmp_path: Path
    ) -> None:
        says[0] = found(replace(FACTS, soc=None, soc_id=None), text=BOARD)
        with pytest.raises(ConfigError) as caught:
            self.added(tmp_path / "devices.yaml", self.URL)
        assert f"--device: {self.URL}: " in str(caught.value)
        with pytest.raises(ConfigError):
            self.added(tmp_path / "devices.yaml", "ssh://-oX/A")
        (entry,) = re.findall("`- ({.*})`", str(caught.value))
        assert AdbDeviceConfig.model_validate(yaml.safe_load(entry)).address == self.URL


def test_a_phone_a_board_and_one_that_is_locked() -> None:
    phone = found()
    board = found(
        replace(FACTS, target="linux-arm64", soc="QCS9075", soc_id=None),
        BOARD,
        name="board",
        serial="192.0.2.7:5555",
        workdir="/opt/qnn-harness",
    )
    locked = FoundDevice("locked", "9z", problem="unauthorized: unlock it")
    lab, text = loaded(phone, board, locked, address=TcpAddress("lab-pc", 5038))
    desk, other, simulated = lab.devices
    assert isinstance(desk, AdbDeviceConfig)
    assert isinstance(other, AdbDeviceConfig)
    assert (desk.soc, desk.htp_arch, desk.adreno) == ("SM8650", 75, "750")
    assert (desk.target, desk.host, desk.workdir) == ("android-arm64", "adb-host", DEFAULT_WORKDIR)
    assert (other.serial, other.workdir) == ("192.0.2.7:5555", "/opt/qnn-harness")
    assert (other.soc, other.htp_arch) == ("QCS9075", None)
    assert (simulated.simulated, simulated.enabled) == (True, False)
    assert (lab.hosts[0].host, lab.hosts[0].port) == ("lab-pc", 5038)
    assert "unauthorized: unlock it" in text
    assert not [line for line in text.splitlines() if len(line) > 100]
    lab, text = loaded(simulated=True)
    assert [device.enabled for device in lab.devices] == [True]
    assert not re.search("runtimes|hosts", text)


HOSTILE = st.text(max_size=200)


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_whatever_a_device_says_the_file_is_read(
    soc: str, build: str, why: str, model: str
) -> None:
    facts = replace(FACTS, soc=soc, os_build=build, target_reason=why, soc_id=None)
    name = free_name(model, "android-arm64", [])
    locked = FoundDevice("locked", soc, problem=build)
    lab, text = loaded(found(facts, name=name, serial='"\\x41#:{}'), locked)
    assert [getattr(device, "serial", None) for device in lab.devices] == ['"\\x41#:{}', None]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("target", "good", "chosen", "answer"),
    [
        ("linux-arm64", "/opt/qnn-harness", "/opt/qnn-harness", 2),
        ("linux-arm64", "/tmp/qnn-harness", "/tmp/qnn-harness", 4),
        ("linux-arm64", "nowhere", DEFAULT_WORKDIR, 4),
        ("android-arm64", "/opt/qnn-harness", DEFAULT_WORKDIR, 1),
    ],
)
def test_the_first_work_folder_that_takes_and_runs_files(
    target: str, good: str, chosen: str, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board may have no /data; a phone has nothing else."""
    folders = []

    def mock_ask(way: Transport, workdir: str, target: Target) -> DeviceAnswers | None:
        folders.append(workdir)
        return parse_answers(PHONE if workdir == good else BOARD)

    monkeypatch.setattr(new_devices, "query_device", mock_ask)
    device = found(replace(FACTS, target=target)).device
    assert new_devices._with_workdir(device)[0].workdir == chosen
    assert len(folders) == answer
