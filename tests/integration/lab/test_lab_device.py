"""A lab that is closed while a thread of its run begins a device: nothing of it stays."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from harness.core.errors import InfraError
from harness.deploy.simulated_storage import Instances
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from harness.lab.lease import DeviceHeld, Leases
from harness.simulator.device import SimulatedDevice
from tests.faults.breakable import KeptServer
from tests.integration.lab.simulated import simulated
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.real_adbd import RealDevice

LAB = """\
schema: 1
devices:
  - {name: sim, simulated: true, soc: QCS8550}
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["storage", pytest.param("start", marks=pytest.mark.slow)])
def test_closed_by_another_thread_it_leaves_nothing_and_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As Ctrl-C does to a command that begins its devices in threads."""
    entered, goes_on = threading.Event(), threading.Event()
    owner = Instances if step == "storage" else SimulatedDevice
    begin = getattr(owner, step)

    def slow(self: object, *arguments: object) -> object:
        completed = begin(self, *arguments) if step == "storage" else None
        entered.set()
        goes_on.wait(2)  # before that, a lab that does not wait for this one has closed
        return completed if step == "storage" else begin(self, *arguments)

    monkeypatch.setattr(owner, step, slow)
    file, root = tmp_path / "devices.yaml", tmp_path / "simulated"
    file.write_text(LAB)
    lab = OpenLab(load_lab(file), key_folder=tmp_path, storage_root=root, instances=Instances(root))

    def attach() -> None:
        with contextlib.suppress(InfraError):
            lab.device("sim").attach()

    beginning = threading.Thread(target=attach)
    beginning.start()
    assert entered.wait(60)
    lab.close()
    goes_on.set()
    beginning.join(60)
    assert list((root / ".runs").iterdir()) == []
    with pytest.raises(InfraError):
        lab.device("sim").attach()
    assert lab.simulation.server is None
    assert lab.simulation.devices == {}


def open_lab(folder: Path, adb: KeptServer, serial: str) -> OpenLab:
    host = {"name": "here", "host": "127.0.0.1", "port": adb.port}
    device = {"name": "desk", "serial": serial, "host": "here"}
    file = folder / "devices.yaml"
    file.write_text(yaml.safe_dump({"schema": 1, "hosts": [host], "devices": [device]}))
    return OpenLab(load_lab(file), key_folder=folder, storage_root=folder / "none")


@pytest.mark.parametrize(
    ("reported", "may"),
    [
        ({}, True),
        ({"service.adb.tls.port": "37251"}, False),
        ({"service.adb.tls.port": "0", "service.adb.tcp.port": "5555"}, False),
        ({"service.adb.tcp.port": "5555", "persist.adb.tcp.port": "5555"}, True),
    ],
)
def test_who_may_be_rebooted(tmp_path: Path, reported: dict[str, str], may: bool) -> None:
    adb = KeptServer(tmp_path)
    adb.start()
    device = simulated("desk", tmp_path / "storage", tmp_path, **reported)
    try:
        with device, open_lab(tmp_path, adb, device.address) as lab:
            desk = lab.device("desk")
            assert desk.may_reboot, "nothing is known of it yet"
            desk.attach()
            assert desk.may_reboot == may
    finally:
        adb.stop()


def test_a_name_of_mdns_that_nobody_announces(tmp_path: Path) -> None:
    adb = KeptServer(tmp_path)
    adb.start()
    try:
        with open_lab(tmp_path, adb, "adb-1A2B-x._adb-tls-connect._tcp") as lab:
            desk = lab.device("desk")
            assert not desk.may_reboot
            with pytest.raises(InfraError, match="_tcp"):
                desk.attach()
    finally:
        adb.stop()


NEEDS_REAL = pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")
OpenAt = Callable[..., OpenLab]


@pytest.fixture
def open_at(tmp_path: Path) -> Iterator[OpenAt]:
    """open_at(purpose, address...): another user's lab, in which devices have these addresses."""
    with contextlib.ExitStack() as cleanup:
        server = KeptServer(tmp_path / "home")
        cleanup.callback(server.stop)
        server.start()

        def make(purpose: str, *addresses: str, wait_s: float = 0.0) -> OpenLab:
            devices = [
                {
                    "name": f"at-{number}",
                    "serial": address,
                    "host": "here",
                    "target": "linux-x64",
                    "workdir": f"{tmp_path}/work" if "sim" in purpose else "/data/local/tmp/qnn",
                }
                for number, address in enumerate(addresses)
            ]
            here = {"name": "here", "host": "127.0.0.1", "port": server.port}
            file = tmp_path / f"{purpose}.yaml"
            file.write_text(yaml.safe_dump({"schema": 1, "hosts": [here], "devices": devices}))
            leases = Leases(tmp_path / "leases", purpose=purpose)
            opened = OpenLab(
                load_lab(file),
                key_folder=tmp_path / "home",
                storage_root=tmp_path / "none",
                leases=leases,
                lease_wait_s=wait_s,
            )
            return cleanup.enter_context(opened)

        yield make


@pytest.mark.parametrize("daemon", ["sim", pytest.param("real", marks=NEEDS_REAL)])
def test_another_address_is_no_way_around_a_lease(
    daemon: str, tmp_path: Path, open_at: OpenAt
) -> None:
    """The real adbd tells neither a serial number nor a machine-id: its device id tells."""
    with contextlib.ExitStack() as stack:
        device: SimulatedDevice | RealDevice
        if daemon == "sim":
            alone = simulated("alone", tmp_path / "alone", tmp_path / "home")
            device = stack.enter_context(alone)
        else:
            root = Path(os.environ["QNN_HARNESS_ADBD_ROOT"])
            device = stack.enter_context(RealDevice(root))
        link = stack.enter_context(FaultyLink(device.address))
        first = open_at(f"{daemon}-first", device.address)
        first.device("at-0").attach()
        second = open_at(f"{daemon}-second", link.address)
        with pytest.raises(DeviceHeld, match=f"({daemon}-first)"):
            second.device("at-0").attach()
        # nothing of it is kept, so that the holder may use the other address, too
        both = open_at(f"{daemon}-third", link.address)
        both.device("at-0").acquire()
        both.close()
        first.close()
        again = second.device("at-0").attach()
        assert again.transport.shell("echo here", timeout_s=60).stdout == b"here\n"
        second.close()
        assert not list((tmp_path / "leases").iterdir())


def test_devices_that_call_themselves_alike_are_two(tmp_path: Path, open_at: OpenAt) -> None:
    twins = [simulated("twin", tmp_path / number, tmp_path / "home") for number in "12"]
    with twins[0] as device, twins[1] as other:
        first, second = open_at("sim-first", device.address), open_at("sim-second", other.address)
        facts = [opened.device("at-0").attach().facts for opened in (first, second)]
        assert facts[0].identity == facts[1].identity
        assert facts[0].boot != facts[1].boot
