"""`qnn-harness compare`: what fails in a run and did not in an earlier one; bisects it if asked."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from harness.bisect.new_failures import Comparison, NewFailure, compare
from harness.cli.lab_options import json_option, lab_option
from harness.results.rundir import RunFolder

_NEGATIVE = 1
_ENOUGH_S = 10.0
_SIGNATURE_CHARS = 160


@click.command("compare")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path), default=Path("reports/latest"))
@click.option(
    "--bisect", "bisects", is_flag=True, help="Bisect each new failure, one after another."
)
@click.option("--max-minutes", type=float, default=60.0, show_default=True, help="For --bisect.")
@lab_option
@json_option
def compare_command(
    before: Path, after: Path, bisects: bool, max_minutes: float, lab_file: Path, as_json: bool
) -> int:
    """Compare run BEFORE with run AFTER (default: reports/latest): new failures end with 1.

    For each it prints the bisection that finds the version to blame; with --bisect they are run,
    all together in --max-minutes, and can be gone on with later.
    """
    folder = RunFolder.open(after)
    found = compare(RunFolder.open(before).records(), folder.records())
    reports = str(folder.path.parent)
    if as_json:
        click.echo(json.dumps(_as_json(found, str(lab_file), reports), indent=2))
    else:
        _show(found, str(lab_file), reports)
    if bisects:
        _bisect(found, str(lab_file), reports, time.monotonic() + 60 * max_minutes)
    return _NEGATIVE if found.new else 0


def _show(found: Comparison, lab: str, reports: str) -> None:
    for group in found.by_signature():
        first = group[0]
        said = " ".join(first.signature.split())
        click.echo(f"{len(group):4} x new: {said[:_SIGNATURE_CHARS]}  [first: {first.after.case}]")
        command = first.command(lab, reports)
        if command is not None:
            click.echo(f"       qnn-harness {shlex.join(command)}")
        else:
            click.echo("       with the same versions as before: bisecting them tells nothing")
    for names, what in (
        (found.well_again, "well again"),
        (found.only_before, "only before"),
        (found.only_after, "only after"),
    ):
        if names:
            click.echo(f"{len(names):4} x {what}  [first: {names[0]}]")
    if not found.new:
        click.echo("no new failures")


def _as_json(found: Comparison, lab: str, reports: str) -> dict[str, Any]:
    def row(one: NewFailure) -> dict[str, Any]:
        command = one.command(lab, reports)
        return {
            "case": one.after.case,
            "before": one.before.case,
            "signature": one.signature,
            "changed": list(one.changed),
            "bisect": None if command is None else ["qnn-harness", *command],
        }

    return {
        "new": [row(one) for one in found.new],
        "well_again": list(found.well_again),
        "only_before": list(found.only_before),
        "only_after": list(found.only_after),
    }


def _bisect(found: Comparison, lab: str, reports: str, until: float) -> None:
    """Runs a bisection for each signature, sharing what is left of the time."""
    for group in found.by_signature():
        left = until - time.monotonic()
        command = group[0].command(lab, reports, round(left / 60, 3))
        if command is None:
            continue
        if left < _ENOUGH_S:
            click.echo(f"no time left: qnn-harness {shlex.join(command[:-2])}", err=True)
            continue
        subprocess.run([sys.executable, "-m", "harness.cli.main", *command], check=False)
