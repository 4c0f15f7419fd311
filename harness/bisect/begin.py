"""From what a user asks to a search: the spec, the task of its runs, and the state on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from harness.bisect.answers import Place
from harness.bisect.candidates import (
    Where,
    candidates_of,
    held_versions,
    paths_of,
    versions_from,
    versions_of,
    where_to_run,
)
from harness.bisect.log import Answered, Begun, Log, read_log
from harness.bisect.match import parse_match
from harness.bisect.specs import AxisSpec, GridSpec
from harness.bisect.state import BisectFolder, read_text
from harness.bisect.task import AXES, Axis, Task
from harness.errors import ConfigError, HarnessError
from harness.lab.inventory import Lab
from harness.pytest_plugin.case_names import split_node_id
from harness.runtimes.catalog import Catalog


@dataclass(frozen=True)
class Wish:
    """What the user asks for, as given. `versions` are {axis: spec}: candidates, or held."""

    case: str
    axes: tuple[str, ...]
    lab: Path
    reports: Path
    good: str | None = None
    bad: str | None = None
    candidates: str | None = None
    candidates_file: Path | None = None
    versions: Mapping[Axis, str] | None = None
    devices: Sequence[str] = ()
    backend: str | None = None
    match: str | None = None
    repeat: int | Literal["auto"] = 1
    confidence: float = 0.99
    patience: int = 3
    max_runs: int | None = None
    every: bool = False
    newer: tuple[bool, bool] | None = None
    known_issues: Path | None = None
    run_timeout_s: int = 1800
    pytest_arguments: tuple[str, ...] = ()


def begin(wish: Wish, lab: Lab, catalog: Catalog) -> list[Begun]:
    """The searches that a wish means: one, or one for each version a third axis is held at.

    Raises ConfigError for everything that is wrong with it; nothing is run or written.
    """
    axes = _axes(wish.axes)
    root = _where_pytest_starts(wish.case)
    match = parse_match(wish.match) if wish.match else None
    where = where_to_run(lab, wish.case, wish.devices, wish.backend)
    given = dict(wish.versions or {})
    candidates = [_candidates(axis, wish, given, where, catalog) for axis in axes]
    good = _claim(wish.good, "--good", axes, candidates, where, catalog)
    bad = _claim(wish.bad, "--bad", axes, candidates, where, catalog)
    if match is not None and match.needs_good and good is None:
        raise ConfigError("--match compares with the good end: name it", field="--good")
    paths = {
        axis: paths_of(axis, _specs(axis, wish, given), catalog, where.target, f"--{axis}")
        for axis in AXES
    }
    begun = []
    for held in held_versions(given, axes, where, catalog):
        task = Task(
            case=wish.case,
            axes=axes,
            held=held,
            paths={axis: found for axis, found in paths.items() if found},
            devices=where.devices,
            target=where.target,
            backend=where.backend,
            lab=wish.lab.absolute(),
            folder=root,
            known_issues=wish.known_issues.absolute() if wish.known_issues else None,
            match=wish.match,
            good=good,
            run_timeout_s=wish.run_timeout_s,
            pytest_arguments=wish.pytest_arguments,
        )
        spec = _spec(wish, axes, candidates, good, bad, held)
        begun.append(Begun(spec=spec, task=task.model_dump(mode="json")))
    return begun


def task_of(log: Log) -> Task:
    """What the runs of a bisection are made of. Raises ConfigError if its log does not say."""
    try:
        return Task.model_validate(dict(log.task))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"its log does not say what to run: {where}: {first['msg']}") from error


def replayed(file: Path, reports: Path) -> BisectFolder:
    """A new bisection that knows what a log, which may be edited, says was answered.

    It is held. Raises ConfigError for what is no log.
    """
    log = read_log(read_text(file), file=str(file))
    task_of(log)
    folder = BisectFolder.create(reports, Begun(spec=log.spec, task=dict(log.task)))
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = file.absolute().parent / entry.run if entry.run else None
            there = run is not None and run.is_dir()
            path = os.path.relpath(run, folder.path) if run is not None and there else None
            folder.append(entry.model_copy(update={"run": path}))
    return folder


def _axes(given: Sequence[str]) -> tuple[Axis, ...]:
    axes = tuple(axis for axis in AXES for one in given if one == axis)
    unknown = [one for one in given if one not in AXES]
    if unknown:
        raise ConfigError(f"unknown axis {unknown[0][:80]!r}", field="--axis", choices=AXES)
    if not given or len(given) > 2 or len(set(given)) < len(given):
        problem = "one axis is searched, or two; a third is held, at one version or several in turn"
        raise ConfigError(problem, field="--axis", choices=AXES)
    order: dict[str, Axis] = {axis: axis for axis in axes}
    return tuple(order[one] for one in given)


def _where_pytest_starts(case: str) -> Path:
    """The folder that the path of a case is seen from: this one, or one above it."""
    file = split_node_id(case)[0].partition("::")[0]
    if "::" not in case:
        raise ConfigError(f"{case[:200]!r} is no case: FILE::TEST[parameters]", field="--case")
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / file).is_file():
            return folder
    raise ConfigError(f"there is no file {file} here, nor in a folder above", field="--case")


def _candidates(
    axis: Axis, wish: Wish, given: Mapping[Axis, str], where: Where, catalog: Catalog
) -> tuple[str, ...]:
    if len(wish.axes) > 1 and (wish.candidates or wish.candidates_file):
        raise ConfigError("with two axes give each its own: --qnn, --ort, --compiler")
    field = "--versions" if wish.candidates else f"--{axis}"
    field = "--from-file" if wish.candidates_file else field
    return candidates_of(axis, _specs(axis, wish, given), catalog, where.target, field)


def _specs(axis: Axis, wish: Wish, given: Mapping[Axis, str]) -> list[str]:
    """What the user says of the versions of an axis, searched or held."""
    if axis in wish.axes and wish.candidates:
        return [wish.candidates]
    if axis in wish.axes and wish.candidates_file:
        return versions_from(wish.candidates_file)
    return [given[axis]] if axis in given else []


def know_paths(task: Task, catalog: Catalog) -> None:
    """Makes a catalog know what a task names by its path. What is no longer there stays unknown."""
    for axis, paths in task.paths.items():
        for path in paths.values():
            with contextlib.suppress(HarnessError):
                versions_of(axis, path, catalog, task.target, f"--{axis}")


def _claim(
    given: str | None,
    field: str,
    axes: Sequence[Axis],
    candidates: Sequence[tuple[str, ...]],
    where: Where,
    catalog: Catalog,
) -> Place | None:
    """A place that the user names: a version, or one for each axis with a comma between."""
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if len(parts) != len(axes):
        raise ConfigError(f"{given[:80]!r} is not one version of each axis", field=field)
    place = []
    for axis, part, known in zip(axes, parts, candidates, strict=True):
        meant = versions_of(axis, part, catalog, where.target, field)
        fitting = [name for name in meant if name in known]
        if len(fitting) != 1:
            raise ConfigError(f"{part!r} is not one of the candidates", field=field, choices=known)
        place.append(fitting[0])
    return tuple(place)


def _spec(
    wish: Wish,
    axes: Sequence[Axis],
    candidates: Sequence[tuple[str, ...]],
    good: Place | None,
    bad: Place | None,
    held: Mapping[Axis, str],
) -> AxisSpec | GridSpec:
    shared = {
        "repeat": wish.repeat,
        "confidence": wish.confidence,
        "patience": wish.patience,
        "max_runs": wish.max_runs,
        "held": dict(held),
        "match": wish.match,
    }
    try:
        if len(axes) == 1:
            return AxisSpec.model_validate(
                shared
                | {"axis": axes[0], "candidates": candidates[0]}
                | {"good": good[0] if good else None, "bad": bad[0] if bad else None}
            )
        if bad is not None:
            raise ConfigError("on two axes the ends are the corners of the grid", field="--bad")
        rows, columns = candidates
        return GridSpec.model_validate(
            shared
            | {"axes": tuple(axes), "rows": rows, "columns": columns}
            | {"every": wish.every, "newer": wish.newer}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(first["msg"].removeprefix("Value error, ")) from error
