"""`qnn-harness doctor`: check this computer, the lab and its devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.status import Status as Spinner
from rich.table import Table
from rich.text import Text

from harness.cli.lab_options import NamedPath, json_option, lab_option, output_option
from harness.cli.say import say, say_json, say_result
from harness.core.files import scratch_folder
from harness.core.notices import Notices, shown_by
from harness.core.outgoing_text import outgoing
from harness.core.state_folders import cache_path
from harness.doctor.acceptance import accept
from harness.doctor.acceptance_archive import (
    check_writable,
    markdown_row,
    private_words,
    read_archive,
    write_archive,
)
from harness.doctor.check_results import Checked, DoctorReport, Status, report_of
from harness.doctor.device_visit import DEVICE_TIMEOUT_S, Options
from harness.doctor.examine import examine

_STYLES: Final[Mapping[Status, str]] = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "unknown": "magenta",
    "not-applicable": "dim",
}
_SHOWN: Final[Mapping[Status, str]] = {"not-applicable": "-"}
_PIPE_WIDTH: Final = 120


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
    help="Timeout of one device.",
)
@click.option("--acceptance", is_flag=True, help="Test every layer of one DEVICE.")
@click.option("--unplug", is_flag=True, help="... and ask you to unplug it and plug it in.")
@click.option("--reboot", is_flag=True, help="... and reboot it.")
@output_option("Its archive (default: acceptance-DEVICE.zip).")
@click.option(
    "--read", "archive", type=NamedPath(), metavar="ARCHIVE", help="Print it as a row of a table."
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
    acceptance: bool,
    unplug: bool,
    reboot: bool,
    output: Path | None,
    archive: Path | None,
    lab_file: Path,
    as_json: bool,
) -> None:
    """Check this computer, the lab and DEVICEs (default: all enabled), and say what to do.

    A device that another process holds is left alone, none is rebooted, and quarantine stays. Exit
    code 0 if nothing is red, 1 if something is, 2 for wrong input, 3 if no device is reachable.

    --acceptance tests shells, files, store, probe, a crash, a hang, FastRPC, each backend and 66
    contexts on one DEVICE, cleans it up, and packs the redacted results into a zip.
    """
    if archive is not None:
        if names or acceptance:
            raise click.UsageError("--read goes alone")
        report = read_archive(archive)
        say_result(report, [markdown_row(report)], as_json)
        return
    if acceptance and len(names) != 1:
        raise click.UsageError("--acceptance takes one DEVICE")
    if (unplug or reboot or output) and not acceptance:
        raise click.UsageError("--unplug, --reboot and --output need --acceptance")
    options = Options(
        lab_file=lab_file,
        names=tuple(dict.fromkeys(names)),
        cache=cache_path(),
        environment=os.environ,
        qnn=qnn,
        smoke=not no_smoke,
        timeout_s=timeout_s,
    )
    with progress() as spinner:
        notices = Notices(
            progress=lambda text: spinner.update(Text(outgoing(f"{text} ..."))),
            warn=lambda text: say(f"qnn-harness: {text}", err=True),
        )
        with shown_by(notices), scratch_folder() as logs:
            words: dict[str, str] = {}
            if acceptance:
                enabled = [name for name, on in (("--unplug", unplug), ("--reboot", reboot)) if on]
                check_writable(place := output or Path(f"acceptance-{names[0]}.zip"))
                prompt = partial(_show_prompt, spinner)
                report = report_of(accept(options, names[0], enabled, logs, prompt, words))
            else:
                report = report_of(examine(options))
            spinner.stop()
            if as_json:
                say_json(report)
            else:
                print("\n".join(lines_of(report, plain=False)), flush=True)
            if acceptance:
                words = private_words(words, options.cache, options.environment)
                write_archive(place, report, lines_of, logs, words)
                say(f"packed: {place}", err=True)
    context.exit(report.summary.exit_code)


def progress() -> Spinner:
    """Return a progress display, which only a terminal shows."""
    return Console(file=sys.stderr).status("looking around ...")


def _show_prompt(spinner: Spinner, text: str) -> None:
    spinner.update(Text(outgoing(text)))
    say(f"qnn-harness: {text}", err=True)


def lines_of(report: DoctorReport, *, plain: bool = True) -> list[str]:
    """Return the table and the sums, as wide as the terminal; `plain`: 120 columns, no colours."""
    console = Console(highlight=False)
    if plain or not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH, color_system=None)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, checks in grouped(report.checks):
        table.add_row(Text(outgoing(group), style="bold"))
        for check in checks:
            status = Text(_SHOWN.get(check.status, check.status), style=_STYLES[check.status])
            # output of a device is text and never markup
            text = Text(outgoing(check.found))
            if check.advice:
                text.append(f"\n-> {outgoing(check.advice)}", style="bold")
            table.add_row(Text("  ") + status, Text(outgoing(check.name)), text)
    with console.capture() as shown:
        console.print(table)
        console.print(sums(report))
    # without padding, lines are easier to copy and compare
    return [line.rstrip() for line in shown.get().splitlines()]


def grouped(checks: tuple[Checked, ...]) -> list[tuple[str, list[Checked]]]:
    """Group the checks by host, lab and device, in their order."""
    groups: dict[str, list[Checked]] = {}
    for check in checks:
        title = f"device {check.subject}" if check.group == "device" else check.group
        is_own = check.group != "lab" or check.subject == "lab"
        named = check if is_own else replace(check, name=f"{check.subject}: {check.name}")
        groups.setdefault(title, []).append(named)
    return list(groups.items())


def sums(report: DoctorReport) -> str:
    """Return the numbers of checks by status, as one line."""
    counts = asdict(report.summary)
    del counts["exit_code"]
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n)
