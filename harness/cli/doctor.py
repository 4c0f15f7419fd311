"""`qnn-harness doctor`: check this computer, the lab and its devices."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.status import Status as Spinner
from rich.table import Table
from rich.text import Text

from harness.cli.common_options import json_option, lab_option
from harness.cli.lab_options import device_argument, duration_option, qnn_option
from harness.cli.say import say, say_json
from harness.core.notices import Notices, shown_by
from harness.core.outgoing_text import first_names, outgoing
from harness.core.state_folders import cache_path
from harness.doctor.check_results import Checked, DoctorReport, Status, report_of
from harness.doctor.device_visit import Options
from harness.doctor.examine import examine

_STYLES: Final[Mapping[Status, str]] = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "unknown": "magenta",
    "not-applicable": "dim",
}
_SHOWN: Final[Mapping[Status, str]] = {"not-applicable": "-"}
_PIPE_WIDTH: Final = 120


@click.command()
@device_argument("names", nargs=-1, metavar="[DEVICE]...")
@qnn_option("The runtime to try (default: newest).")
@click.option("--no-smoke", is_flag=True, help="Skip the inference on each device.")
@duration_option("--timeout", "timeout_s", "Time for each device.", default="5m")
@lab_option
@json_option
def doctor(
    names: tuple[str, ...],
    qnn: str | None,
    no_smoke: bool,
    timeout_s: float,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Check this computer, the lab and DEVICEs (default: all enabled), and say what to do.

    No device is rebooted, and one that another process holds is not touched.

    \b
    Exit codes: 0 no check failed, 1 one failed, 2 wrong input, 3 no device is reachable.
    """
    options = Options(
        lab_file=lab_file,
        names=tuple(dict.fromkeys(names)),
        cache=cache_path(),
        environment=os.environ,
        qnn=qnn or "latest",
        smoke=not no_smoke,
        timeout_s=timeout_s,
    )
    with show_progress():
        report = report_of(examine(options))
    show_report(report, as_json)
    return report.summary.exit_code


def show_report(report: DoctorReport, as_json: bool) -> None:
    """Print a report, in colours on a terminal."""
    if as_json:
        say_json(report)
    else:
        print("\n".join(lines_of(report, plain=False)), flush=True)


@contextlib.contextmanager
def show_progress() -> Iterator[Spinner]:
    """Show progress, on a terminal only, and warnings, until the block ends."""
    with Console(file=sys.stderr).status("checking ...") as spinner:
        notices = Notices(
            progress=lambda text: spinner.update(Text(outgoing(f"{text} ..."))),
            warn=lambda text: say(f"qnn-harness: {text}", err=True),
        )
        with shown_by(notices):
            yield spinner


def lines_of(report: DoctorReport, *, plain: bool = True) -> list[str]:
    """Return the table and the sums, as wide as the terminal; `plain`: 120 columns, no colours."""
    console = Console(highlight=False)
    if plain or not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH, color_system=None)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, checks in grouped(report.checks):
        table.add_row(Text(outgoing(group), style="bold"))
        for check in checks:
            status = Text(_SHOWN.get(check.status, check.status), style=_STYLES[check.status])
            # output of a device is text and never markup
            text = Text(outgoing(check.found))
            if check.advice:
                text.append(f"\n-> {outgoing(check.advice)}", style="bold")
            table.add_row(Text("  ") + status, Text(outgoing(check.name)), text)
    with console.capture() as shown:
        console.print(table)
        console.print(Text(outgoing(sums(report))))
    # without padding, lines are easier to copy and compare
    return [line.rstrip() for line in shown.get().splitlines()]


def grouped(checks: tuple[Checked, ...]) -> list[tuple[str, list[Checked]]]:
    """Group the checks by host, lab and device, in their order."""
    groups: dict[str, list[Checked]] = {}
    for check in checks:
        title = f"device {check.subject}" if check.group == "device" else check.group
        is_own = check.group != "lab" or check.subject == "lab"
        named = check if is_own else replace(check, name=f"{check.subject}: {check.name}")
        groups.setdefault(title, []).append(named)
    return [(title, list(merged(group))) for title, group in groups.items()]


def merged(checks: Iterable[Checked]) -> Iterator[Checked]:
    """Merge the checks of a group that were not made for the same reason into one row."""
    rows: dict[object, list[Checked]] = {}
    for check in checks:
        is_made = check.status not in ("unknown", "not-applicable")
        reason = id(check) if is_made else (check.status, check.found, check.advice)
        rows.setdefault(reason, []).append(check)
    for first, *others in rows.values():
        found = f"{first.found}: {', '.join(check.name for check in (first, *others))}"
        yield replace(first, name=f"{1 + len(others)} checks", found=found) if others else first


def sums(report: DoctorReport) -> str:
    """Return the numbers of checks by status, and which failed."""
    counts = asdict(report.summary)
    del counts["exit_code"]
    numbers = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n)
    failed = [f"{check.subject}: {check.name}" for check in report.checks if check.status == "fail"]
    return numbers + (f"\nfailed: {first_names(failed, 8)}" if failed else "")
