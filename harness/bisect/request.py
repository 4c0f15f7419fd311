"""From the user's options to the task of a bisection, with all checks of wrong input."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from harness.bisect.bad_condition import Match, parse_match
from harness.bisect.folder import Answered, BisectFolder, log_text, read_log
from harness.bisect.search import AxisSpec, CornerSpec, Task
from harness.bisect.search_loop import pytest_arguments_to_resume, with_earlier_options
from harness.core.errors import ConfigError, HarnessError
from harness.core.matrix_axes import AXES, SEARCHED, VERSIONS, AxisName, check_names
from harness.core.outgoing_text import counted
from harness.lab.inventory import Lab
from harness.lab.matching import ANY, alike, kinds
from harness.results.case_names import placement_in, split_node_id
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.version_specs import is_path, split_specs

Named: TypeAlias = Mapping[str, str | None]
"""The placement in the name of a case, as `placement_in` returns it."""


@dataclass(frozen=True)
class Versions:
    """The available versions for a target."""

    catalog: Catalog
    target: str

    def resolve(self, axis: AxisName, spec: str, field: str) -> list[str]:
        """Return the names of the versions that `spec` means. Raises ConfigError for `field`."""
        if names := AXES[axis].values:
            named = [*names] if spec == "all" else split_specs(spec)
            check_names({axis: named}, field)
            return named
        if axis == "compiler":
            return resolve_versions(spec, field=field)
        if axis == "ort":
            return self.catalog.ort.resolve(spec, self.target, field=field)
        return self.catalog.resolve(spec, self.target, field=field)

    def paths(self, axis: AxisName, specs: Sequence[str]) -> dict[str, str]:
        """Return {name: path} of the versions that are named by a path, for pytest.

        Raises ConfigError for a path with several versions.
        """
        paths = {}
        for part in [part for spec in specs for part in split_specs(spec)]:
            if axis == "compiler" or axis not in VERSIONS or not is_path(part):
                continue
            path = str(Path(part).expanduser().absolute())
            names = self.resolve(axis, path, f"--{axis}")
            if len(names) != 1:
                versions = counted(len(names), "version")
                problem = (
                    f"{part} has {versions}; add it to `runtimes` of devices.yaml to search them"
                )
                raise ConfigError(problem, field=f"--{axis}", choices=names)
            paths[names[0]] = path
        return paths

    def candidates(self, axis: AxisName, specs: Sequence[str], field: str) -> tuple[str, ...]:
        """Return the candidates of an axis, oldest first; all that are available without `specs`.

        Listed versions are put in the order of the catalog. If one is not in it (a path), they
        keep their own order. Raises ConfigError.
        """
        listed = [name for spec in specs for name in self.resolve(axis, spec, field)]
        has_all = axis != "ort" or bool(self.catalog.ort.versions(self.target))
        known = self.resolve(axis, "all", field) if has_all else []
        candidates = list(dict.fromkeys(listed)) if specs else known
        if all(name in known for name in candidates):
            candidates = sorted(candidates, key=known.index)
        if not candidates:
            raise ConfigError(f"no version of {axis} is available for {self.target}", field=field)
        return tuple(candidates)

    def held_versions(
        self, specs: Mapping[AxisName, str], axes: Sequence[AxisName], named: Named | None
    ) -> dict[AxisName, str]:
        """Return the versions of the other axes: from `specs`, else from the name of the case.

        Raises ConfigError for a spec that means no version, or several.
        """
        versions: dict[AxisName, str] = {}
        for axis in SEARCHED:
            spec = specs.get(axis) or (named[axis] if named else None)
            if axis == "qnn" and spec is None:
                spec = "latest"  # resolved now: it may be another one when the search is resumed
            if axis in axes or spec is None:
                continue
            names = self.resolve(axis, spec, f"--{axis}")
            if len(names) != 1:
                problem = (
                    f"{spec!r} matches {counted(len(names), 'version')}; an axis that is not "
                    "searched needs one"
                )
                raise ConfigError(problem, field=f"--{axis}", choices=names)
            versions[axis] = names[0]
        return versions

    def register(self, paths: Mapping[AxisName, Mapping[str, str]]) -> None:
        """Register the versions at these paths in the catalog; skip those that are gone."""
        for axis, path_of in paths.items():
            for path in path_of.values():
                with contextlib.suppress(HarnessError):
                    self.resolve(axis, path, f"--{axis}")


@dataclass(frozen=True)
class ChosenDevices:
    """The devices that may run the case, the preferred one first; their target and the backend."""

    devices: tuple[str, ...]
    target: str
    backend: str
    named: Named | None


def _placement_of(case: str) -> Named | None:
    placement = placement_in(split_node_id(case)[1] or "")
    return placement and placement[0]


def device_of(case: str) -> str | None:
    """Return the device in the name of a case, or its pool or kind; None if it has none, or any."""
    device = (_placement_of(case) or {}).get("device")
    return None if device == ANY else device


def choose_devices(lab: Lab, case: str, names: Sequence[str]) -> ChosenDevices:
    """Choose the devices for a case: `names`, else the one in its name, or the first without any.

    Devices like it may stand in for it, unless `names` are given. Raises ConfigError for a device
    that the lab lacks or that cannot be used, or one whose target is not known.
    """
    named, name = _placement_of(case), device_of(case)
    first, enabled = lab.select()[0], lab.enabled_devices()
    if names:
        chosen = lab.select(names)
    else:
        if name is not None:
            kind = kinds(enabled)
            matching = [dev for dev in enabled if name in (dev.name, dev.pool, kind[dev.name])]
            first = (matching or lab.select([name]))[0]
        chosen = [first, *alike(first, enabled)]
    target = chosen[0].target
    if target is None:
        raise ConfigError(
            f"device {chosen[0].name!r} has no `target` in the lab file, so its versions are not "
            "known; add `target` there",
            field="--device",
            choices=[device.name for device in enabled],
        )
    similar = {device.name for device in alike(chosen[0], chosen)}
    if strangers := [device.name for device in chosen[1:] if device.name not in similar]:
        raise ConfigError(
            f"{', '.join(strangers)} cannot replace {chosen[0].name}: the devices differ, so a "
            "different verdict would say nothing about the versions",
            field="--device",
        )
    backend = (named and named["backend"]) or "htp"
    return ChosenDevices(tuple(device.name for device in chosen), target, backend, named)


_ONE_AXIS: Final = (
    "name one axis; to find which of two axes matters, use --good qnn=V,ort=V --bad qnn=V,ort=V "
    "(`pytest --qnn all --ort all` runs all pairs)"
)
Ends = Mapping[str, Mapping[AxisName, str]]
"""{"--good" or "--bad": {axis: version}}, as far as they are named."""


@dataclass(frozen=True)
class Request:
    """The user's options. `versions` are {axis: spec}: candidates, or the version it is held at."""

    case: str
    axes: tuple[str, ...]
    lab: Path
    reports: Path
    good: str | None = None
    bad: str | None = None
    versions: Mapping[AxisName, str] | None = None
    devices: Sequence[str] = ()
    match: str | None = None
    repeat: int | None = None
    pytest_arguments: tuple[str, ...] = ()


