"""`qnn-harness devices clean`: removes what deployments left on devices."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from harness.cli.lab_options import json_option, lab_option, open_lab
from harness.errors import HarnessError
from harness.lab.inventory import load_lab
from harness.runtimes.clean import Cleaned
from harness.runtimes.clean import clean as clean_device
from harness.runtimes.use_marks import holder


@click.command()
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Remove everything, also what a running case uses.",
)
@lab_option
@json_option
@click.pass_context
def clean(
    context: click.Context,
    names: tuple[str, ...],
    everything: bool,
    lab_file: Path,
    as_json: bool,
) -> None:
    """Remove deployed runtimes and contexts that nobody uses from DEVICEs (default: all enabled).

    Only files of the harness in a device's work folder are touched. Exit code 3 if a device does
    not answer or is in use; the others are cleaned all the same.
    """
    lab = load_lab(lab_file)
    configs = lab.select(list(names)) if names else lab.in_use()
    rows: list[dict[str, object]] = []
    failed = False
    with open_lab(lab, "devices clean") as opened:
        for config in configs:
            try:
                device = opened.device(config.name)
                cleaned = clean_device(device.adb, device.workdir, everything=everything)
            except HarnessError as error:
                failed = True
                rows.append({"name": config.name, "problem": str(error)})
                click.echo(f"error: {error}", err=True)
                continue
            rows.append({"name": config.name, "problem": None} | asdict(cleaned))
            if not as_json:
                click.echo(f"{config.name}: {_told(cleaned, everything)}")
    if as_json:
        click.echo(json.dumps({"devices": rows}, indent=2))
    context.exit(3 if failed else 0)


def _told(cleaned: Cleaned, everything: bool) -> str:
    text = f"{cleaned.freed_bytes / 1e6:.1f} MB freed, {len(cleaned.sets_removed)} sets removed"
    if cleaned.kept_bytes or cleaned.sets_kept:
        text += f"; {cleaned.kept_bytes / 1e6:.1f} MB in {len(cleaned.sets_kept)} sets kept"
    if cleaned.holders:
        who = ", ".join(holder(mark) for mark in cleaned.holders)
        text += f"; {'was in use' if everything else 'in use'} by {who}"
    return text
