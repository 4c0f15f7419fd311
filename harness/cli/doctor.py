"""`qnn-harness doctor`: what keeps runs from working here, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.status import Status as Spinner
from rich.table import Table
from rich.text import Text

from harness.cli.lab_options import json_option, lab_option
from harness.cli.say import say, say_json
from harness.doctor.check import Check, DoctorReport, Status, report_of
from harness.doctor.device_visit import DEVICE_TIMEOUT_S, Order
from harness.doctor.examine import examine
from harness.errors.outgoing_text import outgoing
from harness.files.cache import cache_path
from harness.files.notices import Notices, shown_by

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
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option("--qnn", default="latest", show_default=True, help="The runtime to try.")
@click.option("--no-smoke", is_flag=True, help="Leave out the inference on each device.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=DEVICE_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long one device may take.",
)
@lab_option
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    names: tuple[str, ...],
    qnn: str,
    no_smoke: bool,
    timeout_s: float,
    lab_file: Path,
    as_json: bool,
) -> None:
    """Check this computer, the lab and DEVICEs (default: all enabled), and say what to do.

    A device that another process holds is left alone, none is rebooted, and quarantine stays. Exit
    code 0 if nothing is red, 1 if something is, 2 for wrong input, 3 if no device could be asked.
    """
    order = Order(
        lab_file=lab_file,
        names=tuple(dict.fromkeys(names)),
        cache=cache_path(),
        environment=os.environ,
        qnn=qnn,
        smoke=not no_smoke,
        timeout_s=timeout_s,
    )
    with progress() as spinner:
        notices = Notices(
            progress=lambda text: spinner.update(Text(outgoing(f"{text} ..."))),
            warn=lambda text: say(f"qnn-harness: {text}", err=True),
        )
        with shown_by(notices):
            checks = list(examine(order))
    report = report_of(checks)
    if as_json:
        say_json(report.as_json())
    else:
        print_checks(report)
    context.exit(report.summary.exit_code)


def progress() -> Spinner:
    """What is under way, on a terminal only."""
    # a console that is no terminal shows no spinner
    return Console(file=sys.stderr).status("looking around ...")


def print_checks(report: DoctorReport) -> None:
    """Prints the table and the sums, as wide as the terminal; 120 columns in a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH, color_system=None)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, checks in grouped(report.checks):
        table.add_row(Text(outgoing(group), style="bold"))
        for check in checks:
            status = Text(_SHOWN.get(check.status, check.status), style=_STYLES[check.status])
            # whatever a device said is text and never markup
            found = Text(outgoing(check.found))
            if check.advice:
                found.append(f"\n-> {outgoing(check.advice)}", style="bold")
            table.add_row(Text("  ") + status, Text(outgoing(check.name)), found)
    with console.capture() as shown:
        console.print(table)
        console.print(sums(report))
    # what it pads lines with is in the way of whoever copies or compares them
    for line in shown.get().splitlines():
        print(line.rstrip())


def grouped(checks: tuple[Check, ...]) -> list[tuple[str, list[Check]]]:
    """The checks by host, lab and device, in the order in which they came."""
    groups: dict[str, list[Check]] = {}
    for check in checks:
        title = f"device {check.subject}" if check.group == "device" else check.group
        own = check.group != "lab" or check.subject == "lab"
        named = check if own else replace(check, name=f"{check.subject}: {check.name}")
        groups.setdefault(title, []).append(named)
    return list(groups.items())


def sums(report: DoctorReport) -> str:
    """One line: how many of each."""
    counts = asdict(report.summary)
    del counts["exit_code"]
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n)
