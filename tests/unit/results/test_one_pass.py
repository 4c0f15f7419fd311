"""Records that are too many to be held are gone through once, whatever is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.results.journal import BatchedRecords, Reader, read_once
from harness.results.record import CaseRecord
from tests.unit.results.records import record

CASES = [record(case=str(number)) for number in range(7)]


class Batches(BatchedRecords):
    """Batches of these sizes, which count how often they are asked for."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.sizes, self.times = [*sizes], 0

    def batches(self) -> Iterator[list[CaseRecord]]:
        self.times += 1
        cases = iter(CASES)
        return (list(islice(cases, size)) for size in self.sizes)


def names(cases: Iterable[CaseRecord]) -> list[str]:
    return [case.case for case in cases]


def first(count: int, cases: Iterable[CaseRecord]) -> list[str]:
    return names(islice(cases, count))


def shared(*readers: Reader) -> Reader:
    return lambda cases: read_once(cases, *readers)


READERS: list[Reader] = [
    names,
    partial(first, 0),
    partial(first, 1),
    partial(first, 3),
    shared(names, partial(first, 2)),
    shared(shared(names), partial(first, 0)),
]


@given(
    st.lists(st.integers(1, 3), max_size=5),
    st.lists(st.sampled_from(READERS), min_size=1, max_size=6),
)
def test_each_reader_makes_the_same_of_batches_as_of_a_list(
    sizes: list[int], readers: list[Reader]
) -> None:
    batches = Batches(sizes)
    results: list[Any] = read_once(batches, *readers)
    assert results == read_once(CASES[: sum(sizes)], *readers)
    assert batches.times == 1


def test_no_batch_comes_before_all_are_done_with_the_one_before() -> None:
    steps: list[str] = []

    class Told(BatchedRecords):
        def batches(self) -> Iterator[list[CaseRecord]]:
            for number, case in enumerate(CASES):
                steps.append(f"batch {number}")
                yield [case]

    def reader(cases: Iterable[CaseRecord]) -> None:
        steps.extend(case.case for case in cases)

    read_once(Told(), reader, shared(reader, reader))
    assert steps == [text for n in range(7) for text in (f"batch {n}", *[str(n)] * 3)]


def fails(_: Iterable[CaseRecord]) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("wrap", [lambda reader: reader, shared])
def test_what_a_reader_raises_is_raised(wrap: Callable[[Reader], Reader]) -> None:
    with pytest.raises(OSError, match="the disk is full"):
        read_once(Batches([3, 3]), names, wrap(fails), names)


def test_what_reading_raises_is_raised() -> None:
    class Torn(BatchedRecords):
        def batches(self) -> Iterator[list[CaseRecord]]:
            yield CASES[:2]
            raise OSError("the file is gone")

    results = []

    def reader(cases: Iterable[CaseRecord]) -> None:
        results.append(names(cases))

    for wrapped in (reader, shared(reader)):
        with pytest.raises(OSError, match="the file is gone"):
            read_once(Torn(), wrapped, partial(first, 1))
    assert results == [], "nothing is made of a part of them"
