"""Shows what the doctor found: one table, grouped, with what to do below each red line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.lab.checks import Check, DoctorReport, Status

_STYLES: Final[Mapping[Status, str]] = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "unknown": "magenta",
    "not-applicable": "dim",
}
_SHOWN: Final[Mapping[Status, str]] = {"not-applicable": "-"}
_PIPE_WIDTH: Final = 120


def print_checks(report: DoctorReport, file: TextIO | None = None) -> None:
    """Prints the table and the sums, as wide as the terminal; 120 columns in a pipe."""
    console = Console(file=file or sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH, color_system=None)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, checks in grouped(report.checks):
        table.add_row(Text(group, style="bold"))
        for check in checks:
            status = Text(_SHOWN.get(check.status, check.status), style=_STYLES[check.status])
            # whatever a device said is text and never markup
            found = Text(check.found)
            if check.advice:
                found.append(f"\n-> {check.advice}", style="bold")
            table.add_row(Text("  ") + status, Text(check.name), found)
    with console.capture() as shown:
        console.print(table)
        console.print(sums(report))
    # what it pads lines with is in the way of whoever copies or compares them
    for line in shown.get().splitlines():
        print(line.rstrip(), file=file or sys.stdout)


def grouped(checks: tuple[Check, ...]) -> list[tuple[str, list[Check]]]:
    """The checks by host, lab and device, in the order in which they came."""
    groups: dict[str, list[Check]] = {}
    for check in checks:
        title = {"host": "host", "lab": "lab"}.get(check.group, f"device {check.subject}")
        if check.group == "lab" and check.subject != "lab":
            groups.setdefault(title, []).append(_named(check))
        else:
            groups.setdefault(title, []).append(check)
    return list(groups.items())


def sums(report: DoctorReport) -> str:
    """One line: how many of each."""
    summary = report.summary
    named = (
        ("ok", summary.ok),
        ("warn", summary.warn),
        ("fail", summary.fail),
        ("unknown", summary.unknown),
        ("not applicable", summary.not_applicable),
    )
    return ", ".join(f"{number} {name}" for name, number in named if number)


def _named(check: Check) -> Check:
    return Check(
        check.group,
        check.subject,
        f"{check.subject}: {check.name}",
        check.status,
        check.found,
        check.advice,
    )
