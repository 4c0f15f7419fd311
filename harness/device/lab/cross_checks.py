"""Mistakes in devices.yaml that no single field can tell: names taken twice, contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from harness.device.dsp.hexagon import DSP_ARCHS
from harness.device.lab.device_address import LOCAL, device_address, service_address
from harness.device.lab.device_url import DEVICE_URLS
from harness.device.ssh.login import login_at
from harness.ground.errors import ConfigError
from harness.ground.facts.platforms import TARGETS
from harness.ground.facts.socs import HTP_ARCHS, KERNEL_SOC_IDS, SOCS
from harness.ground.yaml_lines.document import Document
from harness.ground.yaml_lines.models import did_you_mean, entries_of, names_taken_twice

SIMULATED_TARGETS: Final = ("linux-x64", "linux-arm64")
EMULATED_TARGET: Final = "linux-arm64"
"""The simulated target whose programs run under qemu."""
PREPARING_TARGET: Final = "linux-x64"
"""The simulated target whose GPU backend can prepare graphs without a GPU."""

DSP_SOCS: Final = tuple(name for name in KERNEL_SOC_IDS if SOCS[name].htp_arch in DSP_ARCHS)
"""The SoCs whose DSP can be simulated: kernels name them, and their skel runs in the emulator."""

ALIKE: Final = (
    *("soc", "htp_arch", "adreno", "target", "tags"),
    *("simulated", "shows_soc", "dsp", "prepares_gpu"),
)
"""The fields that are the same in devices on which a verdict says the same."""
_FORBIDDEN_IF_SIMULATED: Final = ("transport", "serial", "address", "host", "workdir", "power")


def mistakes_between_fields(document: Document) -> Iterator[ConfigError]:
    """What no single field can tell; works on whatever parts have the right shape."""
    hosts, devices = entries_of(document, "hosts"), entries_of(document, "devices")
    yield from names_taken_twice(document, "hosts", hosts, "name")
    yield from names_taken_twice(document, "devices", devices, "name")
    yield from names_taken_twice(document, "notify", entries_of(document, "notify"), "name")
    by_ssh = {at: one for at, one in devices.items() if one.get("transport") == "ssh"}
    here = {at: one for at, one in devices.items() if one.get("transport") == "local"}
    others = {at: one for at, one in devices.items() if at not in by_ssh}
    yield from names_taken_twice(document, "devices", others, "address")
    yield from names_taken_twice(document, "devices", by_ssh, "address", named=_board)
    yield from names_taken_twice(document, "devices", here, "transport")
    # The same serial may well exist behind two adb servers.
    yield from names_taken_twice(document, "devices", devices, "serial", "host", named=_address)
    yield from _unlike_pools(document, devices)
    named = (host.get("name") for host in hosts.values())
    names = list(dict.fromkeys(name for name in named if isinstance(name, str)))
    for index, one in hosts.items():
        said = [field for field in ("socket", "host", "ssh") if one.get(field) is not None]
        if not said:
            problem = "is missing, and so are `ssh` and `socket`"
            yield document.mistake(("hosts", index, "host"), problem)
        elif said[0] == "socket" and len(said) > 1:
            yield document.mistake(("hosts", index, "socket"), f"stands in place of `{said[1]}`")
    for index, device in devices.items():
        is_simulated = device.get("simulated", False)
        wrong = [*_wrong_host(device, names), *_wrong_soc(device)]
        if is_simulated is True:
            wrong += _wrong_if_simulated(device)
        elif is_simulated is False:
            wrong += _wrong_if_real(device)
        for field, problem, choices in wrong:
            yield document.mistake(("devices", index, field), problem, choices)


def _unlike_pools(
    document: Document, devices: Mapping[int, Mapping[str, object]]
) -> Iterator[ConfigError]:
    """Pools whose devices could come to different verdicts, or that are called like a device."""
    named = (device.get("name") for device in devices.values())
    names = {name for name in named if isinstance(name, str)}
    first: dict[str, Mapping[str, object]] = {}
    for index, device in devices.items():
        pool = device.get("pool")
        if not isinstance(pool, str):
            continue
        other = first.setdefault(pool, device)
        unlike = [key for key in ALIKE if device.get(key) != other.get(key)]
        problem = None
        if pool in names:
            problem = "is the name of a device, too"
        elif device.get("soc") is None:
            problem = "takes devices whose `soc` is given: a verdict must say the same of each"
        elif unlike:
            problem = f"is that of {other.get('name')}, which has other `{unlike[0]}`"
        if problem is not None:
            yield document.mistake(("devices", index, "pool"), problem)


class _Wrong(NamedTuple):
    field: str
    problem: str
    choices: Sequence[object] | None = None


def _wrong_host(device: Mapping[str, object], names: list[str]) -> Iterator[_Wrong]:
    host = device.get("host")
    if isinstance(host, str) and host not in names:
        yield _Wrong("host", f"no such adb host{did_you_mean(host, names)}", names or ["(none)"])


def _wrong_soc(device: Mapping[str, object]) -> Iterator[_Wrong]:
    soc, arch = SOCS.get(str(device.get("soc"))), device.get("htp_arch")
    if soc is not None and isinstance(arch, int) and arch in HTP_ARCHS and arch != soc.htp_arch:
        has = f"has HTP v{soc.htp_arch}" if soc.htp_arch else "has no HTP"
        yield _Wrong("htp_arch", f"is {arch}, but {soc.name} {has}")
    if device.get("prepares_gpu") is True and not (
        device.get("simulated") is True
        and device.get("target", PREPARING_TARGET) == PREPARING_TARGET
    ):
        hint = f"only the GPU backend of a simulated {PREPARING_TARGET} device can be made to"
        yield _Wrong("prepares_gpu", hint)


def _wrong_address(device: Mapping[str, object]) -> Iterator[_Wrong]:
    """What of a real device's address does not go with its transport."""
    transport, address = device.get("transport", "adb"), device.get("address")
    said = [field for field in ("serial", "host") if device.get(field) is not None]
    if transport == "local":
        there = [field for field in ("address", "power") if device.get(field) is not None]
        yield from (_Wrong(field, "this computer has none of its own") for field in (*said, *there))
    elif transport == "ssh":
        if address is None:
            yield _Wrong("address", "is missing: where does ssh find it? [user@]host[:port]")
        elif "://" in str(address):
            yield _Wrong("address", "with `transport: ssh` it is [user@]host[:port], without //")
        yield from (_Wrong(field, "`address` says that already") for field in said)
    elif address is not None:
        if transport == "adb" and "://" not in str(address):
            hint = f"must be {' or '.join(DEVICE_URLS)}; [user@]host[:port] needs `transport: ssh`"
            yield _Wrong("address", hint)
        yield from (_Wrong(field, "`address` says that already") for field in said)
    elif "://" in str(device.get("serial")):
        yield _Wrong("serial", "is the address of a device: write it as `address`")
    elif device.get("serial") is None:
        yield _Wrong("serial", "is missing: a device needs one unless it is `simulated: true`")


