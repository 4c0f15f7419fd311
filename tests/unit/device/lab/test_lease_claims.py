"""Who has a claim on a device gets it in order, whoever else comes, goes or dies meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import get_args

import pytest
from hypothesis import given, settings, strategies as st

from harness.device.lab import lease as lease_module
from harness.device.lab.lease import DeviceHeld, Leases
from harness.device.lab.lease_claims import Claim, ClaimKind, claimants
from harness.device.lab.lease_files import STALE_S
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


def claim(folder: Path, kind: ClaimKind) -> Claim:
    return Claim(folder, KEY, "phone", b"{}\n", kind)


@reaches(0.5)
@settings(deadline=None)
@given(kinds=st.lists(st.sampled_from(get_args(ClaimKind)), max_size=8))
def test_who_asks_comes_before_who_lent_and_then_who_came_first(
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
    asking = [claimant.asks for claimant in claimants(folder, KEY)]
    assert asking == [kind == "asks" for kind in sorted(kinds)]
    if len(set(kinds)) > 1:
        reached()
    for own in claims:
        own.close()
    assert not list(folder.glob("*"))


def test_the_claim_of_one_that_was_killed_goes(folder: Path) -> None:
    first, child = claim(folder, "lent"), os.fork()
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
    first, second = claim(folder, "asks"), claim(folder, "lent")
    assert len(claimants(folder, KEY, second)) == 1
    long_ago = time.time() - STALE_S - 5
    os.utime(folder / first.file, (long_ago, long_ago))
    assert claimants(folder, KEY, second) == []
    first.touch()
    assert len(claimants(folder, KEY, second)) == 1
    first.close()
    second.close()


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "garbage"])
def test_what_somebody_put_there_keeps_nobody_back(folder: Path, tmp_path: Path, what: str) -> None:
    place = claim(folder, "lent")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    there = folder / place.file.replace("~lent-", "~asks-")
    match what:
        case "folder":
            there.mkdir()
        case "fifo":
            os.mkfifo(there)
        case "link":
            there.symlink_to(victim)
        case "garbage":
            there.write_bytes(os.urandom(100_000))
    assert claimants(folder, KEY, place) == []
    assert victim.read_text() == "precious"
    place.close()


def test_without_a_claim_nobody_gets_what_others_have_one_on(folder: Path) -> None:
    early, late = claim(folder, "lent"), Leases(folder, purpose="late")
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
    other = Leases(folder, purpose="a bisection")
    waits = Thread(target=lambda: other.take(KEY, "phone", wait_s=60))
    waits.start()
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
    assert waits.is_alive()
    run.close()
    waits.join()
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


def test_what_waits_in_another_thread_ends_with_its_leases(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings = list[str]()
    monkeypatch.setattr(lease_module._log, "warning", warnings.append)
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
    wait_for(lambda: bool(warnings))
    run.close()
    thread.join(60)
    assert said == ["device phone is not waited for any more"]
    other.close()
    assert not list(folder.iterdir())
    run.take(KEY, "phone")
    run.close()
