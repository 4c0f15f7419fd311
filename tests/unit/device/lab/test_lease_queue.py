"""Who waits for a device is served in order, whoever else comes, goes or dies meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings, strategies as st

from harness.device.lab import lease as lease_module
from harness.device.lab.lease import DeviceHeld, Leases
from harness.device.lab.lease_files import STALE_S
from harness.device.lab.lease_queue import (
    ASKS,
    LENT,
    PRIORITIES,
    QueuePlace,
    rank_of,
    waiting,
)
from tests.properties import reached, reaches

KEY = "local:R5CX1234"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def stand(folder: Path, rank: int) -> QueuePlace:
    return QueuePlace(folder, KEY, "phone", b"{}\n", rank)


@reaches(0.5)
@settings(deadline=None)
@given(ranks=st.lists(st.sampled_from([ASKS, LENT, *map(rank_of, (-9, -1, 0, 9))]), max_size=8))
def test_the_rank_counts_first_and_then_who_came_first(
    tmp_path_factory: pytest.TempPathFactory, ranks: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("queue") / "leases"
    places = [stand(folder, rank) for rank in ranks]
    expected = [
        place.file for _, place in sorted(zip(ranks, places, strict=True), key=lambda one: one[0])
    ]
    assert [one.file for one in waiting(folder, KEY)] == expected
    for number, place in enumerate(sorted(places, key=lambda one: one.file)):
        assert len(waiting(folder, KEY, place)) == number
    assert [one.asks for one in waiting(folder, KEY)] == [rank == ASKS for rank in sorted(ranks)]
    if len(set(ranks)) > 1:
        reached()
    for place in places:
        place.close()
    assert not list(folder.glob("*"))


def test_a_higher_priority_stands_in_front_of_a_lower_one_and_behind_a_loan() -> None:
    ranks = [rank_of(priority) for priority in PRIORITIES]
    assert ranks == sorted(ranks, reverse=True)
    assert ASKS < LENT < min(ranks)
    assert max(ranks) < 100


def test_the_place_of_one_that_was_killed_goes(folder: Path) -> None:
    first, child = stand(folder, 5), os.fork()
    if child == 0:
        stand(folder, 4)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    assert len(waiting(folder, KEY, first)) == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert waiting(folder, KEY, first) == []
    assert [file.name for file in folder.iterdir()] == [first.file]
    first.close()


def test_one_that_stands_still_keeps_nobody_back(folder: Path) -> None:
    first, second = stand(folder, 4), stand(folder, 5)
    assert len(waiting(folder, KEY, second)) == 1
    long_ago = time.time() - STALE_S - 5
    os.utime(folder / first.file, (long_ago, long_ago))
    assert waiting(folder, KEY, second) == []
    first.touch()
    assert len(waiting(folder, KEY, second)) == 1
    first.close()
    second.close()


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "garbage"])
def test_what_somebody_put_there_keeps_nobody_back(folder: Path, tmp_path: Path, what: str) -> None:
    place = stand(folder, 5)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    there = folder / place.file.replace("~05-", "~04-")
    match what:
        case "folder":
            there.mkdir()
        case "fifo":
            os.mkfifo(there)
        case "link":
            there.symlink_to(victim)
        case "garbage":
            there.write_bytes(os.urandom(100_000))
    assert waiting(folder, KEY, place) == []
    assert victim.read_text() == "precious"
    place.close()


def test_who_comes_later_does_not_get_what_others_wait_for(folder: Path) -> None:
    early, late = stand(folder, rank_of(0)), Leases(folder, purpose="late")
    with pytest.raises(DeviceHeld, match="phone is held by"):
        late.take(KEY, "phone")
    assert late.look(KEY) is not None
    early.close()
    late.take(KEY, "phone")
    late.close()


def test_a_lent_device_is_back_before_whoever_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.02)
    run = Leases(folder, purpose="a night")
    anna = Leases(folder, purpose="by hand", loan_s=60)
    run.take(KEY, "phone")
    other = stand(folder, rank_of(9))
    assert run.loan(KEY) is None
    asks = Thread(target=lambda: anna.take(KEY, "phone", wait_s=60))
    asks.start()
    wait_for(lambda: run.loan(KEY) is not None)
    run.lend(KEY, "phone")
    asks.join()
    assert run.is_lent(KEY)
    held = run.loan(KEY)
    assert held is not None
    assert held.holder is not None
    assert held.holder.purpose == "by hand"
    assert held.holder.is_loan
    anna.close()
    wait_for(lambda: not run.is_lent(KEY))
    with pytest.raises(DeviceHeld, match="a night"):
        anna.take(KEY, "phone")
    run.close()
    other.close()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("lent", [False, True])
def test_the_time_of_a_loan_comes_on_top(folder: Path, lent: bool) -> None:
    """Nobody is failed by a person who has said how long it takes; but who waits for nothing is."""
    run, anna = Leases(folder, purpose="a run"), Leases(folder, purpose="by hand", loan_s=2)
    if lent:
        run.take(KEY, "phone")
        run.lend(KEY, "phone")
    anna.take(KEY, "phone", wait_s=60)
    began = time.monotonic()
    with pytest.raises(DeviceHeld):
        run.take(KEY, "phone", wait_s=0 if lent else 0.3)
    assert time.monotonic() - began > 1  # what a person says is told by the second
    with pytest.raises(DeviceHeld):
        run.take(KEY, "phone")
    anna.close()
    run.close()
    assert not list(folder.iterdir())


def test_what_waits_in_another_thread_ends_with_its_leases(folder: Path) -> None:
    other, run = Leases(folder, purpose="other"), Leases(folder, purpose="a run")
    other.take(KEY, "phone")
    said: list[str] = []

    def wait() -> None:
        try:
            run.take(KEY, "phone", wait_s=600)
        except DeviceHeld as error:
            said.append(str(error))

    thread = Thread(target=wait)
    thread.start()
    wait_for(lambda: len(other.queue(KEY)) == 1)
    run.close()
    thread.join(60)
    assert said == ["device phone is not waited for any more"]
    other.close()
    assert not list(folder.iterdir())
    run.take(KEY, "phone")
    run.close()
