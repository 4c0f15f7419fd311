"""Runs are in the order in which they were begun, whatever clocks and names say."""

from __future__ import annotations

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.ground.errors import InfraError
from harness.verdict.results.run_folder import new_run_id
from harness.verdict.results.run_order import (
    ORDER,
    RunPlace,
    give_place,
    in_order,
    ordered,
    place_of,
)
from tests.logged import Logged

SERIES = ("0" * 16, "1" * 16, "2" * 16)


def begun(reports: Path, name: str, *, old: bool = False) -> Path:
    folder = reports / name
    folder.mkdir(parents=True)
    (folder / "results.jsonl").touch()
    if not old:
        give_place(folder)
    return folder


@given(st.lists(st.tuples(st.sampled_from(SERIES), st.integers(0, 9)), max_size=30), st.randoms())
def test_any_clocks_leave_each_series_in_its_order(
    made: list[tuple[str, int]], chance: random.Random
) -> None:
    """`made` are the series and the clock of each, in the order in which they were begun."""
    things = [
        (clock, RunPlace(name=str(at), series=series, number=at + 1))
        for at, (series, clock) in enumerate(made)
    ]
    mixed = chance.sample(things, len(things))
    found = in_order(mixed, lambda one: one[1], lambda one: one[1].name, lambda one: one[0])
    assert sorted(found, key=lambda one: one[1].number) == things, "each once"
    for series in SERIES:
        numbers = [one.number for _, one in found if one.series == series]
        assert numbers == sorted(numbers)
    if len({series for series, _ in made}) == 1:
        assert found == things


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12))
def test_places_that_contradict_each_other_lose_nothing(made: list[tuple[int, int]]) -> None:
    """Anybody may have written them: circles, numbers given twice, names that are not there."""
    places = [
        RunPlace(name=str(at), series=SERIES[after % 2], number=number, after=str(after))
        for at, (number, after) in enumerate(made)
    ]
    found = in_order(places, lambda one: one, lambda one: one.name, lambda one: one.name)
    assert sorted(found, key=lambda one: int(one.name)) == places


def test_numbers_go_on_where_the_note_of_the_last_is_lost(tmp_path: Path) -> None:
    made = [begun(tmp_path, f"{9 - number}") for number in range(4)]
    (tmp_path / ".order").write_text("{torn")
    made.append(begun(tmp_path, "1"))
    (tmp_path / ".order").unlink()
    made.append(begun(tmp_path, "0"))
    places = [place_of(one) for one in made]
    assert [one and one.number for one in places] == [1, 2, 3, 4, 5, 6]
    assert [one and one.after for one in places] == [None, *(one.name for one in made[:-1])]
    assert ordered(sorted(made)) == made


def test_runs_of_before_there_were_numbers_come_first(tmp_path: Path) -> None:
    """Also one that says it is of next year."""
    old = [begun(tmp_path, f"{year}1121T060000Z-00ff", old=True) for year in (2025, 2026, 2027)]
    new = [begun(tmp_path, new_run_id()) for _ in range(3)]
    assert ordered(sorted((*old, *new), reverse=True)) == [*old, *new]


def test_a_folder_that_is_gone_or_was_copied_changes_nothing(tmp_path: Path) -> None:
    made = [begun(tmp_path / "a", f"{9 - number}") for number in range(5)]
    shutil.rmtree(made.pop(2))
    assert ordered(sorted(made)) == made
    copies = [shutil.copytree(one, tmp_path / "b" / one.name) for one in made]
    assert ordered(sorted(copies)) == copies
    later = begun(tmp_path / "b", "0")
    assert ordered(sorted([*copies, later])) == [*copies, later]


