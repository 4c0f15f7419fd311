"""Every case is in exactly one shard, the work of each device is level, and gaps are named."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from harness.answers.merging.shards import (
    Shard,
    ShardRun,
    divided,
    gaps,
    named,
    parse_shard,
    shard_of,
)
from harness.ground.errors import ConfigError
from tests.properties import reached, reaches

PLACES = st.dictionaries(st.text(max_size=3), st.sampled_from(["a", "b", "c"]), max_size=40)
SECONDS = st.floats(0, 1e7, allow_nan=False)


@reaches(0.1)
@given(PLACES, st.dictionaries(st.text(max_size=3), SECONDS), st.integers(1, 9), st.randoms())
def test_every_case_is_in_one_shard_and_no_work_is_far_from_level(
    places: dict[str, str], seconds: dict[str, float], of: int, chance: random.Random
) -> None:
    found = divided(places, seconds, of)
    assert found.keys() == places.keys()
    assert set(found.values()) <= set(range(1, of + 1))
    if len(places) >= of:
        assert set(found.values()) == set(range(1, of + 1)), "none is empty"
    shuffled = list(places.items())
    chance.shuffle(shuffled)
    others = dict(reversed(seconds.items())) | {"never heard of": 1e6}
    assert divided(dict(shuffled), others, of) == found, "whatever order, whatever else is known"
    known = {case: max(1, round(seconds[case] * 1e6)) for case in places if case in seconds}
    if known.keys() == places.keys():
        for place in set(places.values()):
            own = {case: known[case] for case in places if places[case] == place}
            sums = Counter(dict.fromkeys(range(1, of + 1), 0))
            for case, lasts in own.items():
                sums[found[case]] += lasts
            reached()
            assert max(sums.values()) - min(sums.values()) <= max(own.values())


def test_each_device_is_as_busy_on_all_machines() -> None:
    places = {f"{device}{number}": device for device in ("x", "y") for number in range(4)}
    seconds = {"x0": 9.0, "x1": 3.0, "x2": 3.0, "x3": 3.0} | {f"y{n}": 1.0 for n in range(4)}
    found = divided(places, seconds, 2)
    assert Counter((places[case], number) for case, number in found.items()) == {
        ("x", found["x0"]): 1,
        ("x", 3 - found["x0"]): 3,
        ("y", 1): 2,
        ("y", 2): 2,
    }


def test_all_work_is_divided_evenly_however_few_cases_each_device_has() -> None:
    places = {"x0": "x", "y0": "y", "z0": "z"}
    seconds = {"x0": 3.0, "y0": 2.0, "z0": 1.0}
    found = divided(places, seconds, 2)
    assert found["x0"] != found["y0"] == found["z0"], "3 beside 2 and 1"


def test_of_what_is_not_known_each_counts_as_much_as_others_usually_do() -> None:
    places = dict.fromkeys("abcdef", "x")
    assert sorted(Counter(divided(places, {}, 3).values()).values()) == [2, 2, 2]
    found = divided(places, {"a": 3.0, "b": 1.0, "c": 1.0}, 2)
    assert [case for case in "bcdef" if found[case] == found["a"]] == ["e"], "3 + 1 and 4 x 1"


@pytest.mark.parametrize("text", ["1/1", "3/3", " 2/7 ", "1/99999"])
def test_shards(text: str) -> None:
    number, of = parse_shard(text)
    assert f"{number}/{of}" == text.strip()


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "x", "", "1", "1/", "/3", "1/0", "-1/3", "1/3/3", "01/3", "1 / 3", "١/٣"]
)
def test_no_shards(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--shard: .* is no shard: i/n .*\(valid: 1/3, 2/3"):
        parse_shard(text)


CASES = dict.fromkeys("abcdefg", "x")


def parts(
    of: int = 3, seconds: dict[str, float] | None = None, places: dict[str, str] | None = None
) -> list[ShardRun]:
    found = []
    for number in range(1, of + 1):
        shard, own = shard_of((number, of), places or CASES, seconds or {}, "night")
        found.append(ShardRun(f"run{number}", shard, own, own))
    return found


def test_shards_of_one_selection_lack_nothing() -> None:
    whole = parts()
    assert gaps(whole) == gaps(whole[::-1]) == []
    assert sorted(case for one in whole for case in one.cases) == list("abcdefg")


def test_what_is_missing_is_named() -> None:
    first, second, third = parts()
    assert gaps([second]) == ["of 3 shards these are missing: 1, 3"]
    lacks = min(second.cases)
    short = ShardRun("run2", second.shard, second.cases, set(second.cases) - {lacks})
    assert gaps([first, short, third]) == [f"shard 2 (run2) has not run 1 case: {lacks}"]
    nothing = ShardRun("run3", third.shard, third.cases, ())
    assert gaps([first, nothing])[0] == "of 3 shards these are missing: 2"


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (parts(of=2), "shard 1/3 of 7 cases .* shard 1/2 of 7 cases"),
        (
            parts(seconds={"a": 2.0}),
            "were not divided alike: run1 is .* run1 is .*; selection, lab",
        ),
        (parts(places=CASES | {"h": "x"}), "of 7 cases .* of 8 cases"),
        (parts(places=dict.fromkeys("abcdefz", "x")), "were not divided alike"),
        (parts(), "run1 and run1 are both shard 1/3"),
    ],
)
def test_what_does_not_belong_together_is_refused(others: list[ShardRun], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        gaps([*parts()[:2], others[0]])


def test_lists_of_cases_that_were_changed_are_refused() -> None:
    first, second, third = parts()
    stolen = sorted(first.cases)[0]
    more = {*second.cases, stolen}
    with pytest.raises(ConfigError, match=f"run1 and run2 both have 1 case: {stolen}$"):
        gaps([first, ShardRun("run2", second.shard, more, more)])
    with pytest.raises(ConfigError, match=f"run2 has run what is not in its shard: .*{stolen}"):
        gaps([first, ShardRun("run2", second.shard, second.cases, more)])
    with pytest.raises(ConfigError, match="have 6 cases together, not 7: a list was changed"):
        gaps([first, second, ShardRun("run3", third.shard, less := sorted(third.cases)[1:], less)])


def test_where_labs_differ_what_one_could_not_run_is_named() -> None:
    (here, own), (there, others) = (
        shard_of((1, 2), CASES, {}, None, ["y", "x"]),
        shard_of((2, 2), CASES | {"x": "x"}, {}, None),
    )
    assert "no device of this lab fits 2 tests: x, y; " in str(here.advice)
    assert there.advice is None
    told = r"of 7 cases .* of 8 cases .*; run1 had no device for 2 tests: x, y; selection, lab"
    with pytest.raises(ConfigError, match=told):
        gaps([ShardRun("run1", here, own, own), ShardRun("run2", there, others, others)])
    alike, rest = shard_of((2, 2), CASES, {}, None, ["z"])
    assert gaps([ShardRun("run1", here, own, own), ShardRun("run2", alike, rest, rest)]) == []


def test_more_shards_than_cases() -> None:
    assert [len(shard_of((n + 1, 7), CASES, {}, None)[1]) for n in range(7)] == [1] * 7
    with pytest.raises(ConfigError, match="7 cases cannot be divided into 8 shards"):
        shard_of((1, 8), CASES, {}, None)


def test_a_run_is_resumed_as_the_shard_that_it_was() -> None:
    places = dict.fromkeys("abcdefg", "x")
    code = {"suites/a.py": "0" * 64, "conftest.py": "1" * 64}

    def shard(number: int = 1, of: int = 3, more: str = "", **changed: str) -> Shard:
        cases = places | dict.fromkeys(more, "x")
        return shard_of((number, of), cases, {}, "night", code=code | changed)[0]

    held = shard().model_dump(mode="json")
    shard().refuse_to_complete(held)
    for other in (shard(number=2), shard(of=2), shard(more="h")):
        with pytest.raises(ConfigError, match=r"--shard: the run to resume is not shard .* others"):
            other.refuse_to_complete(held)
    for nothing in (None, {}, held | {"division": 3}):
        with pytest.raises(ConfigError, match="the run to resume is not shard 1/3 of 7 cases"):
            shard().refuse_to_complete(nothing)
    changed = shard(**{"suites/a.py": "2" * 64, "suites/new.py": "0" * 64})
    told = r"--shard: the run to resume was of other test code.*: 2 files: suites/a\.py, suites/new"
    with pytest.raises(ConfigError, match=told):
        changed.refuse_to_complete(held)
    assert changed.code_unlike(shard()) == shard().code_unlike(changed)


def test_what_a_run_says_of_its_shard() -> None:
    shard, _ = shard_of((2, 3), CASES, {}, None)
    told = shard.in_run_json(["-m device"])
    assert told["selection"] == ["-m device", f"--shard=2/3 of {shard.division}"]
    assert Shard.model_validate(told["shard"]) == shard
    assert str(shard) == "shard 2/3 of 7 cases by their number"
    with pytest.raises(ValidationError, match="frozen"):
        shard.number = 1  # type: ignore[misc]


def test_parts_of_other_test_code_are_refused() -> None:
    (first, own), (second, others) = (
        shard_of((n, 2), CASES, {}, None, code={"suites/a.py": digit * 64})
        for n, digit in ((1, "0"), (2, "1"))
    )
    with pytest.raises(ConfigError, match=r"run1 and run2 differ in 1 file: suites/a\.py; run one"):
        gaps([ShardRun("run1", first, own, own), ShardRun("run2", second, others, others)])


@pytest.mark.parametrize(
    ("cases", "told"),
    [
        ("", "0 cases: "),
        ("ba", "2 cases: a, b"),
        ("abcde", "5 cases: a, b, c, d, e"),
        ("abcdefg", "7 cases: a, b, c, d, e and 2 more"),
    ],
)
def test_five_names_are_enough_to_look_for_the_mistake(cases: str, told: str) -> None:
    assert named(cases) == told
