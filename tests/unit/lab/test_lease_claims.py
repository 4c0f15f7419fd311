"""Claimants get a device in order, whoever else comes, goes or dies meanwhile."""

import os
import signal
import time
from pathlib import Path
from threading import Thread
from typing import get_args

import pytest
from hypothesis import given, settings, strategies as st

from harness.lab import lease
from harness.lab.lease import (
    MAX_BYTES,
    STALE_S,
    Claim,
    ClaimKind,
    DeviceHeld,
    Held,
    Holder,
    LeaseLost,
    Leases,
    Occupied,
    claimants,
    device_file,
    parse_holder,
)
from tests.logged import Logged
from tests.properties import damaged, reached, reaches
from tests.waiting import wait_for

KEY = "local:R5CX1234"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def claim(folder: Path, kind: ClaimKind) -> Claim:
    return Claim(folder, KEY, Holder("anna", "lab-pc", 1, "s", "p"), kind)


@pytest.mark.slow
@reaches(0.5)
@settings(max_examples=30, deadline=None)
@given(kinds=st.lists(st.sampled_from(get_args(ClaimKind)), max_size=8))
def test_persons_come_before_runs_and_then_who_came_first(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[ClaimKind]
) -> None:
    folder = tmp_path_factory.mktemp("claims") / "leases"
    claims = [claim(folder, kind) for kind in kinds]
    expected = [
        claim.file for _, claim in sorted(zip(kinds, claims, strict=True), key=lambda pair: pair[0])
    ]
    assert [claimant.file for claimant in claimants(folder, KEY)] == expected
    for number, own in enumerate(sorted(claims, key=lambda claim: claim.file)):
        assert len(claimants(folder, KEY, own)) == number
    asking = [claimant.is_person for claimant in claimants(folder, KEY)]
    assert asking == [kind == "asks" for kind in sorted(kinds)]
    if len(set(kinds)) > 1:
        reached()
    for own in claims:
        own.close()
    assert not list(folder.glob("*"))


def test_the_claim_of_one_that_was_killed_goes(folder: Path) -> None:
    first, child = claim(folder, "waits"), os.fork()
    if child == 0:
        claim(folder, "asks")
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    assert len(claimants(folder, KEY, first)) == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert claimants(folder, KEY, first) == []
    assert [file.name for file in folder.iterdir()] == [first.file]
    first.close()


def test_one_that_stands_still_keeps_nobody_back(folder: Path) -> None:
    first, second = claim(folder, "asks"), claim(folder, "waits")
    assert len(claimants(folder, KEY, second)) == 1
    long_ago = time.time() - STALE_S - 5
    os.utime(folder / first.file, (long_ago, long_ago))
    assert claimants(folder, KEY, second) == []
    first.touch()
    assert len(claimants(folder, KEY, second)) == 1
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_what_somebody_put_there_keeps_nobody_back(folder: Path, tmp_path: Path, kind: str) -> None:
    place = claim(folder, "waits")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = folder / place.file.replace("~waits-", "~asks-")
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(victim)
    assert claimants(folder, KEY, place) == []
    assert victim.read_text() == "precious"
    place.close()


def test_without_a_claim_nobody_gets_what_others_have_one_on(folder: Path) -> None:
    early, late = claim(folder, "waits"), Leases(folder, purpose="late")
    with pytest.raises(DeviceHeld):
        late.acquire(KEY, "phone")
    early.close()
    late.acquire(KEY, "phone")
    late.close()


def waiting(leases: Leases, holders: list[str], name: str) -> Thread:
    """Somebody who waits for the phone, and writes it down once it is had."""

    def wait() -> None:
        leases.acquire(KEY, "phone", wait_s=60)
        holders.append(name)

    thread = Thread(target=wait)
    thread.start()
    return thread


def test_who_waits_has_it_after_one_case_of_the_others(folder: Path) -> None:
    """Also where the run that has it has more processes that wait: they stand in line as one."""
    holders = list[str]()
    first, second = (Leases(folder, purpose="a night", of_run=True) for _ in range(2))
    third = Leases(folder, purpose="a night", of_run=True)
    run, person = Leases(folder, purpose="a bisection"), Leases(folder, purpose="desk", loan_s=60)
    first.acquire(KEY, "phone")
    line = list[Thread]()
    for leases, name in ((second, "second"), (third, "third"), (run, "run")):
        line.append(waiting(leases, holders, name))
        wait_for(lambda many=1 + (name == "run"): len(claimants(folder, KEY)) == many)  # type: ignore[misc]
        time.sleep(0.1)
    line.append(waiting(person, holders, "person"))
    wait_for(lambda: len(claimants(folder, KEY)) == 3)
    for leases in (first, person):
        leases.free(KEY)
        wait_for(lambda: bool(holders))
    wait_for(lambda: len(holders) == 2)
    (second if holders[1] == "second" else third).free(KEY)
    wait_for(lambda: len(holders) == 3)
    run.free(KEY)
    for thread in line:
        thread.join(60)
    assert holders[0] == "person"
    assert holders[2] == "run", holders
    for leases in (first, second, third, run, person):
        leases.close()
    assert not list(folder.iterdir())


