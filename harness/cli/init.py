"""`qnn-harness init`: write a devices.yaml of the devices that adb sees, and of ssh boards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from harness.cli.common_options import lab_option
from harness.cli.say import say
from harness.core.errors import ConfigError, InfraError
from harness.core.files import write_whole
from harness.doctor.new_lab import lab_text
from harness.lab.new_devices import SIMULATED, FoundDevice, find_boards, find_devices
from harness.transport.adb_address import USER_SERVER, TcpAddress, UnixAddress
from harness.transport.adb_server import AdbServer, adb_binary

_WITHOUT: Final = "Without one: qnn-harness init --simulated"


@click.command()
@click.option("--simulated", is_flag=True, help="Write a simulated device; needs no adb server.")
@click.option(
    "--server",
    metavar="HOST[:PORT]",
    help="adb server (default: the one that adb uses).",
)
@click.option(
    "--board",
    "boards",
    metavar="[USER@]HOST[:PORT]",
    multiple=True,
    help="Board to reach by ssh, without adb.",
)
@lab_option
def init(simulated: bool, server: str | None, boards: Sequence[str], lab_file: Path) -> None:
    """Write a devices.yaml with the devices that the adb server sees, and their properties.

    An existing file is not overwritten; name another one with --lab. A device that does not answer
    becomes a comment that says what to do.

    \b
    Exit codes: 0 written, 2 wrong input, 3 no device answers.
    """
    if lab_file.exists():
        raise _exists_error(lab_file)
    address = USER_SERVER if server is None else _address(server)
    devices = _find_all(address, boards, simulated)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    text = lab_text(devices, address, simulated=simulated, day=day)
    try:
        write_whole(lab_file, text.encode(), new=True)
    except FileExistsError as error:
        raise _exists_error(lab_file) from error
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=lab_file) from error
    for device in devices:
        say(f"{device.name} ({device.serial}): {device.problem or device.description}")
    first = next((device.name for device in devices if device.device), SIMULATED)
    say(f"written: {lab_file}; next: qnn-harness doctor {first}")


def _exists_error(lab_file: Path) -> ConfigError:
    return ConfigError("already exists; name a new file with --lab FILE", file=lab_file)


def _address(server: str) -> TcpAddress:
    host, colon, port = server.rpartition(":")
    if server and not colon:
        return TcpAddress(server)
    if not (host and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ConfigError(f"{server[:200]!r} is not HOST or HOST:PORT", field="--server")
    return TcpAddress(host, int(port))


def _find_all(
    address: TcpAddress | UnixAddress, boards: Sequence[str], simulated: bool
) -> Sequence[FoundDevice]:
    adb, by_ssh = AdbServer(address), find_boards(boards)
    if not adb.is_running():
        if simulated or any(board.device for board in by_ssh):
            return by_ssh
        if by_ssh:
            problems = "; ".join(f"{board.serial}: {board.problem}" for board in by_ssh)
            raise InfraError(f"no board answers: {problems}. {_WITHOUT}")
        advice = address.start_advice
        if address.is_here:
            advice = advice.replace("adb", str(adb_binary()), 1)
        raise InfraError(f"no adb server answers at {address}; {advice}. {_WITHOUT}")
    devices = find_devices(adb, [board.name for board in by_ssh]) + by_ssh
    if simulated or any(device.device for device in devices):
        return devices
    seen = "; ".join(f"{device.serial}: {device.problem}" for device in devices)
    plug = "plug one in with USB debugging enabled, and accept this computer's key on it"
    raise InfraError(f"no device answers at {address}: {seen or plug}. {_WITHOUT}")
