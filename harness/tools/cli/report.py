"""`qnn-harness report`: the reports of runs, of merged runs, and of the lab."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.answers.history.previous import since_previous
from harness.answers.report.ci import tell_ci
from harness.answers.report.projections import project
from harness.answers.report.summary import cut_short, summary_lines, totals
from harness.ground.errors.outgoing_text import counted
from harness.tools.cli.lab_options import NamedPath, json_option
from harness.tools.cli.printout import Printout
from harness.tools.cli.say import say, say_found
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.run_folder import JOURNAL, RunFolder


class RunsMerged(Printout):
    """`report merge --json`: the new run. `lost_logs` could not be copied."""

    folder: str
    merged: list[str]
    cases: int
    coverage: Coverage
    outcomes: dict[str, int]
    lost_logs: list[str]


class _ReportGroup(click.Group):
    """Loads `site` when it is used, since the history takes long to load."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "site"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name."""
        if cmd_name != "site":
            return super().get_command(ctx, cmd_name)
        from harness.tools.cli.site import site

        return site


@click.group(cls=_ReportGroup)
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
    lines = summary_lines(made_of.cases, made_of.coverage, folder.path)
    for line in lines + tell_ci(made_of, folder.path, os.environ):
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
    from harness.answers.report.merge import merge_runs

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
    say_found(document, summary_lines(made_of.cases, made_of.coverage, folder.path), as_json)
