"""`qnn-harness nightly`: a whole night, from what is new to one issue for each cause."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from harness.cli.history import database_option, reports_option
from harness.cli.lab_options import DEFAULT_LAB, json_option, lab_option, simulated_instead
from harness.cli.say import say, say_json
from harness.errors import ConfigError, InfraError
from harness.errors.outgoing_text import without_secrets
from harness.nightly.chain import SUFFIX, Chain, held, nights, summary_lines
from harness.nightly.night import Night, seconds_of
from harness.pytest_plugin.ending import Ending
from harness.pytest_plugin.options import selection
from harness.report.rundir import new_run_id


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="[PYTEST ARGUMENT]...", type=click.UNPROCESSED)
@click.option("--budget", default="4h", show_default=True, metavar="TIME", help="For all of it.")
@click.option("--resume", is_flag=True, help="Go on with the last night that is not over, anew.")
@lab_option
@reports_option
@database_option
@json_option
def nightly(
    arguments: tuple[str, ...],
    budget: str,
    resume: bool,
    lab_file: Path,
    reports: Path,
    database: str | None,
    as_json: bool,
) -> int:
    """Fetch what is new, run `pytest -m device`, compare, bisect what is new, and publish.

    Compared is with the run of the last night of the same cases. What is not bisected when the time
    is over is told, and the next night goes on with it. Each cause of failures is an issue of its
    own in reports/latest-nightly/issues, which later nights update. After any death the same
    command goes on while the time lasts; later, --resume does, with the whole time again.

    \b
    Exit codes: 0 nothing new fails, 1 something does, 2 the input is wrong, 3 the lab failed or
    the time was over before the run.
    """
    Ending().watch()
    reports = reports.absolute()
    seconds, now = seconds_of(budget), time.time()
    if resume and arguments:
        raise ConfigError("goes on with what was asked before: no arguments", field="--resume")
    if lab_file == DEFAULT_LAB and not lab_file.exists():
        lab_file = simulated_instead(()) or lab_file
    kept = tuple(map(without_secrets, arguments))
    asked = Night(
        night=new_run_id() + SUFFIX,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        arguments=kept,
        selection=selection(("pytest", "-m", "device", *kept)),
        lab=str(lab_file.absolute()),
        folder=str(Path.cwd()),
        budget_s=seconds,
        until=now + seconds,
    )
    try:
        with held(reports):
            night = _begun(reports, asked, now, resume=resume)
            words = night.arguments if resume else arguments
            over = Chain(night, words, reports, database).go_on()
    except (KeyboardInterrupt, InfraError):
        say(f"to go on: qnn-harness nightly --resume --reports {reports}", err=True)
        raise
    if as_json:
        say_json(over.model_dump(mode="json") | {"exit_code": over.exit_code})
        return over.exit_code
    say(f"{over.run} compared with {over.base or 'no other run'}: {over.verdict}")
    for line in summary_lines(over):
        say(line)
    say(f"issues: {reports / over.night / 'issues'}")
    return over.exit_code


def _begun(reports: Path, asked: Night, now: float, *, resume: bool) -> Night:
    """The night to go on with, or the one that was asked for."""
    found = nights(reports)
    if not resume:
        return next((one for one in found if asked.goes_on_with(one, now)), asked)
    last = next(found, None)
    if last is None or last.next_step is None:
        raise ConfigError(
            "the last night is over, or there is none", file=reports, field="--resume"
        )
    return last.model_copy(update={"budget_s": asked.budget_s, "until": asked.until})
