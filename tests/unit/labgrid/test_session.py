"""A session's view of its places, whose keeper is only a lock here."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.labgrid.keeper import Waiting, places_to_lend, user_and_session_names
from harness.labgrid.session import (
    ALIVE,
    LOST,
    FoundPlace,
    FoundPlaces,
    Place,
    lost_file,
    waiting_text,
)
from tests.snapshots import Snapshot


@pytest.fixture
def places(tmp_path: Path) -> Iterator[FoundPlaces]:
    (tmp_path / LOST).mkdir()
    with open(tmp_path / ALIVE, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield FoundPlaces([Place("p1"), Place("p2")], "", tmp_path)


def test_a_place_is_lost(places: FoundPlaces) -> None:
    first, other = (FoundPlace(place, places) for place in places.places)
    lost_file(places.folder, "p1").write_text("lost to bob")
    assert first.why_not() == "lost to bob"
    assert other.why_not() is None


def test_without_its_keeper_no_place_is_ours(places: FoundPlaces, tmp_path: Path) -> None:
    place, without_keeper = places.places[0], FoundPlaces(places.places, "", tmp_path / "gone")
    assert "p1" in str(FoundPlace(place, without_keeper).why_not())


def test_two_sessions_of_one_user_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LG_HOSTNAME", "lab-pc")
    monkeypatch.setenv("LG_USERNAME", "anna")
    (user, first), (_, other) = user_and_session_names(), user_and_session_names()
    assert user == "lab-pc/anna"
    assert len({user, first, other}) == 3
    for name in (first, other):
        host, slash, account = name.partition("/")
        assert (host.startswith("lab-pc+"), slash, account) == (True, "/", "anna")


PLACES = [Place("a", {"board": "x"}), Place("b", {"board": "y", "rack": "1"})]


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({}, ["a", "b"]),
        ({"board": "x"}, ["a"]),
        ({"board": "y", "rack": "1"}, ["b"]),
        ({"board": "y", "rack": "2"}, []),
        ({"name": "a"}, ["a"]),
        ({"nothing": ""}, []),
    ],
)
def test_a_place_fits_if_it_has_every_tag(filters: dict[str, str], fits: list[str]) -> None:
    assert [place.name for place in PLACES if place.fits(filters)] == fits


BOARD_X, BOARD_Y = Waiting("bob", {"board": "x"}), Waiting("eve", {"board": "y"})
ANY = Waiting("carol", {})


@pytest.mark.parametrize(
    ("queue", "borrowers"),
    [
        ([], {}),
        ([Waiting("bob", {"board": "z"})], {}),
        ([BOARD_X], {"a": "bob"}),
        ([ANY, BOARD_X], {"a": "carol"}),
        ([BOARD_X, ANY], {"a": "bob", "b": "carol"}),
        ([BOARD_X, BOARD_X, BOARD_Y], {"a": "bob", "b": "eve"}),
        ([Waiting("eve", {"name": "b"}), ANY, BOARD_X], {"b": "eve", "a": "carol"}),
    ],
)
def test_a_place_is_lent_to_the_first_whom_it_fits(
    queue: list[Waiting], borrowers: dict[str, str]
) -> None:
    assert places_to_lend(queue, PLACES) == borrowers


def test_what_is_said(snapshot: Snapshot) -> None:
    notice = waiting_text({"board": "x"}, ["desk/bob", "desk/alice", "desk/bob"], 60.0)
    assert [notice, waiting_text({}, [], 0.5)] == snapshot
