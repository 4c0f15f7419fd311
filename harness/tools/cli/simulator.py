"""`qnn-harness simulator`: simulated devices in the foreground, one or a farm, for plain adb."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from harness.device.adb.device import AdbDevice
from harness.device.lab.inventory import load_lab
from harness.ground.errors import ConfigError, InfraError
from harness.ground.errors.outgoing_text import counted
from harness.tools.cli.dsp_setup import set_up_dsp
from harness.tools.cli.lab_options import lab_option, open_lab
from harness.tools.cli.say import say

if TYPE_CHECKING:
    from harness.device.simulator.device import SimulatedDevice

_FARM: Final = "farm"
_DSP_SETUP: Final = "dsp-setup"
# what an option is called as a parameter
_OWN_OPTIONS: Final = {
    _FARM: ("devices", "written"),
    _DSP_SETUP: ("source", "mirror", "anew"),
}
_LOOK_S: Final = 1.0
_MOST_DEVICES: Final = 200


class _Named(click.Command):
    """Its help has the options of the NAME that stands before --help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[__name__] = next((one for one in args if one in _OWN_OPTIONS), None)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it."""
        named = ctx.meta.get(__name__)
        own = None if named is None else (*_OWN_OPTIONS[named], "help")
        params = [one for one in self.get_params(ctx) if own is None or one.name in own]
        with formatter.section("Options" if named is None else f"Options of {named}"):
            formatter.write_dl([told for one in params if (told := one.get_help_record(ctx))])


@click.command(cls=_Named)
@click.argument("name", required=False)
@lab_option
@click.option(
    "--devices",
    type=click.IntRange(1, _MOST_DEVICES),
    metavar="N",
    help="How many a farm has (default: 8).",
)
@click.option(
    "--write",
    "written",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The lab of a farm (default: farm.yaml); it goes with it.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="dsp-setup: QEMU's source that you have, as a .tar.xz.",
)
@click.option("--mirror", metavar="URL", help="dsp-setup: a mirror of Debian (default: apt's).")
@click.option("--anew", is_flag=True, help="dsp-setup: build also where it is there already.")
def simulator(
    name: str | None,
    lab_file: Path,
    devices: int | None,
    written: Path | None,
    source: Path | None,
    mirror: str | None,
    anew: bool,
) -> None:
    """Start the simulated device NAME (default: the lab's first) until Ctrl-C.

    NAME `farm` starts many at once, on an adb server of their own, whose socket is printed; your
    own is not touched.

    NAME `dsp-setup` builds the emulator for DSPs of simulated devices, in some minutes and without
    root: QEMU of Debian with vector instructions for floating point and the matrix unit.
    """
    context = click.get_current_context()
    for param in context.command.params:
        only = next((one for one, own in _OWN_OPTIONS.items() if param.name in own), name)
        given = context.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT
        if only != name and given:
            raise ConfigError(f"is for qnn-harness simulator {only}", field=param.opts[0])
    if name == _DSP_SETUP:
        set_up_dsp(source, mirror, anew)
        return
    if name == _FARM:
        _farm(devices or 8, written)
        return
    lab = load_lab(lab_file)
    simulated = [device.name for device in lab.devices if device.simulated]
    chosen = name or next(iter(simulated), None)
    if chosen not in simulated:
        raise ConfigError(
            f"{name!r} is not a simulated device of {lab_file}" if name else "no simulated device",
            file=lab_file,
            field="devices",
            choices=[*simulated, _FARM, _DSP_SETUP],
        )
    done = _told_to_end()
    with open_lab(lab, "simulator") as opened:
        device = opened.device(chosen).attach()
        assert isinstance(device.transport, AdbDevice)
        address, serial = device.transport.server.address, device.transport.serial
        say(f"{chosen} is up as {serial}; in another terminal:")
        say(f"    export ADB_SERVER_SOCKET={address.spec}")
        say("    adb devices -l")
        say(f"    adb -s {serial} shell")
        say("Ctrl-C ends it.")
        _wait_while_up(done, address.spec, [opened.simulation.devices[chosen]])


def _farm(count: int, written: Path | None) -> None:
    from harness.device.simulator.farm import SimulatedFarm
    from harness.ground.files.cache import cache_root
    from harness.ground.files.whole_file import write_whole

    file = written or Path("farm.yaml")
    if file.exists():
        raise ConfigError(
            "is there already; name another file, or remove it", field=f"--write {file}"
        )
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise ConfigError("is in no folder that can be written to", field=f"--write {file}")
    done = _told_to_end()
    with SimulatedFarm(count, key_folder=cache_root() / "keys") as farm:
        try:
            write_whole(file, farm.lab.encode(), new=True)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=file) from error
        try:
            say(f"started {counted(count, 'device')}, as {file} has them; in another terminal:")
            tests = "-m device --any-device -n auto"
            say(f"    pytest --lab {file} {tests}   # tests in this folder")
            say(
                f"    pytest --lab {file} {tests} --pyargs harness.suites   # those that come along"
            )
            say(f"    ADB_SERVER_SOCKET={farm.server.address.spec} adb devices -l")
            say("Ctrl-C ends them.")
            _wait_while_up(done, farm.server.address.spec, farm.devices)
        finally:
            file.unlink(missing_ok=True)


def _wait_while_up(done: threading.Event, server: str, devices: Sequence[SimulatedDevice]) -> None:
    """Returns when it is told to end. Raises InfraError for a server or device that is gone."""
    path = server.partition(":")[2]
    while not done.wait(_LOOK_S):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.settimeout(_LOOK_S)
            try:
                visitor.connect(path)
            except TimeoutError:
                continue  # a server that is busy
            except OSError as error:
                raise InfraError(f"its adb server has ended: {path}: {error.strerror}") from error
        for device in devices:
            if not device.running:
                raise InfraError(f"{device.name} has ended: {device.messages() or 'it was killed'}")


def _told_to_end() -> threading.Event:
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    return done
