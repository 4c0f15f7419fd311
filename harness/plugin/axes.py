"""The matrix: runtimes of each device, and placements of a test, from options and markers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from harness.bench.case_placement import Placement
from harness.containers.artefact import named_version
from harness.core.engine import DEFAULT_ENGINE, ENGINES, Engine
from harness.core.errors import ConfigError, VersionError
from harness.core.matrix_axes import DEFAULT_POWER
from harness.core.socs import TARGETS
from harness.lab.device_config import DeviceConfig
from harness.lab.matching import misfits
from harness.models.artefact_sources import WholeFile
from harness.models.context_file import ContextFile
from harness.models.contexts import Source, SourceList
from harness.plugin.terminal import NOT_ASKED
from harness.runtimes.catalog import Catalog, choose_runtimes, resolve_versions

DEFAULT_BACKEND: Final = "htp"


@dataclass(frozen=True)
class DeviceRuntimes:
    """{device: {runtime: compilers of its contexts}}, {device: ORTs}, and reasons of omissions."""

    compilers: Mapping[str, Mapping[str, Sequence[str]]]
    orts: Mapping[str, Sequence[str]]
    reasons: Sequence[str]


def device_runtimes(
    catalog: Catalog,
    devices: Sequence[DeviceConfig],
    axes: Mapping[str, Sequence[str]],
    *,
    field: str = "--qnn",
) -> DeviceRuntimes:
    """Resolve the versions in `axes` for each device, without querying devices.

    A device of unknown target gets the runtimes of all targets, under one name if two are the
    same. Without compilers every runtime gets contexts of its own version, or of the newest that
    it can read; if there is none, it has no compiler, and `reasons` says why. Raises ConfigError,
    naming `field`, for a spec that matches nothing for any device.
    """
    made_by: dict[str, None] = {}
    for spec in axes.get("compiler", ()):
        made_by.update(dict.fromkeys(resolve_versions(spec, field="--compiler")))
    targets = {device.name: [device.target] if device.target else TARGETS for device in devices}
    wanted_targets = [target for group in targets.values() for target in group]
    qnn, ort = axes["qnn"], axes.get("ort", ())
    names_for, unfit_qnn = choose_runtimes(
        lambda spec, target: catalog.resolve(spec, target, field=field), qnn, wanted_targets
    )
    orts_for, unfit_ort = choose_runtimes(
        lambda spec, target: catalog.ort.resolve(spec, target, field="--ort"), ort, wanted_targets
    )
    runtimes: dict[str, dict[str, Sequence[str]]] = {}
    orts: dict[str, Sequence[str]] = {}
    reasons: dict[str, None] = {}
    for device in devices:
        own_runtimes: dict[str, Sequence[str]] = {}
        with_ort: dict[str, None] = {}
        for target in targets[device.name]:
            with_ort.update(orts_for[target])
            for name in names_for[target]:
                try:
                    names = list(made_by) or [catalog.compiler_for(name, target)]
                    own_runtimes.setdefault(name, names)
                except ConfigError as error:
                    own_runtimes.setdefault(name, ())
                    reasons[f"{device.name}: {error}"] = None
        if device.target is not None:
            unfit = (*unfit_qnn[device.target], *unfit_ort[device.target])
            reasons |= dict.fromkeys(f"{device.name}: {reason}" for reason in unfit)
        # a version with a source (sdk:2.31.0) may also be there under its bare name
        for name in [name for name in own_runtimes if ":" in name]:
            bare = name.partition(":")[2]
            if bare in own_runtimes and catalog.is_same(name, bare, targets[device.name]):
                del own_runtimes[name]
        runtimes[device.name] = own_runtimes
        orts[device.name] = list(with_ort)
    if reasons and not any(runtimes.values()):
        raise VersionError("; ".join(reasons))
    return DeviceRuntimes(runtimes, orts, list(reasons))


def placements(
    devices: Iterable[DeviceConfig],
    requirements: Mapping[str, object],
    axes: Mapping[str, Sequence[str]],
    runtimes: DeviceRuntimes,
    *,
    compiled: bool = True,
) -> tuple[list[Placement], list[str]]:
    """Return all placements that satisfy a test's requirements, and why devices were left out.

    A test that requires engine ort runs with each of the ORTs of a device, or with the usual one
    if it has none. A test that requires compilers all runs with the contexts of all compilers of
    its device. A test without compiled contexts has no compiler. `axes` are the selected values.
    """
    required = requirements.get("backend") or ()
    several = isinstance(required, tuple | list | set | frozenset)
    named = tuple(map(str, required if several else (required,)))  # type: ignore[call-overload]
    backends = axes.get("backend", ())
    chosen = chosen_backends(named, backends)
    profiles = axes.get("power", ())
    voted = (None if profile == DEFAULT_POWER else profile for profile in profiles)
    powers = tuple(dict.fromkeys(voted)) or (None,)
    reasons: dict[str, None] = {}
    if not chosen:
        reasons[f"{NOT_ASKED} backend {' or '.join(named)}, not {', '.join(backends)}"] = None
    fitting = []
    for device in devices:
        own_runtimes = runtimes.compilers.get(device.name, {})
        with_compilers = own_runtimes if compiled else dict.fromkeys(own_runtimes, (None,))
        values = _values(requirements, with_compilers, runtimes.orts.get(device.name, ()))
        for backend in chosen or named[:1]:
            problems = misfits(device, {**requirements, "backend": backend})
            if problems:
                reasons[f"{device.name}: {'; '.join(problems)}"] = None
            elif backend != "htp" and None not in powers:
                asked = ", ".join(profiles)
                only = f"{NOT_ASKED} power {DEFAULT_POWER} on {backend}, not {asked}"
                reasons[only] = None
            elif chosen:
                fitting += [
                    Placement(device=device.name, backend=backend, power=power, **v)
                    for v in values
                    for power in (powers if backend == "htp" else (None,))
                ]
    return fitting, list(reasons)


def _values(
    requirements: Mapping[str, object],
    runtimes: Mapping[str, Sequence[str | None]],
    orts: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the values of the other axes, for each case on one device and backend."""
    engine = required_engine(requirements)
    if not engine.has_compilers:  # the file contains the contexts
        runtimes = dict.fromkeys(runtimes, (None,))
    with_ort: Sequence[str | None] = orts if engine.takes_models and orts else (None,)
    every = list(dict.fromkeys(chain.from_iterable(runtimes.values())))
    return [
        {"engine": engine.name, "qnn": runtime, "ort": ort, "compiler": compiler}
        for runtime, compilers in runtimes.items()
        for compiler in (every if requirements.get("compilers") == "all" else compilers)
        for ort in with_ort
    ]


