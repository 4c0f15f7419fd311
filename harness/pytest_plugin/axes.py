"""From options and markers to the matrix: which placements a test runs on (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from harness.contexts.models import ModelSpec
from harness.lab.inventory import DeviceConfig
from harness.lab.matching import misfits
from harness.workbench import Placement

DEFAULT_BACKEND: Final = "htp"


def placements(
    devices: Iterable[DeviceConfig],
    requirements: Mapping[str, object],
    backends: Sequence[str],
    runtimes: Mapping[str, Mapping[str, Sequence[str]]],
    orts: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[list[Placement], list[str]]:
    """All placements that satisfy a test's requirements, and why devices were left out.

    `runtimes` has for each device the runtimes it gets, and the compilers of each one's contexts.
    A test that requires engine ort runs with each of the `orts` of a device, or with the usual one
    where it has none. One that requires compilers all gets the contexts of all compilers of its
    device with each runtime. `backends` are those asked for, none if it was not said.
    """
    named = named_backends(requirements)
    chosen = chosen_backends(named, backends)
    reasons: dict[str, None] = {}
    if not chosen:
        reasons[f"it needs backend {' or '.join(named)}, asked for {', '.join(backends)}"] = None
    found = []
    for device in devices:
        versions = _versions(requirements, runtimes.get(device.name, {}), orts.get(device.name, ()))
        for backend in chosen or named[:1]:
            why_not = misfits(device, {**requirements, "backend": backend})
            if why_not:
                reasons[f"{device.name}: {'; '.join(why_not)}"] = None
            elif chosen:
                found += [Placement(device.name, backend, *version) for version in versions]
    return found, list(reasons)


def _versions(
    requirements: Mapping[str, object],
    runtimes: Mapping[str, Sequence[str]],
    orts: Sequence[str],
) -> list[tuple[str, str, str, str | None]]:
    """Runtime, compiler, engine and ORT of each case that a test has on one device and backend."""
    engine = str(requirements.get("engine") or "qnn")
    with_ort: Sequence[str | None] = orts if engine == "ort" and orts else (None,)
    every = list(dict.fromkeys(one for compilers in runtimes.values() for one in compilers))
    return [
        (runtime, compiler, engine, ort)
        for runtime, compilers in runtimes.items()
        for compiler in (every if requirements.get("compilers") == "all" else compilers)
        for ort in with_ort
    ]


def named_backends(requirements: Mapping[str, object]) -> tuple[str, ...]:
    """The backends that a test's marker names, which may be one or several."""
    required = requirements.get("backend") or ()
    several = isinstance(required, tuple | list | set | frozenset)
    return tuple(map(str, required if several else (required,)))  # type: ignore[call-overload]


def chosen_backends(named: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """What a test runs on: the backends it names, of these only the ones asked for, if any were.

    A test that names none runs on those asked for, else on HTP.
    """
    if not asked:
        return tuple(named) or (DEFAULT_BACKEND,)
    return tuple(backend for backend in asked if not named or backend in named)


def axis_value(value: object) -> object:
    """What stands in a record for a parameter: JSON values as they are, others by their name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [axis_value(item) for item in value]
    return str(value)


def models_of(parameters: Mapping[str, object]) -> tuple[ModelSpec, ...]:
    """The models among a test's parameters, alone or in tuples: what it will take contexts of."""
    found: dict[ModelSpec, None] = {}
    for value in parameters.values():
        items = value if isinstance(value, tuple | list) else (value,)
        found.update(dict.fromkeys(item for item in items if isinstance(item, ModelSpec)))
    return tuple(found)
