"""`qnn-harness compare`: what became of each case since an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.bisect.new_failures import NewFailure
from harness.cli.lab_options import json_option, lab_option, lab_to_name
from harness.cli.say import say, say_long_json
from harness.history.comparison import (
    BISECTED,
    TITLES,
    Bisectable,
    Category,
    FailOn,
    Pair,
    settled,
)
from harness.history.comparison_json import report_head, rows
from harness.history.comparison_text import (
    ToldComparison,
    compared,
    lines,
    markdown,
    page,
    told,
)
from harness.history.previous import histories, previous_of
from harness.nightly.notifications import Message, notify as send_message, require_channels
from harness.results.run_folder import RunFolder

_LATEST: Final = Path("reports/latest")


@click.command()
@click.argument("runs", nargs=-1, metavar="[BASE] [NEW]", type=click.Path(path_type=Path))
@click.option(
    "--previous",
    is_flag=True,
    help="BASE is the last finished run before NEW, beside it, that was asked for the same cases.",
)
@click.option(
    "--fail-on",
    metavar="WHAT[,WHAT]",
    default="new,changed,vanished,added",
    show_default=True,
    help="What ends with 1: new, changed, flaky, vanished, lab, added, drift:STEPS, perf:PERCENT%, "
    "ops.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a comment for CI.")
@click.option("--html", "as_html", is_flag=True, help="Print a page.")
@click.option(
    "--notify",
    is_flag=True,
    help="Send the result to the channels of devices.yaml, unless it is 0 and nothing is fixed.",
)
@lab_option
@json_option
def compare(
    runs: tuple[Path, ...],
    previous: bool,
    fail_on: str,
    as_markdown: bool,
    as_html: bool,
    notify: bool,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Compare run NEW (default: reports/latest) with run BASE: new failures end with 1.

    So do failures that are other ones than before, and cases that had a verdict and have vanished;
    --fail-on says it otherwise. Where none of these is, verdicts that the new run lacks end with 2
    if input was wrong, else 3. For each new failure it prints the bisection that finds the version
    to blame. Speed and memory of what passes in both are judged by what earlier runs of the same
    cases, beside BASE, say of noise: one run alone never proves a change. Of an op it
    does where all executions lie three times apart.
    """
    asked_for = {"--markdown": as_markdown, "--html": as_html, "--json": as_json}
    forms = [name for name, wanted in asked_for.items() if wanted]
    if len(forms) > 1:
        raise click.UsageError(f"{' and '.join(forms[:2])} do not go together")
    if notify:
        require_channels(lab_file)
    asked = FailOn.parse(fail_on)
    base, folder = _folders(runs, previous)
    found = compared(base, folder, asked, late=previous)
    if previous:  # runs lie in one line, as nights do
        seen = histories(folder, base)
        found = settled(found, {name: one for name, one in seen.items() if one.is_flaky})
    lab, reports = lab_to_name(lab_file), str(folder.path.parent)

    def bisectable(category: Category, pair: Pair) -> Bisectable:
        told = category in BISECTED
        return NewFailure.of(pair).bisectable(lab, reports) if told else Bisectable()

    whole = told(
        found,
        asked.reasons(found),
        base=base.run_id,
        run=folder.run_id,
        bisectable=bisectable,
    )
    if as_markdown or as_html:
        say(markdown(whole) if as_markdown else page(whole), nl=False)
    elif not as_json:
        for line in lines(whole):
            say(line)
    if notify and (whole.exit_code or found["fixed"]):
        _notify(whole, folder, lab_file)
    if as_json:
        say_long_json(
            report_head(whole), **{name: rows(whole, name, bisectable) for name in TITLES}
        )
    return whole.exit_code


def _notify(whole: ToldComparison, run: RunFolder, lab_file: Path) -> None:
    """Send the verdict, then the other lines; a channel that fails is a warning."""
    title = f"Devices: {whole.mark}: {whole.name}"
    text = [whole.verdict, *(line for line in lines(whole) if line != whole.verdict)]
    message = Message.of_lines(title, text, run.path / "report.html")
    for warning in send_message(lab_file, message):
        say(f"warning: {warning}", err=True)


def _folders(runs: tuple[Path, ...], previous: bool) -> tuple[RunFolder, RunFolder]:
    """The base and the new run. Raises UsageError for too few or too many, ConfigError for none."""
    if previous and len(runs) > 1:
        raise click.UsageError("--previous finds BASE: only NEW can be named beside it")
    if not previous and not 1 <= len(runs) <= 2:
        raise click.UsageError(
            "name the run to compare reports/latest with, or two runs, or --previous"
        )
    if previous:
        new = RunFolder.open(runs[0] if runs else _LATEST)
        return previous_of(new), new
    return RunFolder.open(runs[0]), RunFolder.open(runs[1] if len(runs) > 1 else _LATEST)
