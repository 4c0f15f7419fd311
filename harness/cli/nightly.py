"""`qnn-harness nightly`: a whole night, from what is new to one issue for each cause."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from harness.cli.lab_options import (
    DEFAULT_LAB,
    database_option,
    json_option,
    lab_option,
    reports_option,
    seconds_of,
    simulated_instead,
)
from harness.cli.say import say, say_found
from harness.core.errors import ConfigError
from harness.core.outgoing_text import without_secrets
from harness.core.yaml_document import did_you_mean
from harness.nightly.chain import Chain
from harness.nightly.night import SUFFIX, Night, held, nights, summary_lines
from harness.nightly.notifications import Message, notify as send_message
from harness.plugin.collected import FLAGS, SAYS_NO_CASE, selection
from harness.plugin.options import LONG
from harness.results.run_folder import new_run_id

_BUDGET: Final = "4h"
_CLOSE: Final = 0.85
_NO_NIGHT: Final = "the last night is over, or there is none"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="[PYTEST ARGUMENT]...", type=click.UNPROCESSED)
@click.option("--budget", metavar="TIME", help="For all of it (default: 4h, or as before).")
@click.option("--resume", is_flag=True, help="Go on with the last night that is not over, anew.")
@click.option(
    "--site", type=click.Path(path_type=Path), help="Keep the lab's pages in this folder, too."
)
@lab_option
@reports_option
@database_option
@json_option
def nightly(
    arguments: tuple[str, ...],
    budget: str | None,
    resume: bool,
    site: Path | None,
    lab_file: Path,
    reports: Path,
    database: str | None,
    as_json: bool,
) -> int:
    """Fetch what is new, run `pytest -m device`, compare, bisect what is new, and publish.

    Compared is with the run of the last night of the same cases. What is not bisected when the time
    is over is told, and the next night goes on with it. Each cause of failures is an issue of its
    own in reports/latest-nightly/issues, which later nights update. After any death the same
    command goes on while the time lasts; later, --resume does, with the whole time again. What was
    asked for then holds; arguments and --database are named again where they have a password.

    \b
    Exit codes: 0 nothing new fails, and all that was selected has a verdict; 1 something new fails,
    or has vanished; else 2 the input is wrong, 3 the lab failed or not all was run.
    """
    reports = reports.absolute()
    begun: Chain | None = None
    if not resume and lab_file == DEFAULT_LAB and not lab_file.exists():
        lab_file = simulated_instead(()) or lab_file
    try:
        _refuse_misspelt(arguments)
        asked = _asked(arguments, budget, site, lab_file, database)
        if resume and not reports.is_dir():
            raise ConfigError(_NO_NIGHT, file=reports, field="--resume")
        with held(reports):
            found, now = nights(reports), time.time()
            if resume:
                night = _last(found, reports).resumed(
                    asked, now, budget=budget is not None, database=_is_named("database")
                )
            else:
                night = next((one for one in found if asked.goes_on_with(one, now)), asked)
                night = night.model_copy(update={"site": asked.site})
            if night.database != asked.database:
                database = night.database
            begun = Chain(night, arguments or night.arguments, reports, database)
            over = begun.go_on()
    except (KeyboardInterrupt, Exception) as error:
        if begun is not None:
            _say_how_to_go_on(begun, reports)
        elif isinstance(error, Exception) and not resume:
            message = Message("Devices: the night did not begin", str(error))
            for warning in send_message(lab_file, message):
                say(f"warning: {warning}", err=True)
        raise
    lines = (
        *over.lab_lines,
        f"{over.run} compared with {over.base or 'no other run'}: {over.verdict}",
        *summary_lines(over),
        f"issues: {reports / over.night / 'issues'}",
    )
    say_found(over, lines, as_json)
    return over.exit_code


def _asked(
    arguments: Sequence[str],
    budget: str | None,
    site: Path | None,
    lab_file: Path,
    database: str | None,
) -> Night:
    """Return the night that the command line asks for. Raise ConfigError for a wrong budget."""
    seconds = seconds_of(_BUDGET if budget is None else budget, "--budget")
    kept = tuple(map(without_secrets, arguments))
    return Night(
        night=new_run_id() + SUFFIX,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        arguments=kept,
        selection=selection(("pytest", "-m", "device", *kept)),
        lab=str(lab_file.absolute()),
        folder=str(Path.cwd()),
        database=_kept(database),
        site=None if site is None else str(site.absolute()),
        budget_s=seconds,
        until=time.time() + seconds,
    )


def _say_how_to_go_on(chain: Chain, reports: Path) -> None:
    if chain.is_kept:
        words = f"qnn-harness nightly --resume --reports {shlex.quote(str(reports))}"
        say(f"to go on: {words}", err=True)


def _last(found: Iterator[Night], reports: Path) -> Night:
    last = next(found, None)
    if last is None or last.next_step is None:
        raise ConfigError(_NO_NIGHT, file=reports, field="--resume")
    return last


def _refuse_misspelt(arguments: Sequence[str]) -> None:
    """Raises ConfigError for an option that nobody has, and that looks like one of this command."""
    ours = [one for param in click.get_current_context().command.params for one in param.opts]
    known = {*ours, *FLAGS, *SAYS_NO_CASE, *LONG, *LONG.values()}
    for name in (word.partition("=")[0] for word in arguments if word.startswith("--")):
        close = get_close_matches(name, ours, n=1, cutoff=_CLOSE)
        if close and name not in known:
            problem = f"no such option{did_you_mean(name, close)}"
            raise ConfigError(problem, field=name)


def _is_named(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def _kept(database: str | None) -> str | None:
    if database is None or "://" in database:
        return database and without_secrets(database)
    return str(Path(database).absolute())
