"""`qnn-harness devices`: list, clean, reserve and recover devices."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import click
from pydantic import ConfigDict, Field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cli.common_options import CommandGroup, json_option, lab_option
from harness.cli.lab_options import device_argument, duration_option, lab_or_simulated, open_lab
from harness.cli.say import say, say_json
from harness.core.deadline import Deadline
from harness.core.errors import HarnessError, InfraError
from harness.core.json_record import Part, Printout
from harness.core.outgoing_text import clock, counted, first_names, outgoing
from harness.core.state_folders import BOARDS, cache_root, quarantine_root
from harness.deploy.layout import describe_claim
from harness.deploy.store_client import Cleaned, clean as clean_device
from harness.dsp.emulator import loader_missing
from harness.lab.device_config import DeviceConfig, SimulatedDeviceConfig
from harness.lab.device_watch import DeviceWatch
from harness.lab.facts import Vitals
from harness.lab.health import DeviceEvent, KnownStates, Quarantine, Quarantined, State
from harness.lab.inventory import load_lab
from harness.lab.lab_device import LabDevice, OpenLab
from harness.lab.lease import DeviceHeld, Held
from harness.lab.recovery import check
from harness.probe.build import ProbeBuilder
from harness.probe.self_test import built_probe_problem
from harness.transport.adb_device import UNPLUGGED
from harness.transport.adb_server import AdbServer

_DESCRIBED = ("soc", "htp_arch", "adreno", "target")
_ASKED = ("os_build", "free_storage_bytes", "ram_bytes")
COLUMNS = ("name", "serial", "state", "health", "holder", *_DESCRIBED, *_ASKED)

_LOOK_S: Final = 5.0
SIMULATED_DSP = (
    "its DSP is emulated; the harness answers in place of kernel and driver "
    "(docs/explanation/concepts.md)"
)
PREPARES = "its GPU backend prepares graphs but cannot execute them: it has no GPU"


class ListedDevice(Part):
    """A device. Unknown properties are null.

    `configured`: it is in devices.yaml. `state` is device (it answers), disabled, off (a simulated
    one that lacks something here), leased, unplugged, unreachable, or the adb state of one that is
    not in devices.yaml. `health` is good, suspect, bad or quarantine. `lease` is its holder, if
    known, `silent_s` the time since its lease was renewed. `host` is the computer it is attached
    to, null for this one; `host_lost`: it does not answer. `findings` and `problem` are for users.
    """

    model_config = ConfigDict(frozen=False)

    name: str | None = None
    serial: str | None
    configured: bool
    enabled: bool
    simulated: bool
    state: str | None = None
    health: State | Literal["quarantine"] | None = None
    lease: Held | None = None
    soc: str | None = None
    htp_arch: int | None = None
    adreno: str | None = None
    target: str | None = None
    os_build: str | None = None
    free_storage_bytes: int | None = None
    ram_bytes: int | None = None
    host: str | None = None
    host_lost: bool | None = None
    problem: str | None = None
    findings: list[str] = Field(default_factory=list)
    quarantine: Quarantined | None = None
    vitals: Vitals | None = None

    @property
    def holder(self) -> str | None:
        """The holder of its lease as text."""
        if self.lease is None:
            return None
        holder = self.lease.holder
        return f"{holder.user} ({holder.pid}): {holder.purpose}" if holder else "unknown"


class DevicesListed(Printout):
    """`devices list --json`: the devices of the lab, then others that adb sees."""

    devices: list[ListedDevice]


@click.group(cls=CommandGroup)
def devices() -> None:
    """List, reserve, recover and clean devices."""


@devices.command("list")
@lab_option
@json_option
def list_command(lab_file: Path, as_json: bool) -> int:
    """List the lab's devices, then others that adb sees.

    Simulated devices are started briefly. A device that another process holds is not touched.

    \b
    Exit codes: 0 all enabled devices are usable, 1 one is bad or in quarantine, 3 one does not
    answer.
    """
    lab = load_lab(lab_file)
    quarantine = Quarantine(quarantine_root(cache_root()))
    with open_lab(lab, "devices list") as opened:
        rows = [describe(opened, config, quarantine) for config in lab.devices]
        rows += unlisted_devices(rows)
    if as_json:
        say_json(DevicesListed(devices=rows))
    else:
        _print_table(rows)
        for line in note_lines(rows):
            say(line)
    failed = [row for row in rows if row.enabled and row.problem]
    for line in _merge_lines((str(row.name), str(row.problem)) for row in failed if not as_json):
        say(f"error: {line}", err=True)
    bad = any(row.enabled and row.health in ("bad", "quarantine") for row in rows)
    return 3 if failed else 1 if bad else 0


def note_lines(rows: Sequence[ListedDevice]) -> list[str]:
    """Return the notes on all rows below the table, each once (pure)."""
    return _merge_lines((str(row.name), line) for row in rows for line in notes(row))


def _merge_lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Merge equal lines of several devices, such as those of one adb server, with their names."""
    names: dict[str, list[str]] = {}
    for name, line in pairs:
        names.setdefault(line, []).append(name)
    return [f"{first_names(named)}: {line}" for line, named in names.items()]


