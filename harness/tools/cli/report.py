"""`qnn-harness report`: makes the readable reports of a run or a bisection again."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.answers.history.previous import since_previous
from harness.answers.report.bisections import bisections_in
from harness.answers.report.ci import tell_ci
from harness.answers.report.projections import project
from harness.answers.report.summary import cut_short, summary_lines, totals
from harness.ground.files.cache import cache_root
from harness.tools.cli.lab_options import NamedPath, json_option
from harness.tools.cli.printout import Printout
from harness.tools.cli.say import say, say_found
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.run_folder import JOURNAL, RunFolder


class RunsMerged(Printout):
    """`merge --json`: the new run. `lacks` says what is missing, `left_out` counts what was bad."""

    run: str
    folder: str
    shards: int
    cases: int
    coverage: Coverage
    outcomes: dict[str, int]
    lacks: list[str]
    left_out: int


@click.command()
@click.argument("run", type=click.Path(path_type=Path), default=Path("reports/latest"))
def report(run: Path) -> None:
    """Write the reports of RUN (default: reports/latest) anew and print its summary.

    RUN is the folder of a run, of a bisection, or a folder with bisections: then they are listed.
    """
    if not (run / JOURNAL).is_file() and _of_bisections(run):
        return
    folder = RunFolder.open(run)
    made_of = project(folder, since_previous(folder))
    if why := cut_short(made_of.info):
        say(f"warning: {folder.run_id} was cut short: {why}", err=True)
    for text in folder.contents().left_out.told(folder.path / JOURNAL):
        say(f"warning: {text}", err=True)
    lines = summary_lines(made_of.cases, made_of.coverage, folder.path)
    for line in lines + tell_ci(made_of, folder.path, os.environ):
        say(line)


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=NamedPath())
@click.option(
    "--reports", type=NamedPath(), default=Path("reports"), show_default=True, help="Where it goes."
)
@click.option("--partial", is_flag=True, help="Take what there is, as a run that was cut short.")
@json_option
def merge(runs: tuple[Path, ...], reports: Path, partial: bool, as_json: bool) -> int:
    """Make one run of RUNs with --shard: its journal, logs and reports.

    Each RUN is the folder of one. They have to be all shards of one selection, each once and
    complete. It ends as the whole run would have ended.
    """
    from harness.answers.merging.merging import merge as merged_run

    merged = merged_run(runs, reports, partial=partial)
    folder, cases = merged.folder, merged.folder.contents().cases
    coverage = folder.coverage()
    for why in merged.lacks:
        say(f"warning: {why}", err=True)
    if merged.left_out:
        why = "not there, not of its run, or no record"
        say(f"warning: {merged.left_out} files or lines left out: {why}", err=True)
    document = RunsMerged(
        run=folder.run_id,
        folder=str(folder.path),
        shards=len(runs),
        cases=len(cases),
        coverage=coverage,
        outcomes=totals(cases),
        lacks=list(merged.lacks),
        left_out=merged.left_out,
    )
    say_found(document, summary_lines(cases, coverage, folder.path), as_json)
    return merged.exit_code


def _of_bisections(path: Path) -> bool:
    """Writes the reports of a bisection, or lists those of a folder; whether it is one of these."""
    # what bisects is loaded for these alone: it takes as long as 1,000 cases
    from harness.search.bisect.folder import LOG

    if (path / LOG).is_file():
        _bisection(path)
        return True
    for one in (found := bisections_in(path)):
        say(f"{one.name}  {one.axes}: {one.answer}  [{one.case}]")
    return bool(found)


def _bisection(path: Path) -> None:
    from harness.search.bisect.folder import BisectFolder
    from harness.search.bisect.write_reports import write_again
    from harness.tools.cli.bisect_going import log_lines, result_lines

    folder = BisectFolder.open(path)
    result = write_again(folder, os.environ, cache_root())
    lines = result_lines(result, str(path)) if result is not None else log_lines(folder.read())
    for line in lines:
        say(line)
