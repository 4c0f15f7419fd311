"""From what a user asks to the tasks of bisections, and every kind of wrong input."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from harness.bisect.folder import Answered, Begun, BisectFolder, log_text, read_log
from harness.bisect.loop import asked_as_before, named_again
from harness.bisect.match import Match, Repeat, parse_match
from harness.bisect.search import AxisSpec, CornerSpec, Task
from harness.core.axes import VERSIONS, AxisName
from harness.core.errors import ConfigError, HarnessError
from harness.core.outgoing_text import counted
from harness.lab.inventory import DeviceConfig, Lab
from harness.lab.matching import alike, kinds
from harness.results.case_names import placement_in, split_node_id
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.version_specs import is_path, split_specs

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
                versions = counted(len(named), "version")
                problem = f"{part} holds {versions}; name it in `runtimes` of devices.yaml"
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
                problem = (
                    f"{spec!r} means {counted(len(meant), 'version')}; this axis is held at one"
                )
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


_log = logging.getLogger(__name__)

_CHOSEN_BY: Final = ", ".join(f"--{axis}" for axis in VERSIONS)
_TWICE: Final = " lists the candidates, too: give one of the two"
_ONE_AXIS: Final = (
    "one axis is searched; of two, --good qnn=V,ort=V --bad qnn=V,ort=V tells which of them "
    "matters (`pytest --qnn all --ort all` runs all pairs)"
)
_OPTIONS: Final = {
    "repeat": "--repeat",
    "max_runs": "--max-runs",
    "candidates": "--versions",
}
Ends = Mapping[str, Mapping[AxisName, str]]
"""{"--good" or "--bad": {axis: version}}, as far as they are named."""


@dataclass(frozen=True)
class Request:
    """The options of a user, as given. `versions` are {axis: spec}: candidates, or held."""

    case: str
    axes: tuple[str, ...]
    lab: Path
    reports: Path
    good: str | None = None
    bad: str | None = None
    candidates: str | None = None
    versions: Mapping[AxisName, str] | None = None
    devices: Sequence[str] = ()
    backend: str | None = None
    match: str | None = None
    repeat: int | None = None
    max_runs: int | None = None
    run_timeout_s: int = 1800
    pytest_arguments: tuple[str, ...] = ()


def begin(request: Request, lab: Lab, catalog: Catalog) -> Task:
    """Return the task of the bisection that a request means.

    Raises ConfigError for everything that is wrong with it; nothing is run or written.
    """
    axes, ends = _axes(request)
    root = where_pytest_starts(request.case, "--case")
    words = asked_as_before(request.case, request.reports, request.pytest_arguments)
    match = None if request.match is None else parse_match(request.match)
    request = replace(request, axes=axes)
    _refuse_what_would_be_ignored(request, match)
    if match is not None and match.needs_good and "--good" not in ends:
        raise ConfigError("--match compares with the good end: name it", field="--good")
    where = where_to_run(lab, request.case, request.devices, request.backend)
    versions, given = Versions(catalog, where.target), dict(request.versions or {})
    candidates = {axis: _candidates(axis, request, given, versions) for axis in axes}
    paths = {axis: versions.paths(axis, _specs(axis, request, given)) for axis in VERSIONS}
    ends_found = _resolved(ends, candidates, versions)
    return Task(
        search=_spec(request, candidates, ends_found, _repeat(request, match)),
        case=request.case,
        held=versions.held(given, axes, where.named),
        paths={axis: found for axis, found in paths.items() if found},
        devices=where.devices,
        target=where.target,
        backend=where.backend,
        lab=request.lab.absolute(),
        folder=root,
        match=request.match,
        run_timeout_s=request.run_timeout_s,
        pytest_arguments=words,
    )


def replayed(file: Path, reports: Path) -> BisectFolder:
    """A new bisection that knows what a log, which may be edited, says was answered.

    It is held. Raises ConfigError for what is no log.
    """
    log = read_log(log_text(file), file=str(file))
    named_again(log.spec.pytest_arguments, ())
    folder = BisectFolder.create(reports, Begun(spec=log.spec))
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = file.absolute().parent / entry.run if entry.run else None
            there = run is not None and run.is_dir()
            path = os.path.relpath(run, folder.path) if run is not None and there else None
            folder.append(entry.model_copy(update={"run": path}))
    return folder


def _axes(request: Request) -> tuple[tuple[AxisName, ...], Ends]:
    """The axes that are searched, and the ends that are named."""
    unknown = [axis for axis in request.axes if axis not in VERSIONS]
    if unknown:
        raise ConfigError(f"unknown axis {unknown[0][:80]!r}", field="--axis", choices=VERSIONS)
    searched = tuple(axis for axis in VERSIONS if axis in request.axes)
    texts = {"--good": request.good, "--bad": request.bad}
    ends = {field: _end(text, field, searched) for field, text in texts.items() if text is not None}
    named = tuple(axis for axis in VERSIONS if any(axis in end for end in ends.values()))
    axes = named or searched
    if len(named) > 2:
        problem = (
            f"--good and --bad name {', '.join(named)}: both name the same one or two; another "
            "axis is held by its own option, as in --compiler VERSION"
        )
        raise ConfigError(problem)
    if len(searched) < len(request.axes) or not 1 <= len(axes) <= (2 if named else 1):
        raise ConfigError(_ONE_AXIS, field="--axis", choices=VERSIONS)
    if searched and set(searched) != set(axes):
        problem = f"is {','.join(searched)}, and --good and --bad are about {' and '.join(axes)}"
        raise ConfigError(f"{problem}: leave it out", field="--axis")
    for field, text in texts.items():
        if len(axes) == 2 and set(ends.get(field, ())) != set(axes):
            form = ",".join(f"{axis}=VERSION" for axis in axes)
            problem = (
                "is missing: give it as" if text is None else f"{text[:80]!r} is not of the form"
            )
            raise ConfigError(f"{problem} {form}", field=field)
    return axes, ends


def _end(text: str, field: str, searched: Sequence[AxisName]) -> dict[AxisName, str]:
    """{axis: version} of `qnn=2.48,ort=1.27`, or of a version of the one axis that is searched."""
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts]
    if all(axis in VERSIONS and sign for axis, sign, _ in named):
        if len({axis for axis, _, _ in named}) < len(named):
            raise ConfigError(f"{text[:80]!r} names an axis twice", field=field)
        return {axis: version.strip() for axis, _, version in named}
    if len(parts) == len(searched) == 1:
        return {searched[0]: parts[0]}
    problem = f"{text[:80]!r} is neither a version of --axis nor AXIS=VERSION,AXIS=VERSION"
    raise ConfigError(problem, field=field, choices=VERSIONS)


def _refuse_what_would_be_ignored(request: Request, match: Match | None) -> None:
    """Raises ConfigError for what means nothing beside the rest: nobody writes it for nothing."""
    if len(request.axes) == 2 and request.candidates is not None:
        problem = f"with two axes give each its own candidates: {_CHOSEN_BY}"
        raise ConfigError(problem, field="--versions")
    if match is not None and match.drift_steps is not None and request.axes != ("qnn",):
        problem = "--match drift compares what QNN versions make of the same contexts: --axis qnn"
        raise ConfigError(problem, field="--axis")
    named = {f"--{axis}": spec for axis, spec in (request.versions or {}).items()}
    for field, spec in {**named, "--versions": request.candidates}.items():
        if spec is not None and not spec.strip(" ,"):
            raise ConfigError("names no version", field=field)


def where_pytest_starts(case: str, field: str) -> Path:
    """The folder that the path of a case is seen from: this one, or one above it.

    Raises ConfigError, about the option `field`, for what is no case and for a file that is gone.
    """
    file = split_node_id(case)[0].partition("::")[0]
    if "::" not in case:
        raise ConfigError(f"{case[:200]!r} is no case: FILE::TEST[parameters]", field=field)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / file).is_file():
            return folder
    raise ConfigError(f"there is no file {file} here, nor in a folder above", field=field)


def _candidates(
    axis: AxisName, request: Request, given: Mapping[AxisName, str], versions: Versions
) -> tuple[str, ...]:
    field = "--versions" if request.candidates is not None else f"--{axis}"
    if axis in given and field != f"--{axis}":
        raise ConfigError(f"{field}{_TWICE}", field=f"--{axis}")
    return versions.candidates(axis, _specs(axis, request, given), field)


def _specs(axis: AxisName, request: Request, given: Mapping[AxisName, str]) -> list[str]:
    """The user's words for the versions of an axis, searched or held."""
    if axis in request.axes and request.candidates is not None:
        return [request.candidates]
    return [given[axis]] if axis in given else []


