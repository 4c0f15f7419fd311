"""The order in which files of a store are removed, and those that never are."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.deploy.store_client import Inventory, parse_inventory, plan_eviction
from tests.unit.deploy.test_layout import DONE

A, B, C = (letter * 64 for letter in "abc")


def three_sets(*used: str, claims: tuple[str, ...] = ()) -> Inventory:
    """Three sets of 10, 20 and 30 bytes, the first used last; B is in two of them."""
    return Inventory(
        entries={f"{A}.1": 10, f"{B}.1": 20, f"{C}.1": 30},
        sets={
            "one.1": (300, frozenset({f"{A}.1", f"{B}.1"})),
            "two.1": (200, frozenset({f"{B}.1"})),
            "three.1": (100, frozenset({f"{C}.1"})),
        },
        folders={"one.1", "two.1", "three.1"},
        claims=set(claims),
        used=set(used),
    )


@pytest.mark.parametrize(
    ("need", "used", "sets", "entries"),
    [
        (0, (), (), ()),
        (30, (), ("three.1",), (C,)),
        (31, (), ("three.1", "two.1", "one.1"), (C, A, B)),
        (1, ("three",), ("two.1", "one.1"), (A, B)),
        (None, ("two", B), ("three.1", "one.1"), (C, A)),
    ],
)
def test_the_order_in_which_sets_go(
    need: int | None, used: tuple[str, ...], sets: tuple[str, ...], entries: tuple[str, ...]
) -> None:
    plan = plan_eviction(three_sets(*used), need)
    assert plan.sets == sets
    assert plan.entries == tuple(f"{entry}.1" for entry in entries)


def test_what_is_of_no_use_goes_first() -> None:
    inventory = three_sets(claims=("alive-1-0",))
    inventory.entries |= {"d" * 64 + ".7": 5}
    inventory.folders |= {"unfinished.3", "begun.4"}
    inventory.used |= {"begun"}
    inventory.incoming = {"alive-1-0.5": 1000, "gone-2-0.6": 50}
    plan = plan_eviction(inventory, 1)
    assert plan.sets == ("unfinished.3",)
    assert plan.entries == ("d" * 64 + ".7",)
    assert plan.drop == ("gone-2-0.6",)
    assert plan.size == 55


entries = st.sampled_from([letter * 64 for letter in "abcdef"])
names = st.sampled_from(["one", "two", "three", "four"])


@given(
    sizes=st.dictionaries(entries, st.integers(0, 100)),
    sets=st.dictionaries(names, st.tuples(st.integers(0, 9), st.frozensets(entries))),
    used=st.frozensets(names | entries),
    need=st.none() | st.integers(0, 500),
)
def test_nothing_that_is_needed_goes(
    sizes: dict[str, int],
    sets: dict[str, tuple[int, frozenset[str]]],
    used: frozenset[str],
    need: int | None,
) -> None:
    inventory = Inventory(
        entries={f"{entry}.1": size for entry, size in sizes.items()},
        sets={
            f"{name}.1": (last_use, frozenset(f"{entry}.1" for entry in entries))
            for name, (last_use, entries) in sets.items()
        },
        folders={f"{name}.1" for name in sets},
        used=set(used),
    )
    plan = plan_eviction(inventory, need)
    removed = {name[:-2] for name in (*plan.sets, *plan.entries)}
    assert not removed & used
    assert len(set(plan.sets)) == len(plan.sets)
    assert len(set(plan.entries)) == len(plan.entries)
    assert plan.size == sum(inventory.entries[entry] for entry in plan.entries)
    for name in set(inventory.sets) - set(plan.sets):
        assert not inventory.sets[name][1] & set(plan.entries)
    if need is None:
        assert {name for name in inventory.sets if name[:-2] not in used} == set(plan.sets)
    elif plan.size < need:
        assert all(name[:-2] in used for name in set(inventory.sets) - set(plan.sets))


def read(*lines: str) -> Inventory:
    return parse_inventory("".join(f"@qnn-harness:{line}\n" for line in lines) + DONE)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"store 10|1|store/{A}.1", {"entries": {f"{A}.1": 10}}),
        (f"store 10|1|store/more/{A}.2", {}),
        ("store 7|1|store/.incoming/mine.77/ready/x", {"incoming": {"mine.77": 7}}),
        ("store 7|1|store/.incoming/../x", {}),
        ("list 3|44|listed/one.1", {"sets": {"one.1": (44, frozenset())}}),
        ("list 3|44|listed/-rf", {}),
        ("store 3|44|listed/one.1", {}),
        ("list 3|listed/one.1", {}),
        ("folder two.1", {"folders": {"two.1"}}),
        ("folder a b", {}),
        ("incoming theirs.5", {"incoming": {"theirs.5": 0}}),
        ("incoming -rf", {}),
        ("claim host-1-00", {"claims": {"host-1-00"}}),
        ("claim ../x", {}),
        ("used one", {"used": {"one"}}),
        ("ref one.1 x", {}),
        ("df /dev/x 9 5 4 60% /", {"free_bytes": 4096}),
        ("", {}),
    ],
)
def test_each_line_tells_one_thing_and_nothing_that_leads_elsewhere(
    line: str, expected: dict[str, Any]
) -> None:
    assert read(line) == Inventory(**expected)
    assert read(f"odd {line.partition(' ')[2]}") == Inventory()


def test_what_a_device_lists_is_what_its_store_has() -> None:
    inventory = read(
        "incoming mine.77",
        f"ref one.1 {A}.1",
        "store 7|1|store/.incoming/mine.77/ready/x",
        "store 5|1|store/.incoming/mine.77/y",
        "incoming mine.77",
        f"store 10|1|store/{A}.1",
        "list 3|44|listed/one.1",
        f"ref one.1 {B}.1",
        f"ref other.1 {C}.1",
    )
    sets = {"one.1": (44, frozenset({f"{A}.1", f"{B}.1"}))}
    assert inventory == Inventory({f"{A}.1": 10}, sets, incoming={"mine.77": 12})
    assert inventory.total_bytes == 22
