"""From options and markers to the matrix: which placements a test runs on (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from harness.contexts.models import ModelSpec
from harness.lab.inventory import DeviceConfig
from harness.lab.matching import misfits
from harness.workbench import Placement


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
    device with each runtime. A test that requires a backend runs on that one only, and not at all
    if other backends were asked for.
    """
    required = requirements.get("backend")
    engine = str(requirements.get("engine") or "qnn")
    chosen = [backend for backend in backends if required in (None, backend)]
    reasons = [] if chosen else [f"it needs backend {required}, asked for {', '.join(backends)}"]
    found = []
    for device in devices:
        why_not = misfits(device, requirements)
        if why_not:
            reasons.append(f"{device.name}: {'; '.join(why_not)}")
            continue
        with_ort: Sequence[str | None] = [None]
        if engine == "ort":
            with_ort = orts.get(device.name) or with_ort
        own = runtimes.get(device.name, {})
        every = dict.fromkeys(one for compilers in own.values() for one in compilers)
        found += [
            Placement(device.name, backend, runtime, compiler, engine, ort)
            for backend in chosen
            for runtime, compilers in own.items()
            for compiler in (every if requirements.get("compilers") == "all" else compilers)
            for ort in with_ort
        ]
    return found, reasons


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
