"""`qnn-harness simulator`: run simulated devices, one or a farm, for use with adb."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from harness.cli.common_options import CommandGroup, NamedPath, lab_option
from harness.cli.lab_options import (
    Number,
    lab_or_simulated,
    open_lab,
    output_option,
    require_output,
)
from harness.cli.say import say
from harness.core.errors import ConfigError, InfraError
from harness.core.files import write_whole
from harness.core.notices import followed_by
from harness.core.outgoing_text import counted, outgoing
from harness.core.state_folders import BOARDS, cache_root
from harness.lab.inventory import load_lab
from harness.transport.adb_device import AdbDevice

if TYPE_CHECKING:
    from harness.simulator.device import SimulatedDevice


_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_MOST_DEVICES: Final = 200


@click.group(cls=CommandGroup)
def simulator() -> None:
    """Start simulated devices, or build the emulator of their DSPs."""


@simulator.command("build-dsp")
@click.option(
    "--source",
    type=NamedPath(),
    metavar="FILE",
    help="QEMU's source as a .tar.xz (default: fetched by apt).",
)
def build_dsp_command(source: Path | None) -> None:
    """Build the emulator for the DSPs of simulated devices; takes minutes, needs no root.

    It is Debian's QEMU with vector instructions for floating point and the matrix unit added.
    """
    from harness.cli.doctor import show_progress
    from harness.dsp.emulator import VARIABLE, build_loader, find_qemu, why_no_loader
    from harness.dsp.qemu_build import build_qemu

    if source is not None and not source.is_file():
        raise ConfigError("is not a file", file=source, field="--source")
    cache = cache_root() / BOARDS
    with show_progress() as spinner:

        def follow(_: str, facts: Mapping[str, object]) -> None:
            if facts.get("doing"):
                text = f"{facts['doing']}: {facts['done']} of {facts['total']} steps ..."
                spinner.update(Text(outgoing(text)))

        with followed_by(follow):
            built = build_qemu(cache, source=source)
            used = find_qemu(cache)
            lacking = why_no_loader(cache)
            if lacking is None:
                build_loader(cache)
    more = f" with {', '.join(sorted(used.can))}" if used.can else ""
    say(f"{used.path}: QEMU {used.version}{more}")
    if used.path != built:
        say(f"note: {built} was built, but {VARIABLE} names another, {used.path}", err=True)
    if lacking is not None:
        say(f"note: {lacking}", err=True)


@simulator.command("start")
@click.argument("name", required=False)
@lab_option
def start_command(name: str | None, lab_file: Path) -> None:
    """Start the simulated device NAME (default: the lab's first) until Ctrl-C."""
    lab_file = lab_or_simulated(lab_file, [name] if name else [])
    lab = load_lab(lab_file)
    simulated = [device.name for device in lab.devices if device.simulated]
    chosen = name or next(iter(simulated), None)
    if chosen not in simulated:
        problem = f"{name!r} is not a simulated device" if name else "no device is simulated"
        raise ConfigError(problem, file=lab_file, field="devices", choices=simulated)
    stop = _stop_event()
    with open_lab(lab, "simulator") as opened:
        device = opened.device(chosen).attach()
        assert isinstance(device.transport, AdbDevice)
        address, serial = device.transport.server.address, device.transport.serial
        say(f"{chosen} is up as {serial}; in another terminal:")
        say(f"    export ADB_SERVER_SOCKET={address.spec}")
        say("    adb devices -l")
        say(f"    adb -s {serial} shell")
        say("Ctrl-C ends it.")
        _wait_while_up(stop, address.spec, [opened.simulation.devices[chosen]])


@simulator.command("farm")
@click.option(
    "--devices",
    "count",
    type=Number(1, _MOST_DEVICES),
    metavar="N",
    default=8,
    show_default=True,
    help="Number of devices.",
)
@output_option(
    "Lab file to write; it is removed at the end.", default=Path("farm.yaml"), show_default=True
)
def farm_command(count: int, output: Path) -> None:
    """Start a farm of simulated devices until Ctrl-C, and write its lab.

    They are on an adb server of their own, whose socket is printed; yours is not touched.
    """
    from harness.simulator.farm import SimulatedFarm

    require_output(output, new=True)
    stop = _stop_event()
    with SimulatedFarm(count, key_folder=cache_root() / "keys") as farm:
        try:
            write_whole(output, farm.lab.encode(), new=True)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=output) from error
        try:
            say(f"started {counted(count, 'device')}, listed in {output}; in another terminal:")
            say(f"    qnn-harness --lab={output} devices list")
            tests = f"pytest --lab={output} -m device --spread any -n auto"
            say(f"    {tests}   # tests in this folder")
            say(f"    {tests} --pyargs harness.suites   # the suites of qnn-harness")
            say(f"    ADB_SERVER_SOCKET={farm.server.address.spec} adb devices -l")
            say("Ctrl-C ends them.")
            _wait_while_up(stop, farm.server.address.spec, farm.devices)
        finally:
            output.unlink(missing_ok=True)


def _wait_while_up(stop: threading.Event, server: str, devices: Sequence[SimulatedDevice]) -> None:
    """Wait until `stop` is set. Raises InfraError once the server or all devices are gone."""
    path, up = server.partition(":")[2], list(devices)
    while not stop.wait(_LOOK_S):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.settimeout(_LOOK_S)
            try:
                visitor.connect(path)
            except TimeoutError:
                continue  # a server that is busy
            except OSError as error:
                raise InfraError(f"the adb server at {path} has ended: {error.strerror}") from error
        for device in [device for device in up if not device.running]:
            up.remove(device)
            ended = f"{device.name} has ended: {device.messages() or 'it was killed'}"
            if not up:
                raise InfraError(ended)
            _log.warning("%s; still up: %s", ended, counted(len(up), "device"))


def _stop_event() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return stop