def _resolved(
    ends: Ends, candidates: Mapping[AxisName, tuple[str, ...]], versions: Versions
) -> dict[str, list[str]]:
    """The versions of the ends that are named, in the order of the axes."""
    resolved: dict[str, list[str]] = {}
    for field, end in ends.items():
        for axis, known in candidates.items():
            fitting = [name for name in versions.meant(axis, end[axis], field) if name in known]
            if len(fitting) != 1:
                problem = f"{end[axis]!r} is not one of the candidates"
                raise ConfigError(problem, field=field, choices=known)
            resolved.setdefault(field, []).append(fitting[0])
    return resolved


def _repeat(request: Request, match: Match | None) -> Repeat:
    """How often each is run: where that is not said, noise is judged of what has some."""
    if request.repeat is not None:
        return request.repeat
    return 1 if match is None or match.judged is None else "judged"


def _spec(
    request: Request,
    candidates: Mapping[AxisName, tuple[str, ...]],
    ends: Mapping[str, Sequence[str]],
    repeat: Repeat,
) -> AxisSpec | CornerSpec:
    fields: dict[str, Any] = {"repeat": repeat, "max_runs": request.max_runs}
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
        field = _OPTIONS.get(str(first["loc"][0])) if first["loc"] else None
        raise ConfigError(first["msg"].removeprefix("Value error, "), field=field) from error
