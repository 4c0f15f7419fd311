"""Plans run on a simulated device, over the real adb server."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceError, DeviceLost
from harness.core.notices import followed_by
from harness.probe.events import TranscriptParser
from harness.probe.plan import Plan, Settings, Step, backend_load
from harness.probe.plan_runner import EXIT_DONE, ProbeRun, run_plan
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_device import AdbDevice
from harness.transport.files import PushItem
from harness.transport.shell_protocol import exit_status
from tests.integration.transport.adb.remote import SLACK_S
from tests.snapshots import Snapshot

FOLDER = "data/local/tmp/probe it's"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def simulated(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(
        "sim-probe",
        storage=tmp_path_factory.mktemp("storage"),
        properties={"ro.product.model": "Test"},
        public_key=harness_key(home).with_suffix(".pub"),
    ) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def device(home: Path, simulated: SimulatedDevice) -> Iterator[AdbDevice]:
    with PrivateAdbServer(key_folder=home) as private:
        private.server.connect(simulated.address, deadline=Deadline(60))
        yield AdbDevice(simulated.address, private.server)


@pytest.fixture(scope="module")
def folder(simulated: SimulatedDevice, device: AdbDevice, plain_probe: Path) -> str:
    """The folder on the device that holds the probe."""
    folder = f"{simulated.storage}/{FOLDER}"
    device.push([PushItem(plain_probe, f"{folder}/qnn-probe", 0o755)], timeout_s=60)
    return folder


def run(device: AdbDevice, folder: str, *steps: Step, **options: object) -> ProbeRun:
    settings = Settings(**options.pop("settings", {}))  # type: ignore[arg-type]
    arguments = {"env": {}, "cwd": folder, "timeout_s": 20} | options
    return run_plan(device, f"{folder}/qnn-probe", Plan(steps, settings), **arguments)  # type: ignore[arg-type]


def test_a_plan_is_carried_out(device: AdbDevice, folder: str) -> None:
    completed = run(device, folder, Step("noop"), Step("spew", {"bytes": "100"}), Step("noop"))
    assert (completed.exit_code, completed.signal, completed.timed_out) == (EXIT_DONE, None, False)
    assert [step.ok for step in completed.transcript.steps] == [True] * 3
    assert completed.transcript.malformed_count == 0
    assert completed.raw_events.count(b"\x1e") == 9
    assert b"noise" in completed.stderr + completed.raw_events


def test_who_follows_is_told_of_each_step_while_it_runs(device: AdbDevice, folder: str) -> None:
    reports: list[tuple[str, dict[str, object]]] = []
    steps = [Step("noop"), Step("sleep", {"ms": "300"}), Step("crash", {"signal": "6"})]
    with followed_by(lambda device, facts: reports.append((device, dict(facts)))):
        run(device, folder, *steps)
    assert {device for device, _ in reports} == {device.serial}
    facts = {"steps": 3, "loaded": 0, "contexts": 0}
    values = [fields for _, fields in reports if fields["step"] == 2]
    assert values[0] == {"step": 2, "verb": "sleep", **facts}
    assert reports[-1][1] == {"step": 3, "verb": "crash", **facts}


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"deadline_ms": 60_000}, marks=pytest.mark.slow)]
)
def test_a_hang_can_be_looked_at_before_it_ends(
    device: AdbDevice, folder: str, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it the probe's own deadline or, where that never comes, the one of the shell."""
    monkeypatch.setattr("harness.probe.plan_runner.LOOK_S", 60)
    pids = []

    def look(pid: int, deadline: Deadline) -> None:
        script = f"cat /proc/{pid}/comm; kill -9 {pid}"
        answer = device.shell(script, timeout_s=deadline.remaining())
        pids.append((pid, answer.stdout))

    completed = run(device, folder, Step("hang"), timeout_s=2, settings=settings, on_hang=look)
    assert completed.transcript.start is not None
    assert pids == [(completed.transcript.start.pid, b"qnn-probe\n")]
    assert completed.timed_out
    assert completed.signal is None
    assert completed.exit_code == (None if settings else 124)
    assert completed.duration_s < 2 + SLACK_S, "sooner than a probe lingers that nobody has ended"


