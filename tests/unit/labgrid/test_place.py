"""Places that fit, and the notice to a session that waits for one."""

from __future__ import annotations

import pytest

from harness.labgrid.session import Place, PlaceRequest, waiting_text

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


def test_what_is_said() -> None:
    notice = waiting_text({"board": "x"}, ["desk/bob", "desk/alice", "desk/bob"], 60.0)
    assert notice == (
        "waiting up to 60 s for a place of labgrid with board=x; "
        "they are held by desk/alice, desk/bob"
    )
    assert waiting_text({}, [], 0.5) == ("waiting up to 0.5 s for a place of labgrid with any tags")
    request = PlaceRequest("lab:20408", {"board": "z"})
    assert request == PlaceRequest("lab:20408", {"board": "z"}, 0, 0.0), "only to be listed"
