"""`qnn-harness nightly`: the nightly pipeline, from new versions to issues by cause."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from harness.cli.lab_options import (
    database_option,
    json_option,
    lab_option,
    lab_or_simulated,
    reports_option,
    seconds_of,
)
from harness.cli.say import say, say_result
from harness.core.errors import ConfigError
from harness.core.outgoing_text import without_secrets
from harness.nightly.night import SUFFIX, Night, lock_nights, nights, summary_lines
from harness.nightly.night_steps import Chain
from harness.notify.messages import Message, notify as send_message
from harness.plugin.collection import selection
from harness.results.run_folder import new_run_id

_BUDGET: Final = "4h"
_NO_NIGHT: Final = "there is no unfinished night to resume"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="[PYTEST ARGUMENT]...", type=click.UNPROCESSED)
@click.option("--budget", metavar="TIME", help="Total time (default: 4h, or as before).")
@click.option("--resume", is_flag=True, help="Resume the last unfinished night with a new budget.")
@click.option(
    "--site", type=click.Path(path_type=Path), help="Write the lab's pages into this folder, too."
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
    """Fetch new versions, run `pytest -m device`, compare, bisect new failures, and publish.

    The run is compared with that of the last night of the same cases. Bisections that are not over
    in time are reported, and the next night continues them. Each cause of failures becomes an issue
    in reports/latest-nightly/issues, which later nights update. After a crash the same command
    continues within the budget; later, --resume continues with a new budget and the same options.
    Arguments and --database must be given again if they have a password.

    \b
    Exit codes: 0 nothing new fails, and all selected cases have a verdict; 1 something new fails,
    or has vanished; else 2 the input is wrong, 3 the lab failed or not all was run.
    """
    reports = reports.absolute()
    chain: Chain | None = None
    if not resume:
        lab_file = lab_or_simulated(lab_file, (), notice=True)
    try:
        planned = _night_of(arguments, budget, site, lab_file, database)
        if resume and not reports.is_dir():
            raise ConfigError(_NO_NIGHT, file=reports, field="--resume")
        with lock_nights(reports):
            earlier, now = nights(reports), time.time()
            if resume:
                last = next(earlier, None)
                if last is None or last.next_step is None:
                    raise ConfigError(_NO_NIGHT, file=reports, field="--resume")
                source = click.get_current_context().get_parameter_source("database")
                named = source is ParameterSource.COMMANDLINE
                night = last.resumed(planned, now, budget=budget is not None, database=named)
            else:
                open_nights = (each for each in earlier if planned.can_resume(each, now))
                night = next(open_nights, planned).model_copy(update={"site": planned.site})
            if night.database != planned.database:
                database = night.database
            chain = Chain(night, arguments or night.arguments, reports, database)
            finished = chain.go_on()
    except (KeyboardInterrupt, Exception) as error:
        if chain is not None:
            if chain.is_kept:
                words = f"qnn-harness nightly --resume --reports {shlex.quote(str(reports))}"
                say(f"to continue: {words}", err=True)
        elif isinstance(error, Exception) and not resume:
            message = Message("Devices: the night did not start", str(error))
            for warning in send_message(lab_file, message):
                say(f"warning: {warning}", err=True)
        raise
    lines = (
        *finished.lab_lines,
        f"{finished.run} compared with {finished.base or 'no other run'}: {finished.verdict}",
        *summary_lines(finished),
        f"issues: {reports / finished.night / 'issues'}",
    )
    say_result(finished, lines, as_json)
    return finished.exit_code


def _night_of(
    arguments: Sequence[str],
    budget: str | None,
    site: Path | None,
    lab_file: Path,
    database: str | None,
) -> Night:
    seconds = seconds_of(_BUDGET if budget is None else budget, "--budget")
    safe = tuple(map(without_secrets, arguments))
    return Night(
        night=new_run_id() + SUFFIX,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        arguments=safe,
        selection=selection(("pytest", "-m", "device", *safe)),
        lab=str(lab_file.absolute()),
        folder=str(Path.cwd()),
        database=_storable(database),
        site=None if site is None else str(site.absolute()),
        budget_s=seconds,
        until=time.time() + seconds,
    )


def _storable(database: str | None) -> str | None:
    if database is None or "://" in database:
        return database and without_secrets(database)
    return str(Path(database).absolute())
