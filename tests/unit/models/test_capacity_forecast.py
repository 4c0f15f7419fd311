"""Contexts are packed as the backend packs them; what a forecast says holds for any sizes."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, strategies as st

from harness.models.capacity_forecast import (
    Domain,
    Forecast,
    RefusedLoad,
    Room,
    Size,
    changes,
    forecast,
)
from harness.models.fit_text import FitContext, fit, fit_lines
from harness.models.session_plan import RESIDENCIES, Move, schedule
from tests.properties import reached, reaches
from tests.snapshots import Snapshot

SIZES = st.lists(
    st.builds(
        lambda private, spill: Size(private + spill, spill), st.integers(1, 30), st.integers(0, 20)
    ),
    min_size=1,
    max_size=12,
)
ROOMS = st.builds(Room, st.integers(1, 100), st.integers(1, 4))


def forecast_of(
    loads: int, refused: RefusedLoad | None, domains: dict[tuple[int, ...], int]
) -> Forecast:
    return Forecast(loads, refused, tuple(Domain(*domain) for domain in domains.items()))


def resident(sizes: list[Size], room: Room, *, share_spill_fill: bool = False) -> Forecast:
    moves = schedule(len(sizes), "resident").moves
    return forecast(sizes, moves, room, share_spill_fill=share_spill_fill)


@pytest.mark.parametrize(
    ("totals", "room", "expected"),
    [
        ([4, 3, 3], Room(10), forecast_of(3, None, {(0, 1, 2): 10})),
        ([4, 3, 4], Room(10), forecast_of(2, RefusedLoad(2, 2, 4, 1), {(0, 1): 7})),
        ([6, 6, 4, 4], Room(10, 2), forecast_of(4, None, {(0, 2): 10, (1, 3): 10})),
        ([6, 6, 4, 5], Room(10, 2), forecast_of(3, RefusedLoad(3, 3, 5, 1), {(0, 2): 10, (1,): 6})),
        ([11], Room(10), forecast_of(0, RefusedLoad(0, 0, 11, 1), {(): 0})),
    ],
)
def test_the_first_domain_with_room_takes_a_context(
    totals: list[int], room: Room, expected: Forecast
) -> None:
    assert resident([Size(total) for total in totals], room) == expected


def test_what_is_freed_can_be_taken_again() -> None:
    sizes = [Size(6), Size(5), Size(4)]
    moves = [Move("load", 0), Move("free", 0), Move("load", 1), Move("load", 2), Move("load", 0)]
    outcome = forecast(sizes, moves, Room(10))
    assert outcome == forecast_of(3, RefusedLoad(3, 0, 6, 5), {(1, 2): 9})
    assert forecast(sizes, moves[:-1], Room(10)) == forecast_of(3, None, {(1, 2): 9})


def test_domains_are_told_as_they_were_when_most_was_taken() -> None:
    sizes = [Size(6), Size(5), Size(4)]
    moves = [Move("load", 0), Move("free", 0), Move("load", 1), Move("execute", 1)]
    assert forecast(sizes, moves, Room(10)) == forecast_of(2, None, {(0,): 6})
    more = [*moves, Move("load", 2), Move("free", 2), Move("free", 2)]
    assert forecast(sizes, more, Room(10)) == forecast_of(3, None, {(1, 2): 9})
    assert [each.contexts for each in forecast(sizes, more, Room(8, 2)).domains] == [(1,), (2,)]


def test_a_domain_has_one_spill_fill_buffer_as_large_as_the_largest_that_is_loaded() -> None:
    assert resident([Size(5)] * 2, Room(10), share_spill_fill=True).domains[0].used_bytes == 10
    sizes = [Size(6, 4), Size(5, 3), Size(5, 1)]
    moves = [Move("load", 0), Move("load", 1), Move("free", 0), Move("load", 2), Move("free", 1)]
    moves.append(Move("load", 1))
    rooms = (Room(budget) for budget in (5, 7, 8, 9))
    loads = [forecast(sizes, moves, room, share_spill_fill=True).loads for room in rooms]
    # own 2, 4, 2, 6, 4, 6 beside the largest buffer of 4, 4, 3, 3, 1, 3: 6, 8, 9 and 9 behind loads
    assert loads == [0, 1, 2, 4]


@reaches(0.2)
@given(SIZES, ROOMS, st.booleans())
def test_a_forecast_holds_together(sizes: list[Size], room: Room, share: bool) -> None:
    outcome = resident(sizes, room, share_spill_fill=share)
    loaded = [context for domain in outcome.domains for context in domain.contexts]
    assert sorted(loaded) == list(range(outcome.loads))
    assert all(domain.used_bytes <= room.budget for domain in outcome.domains)
    assert outcome.fits == (outcome.loads == len(sizes))
    more = resident(sizes, replace(room, sessions=room.sessions + 1), share_spill_fill=share)
    assert more.loads >= outcome.loads
    if outcome.refused is not None:
        reached()
        assert (outcome.refused.load, outcome.refused.context) == (outcome.loads, outcome.loads)
        assert outcome.refused.missing_bytes > 0
        lone = replace(room, sessions=1)
        alone = resident(sizes, lone, share_spill_fill=share)
        assert alone.refused is not None
        just = Room(lone.budget + alone.refused.missing_bytes)
        assert resident(sizes, just, share_spill_fill=share).loads > alone.loads
    if not share and room.sessions == 1:
        assert resident(sizes, room, share_spill_fill=True).loads >= outcome.loads


@given(SIZES, ROOMS)
def test_what_would_help_is_true(sizes: list[Size], room: Room) -> None:
    by_change = {alternative.change: alternative for alternative in changes(sizes, room)}
    each_fits = all(size.total <= room.budget for size in sizes)
    assert by_change["sequential"].fits == each_fits
    assert any(name.startswith("only the last") for name in by_change) == each_fits
    for name, alternative in by_change.items():
        if name.startswith("only the last"):
            span = int(name.split()[3])
            moves = schedule(len(sizes), "window", span).moves
            assert forecast(sizes, moves, room).fits
            wider = schedule(len(sizes), "window", span + 1).moves
            assert span == len(sizes) or not forecast(sizes, wider, room).fits
        if "protection domain" in name:
            number = int(name.split()[0])
            assert resident(sizes, Room(room.budget, number)).fits
            assert number == 1 or not resident(sizes, Room(room.budget, number - 1)).fits
        assert 0 <= alternative.loads <= len(sizes)


def test_the_ways_out_of_four_contexts_that_do_not_fit_together(snapshot: Snapshot) -> None:
    sizes = [Size(6, 4), Size(5, 3), Size(3, 1), Size(2)]
    assert [alternative.change for alternative in changes(sizes, Room(10))] == snapshot

    def outcome(word: str, room: Room, sizes: list[Size] = sizes) -> tuple[bool, int]:
        (alternative,) = (way for way in changes(sizes, room) if word in way.change)
        return alternative.fits, alternative.loads

    assert outcome("shared", Room(10)) == (False, 3), "4 and 2 + 2 + 2"
    assert outcome("sequential", Room(10)) == outcome("window", Room(10)) == (True, 4)
    assert outcome("domains", Room(10)) == (True, 4), "6 + 3 and 5 + 2"
    assert outcome("merged", Room(10)) == (False, 0)
    assert outcome("last 4", Room(16)) == outcome("shared", Room(12)) == (True, 4)
    assert [alternative.fits for alternative in changes([Size(5)], Room(4))] == [False] * 3
    assert outcome("merged", Room(10, 2), [Size(6), Size(4)]) == (True, 2)


def test_the_answer_names_the_first_that_does_not_fit(snapshot: Snapshot) -> None:
    contexts = [FitContext(name, 40, 10, "measured") for name in ("a.bin", "b.bin", "c.bin")]
    answer = fit("2.51.0", contexts, Room(100), "given")
    assert not answer.fits
    assert answer.first_refused is not None
    assert (answer.first_refused.context, answer.first_refused.missing_bytes) == (2, 20)
    assert fit("2.51.0", contexts, Room(100), "given", residency="sequential").fits
    guessed = [replace(context, source="metadata") for context in contexts]
    anything = fit("2.47.0", contexts, None, "calibrated")
    assert (anything.fits, anything.budget_bytes, anything.budget) == (None, None, "no limit")
    answers = (answer, anything, fit("2.51.0", contexts, Room(200), "calibrated"))
    assert [line for each in answers for line in (*fit_lines(each), "")] == snapshot
    assert [*fit_lines(fit("2.51.0", guessed, Room(100), "given"))] != [*fit_lines(answer)]


def test_a_context_that_is_refused_alone_never_fits(snapshot: Snapshot) -> None:
    well = FitContext("a.bin", 40, 10, "measured")
    silent = replace(well, source="metadata", problem="no word")
    answer = fit("2.51.0", [silent], Room(100), "given")
    assert answer.fits
    texts = [*fit_lines(answer)]
    refused = replace(silent, name="b.bin", problem="5000", refused=True, diagnosis="newer")
    for room, residency in product((None, Room(100)), RESIDENCIES):
        for contexts, loads in (([refused], 0), ([well, refused] * 200, 1)):
            answer = fit("2.47.0", contexts, room, "given", residency=residency)
            assert (answer.fits, answer.loads, answer.changes, answer.most) == (
                False,
                loads,
                (),
                None,
            )
            assert len([*fit_lines(answer)]) == 3
    texts += fit_lines(answer)
    alike = [replace(refused, name=name) for name in "xyz"]
    assert [*texts, next(fit_lines(fit("1", alike * 9, None, "given")))] == snapshot


def test_what_fits_is_told_how_many_would() -> None:
    contexts = [FitContext(name, size, 0, "measured") for name, size in (("a", 40), ("b", 10))]
    for listed, room, most in (
        (contexts, Room(100), 4),
        (contexts[:1] * 2, Room(100, 3), 6),
        (contexts, None, None),
        (contexts * 3, Room(100), None),
    ):
        answer = fit("2.51.0", listed, room, "given")
        assert answer.most == most
