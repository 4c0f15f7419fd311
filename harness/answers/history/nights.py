"""What nights found out, beside the cases of their runs, as the database holds it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from sqlalchemy import select, update

from harness.answers.history.database import Database, insert_new
from harness.answers.history.rows import bounded, without_nul
from harness.answers.history.tables import nights
from harness.ground.files.bounded_json import parse_model
from harness.verdict.failure.error import Part


class DeviceTold(Part):
    """How a device was: in which state, since when, and why; `hands` is what only a person can do
    for it."""

    state: str
    since: str
    why: str = ""
    hands: str = ""

    @property
    def said(self) -> str:
        """It in words."""
        since = f" since {self.since[:10]}" if self.since else ""
        return f"{self.state}{since}{f' ({self.why})' if self.why else ''}"


class CauseTold(Part):
    """What a night knew of a cause: what its bisection came to, its folder beside the run, the
    command that searches for it, and which files of tests, models and inputs changed when it
    came."""

    known: str = ""
    folder: str = ""
    command: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()


class NightTold(Part):
    """A night: its devices by name, its open causes by id, and what went wrong besides.

    It ended with `exit_code`; `failed_on` is what of it was new and bad, in the words of `compare
    --fail-on`, `vanished` the first cases that are so, if it is that.
    """

    night: str
    run: str
    exit_code: int = 0
    devices: Mapping[str, DeviceTold] = {}
    causes: Mapping[str, CauseTold] = {}
    besides: tuple[str, ...] = ()
    failed_on: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


def keep_night(database: Database, told: NightTold) -> None:
    """Holds what a night said, instead of what it said before. Raises InfraError."""
    with database.transaction() as connection:
        row = {"night": bounded(told.night), "run": bounded(told.run)}
        row["said"] = without_nul(told.model_dump_json())
        insert_new(connection, nights, row)
        connection.execute(update(nights).where(nights.c.night == row["night"]).values(row))


def nights_held(database: Database) -> dict[str, NightTold]:
    """What is held of nights, by the ids of their runs. Raises InfraError."""
    found = {}
    with database.transaction(writes=False) as connection:
        query = select(nights.c.run, nights.c.said).order_by(nights.c.night)
        for run, said in connection.execute(query):
            with contextlib.suppress(ValueError):  # of a harness with other fields
                found[run] = parse_model(NightTold, said)
    return found
