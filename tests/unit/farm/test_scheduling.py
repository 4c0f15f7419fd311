"""Who runs what: no device waits while it could work, nothing is lost, scarce devices are kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.farm.scheduling import Scheduler, Waiting
from tests.farm_model import Day, Farm, Trouble, bound, simulate
from tests.properties import reached, reaches


def scheduler(cases: Sequence[Waiting], **devices: str) -> Scheduler:
    made = Scheduler(lambda needs, kind: kind in str(needs))
    for one in cases:
        made.add(one)
    for name, kind in devices.items():
        made.join(name, kind)
    return made


def given_to(made: Scheduler, device: str) -> int | None:
    one = made.next(device)
    return None if one is None else one.case


def test_the_longest_comes_first() -> None:
    made = scheduler([Waiting(0, "a", 1), Waiting(1, "a", 3), Waiting(2, "a", 2)], one="a")
    assert [given_to(made, "one") for _ in range(4)] == [1, 2, 0, None]


def test_the_scarce_device_keeps_to_what_only_it_can_do() -> None:
    only, any_kind = [Waiting(n, "a", 1) for n in range(4)], []
    any_kind = [Waiting(n, "ab", 1) for n in range(4, 8)]
    made = scheduler([*any_kind, *only], scarce="a", other="b")
    assert {given_to(made, "scarce") for _ in range(4)} == {0, 1, 2, 3}
    assert {given_to(made, "other") for _ in range(4)} == {4, 5, 6, 7}
    assert given_to(made, "other") is None


def test_the_scarce_device_helps_when_its_own_work_is_done() -> None:
    made = scheduler([Waiting(0, "ab", 1), Waiting(1, "ab", 1), Waiting(2, "a", 1)], a="a", b="b")
    taken = [given_to(made, "a") for _ in range(3)]
    assert taken[0] == 2
    assert sorted(map(str, taken)) == ["0", "1", "2"]


def test_what_lies_on_the_device_is_preferred_while_much_is_left() -> None:
    cases = [Waiting(n, "a", 1, content=n % 4) for n in range(40)]
    made = scheduler(cases, one="a", two="a")
    contents = []
    for _ in range(5):
        one, two = made.next("one"), made.next("two")
        assert one is not None
        assert two is not None
        contents.append((one.content, two.content))
    assert len({content for content, _ in contents}) == 1
    assert len({content for _, content in contents}) == 1


def test_what_was_used_last_is_looked_for_first() -> None:
    made = scheduler([], one="a")
    for n, content in enumerate("ABA"):
        made.add(Waiting(n, "a", 1, content=content))
        assert given_to(made, "one") == n
    # much work is left, and of what lies on the device B was used before A
    for n in range(3, 300):
        made.add(Waiting(n, "a", 1 + (n % 3 == 2), content="BAC"[n % 3]))
    following = [made.next("one") for _ in range(5)]
    assert {one.content for one in following if one} == {"A"}


def test_a_case_that_failed_goes_first_and_elsewhere() -> None:
    made = scheduler([Waiting(0, "a", 9), Waiting(1, "a", 1)], one="a", two="a")
    failed = made.next("one")
    assert failed is not None
    assert made.leave("one") == [failed]
    made.add(replace(failed, not_on=frozenset({"one"})))
    made.join("one", "a")
    assert given_to(made, "one") == 1
    assert given_to(made, "two") == 0
    assert made.waiting == 0


def test_what_no_device_can_run_is_told() -> None:
    cases = [Waiting(0, "x", 1), Waiting(1, "a", 1), Waiting(2, "a", 1, not_on=frozenset({"one"}))]
    made = scheduler(cases, one="a")
    assert {one.case for one in made.without_device()} == {0, 2}
    assert given_to(made, "one") == 1
    assert given_to(made, "one") is None
    made.join("two", "a")
    assert {one.case for one in made.without_device()} == {0}
    assert given_to(made, "two") == 2
    made.leave("two")
    made.leave("one")
    made.join("three", "x")
    assert given_to(made, "three") == 0


def test_how_much_of_what_waits_a_device_could_do() -> None:
    cases = [Waiting(0, "ab", 2), Waiting(1, "b", 4), Waiting(2, "a", 8, not_on=frozenset({"x"}))]
    made = scheduler(cases)
    assert [made.work_for(*one) for one in (("x", "a"), ("y", "a"), ("x", "b"))] == [2, 10, 6]


def test_a_finished_case_is_not_given_back() -> None:
    made = scheduler([Waiting(0, "a", 2), Waiting(1, "a", 1)], one="a")
    assert given_to(made, "one") == 0
    made.finished("one", 0)
    assert given_to(made, "one") == 1
    assert [one.case for one in made.leave("one")] == [1]


KINDS = "abc"
CASES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(KINDS), min_size=1).map(lambda kinds: "".join(sorted(kinds))),
        st.floats(0, 100, allow_nan=False),
        st.integers(0, 3),
    ),
    max_size=40,
)


@reaches(0.4)
@given(CASES, st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), st.randoms())
def test_no_device_is_idle_while_it_could_work_and_each_case_runs_once(
    cases: list[tuple[str, float, int]], kinds: list[str], chance: random.Random
) -> None:
    waiting = {n: Waiting(n, *one) for n, one in enumerate(cases)}
    names = {f"d{n}": kind for n, kind in enumerate(kinds)}
    made = scheduler(list(waiting.values()), **names)
    away: list[str] = []
    for _ in range(4 * len(cases) + 10):
        here = [name for name in names if name not in away]
        if away and (not here or chance.random() < 0.3):
            back = away.pop()
            made.join(back, names[back])
            continue
        name = chance.choice(here)
        if chance.random() < 0.1:
            away.append(name)
            assert made.leave(name) == []
            continue
        one = made.next(name)
        if one is None:
            assert not [case for case in waiting.values() if names[name] in str(case.needs)]
            continue
        reached()
        assert names[name] in str(one.needs)
        assert waiting.pop(one.case) == one
        made.finished(name, one.case)
        assert made.waiting == len(waiting)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_a_farm_with_trouble_runs_each_case_to_its_end(seed: int) -> None:
    farm = Farm.random(seed, devices=5, cases=60, kinds=3, needs=5)
    day = simulate(farm, Trouble(0.1, random=random.Random(seed)))
    assert sorted(day.ran) == list(range(60))
    assert day.makespan >= 0.999 * bound(day)


@pytest.mark.parametrize("seed", range(3))
def test_a_farm_is_done_soon_after_it_could_be_at_best(seed: int) -> None:
    farm = Farm.random(seed, devices=40, cases=2000, kinds=6, needs=12)
    day = simulate(farm)
    assert day.makespan <= 1.03 * bound(day)


def test_the_bound_of_a_known_farm() -> None:
    day = Day(
        makespan=9,
        work={frozenset("a"): 4.0, frozenset("ab"): 4.0},
        of_case={0: 1.0},
        present={"a": [(0, float("inf"))], "b": [(0, float("inf"))]},
    )
    assert bound(day) == pytest.approx(4, rel=1e-3)
    day.present["b"] = [(3, float("inf"))]
    assert bound(day) == pytest.approx(5.5, rel=1e-3)
