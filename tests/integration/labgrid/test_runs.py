"""Runs on places of a real labgrid lab: never two on one, and everything is given back."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread

import pytest

from harness.core.errors import ConfigError
from harness.core.state_folders import cache_root
from harness.labgrid.session import PlaceRequest, found_places, lost_file
from tests.integration.device_runs import RUN_TIMEOUT_S, DeviceRuns, Finished
from tests.integration.labgrid.rack import Rack
from tests.waiting import wait_for

QUICK = '''"""Cases that use nothing but the probe."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("number", range(4))
def test_noop(bench, number):
    bench.run(Plan((Step("noop"),))).check()
'''
# Each case says that it began, and goes on when it is told to.
SLOW = '''"""Cases that wait for the test to do something to the lab."""
import os
import time
from pathlib import Path
import pytest
from harness.probe.plan import Plan, Step

FOLDER = Path(os.environ["STEPS"])

@pytest.mark.device
@pytest.mark.parametrize("number", range(2))
def test_step(bench, number):
    (FOLDER / f"begun-{number}").write_text(bench.device.name)
    until = time.monotonic() + 120
    while not (FOLDER / f"go-{number}").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    bench.run(Plan((Step("noop"),))).check()
'''


class Greeter(StreamRequestHandler):
    """Says what no coordinator does, and ends."""

    def handle(self) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        self.rfile.read(1)


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    with Rack(tmp_path_factory.mktemp("rack"), 2) as started:
        yield started


@pytest.fixture(autouse=True)
def _nothing_is_left(rack: Rack) -> Iterator[None]:
    yield
    wait_for(lambda: not rack.holders(), "a place was not given back")
    assert not rack.has_reservations()


def keeper_of(process: subprocess.Popen[str]) -> int:
    """The process that keeps the places of a run."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    children = [pid for thread in threads for pid in (thread / "children").read_text().split()]
    keepers = [
        int(pid)
        for pid in children
        if b"harness.labgrid" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return keepers[0] if keepers else 0


class Steps:
    """A run of SLOW in a process of its own."""

    def __init__(self, folder: Path, rack: Rack, *options: str, **settings: object) -> None:
        folder.mkdir()
        self.folder = folder
        self.runs = DeviceRuns(folder)
        self.runs.environment |= {"STEPS": str(folder)}
        rack.describe(self.runs, **settings)
        suite = folder / "test_steps.py"
        suite.write_text(SLOW)
        self.process = self.runs.start(self.runs.command(*options, suite))

    def wait_for(self, number: int) -> str:
        """Waits until a case has begun; its device."""
        file = self.folder / f"begun-{number}"
        wait_for(lambda: file.exists() and file.read_text(), f"case {number} does not begin")
        return file.read_text()

    def go(self, *numbers: int) -> None:
        for number in numbers:
            (self.folder / f"go-{number}").touch()

    def finish(self) -> tuple[int, str, list[tuple[str, str | None, str]]]:
        """Exit code, output, and (outcome, cause, device) of every attempt."""
        output, _ = self.process.communicate(timeout=RUN_TIMEOUT_S)
        reports = self.runs.reports / "latest" / "results.jsonl"
        cases = []
        if reports.exists():
            cases = Finished(0, "", self.runs.reports).cases
        attempts = [(case["outcome"], case["cause"], case["device"]["name"]) for case in cases]
        return self.process.returncode, output, attempts


@contextlib.contextmanager
def steps(folder: Path, rack: Rack, *options: str, **settings: object) -> Iterator[Steps]:
    session = Steps(folder, rack, *options, **settings)
    try:
        yield session
    finally:
        session.process.kill()
        session.process.wait()


def is_noticed(place: str) -> bool:
    """Return True once a keeper has noticed that a place was taken away."""
    file = lost_file(Path(), place)
    return any(cache_root().glob(f"labgrid/*/{file}"))


@pytest.mark.slow
def test_a_place_is_not_held_idle_for_another(rack: Rack, tmp_path: Path) -> None:
    rack.client("-p", "p1", "acquire", user="bob")
    lab = DeviceRuns(tmp_path)
    rack.describe(lab, places=2, wait_s=2 * RUN_TIMEOUT_S)
    suite = tmp_path / "test_quick.py"
    suite.write_text(QUICK)
    finished = lab.run("-n", "auto", suites=suite, code=0)
    assert {case["device"]["name"] for case in finished.cases} == {"p2"}
    assert "desk/bob\n" in finished.output
    rack.client("-p", "p1", "release", user="bob")


@pytest.mark.slow
def test_two_sessions_share_no_place_and_a_third_waits_in_the_queue(
    rack: Rack, tmp_path: Path
) -> None:
    with steps(tmp_path / "a", rack) as first, steps(tmp_path / "b", rack) as second:
        assert {first.wait_for(0), second.wait_for(0)} == {"p1", "p2"}
        names = rack.holders().values()
        assert len(set(names)) == 2
        with steps(tmp_path / "c", rack) as third:
            wait_for(rack.has_reservations, "nobody queues")
            first.go(0, 1)
            freed = first.wait_for(0)
            third.go(0, 1)
            assert third.wait_for(0) == freed
            second.go(0, 1)
            for session in (first, second, third):
                code, output, cases = session.finish()
                assert code == 0, output
                assert [outcome for outcome, _, _ in cases] == ["passed", "passed"]


def reserved_by_bob(rack: Rack) -> str:
    return rack.client("reserve", "--shell", "name=p1", user="bob").strip().rpartition("=")[2]


def taken_by_bob(rack: Rack, reservation: str) -> None:
    rack.client("wait", reservation, user="bob")
    rack.client("-p", "p1", "acquire", user="bob")
    rack.client("cancel-reservation", reservation, user="bob")


@pytest.mark.slow
def test_who_waits_for_a_place_has_it_between_two_cases(rack: Rack, tmp_path: Path) -> None:
    with steps(tmp_path / "a", rack, filters={"name": "p1"}) as session:
        session.wait_for(0)
        before = rack.holders()
        reservation = reserved_by_bob(rack)
        time.sleep(2)
        assert rack.holders() == before
        session.go(0, 1)
        taken_by_bob(rack, reservation)
        time.sleep(2)
        assert not (session.folder / "begun-1").exists()
        rack.client("-p", "p1", "release", user="bob")
        code, output, cases = session.finish()
    assert code == 0, output
    assert cases == [("passed", None, "p1")] * 2
    assert "labgrid: waits for desk/bob" in output


@pytest.mark.slow
def test_a_run_that_dies_while_another_has_its_place_leaves_nothing(
    rack: Rack, tmp_path: Path
) -> None:
    with steps(tmp_path / "a", rack, filters={"name": "p1"}) as session:
        session.wait_for(0)
        reservation = reserved_by_bob(rack)
        time.sleep(2)  # the keeper looks twice a second
        session.go(0)
        taken_by_bob(rack, reservation)
        wait_for(rack.has_reservations, "the run does not queue again")
    wait_for(lambda: not rack.has_reservations(), "a reservation of a dead session")
    assert rack.holders() == {"p1": "desk/bob"}
    rack.client("-p", "p1", "release", user="bob")


@pytest.mark.slow
def test_a_place_that_an_admin_takes_away_is_a_fault_of_the_lab(rack: Rack, tmp_path: Path) -> None:
    with steps(tmp_path / "a", rack, places=2) as session:
        place = session.wait_for(0)
        rack.client("-p", place, "release", "--kick")
        rack.client("-p", place, "acquire")
        wait_for(lambda: is_noticed(place), "the keeper does not see it")
        session.go(0, 1)
        code, output, cases = session.finish()
    (other,) = {"p1", "p2"} - {place}
    assert code == 0, output
    assert cases[0] == ("error", "infra", place)
    assert cases[1:] == [("passed", None, other)] * 2
    assert rack.holders() == {place: "desk/admin"}
    rack.client("-p", place, "release")


@pytest.mark.slow
def test_a_session_that_dies_gives_its_place_back(rack: Rack, tmp_path: Path) -> None:
    with steps(tmp_path / "a", rack) as session:
        session.wait_for(0)
        assert rack.holders()
        os.kill(session.process.pid, signal.SIGKILL)
        session.process.wait()
        wait_for(lambda: not rack.holders(), "the place of a dead session")


@pytest.mark.slow
def test_a_coordinator_that_is_killed_and_started_again_costs_nothing(
    rack: Rack, tmp_path: Path
) -> None:
    with steps(tmp_path / "a", rack) as session:
        place = session.wait_for(0)
        before = rack.holders()
        rack.stop()
        session.go(0)
        session.wait_for(1)
        rack.start()
        wait_for(lambda: rack.holders() == before, "the place is not taken again")
        session.go(1)
        code, output, cases = session.finish()
    assert code == 0, output
    assert cases == [("passed", None, place)] * 2


@pytest.mark.nightly
def test_without_its_keeper_a_place_is_used_no_more(rack: Rack, tmp_path: Path) -> None:
    with steps(tmp_path / "a", rack) as session:
        place = session.wait_for(0)
        os.kill(keeper_of(session.process), signal.SIGKILL)
        session.go(0, 1)
        code, output, cases = session.finish()
    assert code == 3, output
    assert {(outcome, cause) for outcome, cause, _ in cases} == {("error", "infra")}
    assert place in rack.holders()
    with steps(tmp_path / "b", rack) as session:  # the next one gives it back
        session.go(0, 1)
        assert session.finish()[0] == 0


@pytest.mark.slow
def test_what_is_wrong_is_said(rack: Rack, tmp_path: Path) -> None:
    lab = DeviceRuns(tmp_path)
    suite = tmp_path / "test_quick.py"
    suite.write_text(QUICK)
    rack.describe(lab, filters={"board": "other"})
    finished = lab.run(suites=suite, code=2)
    assert "devices.yaml: labgrid.filters: " in finished.output
    assert "(valid: adb_serial=" in finished.output
    rack.describe(lab, coordinator="127.0.0.1:1", wait_s=1)
    finished = lab.run(suites=suite, code=3)
    assert "127.0.0.1:1" in finished.output
    with TCPServer(("127.0.0.1", 0), Greeter) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{other.server_address[1]}"
        with pytest.raises(ConfigError, match=f"labgrid.coordinator: .*{address}"):
            found_places(PlaceRequest(address, {}, 1, 0.0))
        other.shutdown()


def test_where_labgrid_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labgrid.py").write_text("raise ImportError('it is not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install 'qnn-harness\[labgrid\]' \(it is not here"):
        found_places(PlaceRequest("127.0.0.1:1", {}))
