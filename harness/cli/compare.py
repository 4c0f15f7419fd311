"""`qnn-harness compare`: what fails in a run and did not in an earlier one; bisects it if asked."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from harness.adb.deadline import Deadline
from harness.adb.guard import spawn_guarded
from harness.bisect.new_failures import Comparison, NewFailure, alike, compare
from harness.cli.lab_options import json_option, lab_option
from harness.cli.say import say, say_json
from harness.errors import HarnessError
from harness.pytest_plugin.ending import Ending
from harness.results.rundir import RunFolder

_NEGATIVE: Final = 1
_ENOUGH_S: Final = 10.0
_LISTED: Final = ("well_again", "only_before", "only_after", "vanished", "spoilt")
_SIGNATURE_CHARS: Final = 160
# What a bisection may take after its time is over: the run under way, and its reports.
_LAST_RUN_S: Final = 2400.0


def _minutes(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise click.BadParameter(f"{value:g} is not a time", context, parameter)
    return value


@click.command("compare")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path), default=Path("reports/latest"))
@click.option(
    "--bisect", "bisects", is_flag=True, help="Bisect each new failure, one after another."
)
@click.option(
    "--known-too", is_flag=True, help="--bisect also what fails now as a known issue expects."
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Cases that only BEFORE has a verdict of do not count; else they end with 1.",
)
@click.option(
    "--max-minutes",
    type=float,
    default=60.0,
    show_default=True,
    callback=_minutes,
    help="For --bisect.",
)
@lab_option
@json_option
def compare_command(
    before: Path,
    after: Path,
    bisects: bool,
    known_too: bool,
    allow_missing: bool,
    max_minutes: float,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Compare run BEFORE with run AFTER (default: reports/latest): new failures end with 1.

    So do cases that had a verdict and are tested no more (--allow-missing lets them).
    For each it prints the bisection that finds the version to blame; with --bisect they are run,
    all together in --max-minutes, and can be gone on with later. What passed and now fails as a
    known issue expects is listed, too, but ends with 0.
    """
    folder = RunFolder.open(after)
    found = compare(RunFolder.open(before).records(), folder.records())
    lab, reports = str(lab_file), str(folder.path.parent)
    if not as_json:
        _show(found, lab, reports)
        if found.vanished and not allow_missing:
            say("what is tested no more ends with 1, unless you give --allow-missing")
    told = _as_json(found, lab, reports)
    if bisects:
        Ending().watch()
        wanted = [*found.new, *(found.as_known if known_too else ())]
        until = time.monotonic() + 60 * max_minutes
        told["bisections"] = list(_bisect(wanted, lab, reports, until, as_json=as_json))
        with contextlib.suppress(HarnessError):
            folder.project()  # its report lists them
    if as_json:
        say_json(told)
    return _NEGATIVE if found.new or (found.vanished and not allow_missing) else 0


def _show(found: Comparison, lab: str, reports: str) -> None:
    for group in alike(found.new):
        said = " ".join(group[0].signature.split())
        _show_group(group, f"new: {said[:_SIGNATURE_CHARS]}", lab, reports)
    for group in alike(found.as_known):
        _show_group(group, f"fails as known: {group[0].known_issue}", lab, reports)
    for names, what in (
        (found.vanished, "tested no more"),
        (found.spoilt, "no verdict this time"),
        (found.well_again, "well again"),
        (found.only_before, "only before"),
        (found.only_after, "only after"),
    ):
        if names:
            say(f"{len(names):4} x {what}  [first: {names[0]}]")
    if not found.new:
        say("no new failures")


def _show_group(group: Sequence[NewFailure], said: str, lab: str, reports: str) -> None:
    first = group[0]
    say(f"{len(group):4} x {said}  [first: {first.after.case}]")
    command = first.command(lab, reports)
    say(f"       {first.hindrance if command is None else _line(command)}")


def _line(command: Sequence[str]) -> str:
    return f"qnn-harness {shlex.join(command)}"


def _as_json(found: Comparison, lab: str, reports: str) -> dict[str, Any]:
    def row(one: NewFailure) -> dict[str, Any]:
        command = one.command(lab, reports)
        return {
            "case": one.after.case,
            "before": one.before.case,
            "signature": one.signature,
            "known_issue": one.known_issue,
            "changed": list(one.changed),
            "bisect": None if command is None else ["qnn-harness", *command],
            "hindrance": one.hindrance,
        }

    return {
        "new": [row(one) for one in found.new],
        "as_known": [row(one) for one in found.as_known],
        **{name: list(getattr(found, name)) for name in _LISTED},
    }


def _bisect(
    wanted: Sequence[NewFailure], lab: str, reports: str, until: float, *, as_json: bool
) -> Iterator[dict[str, Any]]:
    """Runs a bisection for each signature, sharing what is left of the time.

    What they print is theirs, or with `as_json` part of what is yielded. One for which no time is
    left is yielded without an exit code.
    """
    for group in alike(wanted):
        left = until - time.monotonic()
        command = group[0].command(lab, reports, round(max(left, 0.001) / 60, 3))
        if command is None:
            continue
        told: dict[str, Any] = {
            "cases": [one.after.case for one in group],
            "command": ["qnn-harness", *command],
            "exit_code": None,
            "result": None,
        }
        if left < _ENOUGH_S:
            say(f"no time left: {_line(command[:-2])}", err=True)
        else:
            code, text = _ended([*command, *(["--json"] if as_json else [])], left, as_json)
            told |= {"exit_code": code, "result": _parsed(text)}
        yield told


def _ended(command: Sequence[str], left_s: float, kept: bool) -> tuple[int | None, bytes]:
    """Runs a bisection; its exit code, None if it did not end, and what it printed if `kept`.

    It is ended when we are; what it knows by then is on the disk.
    """
    words = [sys.executable, "-m", "harness.cli.main", *command]
    with tempfile.TemporaryFile() as output:
        with spawn_guarded(words, stdout=output if kept else None, stderr=None) as process:
            code = process.wait(Deadline(left_s + _LAST_RUN_S))
        output.seek(0)
        return code, output.read()


def _parsed(text: bytes) -> Any:
    """What a bisection printed as JSON; None for one that printed none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
