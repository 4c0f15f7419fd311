"""`qnn-harness report site`: pages of nights, cases and devices, for any web server."""

from __future__ import annotations

from pathlib import Path

import click

from harness.answers.history.nights import keep_night, nights_held
from harness.answers.site.build import build
from harness.answers.site.links import FRONT
from harness.ground.errors.outgoing_text import counted
from harness.search.nightly.kept_nights import nights
from harness.search.nightly.night_told import night_told
from harness.tools.cli.history import database_option, opened, reports_option
from harness.tools.cli.say import say


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("site"),
    show_default=True,
    help="The folder of the site.",
)
@database_option
@reports_option
def site(output: Path, database: str | None, reports: Path) -> None:
    """Write the lab's pages into a folder: nights, cases, devices, causes.

    They need no network and no server of their own. Only what has changed is written anew. Where no
    --database is named, new runs of the reports are taken in first.
    """
    held = opened(database, reports)
    known = {one.night for one in nights_held(held).values()}
    for night in nights(reports):
        told = night_told(night) if night.next_step is None and night.night not in known else None
        if told is not None:
            keep_night(held, told)
    done = build(held, output)
    others = ", the others have not changed" if done.kept else ""
    pages = counted(done.written, "page")
    say(f"{output / FRONT}: {pages} written in {done.seconds:.1f} s{others}")
