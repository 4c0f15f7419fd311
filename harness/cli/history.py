"""`qnn-harness history`: what all runs together say, kept in a database made of journals."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Final

import click

from harness.bisect.new_failures import NewFailure
from harness.cli.lab_options import (
    database_option,
    json_option,
    lab_option,
    lab_to_name,
    reports_option,
)
from harness.cli.printout import Printout
from harness.cli.say import say, say_found, say_long_json
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.history.comparison import Bisectable, Pair
from harness.history.database import HISTORY, Database, open_database
from harness.history.importing import (
    import_run,
    refuse_unknown,
    runs_held,
    runs_in,
    stored_attempts,
)
from harness.history.run_changes import facts_held
from harness.history.states import CaseState
from harness.history.timeline import Filter
from harness.history.timeline_text import History, HistoryReport, LackingRun, lines
from harness.results.run_folder import JOURNAL

_NEGATIVE: Final = 1


def _open(database: str | None, reports: Path) -> Database:
    return open_database(database or str(reports / HISTORY))


def opened(database: str | None, reports: Path) -> Database:
    """The history that was named, or that of the reports, with new runs taken in."""
    new = runs_in(reports) if database is None else []
    held = _open(database, reports)
    for path in new:
        try:
            _import(held, path)
        except ConfigError as error:  # of one run: the others are worth telling of
            say(f"warning: {error}", err=True)
    return held


def _day(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat() if value else ""
    except ValueError:
        problem = f"{value!r} is no day, as in 2026-11-23"
        raise click.BadParameter(problem, context, parameter) from None


@click.group(invoke_without_command=True)
@click.option("--case", default="", metavar="TEXT", help="Cases with this in their name.")
@click.option("--diagnosis", default="", metavar="ID", help="Failures of this diagnosis.")
@click.option("--device", default="", metavar="NAME", help="Cases of this device.")
@click.option("--axis", "axes", multiple=True, metavar="NAME=VALUE", help="As in qnn=2.51.0.")
@click.option("--since", default="", metavar="DAY", callback=_day, help="Runs from this day on.")
@click.option("--until", default="", metavar="DAY", callback=_day, help="Runs before this day.")
@database_option
@reports_option
@lab_option
@json_option
@click.pass_context
def history(
    context: click.Context,
    case: str,
    diagnosis: str,
    device: str,
    axes: tuple[str, ...],
    since: str,
    until: str,
    database: str | None,
    reports: Path,
    lab_file: Path,
    as_json: bool,
) -> int | None:
    """Say what all runs together say: since when, where, how often, and what to bisect.

    Where no --database is named, new runs of the reports are taken in first. Ends with 1 if
    nothing is held of what was asked for.
    """
    if context.invoked_subcommand is not None:
        # `history --database FILE import` means the same as `history import --database FILE`
        given = {"database": database, "reports": reports}
        context.default_map = dict.fromkeys(history.commands, given)
        return None
    asked = Filter(
        case=case,
        diagnosis=diagnosis,
        device=device,
        axes=tuple(map(_axis, axes)),
        since=since,
        until=until,
    )
    held = opened(database, reports)

    def bisectable(pair: Pair, state: CaseState | None) -> Bisectable:
        return NewFailure.of(pair, state).bisectable(lab_to_name(lab_file), str(reports))

    with (
        facts_held(held) as facts,
        History(stored_attempts(held, asked), runs_held(held), bisectable, asked, facts) as report,
    ):
        if not report.rows:
            refuse_unknown(held, asked)
        if as_json:
            head = HistoryReport(
                runs=report.runs,
                first=report.first,
                last=report.last,
                lost=report.lost,
                lacking=tuple(
                    LackingRun(run=one.run, started=one.started, not_run=one.not_run)
                    for one in report.lacking
                ),
                kinds=(),
                cases=(),
            )
            say_long_json(head, kinds=report.kinds(), cases=report.cases())
        else:
            for line in lines(report):
                say(line)
        return 0 if report.rows else _NEGATIVE


class RunsImported(Printout):
    """`history import --json`: runs that were taken in, and those that were held already."""

    imported: tuple[str, ...]
    held: tuple[str, ...]


@history.command("import")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@database_option
@reports_option
@json_option
def import_command(
    runs: tuple[Path, ...], database: str | None, reports: Path, as_json: bool
) -> None:
    """Take in the journals of RUNS: runs' folders, or folders of such (default: --reports).

    What is held already is left as it is; two may do this at once.
    """
    found = [path for one in runs or (reports,) for path in runs_in(one)]
    opened = _open(database, reports)
    known = {str(path): _import(opened, path) for path in found}
    imported = tuple(path for path, new in known.items() if new)
    held = tuple(path for path, new in known.items() if not new)
    summary = f"{counted(len(imported), 'run')} of {len(known)} taken in"
    lines = [f"{summary}, the others were held already"]
    say_found(RunsImported(imported=imported, held=held), lines, as_json)


def _import(database: Database, path: Path) -> bool:
    done = import_run(database, path)
    if done.changed and done.beside is not None:
        said = "is another run than the one of the same id in"
        say(f"warning: {path} {said} {done.beside}: it is kept apart as {done.run}", err=True)
    for text in done.left_out.told(path / JOURNAL):
        say(f"warning: {text}", err=True)
    return done.changed


def _axis(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(f"{text!r} is not NAME=VALUE, as in qnn=2.51.0", field="--axis")
    return name, value
