"""What can be searched: the versions of an axis, the device, and what a run will cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.bisect.answers import Place
from harness.bisect.input_text import read_text
from harness.bisect.task import AXES, Axis, Task
from harness.errors import ConfigError, HarnessError
from harness.lab.inventory import DeviceConfig, Lab
from harness.lab.matching import twins
from harness.pytest_plugin.case_names import NamedPlacement, split_node_id
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.version_specs import is_path, split_specs

_MAX_FILE_BYTES: Final = 1 << 20
_RUN_S, _FETCH_S, _NEW_S = 6.0, 40.0, 2.0
ANYWHERE: Final = "linux-x64"
"""Compilers run on this computer, whatever the target."""


def versions_of(axis: Axis, spec: str, catalog: Catalog, target: str, field: str) -> list[str]:
    """The names that a user's `spec` means on an axis. Raises ConfigError naming `field`."""
    if axis == "compiler":
        return resolve_versions(spec, field=field)
    if axis == "ort":
        return catalog.ort.resolve(spec, target, field=field)
    return catalog.resolve(spec, target, field=field)


def paths_of(
    axis: Axis, specs: Sequence[str], catalog: Catalog, target: str, field: str
) -> dict[str, str]:
    """{name: path} of the versions that are named by a path, which is how pytest must be told.

    Raises ConfigError for a path that holds several versions: pytest could not be told which.
    """
    found = {}
    for part in [part for spec in specs for part in split_specs(spec)]:
        if axis == "compiler" or not is_path(part):
            continue
        path = str(Path(part).expanduser().absolute())
        named = versions_of(axis, path, catalog, target, field)
        if len(named) != 1:
            problem = f"{part} holds {len(named)} versions; name it in `runtimes` of devices.yaml"
            raise ConfigError(problem, field=field, choices=named)
        found[named[0]] = path
    return found


def candidates_of(
    axis: Axis, specs: Sequence[str], catalog: Catalog, target: str, field: str
) -> tuple[str, ...]:
    """The candidates of an axis, oldest first: all there are without `specs`.

    Versions that are listed come in the order of the catalog; where it does not know one's place
    (a path), in the order given. Raises ConfigError.
    """
    given = [name for spec in specs for name in versions_of(axis, spec, catalog, target, field)]
    known = (
        versions_of(axis, "all", catalog, target, field) if _has_all(axis, target, catalog) else []
    )
    found = list(dict.fromkeys(given)) if specs else known
    if all(name in known for name in found):
        found = sorted(found, key=known.index)
    if not found:
        raise ConfigError(f"no version of {axis} is there for {target}", field=field)
    return tuple(found)


def _has_all(axis: Axis, target: str, catalog: Catalog) -> bool:
    return axis != "ort" or bool(catalog.ort.versions(target))


def versions_from(file: Path) -> list[str]:
    """The versions that a file lists, one a line, oldest first; # begins a comment.

    Raises ConfigError if it cannot be read, or lists none.
    """
    text = read_text(file, most_bytes=_MAX_FILE_BYTES, what="a list of versions")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    listed = [line for line in lines if line]
    if not listed:
        raise ConfigError("lists no version", file=file)
    return listed


@dataclass(frozen=True)
class Where:
    """The devices that may run the case, the one meant first; their target and the backend."""

    devices: tuple[str, ...]
    target: str
    backend: str
    named: NamedPlacement | None


def where_to_run(lab: Lab, case: str, devices: Sequence[str], backend: str | None) -> Where:
    """Where a case is to run: as asked for, else as its name says, else on the first device.

    The twins of the device stand in for it if it is lost, unless devices were asked for. Raises
    ConfigError for a device that cannot be, or one whose target is not known.
    """
    parameters = split_node_id(case)[1] or ""
    named = NamedPlacement.beginning(parameters)
    enabled = lab.select()
    names = [device.name for device in enabled]
    if devices:
        chosen = lab.select(devices)
    else:
        first = next((one for one in enabled if named and one.name == named.device), enabled[0])
        chosen = [first, *twins(first, enabled)]
    target = chosen[0].target
    if target is None:
        raise ConfigError(
            f"device {chosen[0].name!r} has no target in the lab, so that its versions are not "
            "known beforehand; add it there",
            field="--device",
            choices=names,
        )
    _refuse_strangers(chosen)
    usual = named.backend if named is not None else "htp"
    return Where(tuple(one.name for one in chosen), target, backend or usual, named)


def _refuse_strangers(chosen: Sequence[DeviceConfig]) -> None:
    like = {one.name for one in twins(chosen[0], chosen)}
    strangers = [one.name for one in chosen[1:] if one.name not in like]
    if strangers:
        raise ConfigError(
            f"{', '.join(strangers)} cannot stand in for {chosen[0].name}: another verdict there "
            "would say nothing about the versions",
            field="--device",
        )


class Costs:
    """What a run at a place costs in seconds, as far as it is known beforehand."""

    def __init__(self, catalog: Catalog, task: Task) -> None:
        self._catalog = catalog
        self._task = task
        self._here: dict[tuple[Axis, str], bool] = {}
        self._used: set[tuple[Axis, str]] = set()

    def __call__(self, at: Place) -> float:
        """The run itself, and what its versions need first.

        What has run in this search is on the device and compiled. What is only on this computer
        costs a little, what must be fetched much.
        """
        return _RUN_S + sum(self._of(*one) for one in self._task.versions(at).items())

    def ran(self, places: Collection[Place]) -> None:
        """These have run by now; others may have been fetched or thrown away meanwhile."""
        self._here.clear()
        for at in places:
            self._used.update(self._task.versions(at).items())

    def _of(self, axis: Axis, version: str) -> float:
        one = axis, version
        if one in self._used:
            return 0.0
        if one not in self._here:
            self._here[one] = is_here(self._catalog, axis, version, self._task.target)
        return _NEW_S if self._here[one] else _FETCH_S


def is_here(catalog: Catalog, axis: Axis, version: str, target: str) -> bool:
    """Whether a version needs no network. What cannot be told is taken to be here."""
    try:
        if axis == "ort":
            return ":" in version or catalog.ort.is_cached(version, target)
        return catalog.is_cached(version, ANYWHERE if axis == "compiler" else target)
    except HarnessError:
        return True


def held_versions(
    asked: Mapping[Axis, str], axes: Sequence[Axis], where: Where, catalog: Catalog
) -> list[dict[Axis, str]]:
    """What the other axes are held at: as asked for, else as the name of the case says.

    One of them may be held at several versions in turn: then there is a search for each. Raises
    ConfigError for what means no version, or for several on two axes.
    """
    held: list[dict[Axis, str]] = [{}]
    for axis in AXES:
        spec = asked.get(axis) or (getattr(where.named, axis) if where.named else None)
        if axis == "qnn" and spec is None:
            spec = "latest"  # which may be another one when the search is gone on with
        if axis in axes or spec is None:
            continue
        found = versions_of(axis, spec, catalog, where.target, f"--{axis}")
        if len(found) > 1 and len(held) > 1:
            raise ConfigError("only one axis can be held at several versions", field=f"--{axis}")
        held = [{**one, axis: version} for one in held for version in found]
    return held
