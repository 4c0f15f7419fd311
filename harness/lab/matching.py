"""Matching of tests and devices: a marker's requirements against devices.yaml (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count
from typing import Final

from harness.core.engine import ENGINES
from harness.core.errors import ConfigError
from harness.core.matrix_axes import BACKENDS
from harness.core.socs import HTP_ARCHS, SOCS, TARGETS
from harness.core.yaml_document import did_you_mean
from harness.lab.device_config import ALIKE, DeviceConfig

_Check = Callable[[DeviceConfig, tuple[object, ...]], str | None]


def misfits(device: DeviceConfig, requirements: Mapping[str, object]) -> list[str]:
    """Return why a device does not satisfy a marker's keywords; empty if it does.

    A requirement is one value, several of which one must hold (`htp_arch=(73, 75)`), or None for
    no requirement. All `tags` must be present. A property that the lab does not state does not
    satisfy anything. Raises ConfigError as `required` does.
    """
    items = required(requirements).items()
    answers = (_CHECKS[keyword][1](device, values) for keyword, values in items)
    return [reason for reason in answers if reason is not None]


def required(requirements: Mapping[str, object]) -> dict[str, tuple[object, ...]]:
    """Return what a marker's keywords require: for each, the values of which one must match.

    Raises ConfigError for an unknown keyword or a value that cannot exist, on whatever device.
    """
    allowed = {}
    for keyword, value in requirements.items():
        if keyword not in _CHECKS:
            raise ConfigError(
                f"unknown requirement of a device test{did_you_mean(keyword, _CHECKS)}",
                field=keyword,
                choices=_CHECKS,
            )
        values = tuple(value) if isinstance(value, tuple | list | set | frozenset) else (value,)
        if value is not None and values:
            _refuse_impossible(keyword, values)
            allowed[keyword] = values
    return allowed


def alike(device: DeviceConfig, others: Iterable[DeviceConfig]) -> list[DeviceConfig]:
    """Return those of `others` on which a verdict means the same as on this device.

    They agree in all that tests may require; there is none for a device of unknown SoC.
    """
    if device.soc is None:
        return []
    return [
        other for other in others if other.name != device.name and _kind(other) == _kind(device)
    ]


ANY: Final = "any"
"""Replaces the device in the name of a case that may run on any suitable device."""


def kinds(devices: Iterable[DeviceConfig]) -> dict[str, str]:
    """Return the kind of each device; a verdict means the same on all devices of one kind.

    That is the SoC in lower case, as names are, with the target behind it and a number if devices
    of one SoC differ; its own name for a device whose SoC the lab does not tell.
    """
    listed = list(devices)
    of_soc: dict[str, dict[tuple[object, ...], DeviceConfig]] = {}
    for device in listed:
        of_soc.setdefault(device.soc or "", {}).setdefault(_kind(device), device)
    names = {device.name for device in listed}
    known: dict[tuple[object, ...], str] = {}
    numbered: dict[str, Iterator[str]] = {}  # each name is tried once, however many kinds there are
    for soc, devices_of_soc in of_soc.items():
        for kind, device in devices_of_soc.items():
            name = soc.lower() if len(devices_of_soc) == 1 else f"{soc.lower()}-{device.target}"
            tried = numbered.setdefault(name, chain([name], _numbered(name)))
            known[kind] = next(name for name in tried if name not in names)
            names.add(known[kind])
    return {device.name: known[_kind(device)] if device.soc else device.name for device in listed}


def _numbered(name: str) -> Iterator[str]:
    return (f"{name}-{number}" for number in count(2))


def _kind(device: DeviceConfig) -> tuple[object, ...]:
    values = (getattr(device, field, None) for field in ALIKE)
    return tuple(tuple(sorted(value)) if isinstance(value, tuple) else value for value in values)


def _refuse_impossible(keyword: str, values: tuple[object, ...]) -> None:
    choices = _CHECKS[keyword][0]
    for value in values:
        fits = isinstance(value, str) if choices is None else value in choices
        # True == 1 in Python, but htp_arch=True and simulated=1 are mistakes.
        if not fits or (isinstance(value, bool) is not (keyword == "simulated")):
            text = f', which is not a string; write "{value}"' if choices is None else ""
            problem = f"a device test cannot require {value!r}{text}"
            raise ConfigError(problem, field=keyword, choices=choices)


def _backend(device: DeviceConfig, values: tuple[object, ...]) -> str | None:
    # Only HTP can be ruled out beforehand; what GPU and CPU libraries say is itself a result.
    if values == ("htp",) and device.soc in SOCS and device.htp_arch is None:
        return f"{device.soc} has no HTP"
    return None


def _one_of(keyword: str, device: DeviceConfig, values: tuple[object, ...]) -> str | None:
    actual = getattr(device, keyword)
    if actual in values:
        return None
    listed = " or ".join(str(choice) for choice in values)
    if actual is None:
        return f"needs {keyword} {listed}, but the lab does not list its {keyword}"
    return f"needs {keyword} {listed}, has {actual}"


def _tags(device: DeviceConfig, values: tuple[object, ...]) -> str | None:
    missing = [str(tag) for tag in values if tag not in device.tags]
    return f"lacks tag {', '.join(missing)}" if missing else None


_CHECKS: Final[Mapping[str, tuple[Collection[object] | None, _Check]]] = {
    "backend": (BACKENDS, _backend),
    "engine": (ENGINES, lambda device, values: None),
    "compilers": (("own", "all"), lambda device, values: None),
    "qnn": (None, lambda device, values: None),
    "htp_arch": (HTP_ARCHS, partial(_one_of, "htp_arch")),
    "soc": (None, partial(_one_of, "soc")),
    "target": (TARGETS, partial(_one_of, "target")),
    "simulated": ((True, False), partial(_one_of, "simulated")),
    "tags": (None, _tags),
}
"""Keywords: their values (None: any text), and a function saying why a device does not match."""
