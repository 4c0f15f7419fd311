"""Many readers of records that are gone through once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from queue import Queue
from typing import Any

from harness.verdict.results.record import CaseRecord

Reader = Callable[[Iterable[CaseRecord]], Any]
"""What is made of records, in one loop over them."""


class InBatches(Iterable[CaseRecord]):
    """Records that are too many to be held: each batch is there until the next one is asked for."""

    @abstractmethod
    def batches(self) -> Iterator[list[CaseRecord]]:
        """Return them, some at a time."""

    def __iter__(self) -> Iterator[CaseRecord]:
        return chain.from_iterable(self.batches())


class _CutShortError(Exception):
    """Others could not read the records to their end."""


class _Handed(InBatches):
    """The batches that one reader gets; no other one comes before it has gone through its last."""

    def __init__(self) -> None:
        self.queue = Queue[list[CaseRecord] | _CutShortError | None]()
        # one for all who ask: going on with it tells that the batch before is done with
        self._taken = self._take()

    def batches(self) -> Iterator[list[CaseRecord]]:
        return self._taken

    def _take(self) -> Iterator[list[CaseRecord]]:
        while (batch := self.queue.get()) is not None:
            if isinstance(batch, _CutShortError):
                raise batch
            yield batch
            del batch
            self.queue.task_done()

    def read(self, reader: Reader) -> Any:
        """Return what a reader makes of them, also of one that does not want all."""
        try:
            return reader(self)
        finally:
            for _ in self._taken:
                pass


def read_once(records: Iterable[CaseRecord], *readers: Reader) -> list[Any]:
    """Return what each reader makes of the same records.

    Those of a large journal are read once, and of them no more than a batch is held: each reader
    has a thread of its own, and gets the next batch when all have gone through the one before.
    A reader may share what it is given among others in the same way.
    """
    if not isinstance(records, InBatches):
        held = [*records]
        return [reader(held) for reader in readers]
    handed = [_Handed() for _ in readers]
    with ThreadPoolExecutor(len(readers)) as threads:
        made = [
            threads.submit(each.read, reader) for each, reader in zip(handed, readers, strict=True)
        ]
        end: _CutShortError | None = _CutShortError()  # nothing may be made of a part of them
        try:
            for batch in records.batches():
                for each in handed:
                    each.queue.put(batch)
                del batch
                for each in handed:
                    each.queue.join()
            end = None
        finally:
            for each in handed:
                each.queue.put(end)
    return [future.result() for future in made]
