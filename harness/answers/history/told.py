"""What history answers, put together on the disk: how many cases there are costs no memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Self

from harness.answers.history.attempts import Attempt, EarlierAttempts, attempts_by_name
from harness.answers.history.causes import cause_id
from harness.answers.history.comparison import Bisectable, Pair
from harness.answers.history.facts import CauseFacts
from harness.answers.history.states import CaseState, said_versions, versions_of
from harness.answers.history.timeline import Filter, RunHeld, kind_of, lines_of
from harness.answers.history.timeline_json import CaseRow, KindRow, case_row
from harness.ground.errors import InfraError
from harness.ground.files.bounded_json import parse_json, parse_model

_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE cases (passes, judged, rate, name, troubled, failing, row);
    CREATE TABLE failures (kind, kin, run, started, device, versions, cause);
"""
_KINDS: Final = """
    SELECT kind, min(started) AS first, max(started) AS last, count(*) AS failures,
        count(DISTINCT run) AS runs, count(DISTINCT kin) AS cases,
        json_group_array(DISTINCT device) AS devices,
        json_group_array(DISTINCT versions) AS versions
    FROM failures WHERE :diagnosis IN ('', kind)
    GROUP BY kind ORDER BY failures DESC, kind LIMIT :most
"""
# none, if no case ends so any more
_CAUSE: Final = """
    SELECT cause FROM failures
    WHERE kind = :kind AND EXISTS (SELECT 1 FROM cases WHERE failing = :kind)
    GROUP BY cause ORDER BY count(*) DESC, max(started) DESC LIMIT 1
"""


class History:
    """What the runs that are held say of what was asked for: rows are read one at a time.

    The counts say how many `rows` are troubled (failed or flaky at some time), unjudged, or lost in
    their last run, and how many of the lost are neither of the other two.
    """

    def __init__(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        held: Sequence[RunHeld],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
        asked: Filter,
        facts: Callable[[str], CauseFacts | None],
    ) -> None:
        """Put attempts together, each with its kin and its run: those of one kin and run behind
        each other. `held` are all runs, the newest last; `facts` gives those of a cause by its id,
        when kinds are read.

        If a diagnosis is asked for, only what concerns that. Raises InfraError if the disk is full.
        """
        self.lacking = [run for run in held if run.not_run != 0 and asked.spans(run.started)]
        self.runs, self.first, self.last = 0, "", ""
        self.rows = self.troubled = self.unjudged = self.kind_rows = 0
        self.lost = self.lost_alone = 0
        self._diagnosis, self._facts = asked.diagnosis, facts
        # a file of its own that nobody sees, and that goes when it is closed
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.row_factory = sqlite3.Row
        self._rows.executescript(_TABLES)
        try:
            self._take(attempts, {run.run: at for at, run in enumerate(held)}, bisectable)
        except sqlite3.Error as error:
            self._rows.close()
            raise InfraError(f"cannot put history together: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def kinds(self, most: int = -1) -> Iterator[KindRow]:
        """The first kinds of failures, the most frequent before others."""
        for row in self._rows.execute(_KINDS, {"diagnosis": self._diagnosis, "most": most}):
            kind = dict(row)
            listed = {name: sorted(parse_json(kind[name])) for name in ("devices", "versions")}
            cause = self._rows.execute(_CAUSE, {"kind": row["kind"]}).fetchone()
            yield KindRow(**kind | listed, facts=self._facts(cause["cause"]) if cause else None)

    def cases(self, most: int = -1, *, troubled: bool = False) -> Iterator[CaseRow]:
        """The first cases, those that fail before others; also of the `troubled` cases alone."""
        only = "WHERE troubled" if troubled else ""
        order = "passes, judged DESC, rate, name, rowid"
        rows = self._rows.execute(f"SELECT row FROM cases {only} ORDER BY {order} LIMIT ?", [most])
        return (parse_model(CaseRow, row["row"]) for row in rows)

    def _take(
        self,
        attempts: Iterable[tuple[str, str, Attempt]],
        order: Mapping[str, int],
        bisectable: Callable[[Pair, CaseState | None], Bisectable],
    ) -> None:
        runs = set[str]()
        for kin, of_kin in groupby(attempts, key=lambda one: one[0]):
            cases = by_run(of_kin, order)
            runs.update(run for run, _ in cases)
            for run, of_run in cases:
                for one in of_run.values():
                    self._note(kin, run, one)
            for line in lines_of(of_run for _, of_run in cases):
                row = case_row(line, bisectable)
                if self._diagnosis and self._diagnosis not in row.kinds:
                    continue
                troubled = bool(row.failed or row.flaky_runs)
                self.rows += 1
                self.troubled += troubled
                self.unjudged += not row.since
                self.lost += row.lost is not None
                self.lost_alone += row.lost is not None and bool(row.since) and not troubled
                failing = kind_of(line.judged) if line.judged and line.fails else None
                # what was never judged comes last: a page has room for so many only
                key = not row.fails, bool(row.since), row.pass_rate or 0.0, row.case
                self._insert("cases", *key, troubled, failing, row.model_dump_json())
        self.runs = len(runs)
        for name in ("failures (kind, cause, started)", "cases (failing)"):
            self._rows.execute(f"CREATE INDEX by_{name.partition(' ')[0]} ON {name}")
        kinds = "SELECT count(DISTINCT kind) FROM failures WHERE ? IN ('', kind)"
        (self.kind_rows,) = self._rows.execute(kinds, [self._diagnosis]).fetchone()

    def _note(self, kin: str, run: str, seen: EarlierAttempts) -> None:
        last = seen.last
        self.first = min(self.first or last.started, last.started)
        self.last = max(self.last, last.started)
        if last.is_bad and last.has_verdict:
            ran_with = last.device or "?", said_versions(versions_of(last))
            self._insert("failures", kind_of(last), kin, run, seen.begun, *ran_with, cause_id(last))

    def _insert(self, table: str, *row: Any) -> None:
        marks = ", ".join("?" * len(row))
        self._rows.execute(f"INSERT INTO {table} VALUES ({marks})", row)


def by_run(
    attempts: Iterable[tuple[str, str, Attempt]], order: Mapping[str, int]
) -> list[tuple[str, dict[str, EarlierAttempts]]]:
    """The attempts of one kin by run, the oldest first; `order` has the places of runs."""
    found = [
        (run, attempts_by_name((attempt for _, _, attempt in of_run), order.get(run, -1)))
        for run, of_run in groupby(attempts, key=lambda one: one[1])
    ]
    return sorted(found, key=lambda one: order.get(one[0], -1))