def test_looking_at_a_hang_may_fail(device: AdbDevice, folder: str) -> None:
    def fail(pid: int, deadline: Deadline) -> None:
        raise DeviceLost("gone", serial="x")

    completed = run(device, folder, Step("hang"), timeout_s=1, on_hang=fail)
    assert (completed.timed_out, completed.exit_code, completed.signal) == (True, None, None)
    assert b'"event":"threads"' in completed.raw_events


def test_environment_and_folder_arrive_as_they_are(device: AdbDevice, folder: str) -> None:
    """Libraries are found by their name through LD_LIBRARY_PATH, and relatively."""
    odd = f"{folder}/a 'b' $(c) \"d\""
    device.push([PushItem(b"no library at all" * 10, f"{odd}/libodd.so", 0o644)], timeout_s=60)
    steps = (Step("cleanup"), backend_load("libodd.so"), backend_load("./libodd.so"))
    env = {"LD_LIBRARY_PATH": odd, "ADSP_LIBRARY_PATH": "/a;/b c"}
    probe = f"{folder}/qnn-probe"
    completed = run_plan(device, probe, Plan(steps), env=env, cwd=odd, timeout_s=60)
    for step in completed.transcript.steps[1:]:
        assert step.error == "dlopen"
        assert "invalid ELF header" in (step.message or "")


@pytest.mark.parametrize("wrong", ["probe", "folder"])
def test_a_probe_that_does_not_start_is_no_verdict(
    device: AdbDevice, folder: str, wrong: str
) -> None:
    place = folder if wrong == "probe" else f"{folder}/none"
    with pytest.raises(DeviceError, match="did not start"):
        run_plan(device, f"{folder}/none/none", Plan(()), env={}, cwd=place, timeout_s=60)


CRASH = Step("crash", {"signal": "11"})


@pytest.mark.parametrize(
    ("step", "code"),
    [(Step("noop"), 1), (Step("noop"), 11), (Step("noop"), 139), (CRASH, 0), (CRASH, 137)],
)
def test_an_exit_status_that_changed_on_its_way_is_no_verdict(
    device: AdbDevice, folder: str, monkeypatch: pytest.MonkeyPatch, step: Step, code: int
) -> None:
    monkeypatch.setattr("harness.transport.shell.exit_status", lambda _status: exit_status(code))
    with pytest.raises(DeviceError, match="exit status"):
        run(device, folder, step)


def test_what_the_shell_says_of_a_crash_is_not_the_probes(device: AdbDevice, folder: str) -> None:
    steps = Step("spew", {"bytes": "3", "to": "stderr"}), Step("crash", {"signal": "11"})
    assert run(device, folder, *steps).stderr == b"noi"


def test_a_name_that_no_shell_could_export(
    device: AdbDevice, folder: str, snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        run(device, folder, env={"A;reboot": "1"})


def test_a_lost_device_tells_the_step(
    simulated: SimulatedDevice, device: AdbDevice, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last in this file: the device restarts, once its last words were heard."""
    heard = Path(folder) / "heard"

    class Hearing(TranscriptParser):
        def feed(self, data: bytes) -> None:
            super().feed(data)
            if b'"crash"' in data:
                heard.touch()

    monkeypatch.setattr("harness.probe.plan_runner.TranscriptParser", Hearing)
    plan = Plan((Step("noop"), Step("crash", {"signal": "9"})))
    waits = f"until [ -e {shlex.quote(str(heard))} ]; do sleep 0.1; done"
    script = f"#!/bin/sh\n{shlex.quote(f'{folder}/qnn-probe')}\n{waits}\nreboot\nsleep 60\n"
    device.push([PushItem(script.encode(), f"{folder}/dying", 0o755)], timeout_s=60)
    with pytest.raises(DeviceLost) as caught:
        run_plan(device, f"{folder}/dying", plan, env={}, cwd=folder, timeout_s=60)
    assert caught.value.__notes__ == ["step 1 (crash) had begun"]
