"""Who is in front of whom in labgrid's queue, and what is said of it."""

from __future__ import annotations

import pytest

from harness.device.labgrid.place import (
    Place,
    Queued,
    Wanted,
    in_front,
    no_place,
    queue_text,
    tags_there,
)

PLACES = [Place("a", {"board": "x"}), Place("b", {"board": "y", "rack": "1"})]
OWN = Queued("own", {"board": "x"}, 0.0, 10.0)


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


@pytest.mark.parametrize(
    ("other", "number"),
    [
        (Queued("other", {"board": "x"}, 0.0, 9.0), 1),
        (Queued("other", {"board": "x"}, 0.0, 10.0), 0),
        (Queued("other", {"board": "x"}, 0.0, 11.0), 0),
        (Queued("other", {"board": "x"}, 1.0, 11.0), 1),
        (Queued("other", {"board": "x"}, -1.0, 9.0), 0),
        (Queued("other", {}, 0.0, 9.0), 1),
        (Queued("other", {"board": "y"}, 5.0, 1.0), 0),
        (Queued("own", {"board": "x"}, 5.0, 1.0), 0),
    ],
)
def test_in_front_is_who_may_take_the_same_place_first(other: Queued, number: int) -> None:
    assert in_front(OWN, [OWN, other], PLACES) == number


def test_what_is_said() -> None:
    told = queue_text(2, {"board": "x"}, ["desk/bob", "desk/alice", "desk/bob"], 60.0)
    assert told == (
        "waiting up to 60 s for a place of labgrid with board=x: 2 in front; "
        "they are held by desk/alice, desk/bob"
    )
    assert queue_text(0, {}, [], 0.5) == (
        "waiting up to 0.5 s for a place of labgrid with any tags: 0 in front"
    )
    wanted = Wanted("lab:20408", {"board": "z"})
    assert wanted == Wanted("lab:20408", {"board": "z"}, 0, 0.0, 0.0), "only to be listed"
    assert no_place(wanted, PLACES) == "no place of the coordinator at lab:20408 has board=z"
    assert no_place(wanted, []) == "the coordinator at lab:20408 has no places"
    assert tags_there(PLACES) == ["board=x", "board=y", "rack=1"]
