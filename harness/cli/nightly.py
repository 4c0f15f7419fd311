"""`qnn-harness nightly`: the nightly pipeline, from new versions to issues by cause."""

from __future__ import annotations

import os
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from harness.cli.common_options import NamedPath, json_option, lab_option, reports_option
from harness.cli.lab_options import SERIAL, PytestCommand, duration_option, lab_or_simulated
from harness.cli.say import say, say_result
from harness.core.errors import ConfigError
from harness.core.outgoing_text import without_secrets
from harness.nightly.night import SUFFIX, Night, lock_nights, nights, summary_lines
from harness.nightly.night_steps import Chain
from harness.notify.messages import Message, notify as send_message
from harness.plugin.collection import selection
from harness.results.run_folder import new_run_id

_TIMEOUT_S: Final = 4 * 3600.0
_MOST_VANISHED: Final = 10
_NO_NIGHT: Final = "there is no unfinished night to resume"


@click.command(cls=PytestCommand)
@duration_option(
    "--timeout", "timeout_s", "Time limit of the night (default: 4h, or that of the resumed one)."
)
@click.option(
    "--resume", is_flag=True, help="Continue the last unfinished night, with its full time limit."
)
@click.option(
    "--site", type=NamedPath(), metavar="DIR", help="Also write the dashboard of the lab into DIR."
)
@lab_option
@reports_option
@json_option
def nightly(
    pytest_arguments: tuple[str, ...],
    timeout_s: float | None,
    resume: bool,
    site: Path | None,
    lab_file: Path,
    reports: Path,
    as_json: bool,
) -> int:
    """Fetch new versions, run `pytest -m device`, compare, bisect new failures, and publish.

    The run is compared with the previous night's run of the same cases. Each cause of failures
    becomes an issue in reports/latest-nightly/issues, which later nights update. Bisections that
    do not finish in time continue in the next night. After a crash, repeat the same command to
    continue the night; after its time limit, use --resume.

    \b
    Examples:
      qnn-harness nightly --timeout 8h -- -n auto
      qnn-harness nightly --resume

    \b
    Exit codes: 0 nothing new fails, and all selected cases have a verdict; 1 something new fails,
    or has vanished; else 2 the input is wrong, 3 the lab failed or not all was run.
    """
    reports = reports.absolute()
    chain: Chain | None = None
    if not resume:
        names_device = SERIAL in os.environ or "-device" in " ".join(pytest_arguments)
        lab_file = lab_or_simulated(lab_file, (), notice=not names_device)
    try:
        seconds = _TIMEOUT_S if timeout_s is None else timeout_s
        safe = tuple(map(without_secrets, pytest_arguments))
        planned = Night(
            night=new_run_id() + SUFFIX,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            arguments=safe,
            selection=selection(("pytest", "-m", "device", *safe)),
            lab=str(lab_file.absolute()),
            folder=str(Path.cwd()),
            site=None if site is None else str(site.absolute()),
            budget_s=seconds,
            until=time.time() + seconds,
        )
        if resume and not reports.is_dir():
            raise ConfigError(_NO_NIGHT, file=reports, field="--resume")
        with lock_nights(reports):
            earlier, now = nights(reports), time.time()
            if resume:
                last = next(earlier, None)
                if last is None or last.next_step is None:
                    raise ConfigError(_NO_NIGHT, file=reports, field="--resume")
                night = last.resumed(planned, now, budget=timeout_s is not None)
            else:
                open_nights = (each for each in earlier if planned.can_resume(each, now))
                night = next(open_nights, planned).model_copy(update={"site": planned.site})
            chain = Chain(night, pytest_arguments or night.arguments, reports)
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
        *(f"vanished: {case}" for case in finished.vanished[:_MOST_VANISHED]),
        f"summary: {reports / finished.night / 'summary.md'}",
        *([f"issues: {reports / finished.night / 'issues'}"] if finished.reported_issues else []),
        *([f"site: {finished.site}/index.html"] if finished.site else []),
        *filter(None, [finished.ending]),
    )
    say_result(finished, lines, as_json)
    return finished.exit_code
