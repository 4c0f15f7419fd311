"""What a session sees of its places while a keeper, which is only a lock here, keeps them."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.labgrid.keeper import user_and_session_names
from harness.labgrid.session import ALIVE, LOST, FoundPlace, FoundPlaces, Place, lost_file


@pytest.fixture
def found(tmp_path: Path) -> Iterator[FoundPlaces]:
    (tmp_path / LOST).mkdir()
    with open(tmp_path / ALIVE, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield FoundPlaces([Place("p1"), Place("p2")], "", tmp_path)


def test_a_place_is_lost_and_back_again(found: FoundPlaces) -> None:
    assert found.folder is not None
    first, other = (FoundPlace(place, found) for place in found.places)
    said = ["lost to bob", "had again", "lost to eve"]
    for number, line in enumerate(said, 1):
        with lost_file(found.folder, "p1").open("a") as file:
            file.write(f"{line}\n")
        assert first.changes() == said[:number]
        assert first.why_not() == (None if line == "had again" else line)
        assert (other.changes(), other.why_not()) == ([], None)


def test_without_its_keeper_no_place_is_ours(found: FoundPlaces, tmp_path: Path) -> None:
    place, gone = found.places[0], FoundPlaces(found.places, "", tmp_path / "gone")
    assert "its keeper ended" in str(FoundPlace(place, gone).why_not())
    assert FoundPlace(place, FoundPlaces(found.places, "")).changes() == []


def test_two_sessions_of_one_user_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_HOSTNAME", "lab-pc")
    monkeypatch.setenv("LG_USERNAME", "anna")
    (user, one), (_, other) = user_and_session_names(), user_and_session_names()
    assert user == "lab-pc/anna"
    assert len({user, one, other}) == 3
    for name in (one, other):
        host, slash, who = name.partition("/")
        assert (host.startswith("lab-pc+"), slash, who) == (True, "/", "anna")
