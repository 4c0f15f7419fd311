"""What the last runs that are held say of cases, for whoever asks whose fault failures are."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice
from typing import Any, Final
from zlib import crc32

from harness.answers.history.brief import Brief, Fate
from harness.answers.history.database import AnyConnection, Database, open_database
from harness.answers.history.importing import import_run, runs_in_order
from harness.answers.history.states import RanWith, versions_of
from harness.answers.history.whose_fault import (
    Blamed,
    Sighting,
    TwinFigure,
    blames,
    where_twins_pass,
)
from harness.ground.errors import HarnessError
from harness.verdict.results.coverage import standing_of
from harness.verdict.results.record import PlacementRecord
from harness.verdict.results.run_folder import RunFolder

HISTORY: Final = "history.sqlite"
"""Where history is held among reports, where no other place was named."""
_RUNS: Final = 30
_CAUSES: Final = 200
_TESTS: Final = 2_000
_MOST: Final = 30_000
_log = logging.getLogger(__name__)
_ROWS: Final = (
    "SELECT name, test, placement, axes, ort, device, soc, host, files, cause_id, outcome, cause, "
    "known_issue FROM attempts WHERE run = :run AND device IS NOT NULL ORDER BY test, name"
)


def faults_held(
    database: Database, runs: int = _RUNS
) -> tuple[dict[str, Blamed], dict[str, TwinFigure]]:
    """Whose fault each cause of the last runs is, by its id, and how often each device fails where
    its twins pass. Of very many causes the most frequent are judged. Raises InfraError.
    """
    order, kept = runs_in_order(database)[-runs:], list[Sighting]()
    with database.transaction(writes=False) as connection:
        causes, tests, share = _failing(connection, [one.run for one in order])

        def by_test() -> Iterator[list[Sighting]]:
            for at, one in enumerate(order):
                for test, seen in sightings_in(connection, one.run, at):
                    if test in tests or crc32(test.encode()) < share:
                        kept.extend(seen)
                    yield seen

        twins = where_twins_pass(by_test())
    return blames(kept, [one.started for one in order], causes), twins


def faults_beside(*runs: RunFolder) -> dict[str, Blamed]:
    """Whose fault each cause is by the history beside the last of these runs, which takes them in
    first. Where there is none, nothing is said; what is wrong with it is logged.
    """
    file = runs[-1].path.parent / HISTORY
    if not file.is_file():
        return {}
    try:
        database = open_database(str(file))
        for one in runs:
            import_run(database, one.path)
        return faults_held(database)[0]
    except HarnessError as error:
        _log.warning("the history does not tell whose fault it is: %s", error)
        return {}


def sightings_in(
    connection: AnyConnection, run: str, place: int
) -> Iterator[tuple[str, list[Sighting]]]:
    """What a run, at this place among others, says of each test. Raises InfraError."""
    rows = connection.execute(_ROWS, run=run)
    for test, of_test in groupby(rows, key=lambda row: str(row[1])):
        cases = groupby(of_test, key=lambda row: row[0])
        yield test, [one for _, attempts in cases for one in _seen(place, list(attempts))]


def _failing(connection: AnyConnection, runs: Sequence[str]) -> tuple[set[str], set[str], float]:
    """The most frequent causes in these runs, the tests that have them, and below which of 2**32
    the checksum of another test is, so that as many are kept as there is room for."""
    names = {f"run_{at}": run for at, run in enumerate(runs)}
    among = f"run IN ({', '.join(f':{one}' for one in names) or 'NULL'})"
    bad = f"FROM attempts WHERE {among} AND cause_id IS NOT NULL GROUP BY"
    rows = connection.execute(
        f"SELECT cause_id {bad} cause_id ORDER BY count(*) DESC, cause_id LIMIT {_CAUSES}", **names
    )
    causes = {str(cause) for (cause,) in rows}
    rows = connection.execute(
        f"SELECT test, cause_id {bad} test, cause_id ORDER BY count(*) DESC, test", **names
    )
    tests = set(islice((str(test) for test, cause in rows if cause in causes), _TESTS))
    ((held,),) = connection.execute(f"SELECT count(*) FROM attempts WHERE {among}", **names)
    return causes, tests, (1 << 32) * _MOST / max(held, 1)


def _seen(run: int, attempts: Sequence[Sequence[Any]]) -> list[Sighting]:
    """The attempts at a case; none where it has no verdict for another fault than the lab's."""
    _, test, placed, axes, ort, device, soc, host, files, last, *_ = attempts[-1]
    ends = [standing_of(*row[10:]) for row in attempts]
    bad = [row[9] for row, end in zip(attempts, ends, strict=True) if end in ("failed", "known")]
    passed = ends.count("passed")
    lost = not bad and not passed
    if lost and ends[-1] != "lab":
        return []
    cause = last if lost else bad[-1] if bad else None
    backend, versions = _placed(placed, axes, ort)
    name = f"{test} {backend}"
    digest, _, named = (files or "").partition(" ")  # what was held long ago has no names
    where = name, run, device, soc, host, versions, digest or None
    return [Sighting(*where, cause, passed, len(bad), lost, named)]


@lru_cache(20_000)  # of each run all are met, one after the other
def _placed(placed: str | None, axes: str, ort: str | None) -> tuple[str, RanWith]:
    """The backend and the versions of a case."""
    placement = None if placed is None else PlacementRecord.model_validate_json(placed)
    brief = Brief("", "", placement, json.loads(axes), Fate("passed", ort=ort), "")
    return str(brief.axis("backend")), versions_of(brief)
