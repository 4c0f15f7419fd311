"""`qnn-harness tell`: tells people what a night or a comparison found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from harness.answers.telling.news import News
from harness.answers.telling.told import TELL_S, dry_lines, news_in, tell as tell_all, told_lines
from harness.device import load_lab
from harness.ground import ConfigError, disk_errors
from harness.tools.cli.lab_options import json_option, lab_option
from harness.tools.cli.say import say, say_json

_LATEST: Final = Path("reports/latest-nightly")
_NOT_ALL: Final = 3


@click.command()
@click.argument("folder", default=_LATEST, type=click.Path(path_type=Path))
@click.option("--to", "names", metavar="NAME", multiple=True, help="Only this channel; repeatable.")
@click.option("--again", is_flag=True, help="Also who was told already, or perhaps.")
@click.option("--dry-run", is_flag=True, help="Print what would be told, and tell nobody.")
@lab_option
@json_option
def tell(
    folder: Path, names: tuple[str, ...], again: bool, dry_run: bool, lab_file: Path, as_json: bool
) -> int:
    """Tell the channels of `notify` in devices.yaml what a night found (default: the last one).

    Nights do so by themselves: this is for what did not arrive. FOLDER is that of a night, or of a
    run that `compare --notify` told of. Ends with 3 if somebody was not told.
    """
    if dry_run and as_json:
        raise click.UsageError("--dry-run and --json do not go together")
    news = news_in(folder)
    return say_told(folder, news, lab_file, names, again=again, dry_run=dry_run, as_json=as_json)


def say_told(
    folder: Path,
    news: News,
    lab_file: Path,
    names: Sequence[str] = (),
    *,
    again: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
    err: bool = False,
) -> int:
    """Tells people of news that are kept in a folder, and prints what became of that: 0 or 3.

    Raises ConfigError for a lab that names nobody, or not these; InfraError for a disk that fails.
    """
    lab = load_lab(lab_file, places=None)
    known = [one.name for one in lab.notify]
    if not known or not set(names) <= set(known):
        problem = "there is no such channel" if known else "names nobody who is to be told"
        raise ConfigError(problem, file=lab_file, field="notify", choices=known or None)
    if dry_run:
        channels = [one for one in lab.notify if not names or one.name in names]
        for line in dry_lines(news, channels, lab.folder):
            say(line, err=err)
        return 0
    with disk_errors(f"cannot keep in {folder} what is told"):
        told = tell_all(folder, news, names or known, lab_file, TELL_S, again=again)
    if as_json:
        said = {name: {"state": one.state, "why": one.why} for name, one in told.items()}
        say_json({"news": news.id, "channels": said})
    for line in () if as_json else told_lines(told):
        say(line, err=err)
    return 0 if all(one.state in ("sent", "nothing") for one in told.values()) else _NOT_ALL
