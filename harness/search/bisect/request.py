"""From what a user asks to the tasks of bisections, and every kind of wrong input."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harness.device.lab.inventory import Lab
from harness.device.lab.matching import kinds
from harness.ground.errors import ConfigError
from harness.ground.facts.axes import EACH, SEARCHED, AxisName
from harness.ground.facts.engines import ENGINES, Engine
from harness.libraries.runtimes.catalog import Catalog
from harness.run.pytest_plugin.own_contexts import is_of_a_file
from harness.search.bisect.answers import Repeat
from harness.search.bisect.case_run import asked_as_before, named_again
from harness.search.bisect.folder import BisectFolder, log_text
from harness.search.bisect.log import Answered, Begun, read_log
from harness.search.bisect.match import Match, parse_match
from harness.search.bisect.search import AxisSpec, CornerSpec
from harness.search.bisect.task import Task
from harness.search.bisect.versions import Versions, kinds_besides, versions_from, where_to_run
from harness.verdict.results.case_names import split_node_id

_log = logging.getLogger(__name__)

_CHOSEN_BY: Final = ", ".join(f"--{axis}" for axis in SEARCHED)
_ALONE: Final = f"where only devices or engines differ, one version is run on each: {_CHOSEN_BY}"
_TWICE: Final = " lists the candidates, too: give one of the two"
_ONE_AXIS: Final = (
    "one axis is searched; of two, --good qnn=V,ort=V --bad qnn=V,ort=V tells which of them "
    "matters (`pytest --qnn all --ort all` runs all pairs); device, soc or engine asks each "
    "device, kind of device or engine the same"
)
_OPTIONS: Final = {
    "repeat": "--repeat",
    "patience": "--patience",
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
    candidates_file: Path | None = None
    versions: Mapping[AxisName, str] | None = None
    devices: Sequence[str] = ()
    backend: str | None = None
    match: str | None = None
    repeat: int | None = None
    patience: int = 3
    max_runs: int | None = None
    known_issues: Path | None = None
    run_timeout_s: int = 1800
    pytest_arguments: tuple[str, ...] = ()


def begin(request: Request, lab: Lab, catalog: Catalog) -> list[Task]:
    """Return the tasks of the bisections that a request means.

    That is one, or one for each device, kind of devices or engine. Raises ConfigError for
    everything that is wrong with it; nothing is run or written.
    """
    axes, each, ends = _axes(request)
    root = where_pytest_starts(request.case, "--case")
    words = asked_as_before(request.case, request.reports, request.pytest_arguments)
    match = None if request.match is None else parse_match(request.match)
    request = replace(request, axes=axes)
    _refuse_what_would_be_ignored(request, match)
    repeat = _repeat(request, match)
    if match is not None and match.needs_good and "--good" not in ends:
        raise ConfigError("--match compares with the good end: name it", field="--good")
    tasks = []
    for part in _parts(lab, request, each):
        where = where_to_run(lab, request.case, part.devices, request.backend)
        versions = Versions(catalog, where.target)
        given = dict(request.versions or {})
        candidates = {axis: _candidates(axis, request, given, versions) for axis in axes}
        if not axes:
            held = versions.held({"qnn": given["qnn"]} if "qnn" in given else {}, (), where.named)
            candidates = {"qnn": (held["qnn"],)}
        paths = {axis: versions.paths(axis, _specs(axis, request, given)) for axis in SEARCHED}
        tasks.append(
            Task(
                search=_spec(request, candidates, _resolved(ends, candidates, versions), repeat),
                case=part.case,
                held=versions.held(given, tuple(candidates), where.named),
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
                run_timeout_s=request.run_timeout_s,
                pytest_arguments=words,
            )
        )
    return tasks


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


def _axes(request: Request) -> tuple[tuple[AxisName, ...], str | None, Ends]:
    """The axes that are searched, what is asked one by one, and the ends that are named."""
    choices, given = (*SEARCHED, *EACH), request.axes
    unknown = [axis for axis in given if axis not in choices]
    if unknown:
        raise ConfigError(f"unknown axis {unknown[0][:80]!r}", field="--axis", choices=choices)
    searched = tuple(axis for axis in given if axis in SEARCHED)
    each = [axis for axis in given if axis in EACH]
    texts = {"--good": request.good, "--bad": request.bad}
    ends = {field: _end(text, field, searched) for field, text in texts.items() if text is not None}
    named = tuple(axis for axis in SEARCHED if any(axis in end for end in ends.values()))
    axes = named or searched
    if len(named) > 2:
        problem = (
            f"--good and --bad name {', '.join(named)}: both name the same one or two; another "
            "axis is held by its own option, as in --compiler VERSION"
        )
        raise ConfigError(problem)
    if len(axes) > 2 or len(each) > 1 or len(set(given)) < len(given):
        raise ConfigError(_ONE_AXIS, field="--axis", choices=choices)
    if (len(searched) > 1 and not named) or not (axes or each):
        raise ConfigError(_ONE_AXIS, field="--axis", choices=choices)
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
    return axes, next(iter(each), None), ends


def _end(text: str, field: str, searched: Sequence[AxisName]) -> dict[AxisName, str]:
    """{axis: version} of `qnn=2.48,ort=1.27`, or of a version of the one axis that is searched."""
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


def _refuse_what_would_be_ignored(request: Request, match: Match | None) -> None:
    """Raises ConfigError for what means nothing beside the rest: nobody writes it for nothing."""
    axes, with_good = request.axes, match is not None and match.needs_good
    alone = not axes
    lists = {"--versions": request.candidates, "--from-file": request.candidates_file}
    of_one_axis = {**lists, "--good": request.good, "--bad": request.bad}
    each_its_own = f"with two axes give each its own candidates: {_CHOSEN_BY}"
    wrong: tuple[tuple[str, bool, str], ...] = (
        *((field, alone and given is not None, _ALONE) for field, given in of_one_axis.items()),
        ("--match", alone and with_good, "compares with a good version, and no versions differ"),
        *(
            (field, len(axes) == 2 and given is not None, each_its_own)
            for field, given in lists.items()
        ),
        ("--from-file", None not in lists.values(), f"--versions{_TWICE}"),
        (
            "--axis",
            match is not None and match.drift_steps is not None and axes != ("qnn",),
            "--match drift compares what QNN versions make of the same contexts: --axis qnn",
        ),
    )
    for field, is_wrong, problem in wrong:
        if is_wrong:
            raise ConfigError(problem, field=field)
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
    field = "--from-file" if request.candidates_file is not None else field
    if axis in given and field != f"--{axis}":
        raise ConfigError(f"{field}{_TWICE}", field=f"--{axis}")
    return versions.candidates(axis, _specs(axis, request, given), field)


def _specs(axis: AxisName, request: Request, given: Mapping[AxisName, str]) -> list[str]:
    """The user's words for the versions of an axis, searched or held."""
    if axis in request.axes and request.candidates is not None:
        return [request.candidates]
    if axis in request.axes and request.candidates_file is not None:
        return versions_from(request.candidates_file)
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
    fields: dict[str, Any] = {"repeat": repeat, "patience": request.patience}
    fields["max_runs"] = request.max_runs
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
