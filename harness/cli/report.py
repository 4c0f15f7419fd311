"""`qnn-harness report`: the reports of runs, of merged runs, and of the lab."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.cli.lab_options import (
    NamedPath,
    database_option,
    json_option,
    reports_option,
)
from harness.cli.printout import Printout
from harness.cli.say import say, say_found
from harness.core.outgoing_text import counted
from harness.history.previous import since_previous
from harness.report.ci import tell_ci
from harness.report.projections import project
from harness.report.summary import cut_short, totals
from harness.results.coverage import Coverage
from harness.results.run_folder import JOURNAL, RunFolder


class RunsMerged(Printout):
    """`report merge --json`: the new run. `lost_logs` could not be copied."""

    folder: str
    merged: list[str]
    cases: int
    coverage: Coverage
    outcomes: dict[str, int]
    lost_logs: list[str]


@click.group()
def report() -> None:
    """Write reports of runs anew, merge runs into one, or write the lab's pages."""


@report.command()
@click.argument("run", type=click.Path(path_type=Path), default=Path("reports/latest"))
def write(run: Path) -> None:
    """Write the reports of RUN (default: reports/latest) anew and print its summary."""
    folder = RunFolder.open(run)
    made_of = project(folder, since_previous(folder))
    if why := cut_short(made_of.info):
        say(f"warning: {folder.run_id} was cut short: {why}", err=True)
    for text in folder.contents().left_out.told(folder.path / JOURNAL):
        say(f"warning: {text}", err=True)
    for line in (*made_of.summary, *tell_ci(made_of, folder.path, os.environ)):
        say(line)


@report.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=NamedPath())
@click.option(
    "-o", "--output", type=NamedPath(), required=True, metavar="DIR", help="A new folder for it."
)
@json_option
def merge(runs: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Merge RUNs, such as those of several machines, into one run with reports.

    Where several RUNs have run a case, all attempts are kept, and the latest is final.
    """
    from harness.report.merge import merge_runs

    lost_logs = merge_runs(runs, output)
    folder = RunFolder.open(output)
    made_of = project(folder, since_previous(folder))
    if why := cut_short(made_of.info):
        say(f"warning: cut short: {why}", err=True)
    if lost_logs:
        logs = counted(len(lost_logs), "log")
        say(f"warning: {logs} not there, or not inside its run: {', '.join(lost_logs)}", err=True)
    document = RunsMerged(
        folder=str(folder.path),
        merged=[str(part.get("run")) for part in made_of.info["merged"]],
        cases=len(made_of.cases),
        coverage=made_of.coverage,
        outcomes=totals(made_of.cases),
        lost_logs=lost_logs,
    )
    say_found(document, made_of.summary, as_json)


@report.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("site"),
    show_default=True,
    help="The folder of the site.",
)
@database_option
@reports_option
def site(output: Path, database: str | None, reports: Path) -> None:
    """Write the lab's pages into a folder: nights, cases, devices, causes.

    They need no network and no server of their own. Only what has changed is written anew. Where no
    --database is named, new runs of the reports are taken in first.
    """
    # the history takes long to load
    from harness.cli.history import opened
    from harness.history.database import keep_night, nights_held
    from harness.nightly.night import night_told, nights
    from harness.site.build import build
    from harness.site.pages import FRONT

    held = opened(database, reports)
    known = {one.night for one in nights_held(held).values()}
    for night in nights(reports):
        told = night_told(night) if night.next_step is None and night.night not in known else None
        if told is not None:
            keep_night(held, told)
    done = build(held, output)
    others = ", the others have not changed" if done.kept else ""
    pages = counted(done.written, "page")
    say(f"{output / FRONT}: {pages} written in {done.seconds:.1f} s{others}")
