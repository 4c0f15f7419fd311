"""Each recovery step brings back a real simulated device from what it is meant for."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from harness.cli.devices import describe
from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.notices import followed_by
from harness.lab import device_watch
from harness.lab.device_watch import DeviceWatch
from harness.lab.facts import ask_vitals
from harness.lab.health import DeviceEvent, Fitness, Quarantine
from harness.lab.inventory import load_lab
from harness.lab.lab_device import LabDevice, OpenLab
from harness.lab.recovery import Recovery
from tests.faults.breakable import KeptServer
from tests.integration.lab.simulated import simulated
from tests.integration.transport.adb.faulty_link import FaultyLink

NAME = "sim-test"


class Ward:
    """One device under watch, and what was told of it."""

    def __init__(self, lab_file: Path, folder: Path) -> None:
        self.events: list[DeviceEvent] = []
        self.lab = OpenLab(
            load_lab(lab_file), key_folder=folder / "keys", storage_root=folder / "simulated"
        )
        self.now = 0.0
        self.quarantine = Quarantine(folder / "quarantine")
        self.device = self.lab.device(NAME)
        self.watch = DeviceWatch(
            self.quarantine,
            probe_problem=lambda device: None,
            on_event=self.events.append,
            clock=lambda: self.now,
        )

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Return the faults, and the steps that were taken."""
        steps = [(event.event, event.state) for event in self.events]
        return [step for step in steps if step != ("health", "good")]

    def answers(self) -> bool:
        return self.device.attach().transport.shell("echo here", timeout_s=60).stdout == b"here\n"


@pytest.fixture
def ward(simulated_lab: Path, tmp_path: Path) -> Iterator[Ward]:
    ward = Ward(simulated_lab, tmp_path)
    with ward.lab:
        yield ward


def test_a_device_that_died_is_connected_again(ward: Ward) -> None:
    ward.watch.require(ward.device)
    os.kill(ward.lab.simulation.devices[NAME].pid or 0, signal.SIGKILL)
    assert ward.watch.failed(ward.device, case_over=False)
    assert ward.steps == [("reconnect", "good")]
    assert ward.events[-1].vitals.free_ram_bytes
    assert ward.answers()


def test_an_adb_server_that_died_is_started_again(ward: Ward) -> None:
    ward.watch.require(ward.device)
    os.kill(ward.lab.simulation.server.pid or 0, signal.SIGKILL)
    assert ward.watch.failed(ward.device, case_over=False)
    assert ward.steps[-1][1] == "good"
    assert ward.answers()


def test_a_reboot_is_waited_for(ward: Ward) -> None:
    device = ward.device.attach()
    before = ask_vitals(device.transport, device.workdir).boot_id
    device.transport.shell("sleep 1000 >/dev/null 2>&1 &", timeout_s=60)
    Recovery(ward.device, Deadline(0)).run("reboot")
    device = ward.device.attach()
    after = ask_vitals(device.transport, device.workdir).boot_id
    assert before
    assert after
    assert before != after


def test_leftovers_of_this_computer_are_ended_and_nobody_elses(ward: Ward) -> None:
    adb = ward.device.attach().transport
    script = "setsid sh -c 'echo $$; exec sleep 1000' >{0} 2>&1 </dev/null & sleep 0.3; cat {0}"
    ours = int(adb.shell(script.format("$TMPDIR/ours"), timeout_s=60).stdout)
    foreign = "QNN_HARNESS_CALL=00000000ffffffff " + script.format("$TMPDIR/foreign")
    theirs = int(adb.shell(foreign, timeout_s=60).stdout)
    assert adb.end_leftovers(timeout_s=60)
    time.sleep(0.1)
    assert not Path(f"/proc/{ours}").exists()
    assert Path(f"/proc/{theirs}").exists()


@pytest.mark.slow
def test_failing_again_and_again_ends_in_quarantine_and_heals(ward: Ward) -> None:
    ward.watch.require(ward.device)
    case_ends = [False, False, True, False, True, True]
    usable = [ward.watch.failed(ward.device, case_over=case_over) for case_over in case_ends]
    assert usable == [True] * 5 + [False]
    assert [event for event, _ in ward.steps] == [
        "reconnect",
        "end-leftovers",
        "restart-server",
        "reboot",
        "quarantine",
    ]
    assert ward.quarantine.find(ward.device.key) is not None
    with pytest.raises(InfraError, match="devices recover sim-test"):
        ward.watch.require(ward.device)
    ward.now += 61
    ward.watch.require(ward.device)
    assert ward.steps[-1][0] == "healed"
    assert ward.quarantine.find(ward.device.key) is None


