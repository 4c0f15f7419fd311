"""From options and markers to the matrix: which placements a test runs on (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.contexts.models import ModelSpec
from harness.lab.inventory import DeviceConfig
from harness.lab.matching import misfits
from harness.workbench import Placement


def placements(
    devices: Iterable[DeviceConfig],
    requirements: Mapping[str, object],
    backends: Sequence[str],
    runtimes: Mapping[str, Mapping[str, Sequence[str]]],
) -> tuple[list[Placement], list[str]]:
    """All placements that satisfy a test's requirements, and why devices were left out.

    `runtimes` has for each device the runtimes it gets, and the compilers of each one's contexts.
    A test that requires a backend runs on that one only, and not at all if other backends were
    asked for.
    """
    required = requirements.get("backend")
    chosen = [backend for backend in backends if required in (None, backend)]
    reasons = [] if chosen else [f"it needs backend {required}, asked for {', '.join(backends)}"]
    found = []
    for device in devices:
        why_not = misfits(device, requirements)
        if why_not:
            reasons.append(f"{device.name}: {'; '.join(why_not)}")
            continue
        found += [
            Placement(device.name, backend, runtime, compiler)
            for backend in chosen
            for runtime, compilers in runtimes.get(device.name, {}).items()
            for compiler in compilers
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
