"""From what a user asks to a search: the spec, the task of its runs, and the state on disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.answers.history.noise import needs_scipy
from harness.answers.history.previous import state_in
from harness.device.lab.inventory import Lab
from harness.device.lab.matching import kinds
from harness.ground.errors import ConfigError
from harness.ground.facts.axes import EACH, SEARCHED, AxisName
from harness.ground.facts.engines import ENGINES, Engine
from harness.libraries.runtimes.catalog import Catalog
from harness.run.pytest_plugin.own_contexts import is_of_a_file
from harness.search.bisect.answers import Point, Repeat, least_change
from harness.search.bisect.case_run import Task, asked_as_before, named_again, task_of
from harness.search.bisect.folder import BisectFolder, log_text
from harness.search.bisect.log import Answered, Begun, read_log
from harness.search.bisect.match import Match, parse_match
from harness.search.bisect.search import AxisSpec, GridSpec
from harness.search.bisect.versions import (
    Versions,
    Where,
    kinds_besides,
    versions_from,
    where_to_run,
)
from harness.verdict.results.case_names import split_node_id

_log = logging.getLogger(__name__)

_CHOSEN_BY: Final = ", ".join(f"--{axis}" for axis in SEARCHED)
_EACH_ITS_OWN: Final = f"with two axes give each its own candidates: {_CHOSEN_BY}"
_ALONE: Final = f"where only devices or engines differ, one version is run on each: {_CHOSEN_BY}"
_TWICE: Final = " lists the candidates, too: give one of the two"
_OPTIONS: Final = {
    "repeat": "--repeat",
    "confidence": "--confidence",
    "patience": "--patience",
    "max_runs": "--max-runs",
    "candidates": "--versions",
    "prior": "--prior",
}


@dataclass(frozen=True)
class Request:
    """What the user asks for, as given. `versions` are {axis: spec}: candidates, or held."""

    case: str
    axes: tuple[str, ...]
    lab: Path
    reports: Path
    good: str | None = None
    bad: str | None = None
    candidates: str | None = None
    candidates_file: Path | None = None
    versions: Mapping[AxisName, str] | None = None
    devices: Sequence[str] = ()
    backend: str | None = None
    match: str | None = None
    repeat: Repeat | None = None
    confidence: float | None = None
    patience: int = 3
    prior: Sequence[str] = ()
    max_runs: int | None = None
    every: bool = False
    newer: tuple[bool, bool] | None = None
    known_issues: Path | None = None
    run_timeout_s: int = 1800
    pytest_arguments: tuple[str, ...] = ()


def begin(request: Request, lab: Lab, catalog: Catalog) -> list[Begun]:
    """The searches that a request means: one, or one for each version a third axis is held at.

    There are so many for each device, or kind of devices, if these are an axis. Raises ConfigError
    for everything that is wrong with it; nothing is run or written.
    """
    axes, each = _axes(request.axes)
    root = where_pytest_starts(request.case, "--case")
    words = asked_as_before(request.case, request.reports, request.pytest_arguments)
    request = replace(request, pytest_arguments=words)
    match = None if request.match is None else parse_match(request.match)
    of_failures = match is None or match.failure is not None
    if axes and request.repeat is None and of_failures:
        request = replace(request, repeat=_repeat_of_flaky(request))
    _refuse_what_would_be_ignored(request, axes, match)
    begun = []
    for part in _parts(lab, request, each):
        where = where_to_run(lab, request.case, part.devices, request.backend)
        versions = Versions(catalog, where.target)
        begun += _begun(request, axes, match, root, versions, where, part)
    return begun


def other_kinds(lab: Lab, request: Request) -> list[list[str]]:
    """The devices to be tried, kind by kind, where the case turns out not to fit the lab's first;
    none where it was said on which it is to run, or each is asked.
    """
    said = request.devices or set(request.axes) & {"device", "soc"}
    return [] if said else kinds_besides(lab, request.case)


@dataclass(frozen=True)
class _Part:
    """A search, of several with one question; `on` is what it is about, None for the only one.

    `devices` are those asked for, none where that is left to the case; `engine` is set where that
    is what differs.
    """

    case: str
    devices: Sequence[str]
    on: str | None = None
    engine: str | None = None


def _begun(
    request: Request,
    axes: tuple[AxisName, ...],
    match: Match | None,
    root: Path,
    versions: Versions,
    where: Where,
    part: _Part,
) -> list[Begun]:
    """The searches of a part. Without axes one version is run, and nothing is searched."""
    given = dict(request.versions or {})
    candidates = {axis: _candidates(axis, request, given, versions) for axis in axes}
    if not axes:
        axes = ("qnn",)
        candidates = {"qnn": _one_version(given, versions, where)}
    good = _claim(request.good, "--good", candidates, versions)
    bad = _claim(request.bad, "--bad", candidates, versions)
    prior = _prior(request.prior, candidates, versions)
    if match is not None and match.needs_good and good is None:
        raise ConfigError("--match compares with the good end: name it", field="--good")
    paths = {axis: versions.paths(axis, _specs(axis, request, given)) for axis in SEARCHED}
    begun = []
    for held in versions.held(given, axes, where.named):
        task = Task(
            case=part.case,
            axes=axes,
            held=held,
            paths={axis: found for axis, found in paths.items() if found},
            devices=where.devices,
            on=part.on,
            engine=part.engine,
            target=where.target,
            backend=where.backend,
            lab=request.lab.absolute(),
            folder=root,
            known_issues=request.known_issues.absolute() if request.known_issues else None,
            match=request.match,
            good=good,
            run_timeout_s=request.run_timeout_s,
            pytest_arguments=request.pytest_arguments,
        )
        spec = _spec(request, candidates, good, bad, held, prior)
        begun.append(Begun(spec=spec, task=task.model_dump(mode="json")))
    return begun


def replayed(file: Path, reports: Path) -> BisectFolder:
    """A new bisection that knows what a log, which may be edited, says was answered.

    It is held. Raises ConfigError for what is no log.
    """
    log = read_log(log_text(file), file=str(file))
    named_again(task_of(log).pytest_arguments, ())
    folder = BisectFolder.create(reports, Begun(spec=log.spec, task=dict(log.task)))
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = file.absolute().parent / entry.run if entry.run else None
            there = run is not None and run.is_dir()
            path = os.path.relpath(run, folder.path) if run is not None and there else None
            folder.append(entry.model_copy(update={"run": path}))
    return folder


def _axes(given: Sequence[str]) -> tuple[tuple[AxisName, ...], str | None]:
    """The axes that are searched, and what is asked one by one."""
    choices = (*SEARCHED, *EACH)
    unknown = [one for one in given if one not in choices]
    if unknown:
        raise ConfigError(f"unknown axis {unknown[0][:80]!r}", field="--axis", choices=choices)
    axes = tuple(axis for one in given for axis in SEARCHED if axis == one)
    each = [each for one in given for each in EACH if each == one]
    if not given or len(axes) > 2 or len(each) > 1 or len(set(given)) < len(given):
        problem = (
            "one axis is searched, or two; a third is held, at one version or several in turn; "
            "device, soc or engine asks each device, kind of them or engine the same"
        )
        raise ConfigError(problem, field="--axis", choices=choices)
    return axes, next(iter(each), None)


def _parts(lab: Lab, request: Request, each: str | None) -> list[_Part]:
    """The searches, one for each value of an axis without an order."""
    asked, case = request.devices, request.case
    if each is None:
        return [_Part(case, asked)]
    if each == "engine":
        return [
            _Part(_with_engine(case, engine), asked, name, name) for name, engine in ENGINES.items()
        ]
    kind = kinds(lab.select())
    places: dict[str, list[str]] = {}
    for one in lab.select(asked or None):
        places.setdefault(kind[one.name] if each == "soc" else one.name, []).append(one.name)
    if len(places) < 2:
        problem = f"{next(iter(places))} is the only {each}: there is nothing to tell apart"
        raise ConfigError(problem, field="--device" if asked else "--axis", choices=kind)
    return [_Part(case, devices, on) for on, devices in places.items()]


def _with_engine(case: str, engine: Engine) -> str:
    """The case that a file has with an engine. Raises ConfigError for a test in Python."""
    if not is_of_a_file(case):
        problem = "engine is an axis of cases of files; the marker of a test in Python names one"
        raise ConfigError(problem, field="--axis")
    file, _, test = split_node_id(case)[0].partition("::")
    return case if test == engine.test else f"{file}::{engine.test}"


def _one_version(
    given: Mapping[AxisName, str], versions: Versions, where: Where
) -> tuple[str, ...]:
    (held, *others) = versions.held(
        {"qnn": given["qnn"]} if "qnn" in given else {}, (), where.named
    )
    if others:
        raise ConfigError(f"{_ALONE}; several are searched with --axis qnn,device", field="--qnn")
    return (held["qnn"],)


def _refuse_what_would_be_ignored(
    request: Request, axes: tuple[AxisName, ...], match: Match | None
) -> None:
    """Raises ConfigError for what means nothing beside the rest: nobody writes it for nothing."""
    two = len(axes) == 2
    rates = request.repeat is not None and least_change(request.repeat) is not None
    alone, with_good = not axes, match is not None and match.needs_good
    lists = {"--versions": request.candidates, "--from-file": request.candidates_file}
    ends = {"--good": request.good, "--bad": request.bad}
    of_one_axis = {**lists, **ends, "--prior": request.prior or None}
    wrong: tuple[tuple[str, bool, str], ...] = (
        *((field, alone and said is not None, _ALONE) for field, said in of_one_axis.items()),
        ("--match", alone and with_good, "compares with a good version, and no versions differ"),
        ("--repeat", alone and rates, f"{_ALONE}; --repeat N asks it N times"),
        *((field, two and said is not None, _EACH_ITS_OWN) for field, said in lists.items()),
        ("--from-file", None not in lists.values(), f"--versions{_TWICE}"),
        (
            "--axis",
            match is not None and match.drift_steps is not None and axes != ("qnn",),
            "--match drift compares what QNN versions make of the same contexts: --axis qnn",
        ),
        ("--prior", two and bool(request.prior), "is for one axis"),
        ("--every", not two and request.every, "is for two axes"),
        (
            "--newer",
            not two and request.newer is not None,
            "is for two axes; on one it is found out",
        ),
        (
            "--newer",
            request.every and request.newer is not None,
            "nothing is concluded with --every, so that it tells nothing",
        ),
        (
            "--good",
            two and request.good is not None and not with_good,
            "on two axes it is what a measurement is compared with: --match measurement "
            '"... * good"; the ends are the corners of the grid',
        ),
        (
            "--bad",
            two and request.bad is not None,
            "on two axes the ends are the corners of the grid",
        ),
        (
            "--confidence",
            request.confidence is not None and not rates,
            "is how sure --repeat auto or --repeat rate:10% has to be",
        ),
    )
    for field, is_wrong, problem in wrong:
        if is_wrong:
            raise ConfigError(problem, field=field)
    given = {f"--{axis}": spec for axis, spec in (request.versions or {}).items()}
    for field, spec in {**given, "--versions": request.candidates}.items():
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
    field = "--from-file" if request.candidates_file is not None else field
    if axis in given and field != f"--{axis}":
        raise ConfigError(f"{field}{_TWICE}", field=f"--{axis}")
    return versions.candidates(axis, _specs(axis, request, given), field)


def _specs(axis: AxisName, request: Request, given: Mapping[AxisName, str]) -> list[str]:
    """What the user says of the versions of an axis, searched or held."""
    if axis in request.axes and request.candidates is not None:
        return [request.candidates]
    if axis in request.axes and request.candidates_file is not None:
        return versions_from(request.candidates_file)
    return [given[axis]] if axis in given else []


def _claim(
    given: str | None,
    field: str,
    candidates: Mapping[AxisName, tuple[str, ...]],
    versions: Versions,
) -> Point | None:
    """A point that the user names: a version, or one for each axis with a comma between."""
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if len(parts) != len(candidates):
        raise ConfigError(f"{given[:80]!r} is not one version of each axis", field=field)
    point = []
    for part, (axis, known) in zip(parts, candidates.items(), strict=True):
        fitting = [name for name in versions.meant(axis, part, field) if name in known]
        if len(fitting) != 1:
            raise ConfigError(f"{part!r} is not one of the candidates", field=field, choices=known)
        point.append(fitting[0])
    return tuple(point)


def _prior(
    given: Sequence[str], candidates: Mapping[AxisName, tuple[str, ...]], versions: Versions
) -> dict[str, float]:
    """{candidate: weight} of texts such as 2.49.40=5."""
    weights: dict[str, float] = {}
    for text in given:
        version, _, weight = text.rpartition("=")
        try:
            number = float(weight)
        except ValueError:
            number = -1.0
        if not version or not 0 < number < float("inf"):
            problem = f"{text[:80]!r} is not of the form VERSION=WEIGHT, with a weight above 0"
            raise ConfigError(problem, field="--prior")
        found = _claim(version, "--prior", candidates, versions)
        weights |= dict.fromkeys(found or (), number)
    return weights


def _repeat_of_flaky(request: Request) -> Repeat | None:
    """How often each is asked of a case that earlier runs show to be flaky; None of any other.

    Raises ConfigError where they show that no version is to blame.
    """
    state = state_in(request.reports, request.case)
    if state is None or not state.is_flaky:
        return None
    if not state.never_bad_with:
        problem = f"is flaky: {state.said}; --repeat auto looks for one all the same"
        raise ConfigError(problem, field="--case")
    _log.warning("each is run as often as it takes (--repeat auto): flaky: %s", state.said)
    return "auto"


def _repeat(request: Request) -> Repeat:
    """How often each is asked: where that is not said, noise is judged if it can be."""
    if request.repeat is not None:
        return request.repeat
    if request.match is None or parse_match(request.match).judged is None:
        return 1
    try:
        needs_scipy()
    except ConfigError as error:
        _log.warning("each single answer is believed: %s", error)
        return 1
    return "judged"


def _spec(
    request: Request,
    candidates: Mapping[AxisName, tuple[str, ...]],
    good: Point | None,
    bad: Point | None,
    held: Mapping[AxisName, str],
    prior: Mapping[str, float],
) -> AxisSpec | GridSpec:
    shared = {
        "repeat": _repeat(request),
        "confidence": 0.99 if request.confidence is None else request.confidence,
        "patience": request.patience,
        "max_runs": request.max_runs,
        "held": dict(held),
        "match": request.match,
    }
    try:
        axes = tuple(candidates)
        if len(axes) == 1:
            return AxisSpec.model_validate(
                shared
                | {"axis": axes[0], "candidates": candidates[axes[0]]}
                | {"good": good[0] if good else None, "bad": bad[0] if bad else None}
                | {"prior": dict(prior)}
            )
        rows, columns = candidates.values()
        return GridSpec.model_validate(
            shared
            | {"axes": axes, "rows": rows, "columns": columns}
            | {"every": request.every, "newer": request.newer}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = _OPTIONS.get(str(first["loc"][0])) if first["loc"] else None
        raise ConfigError(first["msg"].removeprefix("Value error, "), field=field) from error
