"""Slower or not: tables, and what holds for any figures."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.history.speed_changes import Change, JudgedSpeed, interval, judge
from tests.snapshots import Snapshot

QUIET = [1000.0, 1004.0, 997.0, 1001.0, 999.0, 1003.0, 1000.0]


def change(base: Sequence[Any], new: Sequence[Any], effect: float = 0.1) -> Change:
    (change,) = judge(["a"], ["g"], [base], [new], effect).changes
    return change


def judged(*rows: tuple[Any, str, Sequence[float], Sequence[float]]) -> JudgedSpeed:
    """Of name, group, base and new of each."""
    return judge(*zip(*rows, strict=True))


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ([1001], "same"),
        ([1001, 999], "same"),
        ([1200], "unsure"),  # a single run proves nothing
        ([9000], "unsure"),
        ([1200, 1190], "slower"),
        ([1200, 1001], "unsure"),  # the rerun does not say so
        ([1200, 1001, 1195], "slower"),
        ([1200, 1001, 1003], "same"),
        ([800, 805], "faster"),
        ([1050, 1051, 1049, 1050, 1050], "same"),  # by less than is asked for
        ([1110, 1112, 1108, 1110, 1110], "slower"),
        ([], "unsure"),
        ([None, None], "unsure"),
    ],
)
def test_a_quiet_case(new: list[float], verdict: str) -> None:
    assert change(QUIET, new).verdict == verdict


def test_a_change_by_just_as_much_as_is_asked_for_is_told() -> None:
    assert change([1.0] * 6, [1.5] * 3, 0.5).verdict == "slower"
    assert change([1.0] * 6, [1.4999] * 3, 0.5).verdict == "unsure"
    assert change([1.0] * 6, [1.5] * 3, 0.501).verdict == "unsure"


def test_what_is_no_size_of_anything_is_left_out() -> None:
    for most, odd in ((1e100, 1.1e100), (1e-100, 0.9e-100)):
        assert change([most] * 6, [most]).new_runs == 1
        assert change([most] * 6, [odd]).new_runs == 0


def test_a_device_needs_eight_cases_of_which_three_quarters_moved_half_as_far() -> None:
    def together(moved: Sequence[float], effect: float = 0.1) -> bool:
        many, new = len(moved), [[us * by for us in QUIET[:3]] for by in moved]
        (common,) = judge(range(many), ["g"] * many, [QUIET] * many, new, effect).common
        return common is not None

    assert together([1.2] * 8)
    assert not together([1.2] * 7)
    assert together([1.2] * 6 + [1.0] * 2)
    assert not together([1.2] * 6 + [1.0] * 3)
    assert together([1.0 / 1.2] * 6 + [1.0] * 2)
    assert together([1.2] * 6 + [1.1] * 6), "1.1 is more than half the way to what is in the middle"
    assert not together([1.2] * 7 + [1.07] * 6)
    # half as far as is asked for, in logarithms
    assert together([1.05] * 8)
    assert not together([1.045] * 8)
    assert together([1.11] * 8, 0.2)
    assert not together([1.09] * 8, 0.2)


def test_sizes_and_intervals_of_a_change() -> None:
    faster = change(QUIET, [800, 801])
    assert faster.size == pytest.approx(1 / faster.ratio)
    assert change(QUIET, [1250, 1251]).size == pytest.approx(1.25, rel=1e-3)
    assert interval(faster) == f"{faster.low:.3g} to {faster.high:.3g}, 5 + 2 runs"
    (single,) = judge(["a"], ["g"], [QUIET], [[1]]).changes
    assert interval(single).endswith("5 + 1 run")


@pytest.mark.slow
def test_figures_with_two_modes_give_no_alarm() -> None:
    """As times on a computer that something else works on, too."""
    rng = np.random.default_rng(11)
    many = 250
    quiet = rng.uniform(100, 10_000, many) * np.exp(0.3 * rng.standard_t(4, (20, many)))
    rows = np.where(rng.random((20, many)) < 0.2, 8 * quiet, quiet).T
    names, groups = range(many), [name % 3 for name in range(many)]
    for runs in range(3, 21):
        for new in (1, 2, 3):
            judgement = judge(names, groups, rows[:, : runs - new], rows[:, runs - new : runs])
            assert [
                change for change in judgement.all if change.verdict in ("slower", "faster")
            ] == []
            assert all(
                change.low > 1 or change.high < 1 for change in judgement.all if change.suspect
            )


def test_what_most_cases_of_a_device_do_is_told_once() -> None:
    rng = np.random.default_rng(7)

    def runs(level: float, number: int) -> list[float]:
        return [level * math.exp(noise) for noise in rng.normal(0, 0.005, number)]

    def device(factor: float) -> JudgedSpeed:
        cases = [(n, "hot", runs(1000, 8), runs(1000 * factor, 3)) for n in range(20)]
        alone = ("own", "hot", runs(500, 8), runs(500 * factor * 1.5, 3))
        return judged(*cases, alone, ("other", "cool", runs(100, 8), runs(100, 3)))

    judgement = device(1.2)
    assert [change.name for change in judgement.changes if change.verdict != "same"] == ["own"]
    hot, cool = judgement.common
    assert (hot.verdict, hot.name) == ("slower", "hot")
    assert hot.ratio == pytest.approx(1.2, rel=0.02)
    assert cool is None
    assert device(1.0).common == [None, None]


HOSTILE = [float("nan"), float("inf"), -float("inf"), -1, 0, 1e300, 5e-324, None]


@given(
    st.lists(st.sampled_from(HOSTILE), max_size=8), st.lists(st.sampled_from(HOSTILE), max_size=8)
)
def test_no_value_is_trusted(base: list[Any], new: list[Any]) -> None:
    wide = [*base, *[None] * (8 - len(base))], [*new, *[None] * (8 - len(new))]
    comparison = judged(("a", "g", *wide), ("b", "g", [*QUIET, 1001], [*wide[1][:-2], 1200, 1201]))
    assert comparison.changes[0].verdict in ("unsure", "same")
    assert all(math.isfinite(change.ratio) for change in comparison.changes)


def test_what_is_known_to_whole_numbers_only_is_no_change_by_one_of_them() -> None:
    fine, whole = (
        judge(["a"], ["g"], [[3.0] * 6], [[4.0] * 3], steps=step).changes[0]
        for step in (None, [1.0])
    )
    assert (fine.verdict, whole.verdict) == ("slower", "unsure")
    assert judge([], [], [], []) == JudgedSpeed((), ())


# base and new of a figure each, the oldest run first
ROWS = """
1000 1004 1400 1402 | 1000 1001 1003
1000 1004 997 1001 | - -
- - | 1000 1004 997 1001 1003
999 987 1030 | 368 368 - 368 371
1000 1177 1162 | 909 889 872 903 900
1000 - 999 992 1001 498 1004 | 1016
979 984 - | 2721 2646 2701 2715 -
504 983 933 962 - 1013 | 2712 2730
1022 - 467 963 1023 986 | 1499 1504
992 1094 976 | 953 947 961 955 984
971 - 1025 | 991 1005 1002 - 968
989 - 1342 | 1499 1488 1514 1450 1901
465 - 1019 | 1008 1045 1053 1005 1047
979 1360 998 1012 973 1003 | 1007 999
978 - 1004 960 | 1052 - 940 933 977
972 998 986 993 977 997 - | 948
993 999 1338 1000 986 1007 954 1344 | 1493 1497 -
944 1001 1033 696 1036 1024 996 | 906
1005 - 1009 1057 1332 - 672 | 1015
- 1005 981 991 1353 1018 994 | 1050
1197 1235 | 791 944
1000 987 | 829 823
1393 - 1007 | 1171 - 1156 1153 1164
956 678 561 | 1367 975 983 1030 1087
1037 993 996 958 - 907 659 | 1316
974 1036 976 | 734 - 802 - 840
998 - 990 1005 1029 984 | 1071 1421
1017 941 921 985 992 1046 1009 1357 | 487 - 1150
"""


def test_rows_of_all_sorts(snapshot: Snapshot) -> None:
    sides: tuple[list[list[float | None]], ...] = [], []
    for row in ROWS.strip().splitlines():
        for side, words, number in zip(sides, row.split("|"), (8, 5), strict=True):
            runs = [None if word == "-" else float(word) for word in words.split()]
            side.append([None] * (number - len(runs)) + runs)
    names = range(len(sides[0]))
    assert [
        f"{change.verdict}{' suspect' * change.suspect} x {change.ratio:.4g}, p {change.p:.3g}, "
        f"{interval(change)}; {change.more_base} + {change.more_new} more; "
        f"tells {change.tells and round(change.tells, 3)}"
        for change in judge(names, names, *sides).changes
    ] == snapshot