def required_engine(requirements: Mapping[str, object]) -> Engine:
    """Return the engine of a test, the default one also for an unknown name.

    That is reported when the requirements are matched with the device.
    """
    return ENGINES.get(str(requirements.get("engine") or DEFAULT_ENGINE), ENGINES[DEFAULT_ENGINE])


def chosen_backends(named: Sequence[str], requested: Sequence[str]) -> tuple[str, ...]:
    """Return the backends of a test: those that it names, limited to the selected ones.

    A test that names none runs on the selected ones, else on HTP.
    """
    if not requested:
        return tuple(named) or (DEFAULT_BACKEND,)
    return tuple(backend for backend in requested if not named or backend in named)


def axis_value(value: object) -> object:
    """Return the value of a parameter for a record: JSON values unchanged, others as text."""
    if isinstance(value, SourceList):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [axis_value(item) for item in value]
    return str(value)


def parameter_axes(parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return a test's parameters as axes of a record: all but the placement."""
    return {name: axis_value(value) for name, value in parameters.items() if name != "placement"}


def takes_compiled(values: Iterable[object]) -> bool:
    """Return whether a test may need a compiler: not if all its contexts come from files."""
    sources = list(_sources(values))
    return not sources or any(source.compiled for source in sources)


def made_by(values: Iterable[object]) -> list[str]:
    """Return the QNN versions that made context files among these. Raises ArtefactError."""
    files = (source.path for source in _sources(values) if isinstance(source, ContextFile))
    return [version for file in files if (version := named_version(file)) is not None]


def _sources(values: Iterable[object]) -> Iterator[Source]:
    for value in values:
        if isinstance(value, Source):
            yield value
        elif isinstance(value, tuple | list):  # so is the result of pytest.param
            yield from _sources(value)


def sources_in(parameters: Mapping[str, object]) -> list[Source]:
    """Return the sources among a test's parameters, in the order of their use."""
    return list(_sources(parameters.values()))


def sources_of(parameters: Mapping[str, object], folder: Path) -> tuple[Source, ...]:
    """Return the distinct sources among a test's parameters; relative paths start at `folder`."""
    sources = _sources(parameters.values())
    return tuple(dict.fromkeys(source.seen_from(folder) for source in sources))


def files_of(parameters: Mapping[str, object]) -> tuple[Path, ...]:
    """Return the files among a test's parameters that an engine loads as they are."""
    return tuple(
        path
        for value in parameters.values()
        if isinstance(value, WholeFile)
        for path in value.files
    )
