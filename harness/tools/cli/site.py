"""`qnn-harness site`: pages of nights, cases and devices, for any web server."""

from __future__ import annotations

from pathlib import Path

import click

from harness.answers.site.build import build
from harness.tools.cli.history import database_option, opened, reports_option
from harness.tools.cli.say import say


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder of the site.",
)
@database_option
@reports_option
def site(out: Path, database: str | None, reports: Path) -> None:
    """Write the lab's pages into a folder: nights, cases, devices, causes, versions.

    They need no network and no server of their own. Only what has changed is written anew. Where no
    --database is named, new runs of the reports are taken in first.
    """
    done = build(opened(database, reports), out)
    say(f"{out}: {done.written} pages written, {done.kept} kept, in {done.seconds:.1f} s")
