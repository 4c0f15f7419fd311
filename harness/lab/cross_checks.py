"""Mistakes in devices.yaml that no single field can tell: names taken twice, contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from harness.errors import ConfigError
from harness.qnn.platforms import TARGETS
from harness.qnn.socs import HTP_ARCHS, KERNEL_SOC_IDS, SOCS
from harness.yaml_lines.document import Document
from harness.yaml_lines.models import did_you_mean

SIMULATED_TARGETS: Final = ("linux-x64", "linux-arm64")
EMULATED_TARGET: Final = "linux-arm64"
"""The simulated target whose programs run under qemu."""

_FORBIDDEN_IF_SIMULATED: Final = ("serial", "host", "workdir")


def mistakes_between_fields(document: Document) -> Iterator[ConfigError]:
    """What no single field can tell; works on whatever parts have the right shape."""
    hosts, devices = _entries(document, "hosts"), _entries(document, "devices")
    yield from _repeated(document, "hosts", hosts, "name")
    yield from _repeated(document, "devices", devices, "name")
    # The same serial may well exist behind two adb servers.
    yield from _repeated(document, "devices", devices, "serial", "host")
    names = [host["name"] for host in hosts.values() if isinstance(host.get("name"), str)]
    for index, device in devices.items():
        here = ("devices", index)
        host = device.get("host")
        if isinstance(host, str) and host not in names:
            hint = did_you_mean(host, names)
            yield document.mistake((*here, "host"), f"no such adb host{hint}", names or ["(none)"])
        yield from _mistakes_of_soc(document, here, device)
        if device.get("simulated") is True:
            yield from _mistakes_of_simulated(document, here, device)
        elif device.get("simulated", False) is False:
            if device.get("serial") is None:
                hint = "is missing: a device needs one unless it is `simulated: true`"
                yield document.mistake((*here, "serial"), hint)
            if device.get("storage_limit_mb") is not None:
                yield document.mistake(
                    (*here, "storage_limit_mb"), "only a simulated device's storage can be limited"
                )
            if device.get("enabled") == "auto":
                hint = "only a simulated device can be on by itself; use true or false"
                yield document.mistake((*here, "enabled"), hint)
            if device.get("shows_soc") is True:
                yield document.mistake((*here, "shows_soc"), "only a simulated board is told so")


def _mistakes_of_simulated(
    document: Document, here: tuple[str, int], device: Mapping[str, object]
) -> Iterator[ConfigError]:
    for field in _FORBIDDEN_IF_SIMULATED:
        if device.get(field) is not None:
            yield document.mistake((*here, field), "a simulated device has none of its own")
    soc, choices = device.get("soc"), [soc.name for soc in SOCS.values() if soc.htp_arch]
    if soc is None:
        yield document.mistake((*here, "soc"), "is missing: what shall be simulated?", choices)
    elif isinstance(soc, str) and soc not in choices:
        hint = did_you_mean(soc, choices)
        yield document.mistake((*here, "soc"), f"cannot be simulated{hint}", choices)
    target = device.get("target")
    if target in TARGETS and target not in SIMULATED_TARGETS:
        yield document.mistake((*here, "target"), "cannot be simulated", SIMULATED_TARGETS)
    if device.get("shows_soc") is True:
        if device.get("target") != EMULATED_TARGET:
            hint = f"needs target {EMULATED_TARGET}: other simulated devices show this computer's"
            yield document.mistake((*here, "shows_soc"), hint)
        elif isinstance(soc, str) and soc in choices and soc not in KERNEL_SOC_IDS:
            hint = f"the number that kernels give to {soc} is not known"
            yield document.mistake((*here, "shows_soc"), hint, list(KERNEL_SOC_IDS))


def _mistakes_of_soc(
    document: Document, here: tuple[str, int], device: Mapping[str, object]
) -> Iterator[ConfigError]:
    soc, arch = SOCS.get(str(device.get("soc"))), device.get("htp_arch")
    if soc is not None and isinstance(arch, int) and arch in HTP_ARCHS and arch != soc.htp_arch:
        has = f"has HTP v{soc.htp_arch}" if soc.htp_arch else "has no HTP"
        yield document.mistake((*here, "htp_arch"), f"is {arch}, but {soc.name} {has}")


def _repeated(
    document: Document, section: str, entries: Mapping[int, Mapping[str, object]], *fields: str
) -> Iterator[ConfigError]:
    seen: dict[tuple[object, ...], int] = {}
    for index, entry in entries.items():
        key = tuple(entry.get(field) for field in fields)
        if not isinstance(key[0], str) or not all(isinstance(k, str | None) for k in key):
            continue
        if key in seen:
            line = document.line((section, seen[key], fields[0]))
            problem = f"{key[0]!r} is taken already by line {line}"
            yield document.mistake((section, index, fields[0]), problem)
        seen.setdefault(key, index)


def _entries(document: Document, section: str) -> dict[int, Mapping[str, object]]:
    value = document.value.get(section) if isinstance(document.value, dict) else None
    listed = value if isinstance(value, list) else []
    return {index: entry for index, entry in enumerate(listed) if isinstance(entry, dict)}