def test_one_of_several_is_had_and_none_is_claimed_any_more(folder: Path) -> None:
    other, run = Leases(folder, purpose="other"), Leases(folder, purpose="a run")
    keys = {name: f"local:{name}" for name in ("one", "two")}
    for name, key in keys.items():
        other.acquire(key, name)
    acquired = list[str]()

    def attempt() -> list[Occupied]:
        missed = list[Occupied]()
        for name, key in keys.items():
            if (holding := run.try_acquire(key, name)) is None:
                acquired.append(name)
                return []
            missed.append(Occupied(name, key, holding))
        return missed

    thread = Thread(target=lambda: run.wait_for(attempt, wait_s=60))
    thread.start()
    wait_for(lambda: all(claimants(folder, key) for key in keys.values()))
    other.free(keys["two"])
    thread.join(60)
    assert acquired == ["two"]
    assert not any(claimants(folder, key) for key in keys.values())
    other.close()
    run.close()
    assert not list(folder.iterdir())


def test_who_gives_it_back_after_each_case_is_waited_for_and_who_keeps_it_is_not(
    folder: Path,
) -> None:
    run, other = Leases(folder, purpose="a run"), Leases(folder, purpose="other")
    third, ends = Leases(folder, purpose="third"), time.monotonic() + 60
    other.acquire(KEY, "phone")
    thread = Thread(target=lambda: third.acquire(KEY, "phone", wait_s=60))
    thread.start()
    wait_for(lambda: bool(claimants(folder, KEY)))
    start = time.monotonic()
    with pytest.raises(DeviceHeld, match=r"other\), since .* \(waited 0.. s\)"):
        run.acquire(KEY, "phone", wait_s=0.3)
    assert time.monotonic() - start < 30 < ends
    other.free(KEY)
    thread.join(60)
    third.close()
    run.acquire(KEY, "phone")
    run.close()
    other.close()