def notes(row: ListedDevice) -> list[str]:
    """Return the notes on a row below the table: its findings, and why it is quarantined."""
    lines = [] if row.problem else list(row.findings)
    if row.lease and (holder := row.lease.holder):
        until = f" until {holder.until}" if holder.until else ""
        lines.insert(0, f"in use since {holder.since}{until}")
    if entry := row.quarantine:
        state = "in quarantine" if entry.until == "healed" else "out of reach"
        lines.append(f"{state} since {entry.since}: {entry.why}. {entry.end(str(row.name))}")
    return lines


def describe(lab: OpenLab, config: DeviceConfig, quarantine: Quarantine) -> ListedDevice:
    """Return the row of a device: from devices.yaml, and from the device if it answers."""
    why_off = lab.described.why_off(config)
    row = ListedDevice(
        **{name: getattr(config, name) for name in ("name", "simulated", *_DESCRIBED)},
        serial=getattr(config, "serial", None),
        configured=True,
        enabled=why_off is None,
    )
    if why_off is not None:
        row.state = "off" if config.enabled else "disabled"
        row.findings = [why_off] if config.enabled else []
        return row
    has_dsp = isinstance(config, SimulatedDeviceConfig) and config.dsp is not None
    if has_dsp and (missing := loader_missing(cache_root() / BOARDS)) is not None:
        row.state, row.findings = "off", [missing]
        return row
    device = lab.device(config.name)
    try:
        row.quarantine = quarantine.find(device.key)
    except InfraError as error:
        row.problem = str(error)
    row.host = device.far_host
    try:
        device.acquire()
        health = check(device, lambda device: None)
    except DeviceHeld as error:
        row.state, row.lease = "leased", error.holding
        row.findings = [] if error.holding.holder else [str(error)]
        return row
    except InfraError as error:
        row.state, row.problem = "unreachable", str(error)
        return row
    if row.quarantine and row.quarantine.until == "answers" and health.state != "bad":
        quarantine.lift(device.key)
        row.quarantine = None
    quarantined = row.quarantine is not None and row.quarantine.until == "healed"
    row.health = "quarantine" if quarantined else health.state
    row.findings = [finding.text for finding in health.findings]
    row.vitals = health.vitals
    codes = {finding.code: finding.text for finding in health.findings}
    if (text := codes.get("unreachable")) is not None:
        row.state = "unplugged" if UNPLUGGED in text else "unreachable"
        row.host_lost, row.problem = device.lost_host is not None, text
        return row
    try:
        attached = device.attach()
    except HarnessError as error:
        row.state, row.problem = "unreachable", str(error)
        return row
    facts = attached.facts
    if facts.coprocessors is not None and facts.coprocessors.gpu_compiler:
        row.findings.append(PREPARES)
    if attached.simulated_dsp is not None:
        row.findings.append(SIMULATED_DSP)
    row.serial, row.state = attached.transport.serial, "device"
    for name in (*_DESCRIBED, "simulated"):
        setattr(row, name, getattr(attached, name))
    for name in _ASKED:
        setattr(row, name, getattr(facts, name))
    return row


def unlisted_devices(rows: list[ListedDevice]) -> list[ListedDevice]:
    """Return the devices of the user's adb server, if it runs, that are not in the lab."""
    server, known = AdbServer(), {row.serial for row in rows}
    return [
        ListedDevice(
            serial=each.serial, state=each.state, configured=False, enabled=False, simulated=False
        )
        for each in (server.devices() if server.is_running() else ())
        if each.serial not in known
    ]


