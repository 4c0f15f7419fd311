"""From `--qnn` and `--compiler` to the runtimes and compilers of each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import ConfigError, VersionError
from harness.lab.inventory import DeviceConfig
from harness.qnn.platforms import TARGETS
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.choice import choose_runtimes


@dataclass(frozen=True)
class DeviceRuntimes:
    """{device: {runtime: compilers of its contexts}}, {device: ORTs}, and what was left out."""

    compilers: Mapping[str, Mapping[str, Sequence[str]]]
    orts: Mapping[str, Sequence[str]]
    reasons: Sequence[str]


def device_runtimes(
    catalog: Catalog,
    devices: Sequence[DeviceConfig],
    qnn: Sequence[str],
    compilers: Sequence[str],
    ort: Sequence[str] = (),
) -> DeviceRuntimes:
    """What the options mean for each device; devices are not asked.

    Of a device whose target is not described everything counts that any target has. Without
    compilers every runtime gets contexts of its own version, or the newest that it can read.
    Raises ConfigError for a spec that means nothing for any device.
    """
    made_by: dict[str, None] = {}
    for spec in compilers:
        made_by.update(dict.fromkeys(resolve_versions(spec, field="--compiler")))
    targets = {device.name: [device.target] if device.target else TARGETS for device in devices}
    asked = [target for listed in targets.values() for target in listed]
    choice = choose_runtimes(
        lambda spec, target: catalog.resolve(spec, target, field="--qnn"), qnn, asked
    )
    ort_choice = choose_runtimes(
        lambda spec, target: catalog.ort.resolve(spec, target, field="--ort"), ort, asked
    )
    found: dict[str, dict[str, Sequence[str]]] = {}
    orts: dict[str, Sequence[str]] = {}
    reasons: dict[str, None] = {}
    for device in devices:
        own: dict[str, Sequence[str]] = {}
        with_ort: dict[str, None] = {}
        for target in targets[device.name]:
            with_ort.update(dict.fromkeys(ort_choice.runtimes[target]))
            for name in choice.runtimes[target]:
                try:
                    own.setdefault(name, list(made_by) or [catalog.compiler_for(name, target)])
                except ConfigError as error:
                    reasons[f"{device.name}: {error}"] = None
        if device.target is not None:
            why_not = (*choice.reasons[device.target], *ort_choice.reasons[device.target])
            reasons |= dict.fromkeys(f"{device.name}: {why}" for why in why_not)
        found[device.name] = own
        orts[device.name] = list(with_ort)
    if reasons and not any(found.values()):
        raise VersionError("; ".join(reasons))
    return DeviceRuntimes(found, orts, list(reasons))
