"""`qnn-harness devices`: what is configured, and what adb sees of it; and its subcommands."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from harness.cache import cache_root, quarantine_root
from harness.cli.devices_clean import clean
from harness.cli.devices_heal import heal
from harness.cli.lab_options import json_option, lab_option, open_lab
from harness.errors import HarnessError
from harness.lab.attach import OpenLab
from harness.lab.inventory import DeviceConfig, load_lab
from harness.lab.lease import DeviceHeld
from harness.lab.quarantine import Quarantine
from harness.lab.recovery import check

COLUMNS = (
    "name",
    "serial",
    "state",
    "health",
    "holder",
    "soc",
    "htp_arch",
    "adreno",
    "target",
    "os_build",
    "free_storage_bytes",
    "ram_bytes",
)


@click.group(invoke_without_command=True)
@lab_option
@json_option
@click.pass_context
def devices(context: click.Context, lab_file: Path, as_json: bool) -> None:
    """List the lab's devices, configured ones first, then others that adb sees.

    Simulated devices are started for the moment of asking; a device that another process holds is
    left alone. Exit code 3 if an enabled device does not answer.
    """
    if context.invoked_subcommand is None:
        _list(context, lab_file, as_json)
        return
    # `devices --lab FILE clean` means the same as `devices clean --lab FILE`
    given = {"lab_file": lab_file, "as_json": as_json}
    context.default_map = dict.fromkeys(devices.commands, given)


devices.add_command(clean)
devices.add_command(heal)


def _list(context: click.Context, lab_file: Path, as_json: bool) -> None:
    lab = load_lab(lab_file)
    quarantine = Quarantine(quarantine_root(cache_root()))
    with open_lab(lab, "devices") as opened:
        rows = [describe(opened, config, quarantine) for config in lab.devices]
        rows += strangers(opened, rows)
    if as_json:
        click.echo(json.dumps({"devices": rows}, indent=2))
    else:
        _print_table(rows)
        for row in (row for row in rows if not row["problem"]):
            for finding in row["findings"]:
                click.echo(f"{row['name']}: {finding}")
    failed = [row for row in rows if row["enabled"] and row["problem"]]
    for row in failed:
        click.echo(f"error: {row['name']}: {row['problem']}", err=True)
    context.exit(3 if failed else 0)


def describe(lab: OpenLab, config: DeviceConfig, quarantine: Quarantine) -> dict[str, Any]:
    """One row: what devices.yaml says, completed by what the device says if it answers."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    why_off = lab.lab.why_off(config)
    entry = quarantine.find(lab.key(config.name)) if why_off is None else None
    row |= {
        "name": config.name,
        "serial": config.serial,
        "soc": config.soc,
        "htp_arch": config.htp_arch,
        "adreno": config.adreno,
        "target": config.target,
        "configured": True,
        "enabled": why_off is None,
        "simulated": config.simulated,
        "problem": None,
        "lease": None,
        "findings": [],
        "vitals": None,
        "quarantine": None if entry is None else asdict(entry),
    }
    if not config.enabled:
        return row | {"state": "disabled"}
    if why_off is not None:
        return row | {"state": "off", "findings": [why_off]}
    try:
        lab.hold(config.name)
    except DeviceHeld:
        return row | {"state": "leased"} | _lease(lab, config.name)
    health = check(lab, config.name, lab.lab.health_of(config.name), lambda device: None)
    row |= {
        "health": health.state if entry is None else "quarantine",
        "findings": [finding.text for finding in health.findings],
        "vitals": None if health.vitals is None else asdict(health.vitals),
    }
    gone = next((found for found in health.findings if found.code == "unreachable"), None)
    if gone is not None:
        return row | {"state": "unreachable", "problem": gone.text}
    try:
        device = lab.device(config.name)
    except HarnessError as error:
        return row | {"state": "unreachable", "problem": str(error)}
    facts = device.facts
    return row | {
        "serial": device.adb.serial,
        "state": "device",
        "soc": device.soc,
        "htp_arch": device.htp_arch,
        "adreno": device.adreno,
        "target": device.target,
        "os_build": facts.os_build,
        "free_storage_bytes": facts.free_storage_bytes,
        "ram_bytes": facts.ram_bytes,
    }


def _lease(lab: OpenLab, name: str) -> dict[str, Any]:
    held = lab.leases.look(lab.key(name)) if lab.leases else None
    if held is None:
        return {}
    holder = held.holder
    said = asdict(holder) if holder else {}
    who = f"{holder.user} ({holder.pid}): {holder.purpose}" if holder else "unknown"
    return {"holder": who, "lease": said | {"silent_s": round(held.silent_s, 1)}}


def strangers(lab: OpenLab, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the user's adb server sees beyond the lab; nothing if no server is running."""
    known = {row["serial"] for row in rows}
    return [
        dict.fromkeys(COLUMNS)
        | {"serial": seen.serial, "state": seen.state, "configured": False, "enabled": False}
        | {"simulated": False, "problem": None, "lease": None, "findings": [], "quarantine": None}
        | {"vitals": None}
        for seen in lab.seen()
        if seen.serial not in known
    ]


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    heads = (
        "NAME",
        "SERIAL",
        "STATE",
        "HEALTH",
        "HOLDER",
        "SOC",
        "HTP",
        "ADRENO",
        "TARGET",
        "OS",
        "FREE",
        "RAM",
    )
    for head in heads:
        table.add_column(head, justify="right" if head in ("FREE", "RAM") else "left")
    for row in rows:
        table.add_row(*(_cell(column, row[column]) for column in COLUMNS))
    Console(width=None if Console().is_terminal else 200).print(table)


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if column == "htp_arch":
        return f"v{value}"
    if column.endswith("_bytes") and isinstance(value, int):
        return f"{value / 1e9:.1f} GB"
    return str(value)
