"""`qnn-harness acceptance`: test every layer of a device, and show the archive of such a test."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click
from rich.status import Status as Spinner
from rich.text import Text

from harness.cli.common_options import CommandGroup, NamedPath, json_option, lab_option
from harness.cli.doctor import lines_of, show_progress, show_report
from harness.cli.lab_options import device_argument, output_option, qnn_option
from harness.cli.say import say, say_result
from harness.core.files import scratch_folder
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
from harness.doctor.check_results import report_of
from harness.doctor.device_visit import Options


@click.group(cls=CommandGroup)
def acceptance() -> None:
    """Test every layer of a device, and pack the results."""


@acceptance.command()
@device_argument("name", metavar="DEVICE")
@click.option("--unplug", is_flag=True, help="Ask you to unplug the device and plug it in, too.")
@click.option("--reboot", is_flag=True, help="Reboot the device, too.")
@output_option("The archive (default: acceptance-DEVICE.zip).")
@qnn_option("The runtime to try (default: newest).")
@lab_option
@json_option
def run(
    name: str,
    unplug: bool,
    reboot: bool,
    output: Path | None,
    qnn: str | None,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Test every layer of DEVICE, clean it up, and pack the results into a zip.

    The steps test shells, files, the probe, a crash, a hang, FastRPC, each backend and 66 contexts.
    The zip has no serial number, host name or path, so you can send it to others.

    \b
    Exit codes: 0 every step passed, 1 one failed, 2 the input is wrong, 3 the device does not
    answer.
    """
    options = Options(lab_file, (name,), cache_path(), os.environ, qnn=qnn or "latest")
    enabled = [option for option, on in (("--unplug", unplug), ("--reboot", reboot)) if on]
    check_writable(archive := output or Path(f"acceptance-{name}.zip"))
    words: dict[str, str] = {}
    with show_progress() as spinner, scratch_folder() as logs:
        prompt = partial(_show_prompt, spinner)
        report = report_of(accept(options, name, enabled, logs, prompt, words))
        spinner.stop()
        show_report(report, as_json)
        words = private_words(words, options.cache, options.environment)
        write_archive(archive, report, lines_of, logs, words)
        say(f"packed: {archive}", err=True)
    return report.summary.exit_code


@acceptance.command()
@click.argument("archive", type=NamedPath())
@json_option
def show(archive: Path, as_json: bool) -> None:
    """Print the results in ARCHIVE as a row of a table."""
    report = read_archive(archive)
    say_result(report, [markdown_row(report)], as_json)


def _show_prompt(spinner: Spinner, text: str) -> None:
    spinner.update(Text(outgoing(text)))
    say(f"qnn-harness: {text}", err=True)