def test_a_device_of_the_run_that_changes_hands_is_not_reported_as_held_by_somebody(
    folder: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_SETTLE_S", 0.3)
    run = Leases(folder, purpose="a run", of_run=True)
    run.acquire(KEY, "phone")
    ours, ends = run.own_holding(), time.monotonic() + 0.6
    changing = iter([Held(None, 0.0)])

    def attempt() -> list[Occupied]:
        if time.monotonic() < ends:
            return [Occupied("phone", KEY, ours)]
        return [Occupied("phone", KEY, holding) for holding in changing][:1]

    run.wait_for(attempt, wait_s=60)
    assert logged.warnings == []
    run.close()


def test_who_waits_keeps_its_place_while_it_acquires_another_device(folder: Path) -> None:
    holder, run = Leases(folder, purpose="other"), Leases(folder, purpose="a run", of_run=True)
    holder.acquire(KEY, "phone")
    thread = waiting(run, [], "run")
    wait_for(lambda: len(claimants(folder, KEY)) == 1)
    (before,) = claimants(folder, KEY)
    run.acquire("local:other", "another")
    assert [claimant.file for claimant in claimants(folder, KEY)] == [before.file]
    holder.close()
    thread.join(60)
    run.close()


def test_a_claim_is_made_while_somebody_looks_at_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([Held(None, 0.0), Held(None, 0.0)])
    lock_file = lease.lock_file
    monkeypatch.setattr(lease, "lock_file", lambda *args: next(looks, None) or lock_file(*args))
    made = claim(folder, "waits")
    assert [claimant.file for claimant in claimants(folder, KEY)] == [made.file]
    made.close()


def test_a_device_that_was_given_back_is_not_held(folder: Path) -> None:
    run = Leases(folder, purpose="a run")
    run.acquire(KEY, "phone")
    run.require(KEY)
    run.close()
    with pytest.raises(LeaseLost):
        run.require(KEY)


def test_those_of_ones_own_run_are_waited_for_in_any_case(folder: Path) -> None:
    first, two = (Leases(folder, purpose="a run", of_run=True) for _ in range(2))
    first.acquire(KEY, "phone")
    holders = list[str]()
    thread = Thread(target=lambda: (two.acquire(KEY, "phone", wait_s=0.1), holders.append("two")))
    thread.start()
    time.sleep(0.5)
    assert not holders
    first.close()
    thread.join(60)
    assert holders == ["two"]
    two.close()
    with pytest.raises(DeviceHeld):
        Leases(folder, purpose="a run").wait_for(
            lambda: [Occupied("phone", KEY, two.own_holding())], wait_s=0
        )


def test_the_time_of_a_loan_comes_on_top(folder: Path) -> None:
    """Nobody is failed by a person who has said how long it takes; but who waits for nothing is."""
    run, anna = Leases(folder, purpose="a run"), Leases(folder, purpose="by hand", loan_s=2)
    anna.acquire(KEY, "phone", wait_s=60)
    start = time.monotonic()
    with pytest.raises(DeviceHeld):
        run.acquire(KEY, "phone", wait_s=0.3)
    assert time.monotonic() - start > 1  # what a person says is told by the second
    with pytest.raises(DeviceHeld):
        run.acquire(KEY, "phone")
    anna.close()
    run.close()
    assert not list(folder.iterdir())


def test_what_waits_in_another_thread_ends_with_its_leases(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings = list[str]()
    monkeypatch.setattr(lease._log, "warning", warnings.append)
    other, run = Leases(folder, purpose="other"), Leases(folder, purpose="a run")
    other.acquire(KEY, "phone")
    problems: list[str] = []

    def wait() -> None:
        try:
            run.acquire(KEY, "phone", wait_s=600)
        except DeviceHeld as error:
            problems.append(str(error))

    thread = Thread(target=wait)
    thread.start()
    wait_for(lambda: bool(warnings))
    run.close()
    thread.join(60)
    assert len(problems) == 1
    other.close()
    assert not list(folder.iterdir())
    run.acquire(KEY, "phone")
    run.close()


ANNA = Holder("anna", "lab-pc", 4711, "2026-11-21T08:15:00Z", "pytest, run 1")


def test_round_trip_and_text() -> None:
    assert parse_holder(ANNA.content()) == ANNA
    assert str(ANNA) == "anna, process 4711 (pytest, run 1), since 2026-11-21T08:15:00Z"


@reaches(0.02)
@given(damaged(ANNA.content().decode()))
def test_any_content_is_survived(content: str) -> None:
    holder = parse_holder(content.encode())
    if holder is not None:
        reached()
        assert str(holder).isprintable()
        assert parse_holder(holder.content()) == holder


def test_what_a_holder_says_is_bounded_and_printable() -> None:
    loud = Holder("a\x1b[2Jb", "h", 1, "s", "x" * 5000)
    read = parse_holder(loud.content())
    assert read.user == "a?[2Jb"
    assert len(read.purpose) == 200
    assert len(Holder("u" * 99999, "h", 1, "s", "p").content()) <= MAX_BYTES


@given(st.lists(st.text(max_size=80), unique=True, max_size=8))
def test_names_of_files(keys: list[str]) -> None:
    names = [device_file(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all("/" not in name and not name.startswith(".") and len(name) < 100 for name in names)


def test_a_device_that_is_acquired_after_a_close_has_a_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_S", 0.01)
    leases = Leases(tmp_path, purpose="a run")
    file = tmp_path / device_file("phone")
    for _ in range(2):
        leases.acquire("phone", "phone")
        os.utime(file, (0, 0))
        wait_for(lambda: file.stat().st_mtime)
        leases.close()


@pytest.mark.slow
def test_a_run_of_short_cases_waits_for_one_case_of_a_long_run(folder: Path) -> None:
    ended: list[str] = []
    short_is_over = False

    def cases(name: str, number: int, case_s: float) -> None:
        run = Leases(folder, purpose=name, of_run=True)
        for _ in range(number):
            if name == "long" and short_is_over:
                break
            run.acquire(KEY, "phone", wait_s=60)
            time.sleep(case_s)
            run.free(KEY)
            ended.append(name)
        run.close()

    long = Thread(target=cases, args=("long", 20, 1.0))
    long.start()
    wait_for(lambda: (folder / device_file(KEY)).exists())
    cases("short", 6, 0.1)
    short_is_over = True
    long.join()
    assert ended[:7] == ["long", *["short"] * 6]
    assert not list(folder.iterdir())


@pytest.mark.slow
def test_patience_counts_from_the_end_of_a_loan(folder: Path) -> None:
    person, run = Leases(folder, purpose="by hand", loan_s=2.0), Leases(folder, purpose="a run")
    person.acquire(KEY, "phone")

    def give_back_late() -> None:
        time.sleep(3)
        person.close()

    late = Thread(target=give_back_late)
    late.start()
    run.acquire(KEY, "phone", wait_s=2.5)
    late.join()
    run.close()
