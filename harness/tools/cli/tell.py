"""`qnn-harness tell`: tells people what a night or a comparison found."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import click

from harness.answers.telling.told import (
    TELL_S,
    dry_lines,
    keep_news,
    news_in,
    not_ready,
    tell as tell_all,
    told_lines,
    trial,
)
from harness.device.lab.inventory import load_lab
from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.scratch import scratch_folder
from harness.ground.files.whole_file import disk_errors
from harness.tools.cli.lab_options import json_option, lab_option
from harness.tools.cli.say import say, say_found

_LATEST: Final = Path("reports/latest-nightly")


@click.command()
@click.argument("folder", default=_LATEST, type=click.Path(path_type=Path))
@click.option("--to", "names", metavar="NAME", multiple=True, help="Only this channel; repeatable.")
@click.option("--again", is_flag=True, help="Also who was told already, or perhaps.")
@click.option("--dry-run", is_flag=True, help="Print what would be told, and tell nobody.")
@click.option("--test", is_flag=True, help="Send a test message, whatever a night found.")
@lab_option
@json_option
def tell(
    folder: Path,
    names: tuple[str, ...],
    again: bool,
    dry_run: bool,
    test: bool,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Tell the channels of `notify` in devices.yaml what a night found (default: the last one).

    Nights do so by themselves: this is for what did not arrive. FOLDER is that of a night, or of a
    run that `compare --notify` told of. Ends with 3 if somebody was not told, or could not be.
    --test opens no issues.
    """
    if dry_run and as_json:
        raise click.UsageError("--dry-run and --json do not go together")
    lab, news = load_lab(lab_file, places=None), trial() if test else news_in(folder)
    known = [one.name for one in lab.notify]
    if not known or not set(names) <= set(known):
        problem = "there is no such channel" if known else "names nobody who is to be told"
        raise ConfigError(problem, file=lab_file, field="notify", choices=known or None)
    if dry_run:
        channels = [one for one in lab.notify if one.name in (names or known)]
        for line in dry_lines(news, channels, lab.folder):
            say(line)
        ready = all(not_ready(one, lab.folder) is None for one in channels)
        return 0 if ready else InfraError.exit_code
    with contextlib.ExitStack() as stack:
        if test:
            folder = stack.enter_context(scratch_folder())
            keep_news(folder, news)
        stack.enter_context(disk_errors(f"cannot keep in {folder} what is told"))
        told = tell_all(folder, names or known, lab_file.absolute(), TELL_S, again=again)
    said = {name: {"state": one.state, "why": one.why} for name, one in told.items()}
    say_found({"news": news.id, "channels": said}, told_lines(told), as_json)
    return 0 if all(one.is_over for one in told.values()) else InfraError.exit_code
