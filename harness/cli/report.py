"""`qnn-harness report`: makes the readable reports of a run again from its journal."""

from __future__ import annotations

from pathlib import Path

import click

from harness.results.rundir import RunFolder
from harness.results.summary import summary_lines


@click.command()
@click.argument("run", type=click.Path(path_type=Path), default=Path("reports/latest"))
def report(run: Path) -> None:
    """Write junit.xml and report.html of RUN (default: reports/latest) and print its summary."""
    folder = RunFolder.open(run)
    folder.project()
    for line in summary_lines(folder.records(), folder.path):
        click.echo(line)
