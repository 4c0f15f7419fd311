"""`qnn-harness compare`: the changes of cases since an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.bisect.new_failures import NewFailure
from harness.cli.common_options import NamedPath, json_option, lab_option
from harness.cli.lab_options import lab_to_name
from harness.cli.say import say, say_json
from harness.history.comparison import BISECTED, Bisectable, Category, FailOn, Pair, apply_history
from harness.history.comparison_text import (
    compare_folders,
    lines,
    markdown,
    page,
    report_of,
    view_of,
)
from harness.history.previous_run import histories, previous_of
from harness.results.run_folder import RunFolder

_LATEST: Final = Path("reports/latest")


@click.command()
@click.argument("runs", nargs=-1, metavar="[BASE] [NEW]", type=NamedPath())
@click.option(
    "--previous",
    is_flag=True,
    help="Take as BASE the last finished run of the same cases before NEW.",
)
@click.option(
    "--fail-on",
    metavar="WHAT[,WHAT]",
    default="new,changed,vanished,added",
    show_default=True,
    help="Changes that exit with 1: new, changed, flaky, vanished, lab, added, drift:STEPS, "
    "perf:PERCENT%, ops.",
)
@click.option(
    "--format",
    type=click.Choice(["text", "md", "html", "json"]),
    default="text",
    show_default=True,
    help="Format of the output; md is a comment for a pull request.",
)
@lab_option
@json_option
def compare(
    runs: tuple[Path, ...], previous: bool, fail_on: str, format: str, lab_file: Path, as_json: bool
) -> int:
    """Compare run NEW (default: reports/latest) with run BASE; new failures exit with 1.

    Each new failure is shown with the `bisect` command that finds the version to blame. Changes of
    median times (p50) and of memory are judged by the noise in earlier runs of the same cases.

    \b
    Examples:
      qnn-harness compare reports/20261130-101500-3f9a21
      qnn-harness compare --previous --format md --fail-on new,changed,perf:10%

    \b
    Exit codes: 0 none of the changes of --fail-on, 1 one of them; else, if verdicts are missing in
    NEW, 2 the input was wrong or 3 the lab failed.
    """
    fail_rules = FailOn.parse(fail_on)
    base, folder = _folders(runs, previous)
    comparison = compare_folders(base, folder, fail_rules, late=previous)
    if previous:  # the runs are consecutive, as nights are
        flaky = {name: state for name, state in histories(folder, base).items() if state.is_flaky}
        comparison = apply_history(comparison, flaky)
    lab, reports = lab_to_name(lab_file, folder.info().get("command")), str(folder.path.parent)

    def bisectable(category: Category, pair: Pair) -> Bisectable:
        is_bisected = category in BISECTED
        return NewFailure.of(pair).bisectable(lab, reports) if is_bisected else Bisectable()

    report = view_of(
        comparison,
        fail_rules.reasons(comparison),
        base=base.run_id,
        run=folder.run_id,
        bisectable=bisectable,
    )
    if as_json or format == "json":
        say_json(report_of(report, bisectable))
    elif format == "text":
        for line in lines(report):
            say(line)
    else:
        say(markdown(report) if format == "md" else page(report), nl=False)
    return report.exit_code


def _folders(runs: tuple[Path, ...], previous: bool) -> tuple[RunFolder, RunFolder]:
    if previous and len(runs) > 1:
        raise click.UsageError("--previous finds BASE; name only NEW with it")
    if not previous and not 1 <= len(runs) <= 2:
        raise click.UsageError(
            "name the run BASE to compare reports/latest with, or BASE and NEW, or use --previous"
        )
    runs = runs if len(runs) == 2 - previous else (*runs, _LATEST)
    *base, new = map(_opened, runs)
    return (base[0] if base else previous_of(new)), new


def _opened(path: Path) -> RunFolder:
    """Open a run, also by the folder of its night."""
    if not path.name.endswith("-nightly"):
        return RunFolder.open(path)
    from harness.nightly.night import nights

    folder = (path if path.exists() else _LATEST.parent / path).resolve()
    run = next((night.run for night in nights(folder.parent) if night.night == folder.name), None)
    return RunFolder.open(folder.with_name(run) if run else path)
