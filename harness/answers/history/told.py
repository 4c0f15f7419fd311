"""What history answers, put together on the disk: how many cases there are costs no memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, Self

from harness.answers.history.attempts import Attempt, EarlierAttempts, attempts_by_name
from harness.answers.history.comparison import Pair
from harness.answers.history.comparison_json import Bisectable
from harness.answers.history.facts import CauseFacts
from harness.answers.history.states import CaseState
from harness.answers.history.timeline import Failure, FailureKind, LackingRun, kind_of, lines_of
from harness.answers.history.timeline_json import (
    CaseRow,
    KindRow,
    case_row,
    kind_row,
)
from harness.ground.errors import InfraError
from harness.ground.files.bounded_json import parse_model

_TABLES: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA cache_size = -8000",
    "CREATE TABLE cases (passes, judged, rate, name, troubled, row)",
    "CREATE TABLE failures (kind, kin, run, started, device, versions, cause)",
    "CREATE TABLE kinds (failures, row)",
)


class History:
    """What the runs that are held say of what was asked for: rows are read one at a time.

    The counts say how many `rows` are troubled (failed or flaky at some time), unjudged, or lost in
    their last run, and how many of the lost are neither of the other two.
    """

    def __init__(self) -> None:
        self.lacking: Sequence[LackingRun] = ()
        self.runs, self.first, self.last = 0, "", ""
        self.rows = self.troubled = self.unjudged = self.kind_rows = 0
        self.lost = self.lost_alone = 0
        # a file of its own that nobody sees, and that goes when it is closed
        self._rows = sqlite3.connect("", isolation_level=None)
        self._facts: Mapping[str, CauseFacts] = {}
        self._failing = set[str]()
        """The kinds of failures that some case ends with now."""
        for statement in _TABLES:
            self._rows.execute(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def kinds(self, most: int | None = None) -> Iterator[KindRow]:
        """The first kinds of failures, the most frequent before others."""
        found = self._select("SELECT row FROM kinds ORDER BY failures DESC, rowid", most)
        return (parse_model(KindRow, row) for row in found)

    def cases(self, most: int | None = None, *, troubled: bool = False) -> Iterator[CaseRow]:
        """The first cases, those that fail before others; also of the `troubled` cases alone."""
        only = "WHERE troubled" if troubled else ""
        query = f"SELECT row FROM cases {only} ORDER BY passes, judged DESC, rate, name, rowid"
        return (parse_model(CaseRow, row) for row in self._select(query, most))

    def _select(self, query: str, most: int | None) -> Iterator[str]:
        limit = "" if most is None else f" LIMIT {most}"
        return (str(row) for (row,) in self._rows.execute(query + limit))

    def _insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            marks = ", ".join("?" * len(row))
            self._rows.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    @classmethod
    def of(
        cls,
        attempts: Iterable[tuple[str, str, Attempt]],
        order: Mapping[str, int],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
        diagnosis: str = "",
        held: Sequence[LackingRun] = (),
        facts: Mapping[str, CauseFacts] = MappingProxyType({}),
    ) -> Self:
        """Puts attempts together, each with its kin and its run: those of one kin and run behind
        each other. `order` has the place of each run, `held` all that were asked for, the newest
        last, `facts` those of causes by their ids.

        If a diagnosis is asked for, only what concerns that. Raises InfraError if the disk is full.
        """
        found = cls()
        found._facts = facts
        found.lacking = [one for one in held if one.not_run != 0]
        try:
            found._take(attempts, order, bisectable, diagnosis)
        except sqlite3.Error as error:
            found._rows.close()
            raise InfraError(f"cannot put history together: {error}") from error
        return found

    def _take(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        order: Mapping[str, int],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
        diagnosis: str,
    ) -> None:
        runs = set[str]()
        for kin, of_kin in groupby(attempts, key=lambda one: one[0]):
            cases = by_run(of_kin, order)
            runs.update(run for run, _ in cases)
            for run, of_run in cases:
                for one in of_run.values():
                    self._note(Failure.of(kin, run, one), one.last)
            for line in lines_of(of_run for _, of_run in cases):
                if diagnosis and diagnosis not in line.diagnoses:
                    continue
                row = case_row(line, bisectable)
                self._failing.update([kind_of(line.judged)] if line.judged and line.fails else [])
                troubled = bool(row.failed or row.flaky_runs)
                self.rows += 1
                self.troubled += troubled
                self.unjudged += not row.since
                self.lost += row.lost is not None
                self.lost_alone += row.lost is not None and bool(row.since) and not troubled
                # what was never judged comes last: a page has room for so many only
                key = not line.fails, bool(line.verdicts), line.pass_rate or 0.0, row.case
                self._insert("cases", [(*key, troubled, row.model_dump_json())])
        self.runs = len(runs)
        self._sum_up_kinds(diagnosis)

    def _note(self, failure: Failure, last: Attempt) -> None:
        self.first = min(self.first or last.started, last.started)
        self.last = max(self.last, last.started)
        if last.is_bad and last.has_verdict:
            self._insert("failures", [failure])

    def _sum_up_kinds(self, diagnosis: str) -> None:
        only = "WHERE kind = ?" if diagnosis else ""
        rows = self._rows.execute(
            f"SELECT * FROM failures {only} ORDER BY kind, kin", [diagnosis] if diagnosis else []
        )
        for name, of_kind in groupby((Failure(*row) for row in rows), key=lambda one: one.kind):
            kind: FailureKind | None = None
            for failure in of_kind:
                kind = kind or FailureKind(name, failure.started)
                kind.add(failure)
            if kind is not None:
                self.kind_rows += 1
                facts = self._facts if name in self._failing else {}
                row = kind_row(kind, facts).model_dump_json()
                self._insert("kinds", [(kind.failures, row)])


def by_run(
    attempts: Iterable[tuple[str, str, Attempt]], order: Mapping[str, int]
) -> list[tuple[str, dict[str, EarlierAttempts]]]:
    """The attempts of one kin by run, the oldest first; `order` has the places of runs."""
    found = [
        (run, attempts_by_name((attempt for _, _, attempt in of_run), order.get(run, -1)))
        for run, of_run in groupby(attempts, key=lambda one: one[1])
    ]
    return sorted(found, key=lambda one: order.get(one[0], -1))
