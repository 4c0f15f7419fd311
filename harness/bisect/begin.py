"""From what a user asks to a search: the spec, the task of its runs, and the state on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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
from harness.bisect.match import Match, parse_match
from harness.bisect.specs import AxisSpec, GridSpec
from harness.bisect.state import BisectFolder, log_text
from harness.bisect.task import AXES, Axis, Task
from harness.errors import ConfigError, HarnessError
from harness.lab.inventory import Lab
from harness.pytest_plugin.case_names import split_node_id
from harness.runtimes.catalog import Catalog

_EACH_ITS_OWN: Final = "with two axes give each its own candidates: --qnn, --ort, --compiler"
_OPTIONS: Final = {
    "repeat": "--repeat",
    "confidence": "--confidence",
    "patience": "--patience",
    "max_runs": "--max-runs",
    "candidates": "--versions",
    "prior": "--prior",
}


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
    confidence: float | None = None
    patience: int = 3
    prior: Sequence[str] = ()
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
    match = None if wish.match is None else parse_match(wish.match)
    _refuse_what_would_be_ignored(wish, len(axes), match)
    where = where_to_run(lab, wish.case, wish.devices, wish.backend)
    given = dict(wish.versions or {})
    candidates = [_candidates(axis, wish, given, where, catalog) for axis in axes]
    good = _claim(wish.good, "--good", axes, candidates, where, catalog)
    bad = _claim(wish.bad, "--bad", axes, candidates, where, catalog)
    prior = _prior(wish, axes, candidates[0], where, catalog)
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
        spec = _spec(wish, axes, candidates, good, bad, held, prior)
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
    log = read_log(log_text(file), file=str(file))
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


def _refuse_what_would_be_ignored(wish: Wish, axes: int, match: Match | None) -> None:
    """Raises ConfigError for what means nothing beside the rest: nobody writes it for nothing."""
    one, two = axes == 1, axes == 2
    with_good = match is not None and match.needs_good
    wrong: tuple[tuple[str, bool, str], ...] = (
        ("--versions", two and wish.candidates is not None, _EACH_ITS_OWN),
        ("--from-file", two and wish.candidates_file is not None, _EACH_ITS_OWN),
        (
            "--from-file",
            wish.candidates is not None and wish.candidates_file is not None,
            "--versions lists the candidates, too: give one of the two",
        ),
        ("--prior", two and bool(wish.prior), "is for one axis"),
        ("--every", one and wish.every, "is for two axes"),
        ("--newer", one and wish.newer is not None, "is for two axes; on one it is found out"),
        (
            "--newer",
            wish.every and wish.newer is not None,
            "nothing is concluded with --every, so that it tells nothing",
        ),
        (
            "--good",
            two and wish.good is not None and not with_good,
            "on two axes it is what a measurement is compared with: --match measurement "
            '"... * good"; the ends are the corners of the grid',
        ),
        ("--bad", two and wish.bad is not None, "on two axes the ends are the corners of the grid"),
        (
            "--confidence",
            wish.confidence is not None and wish.repeat != "auto",
            "is how sure --repeat auto has to be",
        ),
    )
    for field, is_wrong, problem in wrong:
        if is_wrong:
            raise ConfigError(problem, field=field)
    given = {f"--{axis}": spec for axis, spec in (wish.versions or {}).items()}
    for field, spec in {**given, "--versions": wish.candidates}.items():
        if spec is not None and not spec.strip(" ,"):
            raise ConfigError("names no version", field=field)


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
    field = "--versions" if wish.candidates is not None else f"--{axis}"
    field = "--from-file" if wish.candidates_file is not None else field
    both = axis in given and field != f"--{axis}"
    if both:
        raise ConfigError(
            f"{field} lists the candidates, too: give one of the two", field=f"--{axis}"
        )
    return candidates_of(axis, _specs(axis, wish, given), catalog, where.target, field)


def _specs(axis: Axis, wish: Wish, given: Mapping[Axis, str]) -> list[str]:
    """What the user says of the versions of an axis, searched or held."""
    if axis in wish.axes and wish.candidates is not None:
        return [wish.candidates]
    if axis in wish.axes and wish.candidates_file is not None:
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


def _prior(
    wish: Wish, axes: Sequence[Axis], candidates: Sequence[str], where: Where, catalog: Catalog
) -> dict[str, float]:
    """{candidate: weight} of texts such as 2.49.40=5."""
    weights: dict[str, float] = {}
    for text in wish.prior:
        version, _, weight = text.rpartition("=")
        try:
            number = float(weight)
        except ValueError:
            number = -1.0
        if not version or not 0 < number < float("inf"):
            problem = f"{text[:80]!r} is not of the form VERSION=WEIGHT, with a weight above 0"
            raise ConfigError(problem, field="--prior")
        found = _claim(version, "--prior", axes, [tuple(candidates)], where, catalog)
        weights |= dict.fromkeys(found or (), number)
    return weights


def _spec(
    wish: Wish,
    axes: Sequence[Axis],
    candidates: Sequence[tuple[str, ...]],
    good: Place | None,
    bad: Place | None,
    held: Mapping[Axis, str],
    prior: Mapping[str, float],
) -> AxisSpec | GridSpec:
    shared = {
        "repeat": wish.repeat,
        "confidence": 0.99 if wish.confidence is None else wish.confidence,
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
                | {"prior": dict(prior)}
            )
        rows, columns = candidates
        return GridSpec.model_validate(
            shared
            | {"axes": tuple(axes), "rows": rows, "columns": columns}
            | {"every": wish.every, "newer": wish.newer}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = _OPTIONS.get(str(first["loc"][0])) if first["loc"] else None
        raise ConfigError(first["msg"].removeprefix("Value error, "), field=field) from error