def _wrong_if_real(device: Mapping[str, object]) -> Iterator[_Wrong]:
    yield from _wrong_address(device)
    if device.get("storage_limit_mb") is not None:
        yield _Wrong("storage_limit_mb", "only a simulated device's storage can be limited")
    if device.get("enabled") == "auto":
        yield _Wrong("enabled", "only a simulated device can be on by itself; use true or false")
    if device.get("shows_soc") is True:
        yield _Wrong("shows_soc", "only a simulated board is told so")
    if device.get("dsp", False) is not False:
        yield _Wrong("dsp", "a real device has its own; only a simulated board is given one")


def _wrong_if_simulated(device: Mapping[str, object]) -> Iterator[_Wrong]:
    for field in _FORBIDDEN_IF_SIMULATED:
        if device.get(field) is not None:
            yield _Wrong(field, "a simulated device has none of its own")
    soc, choices = device.get("soc"), [soc.name for soc in SOCS.values() if soc.htp_arch]
    if soc is None:
        yield _Wrong("soc", "is missing: what shall be simulated?", choices)
    elif isinstance(soc, str) and soc not in choices:
        yield _Wrong("soc", f"cannot be simulated{did_you_mean(soc, choices)}", choices)
    target = device.get("target")
    if target in TARGETS and target not in SIMULATED_TARGETS:
        yield _Wrong("target", "cannot be simulated", SIMULATED_TARGETS)
    if device.get("shows_soc") is True:
        if target != EMULATED_TARGET:
            hint = f"needs target {EMULATED_TARGET}: other simulated devices show this computer's"
            yield _Wrong("shows_soc", hint)
        elif isinstance(soc, str) and soc in choices and soc not in KERNEL_SOC_IDS:
            hint = f"the number that kernels give to {soc} is not known"
            yield _Wrong("shows_soc", hint, list(KERNEL_SOC_IDS))
    if device.get("dsp", False) not in (False, None):
        yield from _wrong_dsp(device, soc if soc in choices else None)


def _wrong_dsp(device: Mapping[str, object], soc: object) -> Iterator[_Wrong]:
    if device.get("target") != EMULATED_TARGET:
        yield _Wrong("dsp", f"needs target {EMULATED_TARGET}: others have no DSP to talk to")
    elif device.get("shows_soc") is False:
        yield _Wrong("shows_soc", "is needed by `dsp`: by the SoC the libraries choose their skel")
    elif soc is not None and soc not in DSP_SOCS:
        yield _Wrong("soc", "no DSP of it can be simulated", DSP_SOCS)


def _board(address: str) -> str:
    at = login_at(address)
    return address if at is None else service_address("ssh", at.host, at.port or 22)


def _address(serial: str) -> str:
    return device_address(serial, LOCAL, 0)
