"""`qnn-harness devices heal`: checks devices, brings them back, and ends their quarantine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from harness.cache import cache_root, quarantine_root
from harness.cli.lab_options import json_option, lab_option, open_lab
from harness.lab.care import DeviceCare
from harness.lab.events import LabEvent
from harness.lab.inventory import load_lab
from harness.lab.lease import DeviceHeld
from harness.lab.quarantine import Quarantine
from harness.probe.build import ProbeBuilder
from harness.probe.fitness import ProbeFitness


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="DEVICE...")
@click.option("--force", is_flag=True, help="End the quarantine even of a device that is bad.")
@lab_option
@json_option
@click.pass_context
def heal(
    context: click.Context,
    names: tuple[str, ...],
    force: bool,
    lab_file: Path,
    as_json: bool,
) -> None:
    """Check DEVICEs, bring back those that are bad, and end the quarantine of those that are well.

    What is done is what runs do, too: reconnect, end leftovers, restart an adb server of ours,
    reboot (unless `recovery: {reboot: false}` in devices.yaml). A device is well when our probe
    runs on it, if it can be built for it here. Exit code 1 if one is still bad, 3
    if another process holds one; the others are seen to all the same.
    """
    lab = load_lab(lab_file)
    lab.select(names)
    quarantine = Quarantine(quarantine_root(cache_root()))
    fitness = ProbeFitness(
        ProbeBuilder(cache_root() / "probe"), notify=lambda text: click.echo(text, err=True)
    )
    rows: list[dict[str, object]] = []
    steps: list[LabEvent] = []

    def tell(event: LabEvent) -> None:
        steps.append(event)
        if not as_json:
            click.echo(f"{event.device}: {event.event}: {event.detail}", err=True)

    with open_lab(lab, "devices heal") as opened:
        care = DeviceCare(
            opened,
            quarantine,
            probe_problem=lambda device: None,
            thorough=fitness.problem,
            tell=tell,
        )
        for name in dict.fromkeys(names):
            try:
                opened.hold(name)
            except DeviceHeld as held:
                rows.append({"name": name, "state": None, "problem": str(held)})
                click.echo(f"error: {held}", err=True)
                continue
            before = quarantine.find(opened.key(name))
            health = care.heal(name)
            if force:
                quarantine.lift(opened.key(name))
            entry = quarantine.find(opened.key(name))
            rows.append(
                {
                    "name": name,
                    "state": health.state,
                    "problem": None,
                    "findings": [finding.text for finding in health.findings],
                    "was_in_quarantine": before is not None,
                    "in_quarantine": entry is not None,
                    "steps": [
                        asdict(step) | {"started": step.started.isoformat()}
                        for step in steps
                        if step.device == name
                    ],
                }
            )
            if not as_json:
                what = "in quarantine" if entry else "no longer in quarantine" if before else ""
                click.echo(f"{name}: {health}" + (f" ({what})" if what else ""))
    if as_json:
        click.echo(json.dumps({"devices": rows}, indent=2))
    if any(row["problem"] for row in rows):
        context.exit(3)
    context.exit(1 if any(row["state"] == "bad" for row in rows) else 0)