@pytest.mark.parametrize("noted", [True, False])
def test_the_last_number_that_there_is_keeps_nothing_from_being_begun(
    tmp_path: Path, noted: bool
) -> None:
    """A run that was copied here says so, whoever wrote it."""
    theirs = begun(tmp_path, "theirs", old=True)
    last = RunPlace(name="theirs", series=SERIES[0], number=(1 << 62) - 1).model_dump_json()
    (theirs / ORDER).write_text(last)
    (tmp_path / ".order").write_text(last if noted else "")
    made = [begun(tmp_path, name) for name in ("c", "b", "a")]
    assert ordered([*made[::-1], theirs]) == [theirs, *made]
    places = [place_of(one) for one in made]
    assert [one.number for one in places if one] == [1, 2, 3]
    assert places[0] is not None
    assert (places[0].after, places[0].series == SERIES[0]) == ("theirs", False)


@pytest.mark.parametrize("name", [b"9" * 250, b"9\xff", "9\u202e".encode()])
def test_a_name_that_cannot_be_written_down_keeps_nothing_from_being_begun(
    tmp_path: Path, name: bytes
) -> None:
    begun(tmp_path, os.fsdecode(name), old=True)
    assert place_of(begun(tmp_path, "b")) is not None
    other = tmp_path / "other"
    for known in ("1", os.fsdecode(name)):
        begun(other, known, old=True)
    place = place_of(begun(other, "b"))
    assert place is not None
    assert place.after == "1"


def test_a_link_in_somebody_elses_folder_has_no_file_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    reports = tmp_path / "theirs"
    folder = begun(reports, "a", old=True)
    for target in (mine, tmp_path / "new"):
        (reports / ".order").unlink(missing_ok=True)
        (reports / ".order").symlink_to(target)
        with pytest.raises(InfraError, match=r"cannot number .*/theirs/a: "):
            give_place(folder)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "new").exists()
    assert place_of(folder) is None


def test_many_at_once_get_a_number_each(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda number: begun(tmp_path, f"{number}"), range(64)))
    places = [place_of(one) for one in made]
    assert sorted(one.number for one in places if one) == list(range(1, 65))
    assert len({one.series for one in places if one}) == 1


def test_what_is_no_place_is_none(tmp_path: Path) -> None:
    folder = begun(tmp_path, "x")
    for text in ("", "[]", '{"series": "../x"}', "[" * 10_000, '"\\ud800"'):
        (folder / ORDER).write_text(text)
        assert place_of(folder) is None
    (folder / ORDER).write_bytes(b"x" * 100_000)
    assert place_of(folder) is None


def test_ids_have_64_random_bits_behind_a_time_that_people_read() -> None:
    made = [new_run_id() for _ in range(1000)]
    assert len({one.partition("-")[2] for one in made}) == 1000
    assert all(len(one.partition("-")[2]) == 16 for one in made)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("7", "is of schema 7; this version reads schema 1: a newer qnn-harness wrote it"),
        ('"1"', "is damaged: its schema is '1', which is no number"),
    ],
)
def test_a_place_of_another_schema_is_told_once(
    schema: str, told: str, tmp_path: Path, logged: Logged
) -> None:
    one = begun(tmp_path, "one")
    for file in (one / ORDER, tmp_path / ".order"):
        file.write_text(file.read_text().replace('"schema":1', f'"schema":{schema}'))
    assert [place_of(one), place_of(one)] == [None, None]
    two = begun(tmp_path, "two")
    assert (said := place_of(two)) is not None
    assert said.number == 1
    assert [warning.count(told) for warning in logged.warnings] == [1, 1]
    assert [warning.split()[0] for warning in logged.warnings] == [
        str(one / ORDER),
        str(tmp_path / ".order"),
    ]


def test_what_is_no_place_at_all_is_nothing_to_tell(tmp_path: Path, logged: Logged) -> None:
    one = begun(tmp_path, "one")
    for text in ("", "{}", "[1]", '{"schema":1,"name":"one"}'):
        (one / ORDER).write_text(text)
        assert place_of(one) is None
    assert logged.warnings == []
