"""One device at two addresses is one device, whoever comes first; two that look alike are two."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from harness.core.errors import InfraError
from harness.lab import lease
from harness.lab.attach import OpenLab, read_facts
from harness.lab.inventory import load_lab
from harness.lab.lease import DeviceHeld, Leases
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.simulator.programs import device_properties
from tests.faults.breakable import KeptServer
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.real_adbd import RealDevice

NEEDS_REAL = pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")
OpenAt = Callable[..., OpenLab]


@pytest.fixture
def open_at(tmp_path: Path) -> Iterator[OpenAt]:
    """open_at(purpose, address...): another user's lab, in which devices have these addresses."""
    with contextlib.ExitStack() as cleanup:
        server = KeptServer(tmp_path / "home")
        cleanup.callback(server.stop)
        server.start()

        def make(
            purpose: str,
            *addresses: str,
            wait_s: float = 0.0,
        ) -> OpenLab:
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


def simulated(folder: Path, name: str) -> SimulatedDevice:
    """One whose serial number follows from its name."""
    return SimulatedDevice(
        name,
        storage=folder / f"storage-{name}-{len(list(folder.iterdir()))}",
        properties=device_properties(name, "QCS8550"),
        public_key=harness_key(folder / "home").with_suffix(".pub"),
    )


@pytest.mark.parametrize("daemon", ["sim", pytest.param("real", marks=NEEDS_REAL)])
def test_another_address_is_no_way_around_a_lease(
    daemon: str, tmp_path: Path, open_at: OpenAt
) -> None:
    """The real adbd tells neither a serial number nor a machine-id: its device id tells."""
    with contextlib.ExitStack() as stack:
        device: SimulatedDevice | RealDevice
        if daemon == "sim":
            device = stack.enter_context(simulated(tmp_path, "alone"))
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


@pytest.mark.slow
def test_whoever_waits_gets_it_as_it_is_by_then(
    tmp_path: Path, open_at: OpenAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()
    monkeypatch.setattr(lease._log, "warning", lambda text: waiting.set())
    with simulated(tmp_path, "alone") as device, FaultyLink(device.address) as link:
        first = open_at("sim-first", device.address)
        attached = first.device("at-0").attach()
        second = open_at("sim-second", link.address, wait_s=60)
        got: list[str] = []
        thread = threading.Thread(
            target=lambda: got.append(second.device("at-0").attach().facts.boot or "")
        )
        thread.start()
        assert waiting.wait(60)
        attached.transport.reboot(timeout_s=60)
        until, boot = time.monotonic() + 60, attached.facts.boot
        while boot == attached.facts.boot and time.monotonic() < until:
            with contextlib.suppress(InfraError):
                boot = read_facts(attached.transport, attached.workdir).boot
        first.close()
        thread.join(60)
        assert got == [boot]
        assert got != [attached.facts.boot]


def test_two_names_of_one_process_share_a_device(tmp_path: Path, open_at: OpenAt) -> None:
    with simulated(tmp_path, "alone") as device, FaultyLink(device.address) as link:
        opened = open_at("sim-first", device.address, link.address)
        names = ("at-0", "at-1")
        assert len({opened.device(name).attach().facts.identity for name in names}) == 1
        opened.device("at-0").require_held()


def test_devices_that_call_themselves_alike_are_two(tmp_path: Path, open_at: OpenAt) -> None:
    with simulated(tmp_path, "twin") as device, simulated(tmp_path, "twin") as other:
        first, second = open_at("sim-first", device.address), open_at("sim-second", other.address)
        facts = [opened.device("at-0").attach().facts for opened in (first, second)]
        assert facts[0].identity == facts[1].identity
        assert facts[0].boot != facts[1].boot
