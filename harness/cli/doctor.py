"""`qnn-harness doctor`: what keeps runs from working here, and what to do about it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.status import Status as Spinner

from harness.cache import cache_root
from harness.cli.doctor_table import print_checks
from harness.cli.lab_options import json_option, lab_option
from harness.doctor.examine import DEVICE_TIMEOUT_S, Order, examine
from harness.lab.checks import Check, report_of


@click.command()
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option("--qnn", default="latest", show_default=True, help="The runtime to try.")
@click.option("--no-smoke", is_flag=True, help="Leave out the inference on each device.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=DEVICE_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long one device may take.",
)
@lab_option
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    names: tuple[str, ...],
    qnn: str,
    no_smoke: bool,
    timeout_s: float,
    lab_file: Path,
    as_json: bool,
) -> None:
    """Check this computer, the lab and DEVICEs (default: all enabled), and say what to do.

    A device that another process holds is left alone, none is rebooted, and quarantine stays. Exit
    code 0 if nothing is red, 1 if something is, 2 for wrong input, 3 if no device could be asked.
    """
    order = Order(
        lab_file=lab_file,
        names=tuple(dict.fromkeys(names)),
        cache=cache_root(),
        environment=os.environ,
        qnn=qnn,
        smoke=not no_smoke,
        timeout_s=timeout_s,
    )
    checks: list[Check] = []
    with progress() as spinner:
        examine(
            order,
            notify=lambda text: spinner.update(f"{text} ..."),
            warn=lambda text: click.echo(f"qnn-harness: {text}", err=True),
            tell=checks.append,
        )
    report = report_of(checks)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        print_checks(report)
    context.exit(report.summary.exit_code)


def progress() -> Spinner:
    """What is under way, on a terminal only."""
    # a console that is no terminal shows no spinner
    return Console(file=sys.stderr).status("looking around ...")
