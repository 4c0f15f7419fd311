"""The versions of an axis, and the devices that may run a case."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from harness.device.lab.inventory import DeviceConfig, Lab
from harness.device.lab.matching import alike, kinds
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.facts.axes import VERSIONS, AxisName
from harness.libraries.runtimes.catalog import Catalog, resolve_versions
from harness.libraries.runtimes.version_specs import is_path, split_specs
from harness.verdict.results.case_names import placement_in, split_node_id

Named: TypeAlias = Mapping[str, str | None]
"""What the name of a case says of its placement, as `placement_in` has it."""


@dataclass(frozen=True)
class Versions:
    """The versions that there are for a target."""

    catalog: Catalog
    target: str

    def meant(self, axis: AxisName, spec: str, field: str) -> list[str]:
        """The names that a user's `spec` means on an axis. Raises ConfigError naming `field`."""
        if axis == "compiler":
            return resolve_versions(spec, field=field)
        if axis == "ort":
            return self.catalog.ort.resolve(spec, self.target, field=field)
        return self.catalog.resolve(spec, self.target, field=field)

    def paths(self, axis: AxisName, specs: Sequence[str]) -> dict[str, str]:
        """{name: path} of the versions that are named by a path, as pytest must be told.

        Raises ConfigError for a path that holds several versions: pytest could not be told which.
        """
        found = {}
        for part in [part for spec in specs for part in split_specs(spec)]:
            if axis == "compiler" or not is_path(part):
                continue
            path = str(Path(part).expanduser().absolute())
            named = self.meant(axis, path, f"--{axis}")
            if len(named) != 1:
                problem = (
                    f"{part} holds {len(named)} versions; name it in `runtimes` of devices.yaml"
                )
                raise ConfigError(problem, field=f"--{axis}", choices=named)
            found[named[0]] = path
        return found

    def candidates(self, axis: AxisName, specs: Sequence[str], field: str) -> tuple[str, ...]:
        """The candidates of an axis, oldest first: all there are without `specs`.

        Versions that are listed come in the order of the catalog. If it does not know the place of
        one (a path), they come in the order given. Raises ConfigError.
        """
        given = [name for spec in specs for name in self.meant(axis, spec, field)]
        has_all = axis != "ort" or bool(self.catalog.ort.versions(self.target))
        known = self.meant(axis, "all", field) if has_all else []
        found = list(dict.fromkeys(given)) if specs else known
        if all(name in known for name in found):
            found = sorted(found, key=known.index)
        if not found:
            raise ConfigError(f"no version of {axis} is there for {self.target}", field=field)
        return tuple(found)

    def held(
        self, asked: Mapping[AxisName, str], axes: Sequence[AxisName], named: Named | None
    ) -> dict[AxisName, str]:
        """The versions of the other axes: as asked for, else as the name of the case says.

        Raises ConfigError for what means no version, or several.
        """
        held: dict[AxisName, str] = {}
        for axis in VERSIONS:
            spec = asked.get(axis) or (named[axis] if named else None)
            if axis == "qnn" and spec is None:
                spec = "latest"  # which may be another one when the search is gone on with
            if axis in axes or spec is None:
                continue
            meant = self.meant(axis, spec, f"--{axis}")
            if len(meant) != 1:
                problem = f"{spec!r} means {len(meant)} versions; this axis is held at one"
                raise ConfigError(problem, field=f"--{axis}", choices=meant)
            held[axis] = meant[0]
        return held

    def know(self, paths: Mapping[AxisName, Mapping[str, str]]) -> None:
        """Makes the catalog know these. What is no longer there stays unknown."""
        for axis, found in paths.items():
            for path in found.values():
                with contextlib.suppress(HarnessError):
                    self.meant(axis, path, f"--{axis}")


@dataclass(frozen=True)
class Where:
    """The devices that may run the case, the one meant first; their target and the backend."""

    devices: tuple[str, ...]
    target: str
    backend: str
    named: Named | None


def where_to_run(lab: Lab, case: str, devices: Sequence[str], backend: str | None) -> Where:
    """Where a case is to run: as asked for, else as its name says, else on the first device.

    Devices like it stand in for it if it is lost, unless devices were asked for. Raises
    ConfigError for a device that cannot be, or one whose target is not known.
    """
    found = placement_in(split_node_id(case)[1] or "")
    named = found[0] if found is not None else None
    enabled = lab.select()
    names = [device.name for device in enabled]
    if devices:
        chosen = lab.select(devices)
    else:
        called = named["device"] if named else ""
        kind = kinds(enabled)
        meant = (one for one in enabled if called in (one.name, one.pool, kind[one.name]))
        first = next(meant, enabled[0])
        chosen = [first, *alike(first, enabled)]
    target = chosen[0].target
    if target is None:
        raise ConfigError(
            f"device {chosen[0].name!r} has no target in the lab, so that its versions are not "
            "known beforehand; add it there",
            field="--device",
            choices=names,
        )
    _refuse_strangers(chosen)
    usual = (named and named["backend"]) or "htp"
    return Where(tuple(one.name for one in chosen), target, backend or usual, named)


def _refuse_strangers(chosen: Sequence[DeviceConfig]) -> None:
    like = {one.name for one in alike(chosen[0], chosen)}
    strangers = [one.name for one in chosen[1:] if one.name not in like]
    if strangers:
        raise ConfigError(
            f"{', '.join(strangers)} cannot stand in for {chosen[0].name}: another verdict there "
            "would say nothing about the versions",
            field="--device",
        )


COMPILING_TARGET: Final = "linux-x64"
"""Compilers run on this computer, whatever the target."""
