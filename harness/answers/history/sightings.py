"""What the last runs that are held say of cases, for whoever asks whose fault failures are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from harness.answers.history.brief import Brief, Fate
from harness.answers.history.causes import cause_id
from harness.answers.history.database import Database
from harness.answers.history.importing import runs_in_order
from harness.answers.history.states import RanWith, versions_of
from harness.answers.history.whose_fault import (
    Blamed,
    Sighting,
    TwinFigure,
    blames,
    where_twins_pass,
)
from harness.verdict import PlacementRecord

_RUNS: Final = 30
_ROWS: Final = (
    "SELECT name, test, placement, axes, ort, device, soc, host, files, outcome, cause, "
    "known_issue, signature FROM attempts WHERE run = :run AND device IS NOT NULL ORDER BY name"
)


def faults_held(
    database: Database, runs: int = _RUNS
) -> tuple[dict[str, Blamed], dict[str, TwinFigure]]:
    """Whose fault each cause of the last runs is, by its id, and how often each device fails where
    its twins pass. Raises InfraError.
    """
    seen, started = sightings(database, runs)
    return blames(seen, started), where_twins_pass(seen)


def sightings(database: Database, runs: int = _RUNS) -> tuple[list[Sighting], list[str]]:
    """What the last runs say of each case, and when they were begun. Raises InfraError."""
    order, found = runs_in_order(database)[-runs:], list[Sighting]()
    with database.transaction(writes=False) as connection:
        for at, one in enumerate(order):
            rows = connection.execute(_ROWS, run=one.run)
            for _, attempts in groupby(rows, key=lambda row: row[0]):
                found += _seen(at, list(attempts))
    return found, [one.started for one in order]


def _seen(run: int, attempts: Sequence[Sequence[Any]]) -> list[Sighting]:
    """The attempts at a case; none where it has no verdict for another fault than the lab's."""
    _, test, placed, axes, ort, device, soc, host, files, *_ = attempts[-1]
    ends = [_end(*row[9:]) for row in attempts]
    bad = [cause for cause, has_verdict, _ in ends if cause and has_verdict]
    passed = sum(cause is None and has_verdict for cause, has_verdict, _ in ends)
    lost = not bad and not passed
    if lost and not ends[-1][2]:
        return []
    cause = ends[-1][0] if lost else bad[-1] if bad else None
    backend, versions = _placed(placed, axes, ort)
    name = f"{test} {backend}"
    where = name, run, device, soc, host, versions, files
    return [Sighting(*where, cause, passed, len(bad), lost)]


@lru_cache(1000)
def _placed(placed: str | None, axes: str, ort: str | None) -> tuple[str, RanWith]:
    """The backend and the versions of a case."""
    placement = None if placed is None else PlacementRecord.model_validate_json(placed)
    brief = Brief("", "", placement, json.loads(axes), Fate("passed", ort=ort), "")
    return str(brief.axis("backend")), versions_of(brief)


@lru_cache(1000)
def _end(
    outcome: Any, cause: Any, known_issue: str | None, signature: str | None
) -> tuple[str | None, bool, bool]:
    """The cause of a failing attempt; whether it has a verdict; whether the lab lost that."""
    fate = Fate(outcome, cause, known_issue=known_issue, failure=signature)
    brief = Brief("", "", None, {}, fate, "")
    id_of = cause_id(brief) if brief.is_bad else None
    return id_of, brief.has_verdict, brief.fault == "lab"
