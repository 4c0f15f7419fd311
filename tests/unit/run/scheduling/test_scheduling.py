"""Who runs what: no device waits while it could work, nothing is lost, scarce devices are kept."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings, strategies as st

from harness.run.scheduling.scheduling import Scheduler, Waiting, spread
from tests.farm_model import Day, Farm, Trouble, bound, simulate
from tests.properties import reached, reaches


def scheduler(cases: Sequence[Waiting], **devices: str) -> Scheduler:
    made = Scheduler()
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


def used_before(*contents: str) -> Scheduler:
    """A device that has run a case of each of these contents."""
    made = scheduler([], one="a")
    for n, content in enumerate(contents):
        made.add(Waiting(n, "a", 1, content=content))
        assert given_to(made, "one") == n
    return made


def test_of_what_lies_on_the_device_the_longest_comes_first() -> None:
    made = used_before("A", "B")
    made.add(Waiting(100, "a", 2, content="A"))
    for n in range(101, 140):
        made.add(Waiting(n, "a", 1, content="B"))
    assert given_to(made, "one") == 100


@pytest.mark.parametrize(
    ("others", "devices", "first"),
    [(1, 1, 100), (4, 1, 100), (5, 1, 101), (5, 2, 100), (11, 2, 100), (12, 2, 101)],
)
def test_towards_the_end_the_longest_comes_first_wherever_its_files_are(
    others: int, devices: int, first: int
) -> None:
    """That is where all that is left takes each device less than three times as long."""
    made = used_before("here")
    for n in range(1, devices):
        made.join(f"more{n}", "a")
    made.add(Waiting(100, "a", 2, content="elsewhere"))
    for n in range(101, 101 + others):
        made.add(Waiting(n, "a", 0.9, content="here"))
    assert given_to(made, "one") == first


@pytest.mark.parametrize(("others", "first"), [(31, "old"), (32, "new")])
def test_the_last_32_contents_are_looked_for(others: int, first: str) -> None:
    made = used_before("old", *map(str, range(others)))
    made.add(Waiting(100, "a", 2, content="new"))
    for n in range(101, 140):
        made.add(Waiting(n, "a", 1, content="old"))
    one = made.next("one")
    assert one is not None
    assert one.content == first


def test_the_longest_that_only_it_can_do_comes_before_what_is_short() -> None:
    only = Waiting(0, "a", 1)
    shared = [Waiting(n, "ab", 0.1) for n in range(1, 21)]
    made = scheduler([*shared, only], scarce="a", other="b")
    assert given_to(made, "scarce") == 0


def test_of_two_as_long_the_one_that_fewer_can_do_comes_first() -> None:
    made = scheduler([*(Waiting(n, "ab", 1) for n in range(6)), Waiting(6, "a", 1)], a="a", b="b")
    assert given_to(made, "a") == 6


class Counting(Scheduler):
    """Counts how often a plan is made."""

    plans = 0

    def _make_plan(self) -> None:
        self.plans += 1
        super()._make_plan()


def counting(devices: int, cases: int) -> Counting:
    made = Counting()
    for n in range(cases):
        made.add(Waiting(n, "abc", 1))
    for n in range(devices):
        made.join(f"d{n}", "a")
    return made


def test_a_plan_is_made_anew_after_each_twentieth_of_the_work_and_not_for_each_case() -> None:
    made = counting(1, 100)
    plans = []
    while given_to(made, "d0") is not None:
        plans.append(made.plans)
    assert plans[:14] == [1] * 6 + [2] * 5 + [3] * 3
    assert plans[-1] < 50


def test_a_plan_is_made_anew_when_a_twentieth_of_the_devices_has_come_or_gone() -> None:
    made = counting(57, 10_000)

    def plans() -> int:
        made.next("d0")
        return made.plans

    assert plans() == 1
    for n, expected in ((57, 1), (58, 1), (59, 1), (60, 2), (61, 2)):
        made.join(f"d{n}", "a")
        assert plans() == expected, "3 of 60 is a twentieth, and no more"
    for n, expected in ((61, 2), (60, 2), (59, 3), (58, 3)):
        made.leave(f"d{n}")
        assert plans() == expected, "with the one that came after the plan"


def test_a_kind_that_is_new_or_gone_and_cases_that_fit_others_are_planned_at_once() -> None:
    made = counting(60, 10_000)
    made.next("d0")
    made.join("other", "b")
    assert made.next("other") is not None
    made.leave("other")
    made.next("d0")
    made.add(Waiting(10_000, "a", 2))
    assert given_to(made, "d0") == 10_000
    assert made.plans == 4


@reaches(0.2)
@given(
    st.lists(st.tuples(st.integers(1, 99), st.sampled_from("ABC")), min_size=1, max_size=20),
    st.lists(st.booleans(), max_size=20),
)
def test_a_device_without_files_always_takes_the_longest(
    cases: list[tuple[int, str]], fresh: list[bool]
) -> None:
    waiting = {n: Waiting(n, "a", *one) for n, one in enumerate(cases)}
    made = scheduler(list(waiting.values()), old="a")
    for n, is_fresh in enumerate(fresh):
        device = f"new{n}" if is_fresh else "old"
        if is_fresh:
            made.join(device, "a")
        one = made.next(device)
        if one is None:
            assert not waiting
            continue
        if is_fresh:
            reached()
            assert one.seconds == max(other.seconds for other in waiting.values())
        assert waiting.pop(one.case) == one


def test_what_others_can_do_too_is_taken_up_to_its_part() -> None:
    """Of 780 s each kind does 390: one case beside the 380 s that only it can do."""
    cases = [Waiting(n, "a", 1) for n in range(380)]
    cases += [Waiting(n, "ab", 10) for n in range(1000, 1040)]
    made = scheduler(cases, a="a", b="b")
    needs = [one.needs for _ in range(3) if (one := made.next("a"))]
    assert needs == ["ab", "a", "a"]


def test_a_kind_of_many_devices_takes_its_part_of_what_others_can_do_too() -> None:
    """So that the one of the other kind is left to what only it can do."""
    only, long = (
        [Waiting(n, "b", 1) for n in range(10)],
        [Waiting(n, "ab", 10) for n in range(10, 14)],
    )
    assert given_to(scheduler([*only, *long], b="b", a0="a", a1="a", a2="a"), "b") == 0
    assert given_to(scheduler([*only, *long], b="b", a0="a"), "b") == 10


def test_of_those_that_failed_the_longest_comes_first_and_only_where_it_can_run() -> None:
    made = scheduler([], one="a", two="b")
    for n, (needs, seconds) in enumerate((("a", 1), ("ab", 3), ("a", 2))):
        made.add(Waiting(n, needs, seconds, not_on=frozenset({"gone"})))
    assert [given_to(made, device) for device in ("two", "two", "one", "one")] == [1, None, 2, 0]


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
    made.add(Waiting(3, "a", 1))
    assert {one.case for one in made.without_device()} == {0, 3}, "nobody is left"
    made.join("three", "x")
    made.add(Waiting(4, "a", 1, not_on=frozenset({"one"})))
    assert {one.case for one in made.without_device()} == {3, 4}, "it is of another kind"
    assert given_to(made, "three") == 0


def test_how_much_of_what_waits_a_device_could_do() -> None:
    cases = [Waiting(0, "ab", 2), Waiting(1, "b", 4), Waiting(2, "a", 8, not_on=frozenset({"x"}))]
    made = scheduler([*cases, Waiting(3, "ab", 16)], y="a")
    asked = (("x", "a"), ("y", "a"), ("x", "b"), ("y", "b"))
    assert [made.work_for(*one) for one in asked] == [18, 26, 22, 22]
    assert [given_to(made, "y") for _ in range(2)] == [2, 3]
    assert [made.work_for(*one) for one in asked] == [2, 2, 6, 6]


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


@reaches(0.1)
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


WORK = st.dictionaries(
    st.sets(st.sampled_from("abcd"), min_size=1).map(lambda kinds: "".join(sorted(kinds))),
    st.floats(0, 100, allow_nan=False),
    max_size=6,
)
DEVICES = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5), min_size=1)
BEFORE = st.dictionaries(
    st.sampled_from("abcd"), st.dictionaries(st.sampled_from(["a", "ab", "bcd"]), st.floats(-1, 9))
)


def least_load(work: dict[str, float], devices: dict[str, int]) -> float:
    """The work that only some kinds can do, for each device of them: no plan is done before."""
    some = (set(one) for n in range(len(devices)) for one in itertools.combinations(devices, n + 1))
    return max(
        sum(part for needs, part in work.items() if set(needs) & devices.keys() <= only)
        / sum(devices[kind] for kind in only)
        for only in some
    )


@given(WORK, DEVICES, BEFORE)
@example({"ab": 6.0, "b": 4.0}, {"a": 1, "b": 1}, {"a": {"ab": 1000.0}})
def test_a_plan_has_all_work_where_it_can_be_done_and_is_done_as_soon_as_can_be(
    work: dict[str, float], devices: dict[str, int], before: dict[str, dict[str, float]]
) -> None:
    work = {needs: part for needs, part in work.items() if set(needs) & devices.keys()}
    plan = spread(work | {"x": 9.0}, devices, before)
    assert plan.keys() == devices.keys()
    for needs, part in work.items():
        shares = {kind: own[needs] for kind, own in plan.items() if needs in own}
        assert shares.keys() == set(needs) & devices.keys()
        assert sum(shares.values()) == pytest.approx(part, abs=1e-6)
        assert all(share >= 0 for share in shares.values())
    longest = max(sum(own.values()) / devices[str(kind)] for kind, own in plan.items())
    least = least_load(work, devices)
    assert least - 1e-6 <= longest <= 1.05 * least + 1e-6
    assert not any("x" in own for own in plan.values())


def test_a_plan_that_is_still_right_is_looked_at_once_only() -> None:
    """Each look costs all needs times all kinds."""
    work = {"abc": 5.0, "ab": 3.0, "bc": 4.0, "ac": 1.0}
    devices = {"a": 1, "b": 2, "c": 3}

    class Looked(dict[str, float]):
        looks = 0

        def __getitem__(self, key: str) -> float:
            self.looks += 1
            return super().__getitem__(key)

    first, again = Looked(work), Looked(work)
    plan = spread(first, devices, {})
    assert spread(again, devices, plan) == {
        kind: pytest.approx(own, rel=0.01, abs=0.01) for kind, own in plan.items()
    }
    assert again.looks == len(work) < first.looks


def uneven(seed: int, cases: int, spread_of: float, *, known: bool, slow: float = 3.0) -> Farm:
    """Four devices, and four that take so many times as long."""
    chance = random.Random(seed)
    seconds = [chance.lognormvariate(0, spread_of) for _ in range(cases)]
    kind = frozenset({"k"})
    waiting = [Waiting(n, kind, seconds[n] if known else 1.0, n % 8) for n in range(cases)]
    names = [f"device{n}" for n in range(8)]
    paces = dict.fromkeys(names[4:], slow)
    return Farm(dict.fromkeys(names, "k"), waiting, seconds, paces)


@pytest.mark.parametrize(
    ("cases", "spread_of", "known", "most"),
    [
        (100, 0.2, True, 1.05),
        (100, 1.0, True, 1.05),
        (200, 0.5, True, 1.05),
        (200, 0.2, False, 1.05),
        (400, 0.5, False, 1.05),
        # which case is a long one nobody can know
        (1000, 1.0, False, 1.15),
    ],
)
def test_slow_devices_hold_nobody_up(
    cases: int, spread_of: float, known: bool, most: float
) -> None:
    ratios = []
    for seed in range(6):
        farm = uneven(seed, cases, spread_of, known=known)
        day = simulate(farm)
        assert sorted(day.ran) == list(range(cases))
        least_s = max(sum(farm.seconds) / (4 + 4 / 3), *farm.seconds)
        ratios.append(day.makespan / least_s)
    assert sum(ratios) / len(ratios) <= most, ratios
    assert max(ratios) <= most + 0.05, ratios


def test_a_slow_device_leaves_the_last_case_to_a_fast_one_that_will_be_free() -> None:
    clock = [0.0]
    made = Scheduler(lambda: clock[0])
    for name, pace in (("fast", 1.0), ("slow", 5.0)):
        made.join(name, "a")
        made.paces.expect(name, pace)
    for n in range(2):
        made.add(Waiting(n, "a", 2.0))
    assert given_to(made, "slow") is None
    assert given_to(made, "fast") == 0
    assert given_to(made, "slow") is None, "4 s there and 10 s here"
    made.add(Waiting(2, "a", 30.0))
    assert given_to(made, "slow") == 1, "now the fast one has more to do"


def unlike(*cases: Waiting, slow: float, clock: list[float]) -> Scheduler:
    """A fast device and one that takes so many times as long."""
    made = Scheduler(lambda: clock[0])
    for name, pace in (("fast", 1.0), ("slow", slow)):
        made.join(name, "a")
        made.paces.expect(name, pace)
    for one in cases:
        made.add(one)
    return made


def test_a_device_that_has_run_nothing_is_free_at_once() -> None:
    made = unlike(Waiting(0, "a", 2.0), slow=1.25, clock=[0.0])
    assert given_to(made, "slow") is None, "2 s there and 2.5 s here"


def test_what_a_device_has_done_of_its_case_counts() -> None:
    clock = [0.0]
    made = unlike(Waiting(0, "a", 10.0), slow=2.5, clock=clock)
    assert given_to(made, "fast") == 0
    clock[0] = 9.0
    made.add(Waiting(1, "a", 2.0))
    assert given_to(made, "slow") is None, "3 s there and 5 s here"
    clock[0] = 5.0
    assert given_to(made, "slow") == 1, "7 s there and 5 s here"
    made.add(Waiting(2, "a", 2.0))
    assert given_to(made, "fast") == 2, "who asks is free"


def test_a_first_case_and_one_of_somebody_else_tell_nothing_of_a_pace() -> None:
    made = scheduler([Waiting(n, "a", 1.0) for n in range(5)], one="a")
    for took in (60.0, 5.0, 5.0):
        case = given_to(made, "one")
        assert case is not None
        made.finished("one", case, took)
        made.finished("one", 99, took)
        assert made.paces.of("one") == 1.0
    case = given_to(made, "one")
    assert case is not None
    made.finished("one", case, 5.0)
    assert made.paces.of("one") == 5.0


@pytest.mark.parametrize(("fillers", "then"), [(0, 1), (40, 2)])
def test_how_much_is_left_is_reckoned_at_the_pace_of_the_device(fillers: int, then: int) -> None:
    made = scheduler([Waiting(0, "a", 3.0, "x")], one="a")
    made.paces.expect("one", 4.0)
    assert given_to(made, "one") == 0
    others = [Waiting(10 + n, "a", 1.0, "z") for n in range(fillers)]
    for one in (Waiting(1, "a", 2.0, "y"), Waiting(2, "a", 1.0, "x"), *others):
        made.add(one)
    assert given_to(made, "one") == then, "the longest, or while much is left what lies there"


def test_the_longest_comes_next_behind_one_that_was_weighed() -> None:
    cases = [Waiting(n, "a", seconds) for n, seconds in enumerate((9.0, 5.0, 8.0, 1.0, 4.0, 7.0))]
    made = unlike(*cases, slow=3.0, clock=[0.0])
    assert given_to(made, "fast") == 0
    made.leave("slow")
    assert [given_to(made, "fast") for _ in range(5)] == [2, 5, 1, 4, 3]


@pytest.mark.parametrize(("waiting", "weighed"), [(500, True), (501, False)])
def test_of_many_cases_none_is_weighed(waiting: int, weighed: bool) -> None:
    short = [Waiting(n, "a", 0.001) for n in range(1, waiting)]
    made = unlike(Waiting(0, "a", 100.0), *short, slow=5.0, clock=[0.0])
    assert (given_to(made, "slow") != 0) is weighed, "the fast one would be done sooner with it"
