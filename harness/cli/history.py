"""`qnn-harness history`: failures over all runs, in a database imported from journals."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import click

from harness.bisect.new_failures import NewFailure
from harness.cli.common_options import (
    CommandGroup,
    NamedPath,
    json_option,
    lab_option,
    reports_option,
)
from harness.cli.lab_options import device_option, lab_to_name
from harness.cli.say import say, say_result
from harness.core.errors import NEGATIVE, ConfigError
from harness.core.outgoing_text import counted
from harness.history.case_states import CaseState
from harness.history.comparison import Bisectable, Pair
from harness.history.database import VARIABLE, Database, history_of_reports, open_database
from harness.history.importing import (
    import_run,
    list_runs,
    runs_in,
    stored_attempts,
    validate_device,
)
from harness.history.run_changes import facts_lookup
from harness.history.timeline import Filter, history_of, lines
from harness.results.run_folder import JOURNAL


def open_history(reports: Path) -> Database:
    """Return the history: that of the reports after importing new runs, or a shared one."""
    new = [] if os.environ.get(VARIABLE) else runs_in(reports)
    history = open_database(history_of_reports(reports))
    for path in new:
        try:
            _import(history, path)
        except ConfigError as error:  # of one run: continue with the others
            say(f"warning: {error}", err=True)
    return history


def _day(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat() if value else ""
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a date such as 2026-11-23") from None


@click.group(cls=CommandGroup)
def history() -> None:
    """Show failures over all runs: since when, where, how often, and what to bisect.

    The history is history.sqlite in the folder of runs, or the database that QNN_HARNESS_HISTORY
    names: a file of SQLite, or postgresql://USER@HOST/NAME.
    """


@history.command("list")
@click.argument("text", required=False, default="")
@click.option("--diagnosis", default="", metavar="ID", help="Only failures of this diagnosis.")
@device_option("Only cases of this device.")
@click.option(
    "--since",
    default="",
    metavar="DAY",
    callback=_day,
    help="Only runs since this day, such as 2026-11-23.",
)
@lab_option
@reports_option
@json_option
def list_command(
    text: str,
    diagnosis: str,
    device: str | None,
    since: str,
    reports: Path,
    lab_file: Path,
    as_json: bool,
) -> int:
    """List the cases that ever failed; with TEXT, only those with it in their name.

    New runs are imported first, unless QNN_HARNESS_HISTORY names a database.

    \b
    Exit codes: 0 cases are listed, 1 no case matches, 2 wrong input.
    """
    query = Filter(case=text, diagnosis=diagnosis, device=device or "", since=since)
    db = open_history(reports)

    def bisectable(pair: Pair, state: CaseState | None) -> Bisectable:
        return NewFailure.of(pair, state).bisectable(lab_to_name(lab_file), str(reports))

    report = history_of(
        stored_attempts(db, query), list_runs(db), bisectable, query, facts_lookup(db)
    )
    if not report.cases:
        validate_device(db, query.device)
    say_result(report, lines(report), as_json)
    return 0 if report.cases else NEGATIVE


@history.command("import")
@click.argument("runs", nargs=-1, type=NamedPath())
@reports_option
def import_command(runs: tuple[Path, ...], reports: Path) -> None:
    """Import RUNS into the history: folders of runs, or their parents (default: --reports).

    Runs that are stored already are skipped. Several processes may import at the same time.
    """
    paths = [path for folder in runs or (reports,) for path in runs_in(folder)]
    opened = open_database(history_of_reports(reports))
    imported = [_import(opened, path) for path in paths].count(True)
    summary = f"{counted(imported, 'run')} of {len(paths)} imported"
    say(summary + (", the others were stored already" if imported < len(paths) else ""))


def _import(database: Database, path: Path) -> bool:
    result = import_run(database, path)
    if result.changed and result.other_folder is not None:
        other = f"has the same id as another run, {result.other_folder}"
        say(f"warning: {path} {other}; it is stored as {result.run}", err=True)
    for text in result.left_out.messages(path / JOURNAL):
        say(f"warning: {text}", err=True)
    return result.changed