@pytest.mark.slow
def test_success_is_a_fresh_start(ward: Ward) -> None:
    ward.watch.require(ward.device)
    for _ in range(3):
        assert ward.watch.failed(ward.device, case_over=False)
        ward.device.fitness.succeeded()
    assert [event for event, _ in ward.steps] == ["reconnect"] * 3


def test_a_device_that_cannot_come_back(ward: Ward, tmp_path: Path) -> None:
    ward.watch.require(ward.device)
    storage = tmp_path / "simulated" / NAME
    os.kill(ward.lab.simulation.devices[NAME].pid or 0, signal.SIGKILL)
    ward.lab.simulation.devices[NAME].stop()
    storage.rename(tmp_path / "away")
    storage.write_text("in the way")
    assert not ward.watch.failed(ward.device, case_over=False)
    assert ward.steps[-1] == ("quarantine", "bad")
    storage.unlink()
    health = ward.watch.heal(ward.device)
    assert health.state != "bad"
    assert ward.steps[-1][0] == "healed"
    ward.watch.require(ward.device)
    assert ward.answers()


def test_a_gate_of_its_own(simulated_lab: Path, tmp_path: Path) -> None:
    gate = "    gate: {max_busy_percent: 100, max_temperature_c: 150, wait_s: 5}\n"
    simulated_lab.write_text(simulated_lab.read_text() + gate)
    ward = Ward(simulated_lab, tmp_path)
    with ward.lab:
        settled = ward.watch.wait_until_idle(ward.device)
        ward.now = 7.0
        first, second = (ward.watch.environment(ward.device) for _ in range(2))
    assert settled["waited_s"] == 0
    assert isinstance(settled["busy"], float)
    assert (first["seen_s"], first["cases_before"], second["cases_before"]) == (7.0, 0, 1)
    assert first.get("hottest_c") == settled["hottest_c"]


def test_who_follows_is_told_why_a_timed_case_waits(simulated_lab: Path, tmp_path: Path) -> None:
    gate = "    gate: {max_busy_percent: 1, max_temperature_c: 150, wait_s: 0}\n"
    simulated_lab.write_text(simulated_lab.read_text() + gate)
    ward, messages = Ward(simulated_lab, tmp_path), list[tuple[str, Mapping[str, object]]]()

    def follow(device: str, facts: Mapping[str, object]) -> None:
        messages.append((device, facts))

    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with ward.lab, followed_by(follow), pytest.raises(InfraError, match="not fit"):
            ward.watch.wait_until_idle(ward.device)
    finally:
        busy.kill()
        busy.wait()
    *_, (device, line), (_, after) = messages
    assert device == NAME
    assert "busy" in str(line["doing"])
    assert after["doing"] is None


def test_a_quarantine_does_not_end_before_the_probe_has_run(ward: Ward) -> None:
    checks: list[str] = []

    def fails(device: LabDevice) -> str | None:
        checks.append(device.name)
        return "it ends with a segmentation fault"

    watch = DeviceWatch(
        ward.quarantine,
        probe_problem=lambda device: None,
        thorough=fails,
        on_event=ward.events.append,
    )
    watch.require(ward.device)
    assert checks == []  # a device that was well is not kept waiting
    ward.quarantine.put(ward.device.key, "its probe crashed")
    ward.device.fitness = Fitness()  # as of a new run
    with pytest.raises(InfraError, match="segmentation fault"):
        watch.require(ward.device)
    assert watch.heal(ward.device).state == "bad"
    assert checks == [NAME, NAME]
    entry = ward.quarantine.find(ward.device.key)
    assert entry.why == "its probe crashed"


class BlinkingLink(FaultyLink):
    """A relay that is back as soon as it was cut."""

    def cut(self) -> None:
        super().cut()
        self._cut = False


