"""`qnn-harness report`: the reports of runs, of merged runs, and of the lab."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.common_options import CommandGroup, NamedPath, reports_option
from harness.cli.lab_options import output_option
from harness.cli.say import say
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.history.previous_run import since_previous
from harness.report.ci import qnn_run_finished
from harness.report.report_files import project
from harness.report.summary import cut_short
from harness.results.run_folder import JOURNAL, RunFolder


@click.group(cls=CommandGroup)
def report() -> None:
    """Write the reports of runs, merge runs, or write the dashboard of the lab."""


@report.command()
@click.argument("run", type=NamedPath(), default=Path("reports/latest"))
def write(run: Path) -> None:
    """Write the reports of RUN (default: reports/latest) again, and print its summary."""
    folder = RunFolder.open(run)
    made_of = project(folder, since_previous(folder))
    if why := cut_short(made_of.info):
        say(f"warning: {folder.run_id} was cut short: {why}", err=True)
    for text in folder.contents().left_out.messages(folder.path / JOURNAL):
        say(f"warning: {text}", err=True)
    for line in (*made_of.summary, *qnn_run_finished(made_of)):
        say(line)


@report.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=NamedPath())
@output_option("New folder for the merged run.", metavar="DIR", required=True)
def merge(runs: tuple[Path, ...], output: Path) -> None:
    """Merge RUNs, such as those of several computers, into one run with reports.

    If several RUNs have the same case, its latest attempt counts.
    """
    from harness.report.merge import merge_runs

    lost_logs = merge_runs(runs, output)
    folder = RunFolder.open(output)
    made_of = project(folder, since_previous(folder))
    if why := cut_short(made_of.info):
        say(f"warning: cut short: {why}", err=True)
    if lost_logs:
        logs = f"{counted(len(lost_logs), 'log')} missing, or outside the run's folder"
        say(f"warning: {logs}: {', '.join(lost_logs)}", err=True)
    for line in made_of.summary:
        say(line)


@report.command()
@output_option(
    "The folder of the dashboard.", metavar="DIR", default=Path("site"), show_default=True
)
@reports_option
def site(output: Path, reports: Path) -> None:
    """Write the dashboard of the lab into a folder: nights, cases, devices, causes.

    The pages need neither a network nor a server. New runs are imported into the history first,
    unless QNN_HARNESS_HISTORY names a database.
    """
    if output.is_file():
        raise ConfigError("is a file; name a folder", file=output, field="--output")
    # the history takes long to load
    from harness.cli.history import open_history
    from harness.history.database import load_nights, store_night
    from harness.nightly.night import night_summary, nights
    from harness.site.build import build
    from harness.site.pages import FRONT

    history = open_history(reports)
    known = {entry.night for entry in load_nights(history).values()}
    for night in nights(reports):
        is_new = night.next_step is None and night.night not in known
        if is_new and (summary := night_summary(night)) is not None:
            store_night(history, summary)
    result = build(history, output)
    others = ", the others have not changed" if result.unchanged else ""
    pages = counted(result.written, "page")
    say(f"{output / FRONT}: {pages} written in {result.seconds:.1f} s{others}")