def make_task(request: Request, lab: Lab, catalog: Catalog) -> Task:
    """Return the task of a bisection.

    Raises ConfigError for any wrong option; nothing is run or written.
    """
    axes, ends = _axes(request)
    root = pytest_root(request.case, "--case")
    arguments = with_earlier_options(request.case, request.reports, request.pytest_arguments)
    match = None if request.match is None else parse_match(request.match)
    request = replace(request, axes=axes)
    _check_nothing_is_ignored(request, match)
    if match is not None and match.needs_good and "--good" not in ends:
        raise ConfigError("name the good version: --match compares with it", field="--good")
    placement = choose_devices(lab, request.case, request.devices)
    versions, specs = Versions(catalog, placement.target), dict(request.versions or {})
    listed = {axis: [specs[axis]] if axis in specs else [] for axis in SEARCHED}
    candidates = {axis: versions.candidates(axis, listed[axis], f"--{axis}") for axis in axes}
    paths = {axis: versions.paths(axis, listed[axis]) for axis in SEARCHED}
    return Task(
        search=_spec(request, candidates, _resolved(ends, candidates, versions)),
        case=request.case,
        held=versions.held_versions(specs, axes, placement.named),
        paths={axis: path_of for axis, path_of in paths.items() if path_of},
        devices=placement.devices,
        target=placement.target,
        backend=placement.backend,
        lab=request.lab.absolute(),
        folder=root,
        match=request.match,
        pytest_arguments=arguments,
    )


def replay_log(file: Path, reports: Path) -> BisectFolder:
    """Create a new, locked bisection with the answers of a log, which may be edited.

    Raises ConfigError for an invalid log.
    """
    log = read_log(log_text(file), file=str(file))
    pytest_arguments_to_resume(log.spec.pytest_arguments, ())
    folder = BisectFolder.create(reports, log.spec)
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = file.absolute().parent / entry.run if entry.run else None
            exists = run is not None and run.is_dir()
            path = os.path.relpath(run, folder.path) if run is not None and exists else None
            folder.append(entry.model_copy(update={"run": path}))
    return folder