@pytest.fixture
def far_ward(tmp_path: Path) -> Iterator[tuple[Ward, BlinkingLink]]:
    """A device that is reached by its address, through a relay."""
    with contextlib.ExitStack() as stack:
        server = KeptServer(tmp_path / "home")
        stack.callback(server.stop)
        server.start()
        device = stack.enter_context(simulated(NAME, tmp_path / "storage", tmp_path / "home"))
        link = stack.enter_context(BlinkingLink(device.address))
        entry = {"name": NAME, "serial": link.address, "host": "here", "target": "linux-x64"}
        lab = {
            "schema": 1,
            "hosts": [{"name": "here", "host": "127.0.0.1", "port": server.port}],
            "recovery": {"come_back_s": 20, "reboot": False},
            "devices": [entry | {"workdir": f"{tmp_path}/storage/data/local/tmp/qnn"}],
        }
        file = tmp_path / "devices.yaml"
        file.write_text(yaml.safe_dump(lab))
        ward = Ward(file, tmp_path)
        stack.enter_context(ward.lab)
        yield ward, link


def test_a_second_fault_while_a_device_is_brought_back_is_waited_out(
    far_ward: tuple[Ward, BlinkingLink],
) -> None:
    ward, link = far_ward
    ward.watch.require(ward.device)
    checks = 0

    def fails_twice(device: LabDevice) -> None:
        nonlocal checks
        checks += 1
        if checks <= 2:
            link.cut()
            attached = device.attach()
            ask_vitals(attached.transport, attached.workdir)

    watch = DeviceWatch(ward.quarantine, probe_problem=fails_twice, on_event=ward.events.append)
    assert watch.failed(ward.device, case_over=True)
    assert checks >= 3
    assert ward.steps[-1] == ("reconnect", "good")
    assert ward.quarantine.find(ward.device.key) is None


def test_faults_in_a_row_that_a_reconnect_mends_are_no_reason_to_give_up(
    far_ward: tuple[Ward, BlinkingLink],
) -> None:
    ward, link = far_ward
    ward.watch.require(ward.device)
    for _ in range(3):  # without retries each is the end of a case
        link.cut()
        assert ward.watch.failed(ward.device, case_over=True)
    assert "quarantine" not in [event for event, _ in ward.steps]


def test_a_wait_for_a_lost_device_is_reported(
    far_ward: tuple[Ward, BlinkingLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    (ward, link), warnings = far_ward, list[str]()
    monkeypatch.setattr(device_watch._log, "warning", warnings.append)
    ward.watch.require(ward.device)
    FaultyLink.cut(link)
    back = threading.Timer(0.5, link.resume)
    back.start()
    assert ward.watch.failed(ward.device, case_over=True)
    back.join()
    assert warnings == [f"device {NAME} does not answer: waiting up to 20 s for it"]


def test_devices_ends_the_quarantine_of_what_answers(ward: Ward) -> None:
    key, (config,) = ward.device.key, ward.lab.described.devices
    ward.quarantine.put(key, "it does not answer: cut off", until="answers")
    row = describe(ward.lab, config, ward.quarantine)
    assert (row.health, row.quarantine) == ("good", None)
    assert ward.quarantine.find(key) is None
    ward.quarantine.put(key, "it crashes")
    assert describe(ward.lab, config, ward.quarantine).health == "quarantine"
    assert ward.quarantine.find(key) is not None


@pytest.mark.slow
def test_a_command_brings_it_back_where_a_reboot_is_forbidden(
    far_ward: tuple[Ward, BlinkingLink], tmp_path: Path
) -> None:
    _, link = far_ward
    file, switched = tmp_path / "devices.yaml", tmp_path / "switched"
    lab = yaml.safe_load(file.read_text())
    lab["recovery"] |= {"come_back_s": 0, "reboot_timeout_s": 20}
    lab["devices"][0]["power"] = f"echo x >>{switched}"
    file.write_text(yaml.safe_dump(lab))

    def thaw() -> None:
        until = Deadline(60)
        while not switched.exists() and not until.expired:
            time.sleep(0.02)
        link.resume()

    ward = Ward(file, tmp_path)
    with ward.lab, ThreadPoolExecutor(1) as pool:
        ward.watch.require(ward.device)
        FaultyLink.cut(link)
        pool.submit(thaw)
        assert ward.watch.failed(ward.device, case_over=False)
        assert ward.steps == [("reconnect", "bad"), ("power-cycle", "good")]
    assert switched.read_text() == "x\n"