def _print_table(rows: list[ListedDevice]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        # htp_arch is HTP, free_storage_bytes is FREE
        head = column.partition("_")[0].upper()
        table.add_column(head, justify="right" if column.endswith("_bytes") else "left")
    for row in rows:
        # output of a device is text and never markup
        table.add_row(*(Text(outgoing(_cell(column, getattr(row, column)))) for column in COLUMNS))
    Console(width=None if Console().is_terminal else 200).print(table)


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if column == "htp_arch":
        return f"v{value}"
    if column.endswith("_bytes") and isinstance(value, int):
        return f"{value / 1e9:.1f} GB"
    return str(value)


@devices.command()
@device_argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option("--all", "everything", is_flag=True, help="Remove everything, even if in use.")
@lab_option
def clean(names: tuple[str, ...], everything: bool, lab_file: Path) -> int:
    """Remove unused runtimes and contexts from DEVICEs (default: all enabled).

    Only files of the harness in a device's work folder are removed.

    \b
    Exit codes: 0 cleaned, 2 wrong input, 3 a device does not answer or is in use (the others are
    cleaned nevertheless).
    """
    lab = load_lab(lab_file, names=names)
    configs = lab.select(list(names)) if names else lab.enabled_devices()
    code = 0
    with open_lab(lab, "devices clean") as opened:
        for config in configs:
            try:
                device = opened.device(config.name)
                attached = device.attach()
                _forget(device)
                cleaned = clean_device(attached.transport, attached.workdir, everything=everything)
            except HarnessError as error:
                say(f"error: {error}", err=True)
                code = InfraError.exit_code
                continue
            say(f"{config.name}: {_cleaned_text(cleaned, everything)}")
    return code


def _forget(device: LabDevice) -> None:
    """Remove what runs know of a device that is held here, since it may change now."""
    KnownStates(cache_root() / "devices", "").pop(device.key)


def _cleaned_text(cleaned: Cleaned, everything: bool) -> str:
    removed = counted(len(cleaned.sets_removed), "set")
    text = f"{cleaned.freed_bytes / 1e6:.1f} MB freed, {removed} removed"
    if cleaned.kept_bytes or cleaned.sets_kept:
        sets = counted(len(cleaned.sets_kept), "set")
        text += f"; {cleaned.kept_bytes / 1e6:.1f} MB in {sets} kept"
    if cleaned.holders:
        holders = ", ".join(describe_claim(claim) for claim in cleaned.holders)
        text += f"; {'was in use' if everything else 'in use'} by {holders}"
    return text


@devices.command()
@device_argument("name", metavar="DEVICE")
@duration_option("--for", "loan_s", "How long to keep it.", default="30m")
@click.option("--why", default="", help="Reason shown to other users.")
@lab_option
def reserve(name: str, loan_s: float, why: str, lab_file: Path) -> None:
    """Reserve DEVICE until Ctrl-C or for the given time.

    If a run uses it, you get it when the current case has ended; the run continues on other
    devices, or waits. Exit code 3: the device cannot be reserved, or was lost.
    """
    lab = load_lab(lab_file, names=[name])
    lab.select([name])
    purpose = f"devices reserve{': ' if why else ''}{why}"
    with open_lab(lab, purpose, loan_s=loan_s) as opened:
        device = opened.device(name)
        device.acquire()
        if not device.is_simulated_here:
            _claim(device)
            _forget(device)
        ends = Deadline(loan_s)
        say(f"{name} is reserved for {clock(loan_s)}; Ctrl-C releases it")
        with suppress(KeyboardInterrupt):
            while not ends.expired:
                device.require_held()
                time.sleep(min(_LOOK_S, ends.remaining()))
    say(f"{name} is released")


def _claim(device: LabDevice) -> None:
    """Lease the device under its own identity, too, since it may have several addresses."""
    try:
        device.attach()
    except DeviceHeld:
        raise
    except InfraError as error:
        say(f"{device.name} does not answer: {error}", err=True)


@devices.command()
@device_argument("names", nargs=-1, required=True, metavar="DEVICE...")
@click.option("--force", is_flag=True, help="End the quarantine even if the device is bad.")
@lab_option
def recover(names: tuple[str, ...], force: bool, lab_file: Path) -> int:
    """Check DEVICEs, recover those that are bad, and end the quarantine of healthy ones.

    The steps are: reconnect, end leftover processes, restart the adb server of the harness, reboot
    (unless devices.yaml has `recovery: {reboot: false}`). A device is healthy if the probe runs on
    it.

    \b
    Exit codes: 0 all are healthy, 1 one is still bad, 3 another process holds one (the others are
    checked nevertheless).
    """
    lab = load_lab(lab_or_simulated(lab_file, names), names=names)
    lab.select(names)
    quarantine = Quarantine(quarantine_root(cache_root()))
    builder = ProbeBuilder(cache_root() / "probe")
    codes = {0}

    def report(event: DeviceEvent) -> None:
        say(f"{event.device}: {event.event}: {event.detail}", err=True)

    with open_lab(lab, "devices recover") as opened:
        watch = DeviceWatch(
            quarantine,
            probe_problem=lambda device: None,
            thorough=lambda device: built_probe_problem(builder, device.attach()),
            on_event=report,
        )
        for name in dict.fromkeys(names):
            device = opened.device(name)
            try:
                device.acquire()
                before = quarantine.find(device.key)
                health = watch.heal(device)
            except DeviceHeld as error:
                say(f"error: {error}", err=True)
                codes.add(3)
                continue
            if force:
                quarantine.lift(device.key)
            entry = quarantine.find(device.key)
            change = "in quarantine" if entry else "no longer in quarantine" if before else ""
            say(f"{name}: {health}" + (f" ({change})" if change else ""))
            if health.state == "bad":
                codes.add(1)
    return max(codes)