def _axes(request: Request) -> tuple[tuple[AxisName, ...], Ends]:
    unknown = [axis for axis in request.axes if axis not in SEARCHED]
    if unknown:
        raise ConfigError(f"unknown axis {unknown[0][:80]!r}", field="--axis", choices=SEARCHED)
    searched = tuple(axis for axis in SEARCHED if axis in request.axes)
    texts = {"--good": request.good, "--bad": request.bad}
    ends = {field: _end(text, field, searched) for field, text in texts.items() if text is not None}
    named = tuple(axis for axis in SEARCHED if any(axis in end for end in ends.values()))
    axes = named or searched
    if len(named) > 2:
        problem = (
            f"--good and --bad name {', '.join(named)}, but must both name the same one or two "
            "axes; set another axis with its own option, as in --compiler VERSION"
        )
        raise ConfigError(problem)
    if len(searched) < len(request.axes) or not 1 <= len(axes) <= (2 if named else 1):
        raise ConfigError(_ONE_AXIS, field="--axis", choices=SEARCHED)
    if searched and set(searched) != set(axes):
        problem = f"is {','.join(searched)}, but --good and --bad name {' and '.join(axes)}"
        raise ConfigError(f"{problem}; leave --axis out", field="--axis")
    for field, text in texts.items():
        if len(axes) == 2 and set(ends.get(field, ())) != set(axes):
            form = ",".join(f"{axis}=VERSION" for axis in axes)
            problem = (
                "is missing: give it as" if text is None else f"{text[:80]!r} is not of the form"
            )
            raise ConfigError(f"{problem} {form}", field=field)
    return axes, ends


def _end(text: str, field: str, searched: Sequence[AxisName]) -> dict[AxisName, str]:
    """Parse `qnn=2.48,ort=1.27`, or a version of the only searched axis, into {axis: version}."""
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts]
    if all(axis in SEARCHED and sign for axis, sign, _ in named):
        if len({axis for axis, _, _ in named}) < len(named):
            raise ConfigError(f"{text[:80]!r} names an axis twice", field=field)
        return {axis: version.strip() for axis, _, version in named}
    if len(parts) == len(searched) == 1:
        return {searched[0]: parts[0]}
    problem = f"{text[:80]!r} is neither a version of --axis nor AXIS=VERSION,AXIS=VERSION"
    raise ConfigError(problem, field=field, choices=SEARCHED)


def _check_nothing_is_ignored(request: Request, match: Match | None) -> None:
    """Raise ConfigError for options that would have no effect."""
    if match is not None and match.drift_steps is not None and request.axes != ("qnn",):
        problem = (
            "--match drift compares QNN versions, which load the same contexts; use --axis qnn"
        )
        raise ConfigError(problem, field="--axis")
    named = {f"--{axis}": spec for axis, spec in (request.versions or {}).items()}
    for field, spec in named.items():
        if not spec.strip(" ,"):
            raise ConfigError("names no version", field=field)


def pytest_root(case: str, field: str) -> Path:
    """Return the folder that the path of a case is relative to: this one, or one above it.

    Raises ConfigError for the option `field` if it is not a case or its file is missing.
    """
    file = split_node_id(case)[0].partition("::")[0]
    if "::" not in case:
        raise ConfigError(f"{case[:200]!r} is not a case; name FILE::TEST[parameters]", field=field)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / file).is_file():
            return folder
    raise ConfigError(f"file {file} is not in the current folder or a folder above it", field=field)


def _resolved(
    ends: Ends, candidates: Mapping[AxisName, tuple[str, ...]], versions: Versions
) -> dict[str, list[str]]:
    """Return the versions of the named ends, in the order of the axes."""
    resolved: dict[str, list[str]] = {}
    for field, end in ends.items():
        for axis, names in candidates.items():
            fitting = [name for name in versions.resolve(axis, end[axis], field) if name in names]
            if len(fitting) != 1:
                problem = f"{end[axis]!r} is not one of the candidates"
                raise ConfigError(problem, field=field, choices=names)
            resolved.setdefault(field, []).append(fitting[0])
    return resolved


def _spec(
    request: Request,
    candidates: Mapping[AxisName, tuple[str, ...]],
    ends: Mapping[str, Sequence[str]],
) -> AxisSpec | CornerSpec:
    fields: dict[str, Any] = {"repeat": 1 if request.repeat is None else request.repeat}
    good, bad = ends.get("--good", (None,)), ends.get("--bad", (None,))
    try:
        if len(candidates) == 1:
            ((axis, names),) = candidates.items()
            return AxisSpec(axis=axis, candidates=names, good=good[0], bad=bad[0], **fields)
        return CornerSpec.model_validate(
            fields
            | {"axes": tuple(candidates), "candidates": tuple(candidates.values())}
            | {"good": tuple(good), "bad": tuple(bad)}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "--repeat" if first["loc"] == ("repeat",) else None
        raise ConfigError(first["msg"].removeprefix("Value error, "), field=field) from error
