"""Cases that can be reduced, their records, and the smallest way that still fails."""

import itertools
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.containers.manifest import Expects
from harness.core.errors import ConfigError
from harness.lab.inventory import SIMULATED_LAB, load_lab
from harness.models.artefact_sources import NO_OPTIONS
from harness.models.session_plan import RESIDENCIES, Residency
from harness.reduce.subject import (
    RunWay,
    Way,
    WayAnswer,
    expected_of,
    find_record,
    find_subject,
    shrink,
    shrink_list,
)
from harness.report.report_files import finish
from harness.results.run_folder import RunFolder
from harness.runtimes.catalog import Catalog
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.containers.made import epcontext
from tests.unit.results.records import error, record

CASE = "model.pte::test_contexts[sim-v73-htp-2.51.0-model.pte-resident-66]"


@pytest.mark.parametrize(
    "case",
    [
        "model.pte",
        "suites/test_limit.py::test_limit[sim-v73-htp-2.51.0]",
        "model.pte::test_program[sim-v73-htp-2.49.40-model.pte]",
        CASE,
        "made.onnx::test_contexts",
    ],
)
def test_what_cannot_be_taken_apart(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    (tmp_path / "made.onnx").write_bytes(epcontext([], others=1))
    monkeypatch.chdir(tmp_path)
    lab = load_lab(SIMULATED_LAB)
    catalog = Catalog.of(lab, os.environ, tmp_path / "cache")
    with snapshot.raises(ConfigError):
        find_subject(case, SIMULATED_LAB, lab, catalog, NO_OPTIONS)


def test_a_case_in_a_run(tmp_path: Path, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        find_record(CASE, None, tmp_path)
    folder = RunFolder.create(tmp_path, command=[], lab={}, devices=[])
    snapshot.hide(folder.path.name, "RUN")
    other = CASE.replace("66", "3")
    for case in (CASE, other, "suites/test_a.py::test_b[1]", "one.bin::test_contexts[1]"):
        folder.journal.append(record(case=case, outcome="failed"))
    finish(folder, exit_code=1)
    found_record = find_record(CASE, None, tmp_path)
    assert found_record.case == CASE
    short = find_record("one.bin::test_contexts", folder.path, tmp_path)
    assert short.case == "one.bin::test_contexts[1]"
    with snapshot.raises(ConfigError):
        find_record("none.bin::test_contexts", folder.path, tmp_path)
    with snapshot.raises(ConfigError):
        find_record(CASE.replace("66", "5"), None, tmp_path)
    with snapshot.raises(ConfigError):
        find_record("model.pte::test_contexts", None, tmp_path)
    with snapshot.raises(ConfigError):
        find_record(CASE, tmp_path / "none", tmp_path)


def test_only_a_verdict_is_expected_again() -> None:
    assert expected_of(record()) == Expects(outcome="passed", signature=None)
    failed = Expects(outcome="failed", signature=error().signature)
    assert expected_of(record(outcome="failed")) == failed
    assert expected_of(record(outcome="error", cause="infra")) is None
    assert expected_of(record(outcome="unsupported")) is None


ORDERS = st.lists(st.integers(0, 5), min_size=1, max_size=24).map(tuple)


class Counted:
    """Answers by a rule, and counts the different questions."""

    def __init__(self, rule: Callable[[Way], WayAnswer]) -> None:
        self.rule = rule
        self.tried: list[Way] = []

    def __call__(self, way: Way) -> WayAnswer:
        if way not in self.tried:
            self.tried.append(way)
        return self.rule(way)


def last(order: Sequence[int], counted_rule: RunWay, residency: Residency = "resident") -> Way:
    return list(shrink(Way(tuple(order), residency), counted_rule))[-1]


def full(sizes: Sequence[int], budget: int) -> Callable[[Way], WayAnswer]:
    """A domain with room for so much: the first context that does not fit fails."""

    def rule(way: Way) -> WayAnswer:
        loaded: list[int] = []
        for index, kind in enumerate(way.order):
            loaded = loaded[-({"sequential": 1, "window": 4}.get(way.residency, 10**6)) + 1 :]
            loaded = [] if way.residency == "sequential" else loaded
            if sum(loaded) + sizes[kind] > budget:
                return WayAnswer(True, index)
            loaded.append(sizes[kind])
        return WayAnswer(False)

    return rule


@reaches(0.08)
@given(ORDERS, st.sampled_from(RESIDENCIES), st.randoms(use_true_random=False))
def test_what_is_left_fails_and_passes_without_any_one(
    order: tuple[int, ...], residency: Residency, chance: object
) -> None:
    start = Way(order, residency)
    known: dict[Way, WayAnswer] = {start: WayAnswer(True, len(order) - 1)}

    def rule(way: Way) -> WayAnswer:
        if way not in known:
            known[way] = WayAnswer(chance.random() < 0.3, chance.randrange(8))  # type: ignore[attr-defined]
        return known[way]

    ways = list(shrink(start, rule))
    assert len(set(ways)) == len(ways), "each is another one"
    smallest = ways[-1]
    assert rule(smallest).fails
    assert len(smallest.order) <= len(order)
    assert set(smallest.order) <= set(order)
    for index in range(len(smallest.order) if len(smallest.order) > 1 else 0):
        reached()
        fewer = Way(smallest.order[:index] + smallest.order[index + 1 :], smallest.residency)
        assert not rule(fewer).fails
    assert last(order, rule, residency) == smallest


@given(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=40), st.data())
def test_exactly_what_is_needed_is_left_in_its_order(items: list[int], data: st.DataObject) -> None:
    needed = set(data.draw(st.lists(st.sampled_from(items), min_size=1)))
    tried: list[Sequence[int]] = []

    def fails(some: Sequence[int]) -> bool:
        tried.append(some)
        return needed <= set(some)

    ways = [items, *shrink_list(items, fails)]
    assert ways[-1] == [item for item in items if item in needed]
    assert all(len(after) < len(before) for before, after in itertools.pairwise(ways))
    # twice through what is left, and for each gap between as often as it can be halved
    each = 2 + 2 * math.log2(len(items) + 1)
    assert len(tried) <= len(needed) + (len(needed) + 1) * 2 * each


def test_what_comes_behind_the_one_that_failed_goes_first() -> None:
    ways = shrink(Way((5, 6, 7, 8), "resident"), lambda way: WayAnswer(7 in way.order, 2))
    assert [next(ways).order for _ in range(2)] == [(5, 6, 7, 8), (5, 6, 7)]


@pytest.mark.parametrize(("context", "tried"), [(0, [5]), (1, [6, 5]), (2, [7, 6]), (9, [])])
def test_only_the_one_that_failed_or_the_one_before_is_tried_alone(
    context: int, tried: list[int]
) -> None:
    rule = Counted(lambda way: WayAnswer(way.order == (5, 6, 7, 8), context))
    last((5, 6, 7, 8), rule)
    alike = [way.order[0] for way in rule.tried if len(way.order) == 4 > len(set(way.order))]
    assert alike == tried


def test_where_each_is_needed_each_is_asked_for_once() -> None:
    tried: list[Sequence[int]] = []
    assert list(shrink_list(range(40), lambda some: bool(tried.append(some)))) == []
    assert len(tried) == 40


@reaches(0.03)
@given(ORDERS, st.lists(st.integers(1, 9), min_size=6, max_size=6), st.integers(9, 60))
def test_a_domain_that_is_full(order: tuple[int, ...], sizes: list[int], budget: int) -> None:
    rule = Counted(full(sizes, budget))
    if not rule(Way(order, "resident")).fails:
        return
    reached()
    smallest = last(order, rule)
    assert sum(sizes[kind] for kind in smallest.order) > budget
    assert rule(smallest).context == len(smallest.order) - 1


def test_66_of_the_same_size_need_few_runs() -> None:
    rule = Counted(full([66_591_232] * 66, 3_650_722_201))
    assert last(range(66), rule).order == (54,) * 55
    assert len(rule.tried) < 9
    small_between = Counted(full([10_522_368, 66_591_232], 3_650_722_201))
    assert last([0, 1] * 66, small_between).order == (1,) * 55
    assert len(small_between.tried) < 12


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_the_simplest_residency_that_fails(residency: Residency) -> None:
    def rule(way: Way) -> WayAnswer:
        order = {name: index for index, name in enumerate(("sequential", "window", "resident"))}
        return WayAnswer(way.order.count(2) > 1 and order[way.residency] >= order[residency], None)

    assert last((0, 1, 2, 3, 2), rule) == Way((2, 2), residency)
