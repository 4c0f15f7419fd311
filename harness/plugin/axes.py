"""From options and markers to the matrix: what each device has, and where a test runs on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.bench.placement import Placement
from harness.containers.artefact import named_version
from harness.core.axes import ENGINES, QNN
from harness.core.errors import ConfigError, VersionError
from harness.core.socs import TARGETS
from harness.lab.inventory import DeviceConfig
from harness.lab.matching import misfits
from harness.models.artefact_sources import WholeFile
from harness.models.context_file import ContextFile
from harness.models.contexts import Source, SourceList
from harness.plugin.terminal import NOT_ASKED
from harness.runtimes.catalog import Catalog, choose_runtimes, resolve_versions

DEFAULT_BACKEND: Final = "htp"


@dataclass(frozen=True)
class DeviceRuntimes:
    """{device: {runtime: compilers of its contexts}}, {device: ORTs}, and what was left out."""

    compilers: Mapping[str, Mapping[str, Sequence[str]]]
    orts: Mapping[str, Sequence[str]]
    reasons: Sequence[str]

    def require_compilers(self) -> None:
        """Raises VersionError, with all reasons, if no device has contexts compiled for it."""
        compilers = (made for own in self.compilers.values() for made in own.values())
        if self.reasons and not any(compilers):
            raise VersionError("; ".join(self.reasons))


def device_runtimes(
    catalog: Catalog,
    devices: Sequence[DeviceConfig],
    qnn: Sequence[str],
    compilers: Sequence[str],
    ort: Sequence[str] = (),
    *,
    field: str = "--qnn",
) -> DeviceRuntimes:
    """What the options mean for each device; devices are not asked.

    For a device whose target is not described, everything counts that any target has, under one
    name where two mean the same. Without compilers every runtime gets contexts of its own version,
    or of the newest that it can read. If there is none, it has no compiler, and the reason is told.
    Raises ConfigError, naming `field`, for a spec that means nothing for any device.
    """
    made_by: dict[str, None] = {}
    for spec in compilers:
        made_by.update(dict.fromkeys(resolve_versions(spec, field="--compiler")))
    targets = {device.name: [device.target] if device.target else TARGETS for device in devices}
    asked = [target for listed in targets.values() for target in listed]
    choice = choose_runtimes(
        lambda spec, target: catalog.resolve(spec, target, field=field), qnn, asked
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
                    own.setdefault(name, ())
                    reasons[f"{device.name}: {error}"] = None
        if device.target is not None:
            why_not = (*choice.reasons[device.target], *ort_choice.reasons[device.target])
            reasons |= dict.fromkeys(f"{device.name}: {why}" for why in why_not)
        # a version of another source has a name without it, too, and for other targets only that
        for name in [name for name in own if ":" in name]:
            bare = name.partition(":")[2]
            if bare in own and catalog.is_same(name, bare, targets[device.name]):
                del own[name]
        found[device.name] = own
        orts[device.name] = list(with_ort)
    if reasons and not any(found.values()):
        raise VersionError("; ".join(reasons))
    return DeviceRuntimes(found, orts, list(reasons))


def placements(
    devices: Iterable[DeviceConfig],
    requirements: Mapping[str, object],
    backends: Sequence[str],
    runtimes: Mapping[str, Mapping[str, Sequence[str]]],
    orts: Mapping[str, Sequence[str]] = MappingProxyType({}),
    *,
    compiled: bool = True,
) -> tuple[list[Placement], list[str]]:
    """All placements that satisfy a test's requirements, and why devices were left out.

    `runtimes` has for each device the runtimes it gets, and the compilers of each one's contexts. A
    test that requires engine ort runs with each of the `orts` of a device, or with the usual one
    where it has none. A test that requires compilers all gets the contexts of all compilers of its
    device with each runtime. A test that takes no compiled contexts has no compiler. `backends` are
    those asked for, none if it was not said.
    """
    named = named_backends(requirements)
    chosen = chosen_backends(named, backends)
    reasons: dict[str, None] = {}
    if not chosen:
        reasons[f"{NOT_ASKED} backend {' or '.join(named)}, asked for {', '.join(backends)}"] = None
    found = []
    for device in devices:
        own = runtimes.get(device.name, {})
        with_compilers = own if compiled else dict.fromkeys(own, (None,))
        versions = _versions(requirements, with_compilers, orts.get(device.name, ()))
        for backend in chosen or named[:1]:
            why_not = misfits(device, {**requirements, "backend": backend})
            if why_not:
                reasons[f"{device.name}: {'; '.join(why_not)}"] = None
            elif chosen:
                found += [Placement(device.name, backend, *version) for version in versions]
    return found, list(reasons)


def _versions(
    requirements: Mapping[str, object],
    runtimes: Mapping[str, Sequence[str | None]],
    orts: Sequence[str],
) -> list[tuple[str, str | None, str, str | None]]:
    """Runtime, compiler, engine and ORT of each case that a test has on one device and backend."""
    # one that does not exist is told where requirements are matched with the device
    engine = ENGINES.get(str(requirements.get("engine") or QNN.name), QNN)
    if not engine.has_compilers:  # a file holds its contexts
        runtimes = dict.fromkeys(runtimes, (None,))
    with_ort: Sequence[str | None] = orts if engine.takes_models and orts else (None,)
    every = list(dict.fromkeys(one for compilers in runtimes.values() for one in compilers))
    return [
        (runtime, compiler, engine.name, ort)
        for runtime, compilers in runtimes.items()
        for compiler in (every if requirements.get("compilers") == "all" else compilers)
        for ort in with_ort
    ]


def named_backends(requirements: Mapping[str, object]) -> tuple[str, ...]:
    """The backends that a test's marker names, which may be one or several."""
    required = requirements.get("backend") or ()
    several = isinstance(required, tuple | list | set | frozenset)
    return tuple(map(str, required if several else (required,)))  # type: ignore[call-overload]


def chosen_backends(named: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """What a test runs on: the backends it names, of these only the ones asked for, if any were.

    A test that names none runs on those asked for, else on HTP.
    """
    if not asked:
        return tuple(named) or (DEFAULT_BACKEND,)
    return tuple(backend for backend in asked if not named or backend in named)


def axis_value(value: object) -> object:
    """What stands in a record for a parameter: JSON values as they are, others by their name."""
    if isinstance(value, SourceList):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [axis_value(item) for item in value]
    return str(value)


def own_axes(parameters: Mapping[str, object]) -> dict[str, Any]:
    """What a record has of a test's parameters among its axes: all but the placement."""
    return {name: axis_value(value) for name, value in parameters.items() if name != "placement"}


def takes_compiled(values: Iterable[object]) -> bool:
    """Whether a test with these parameters may want a compiler: not if its contexts all come from
    files.
    """
    found = list(_sources(values))
    return not found or any(one.compiled for one in found)


def made_by(values: Iterable[object]) -> list[str]:
    """The QNN versions that made the contexts of files among these, as far as they name one.

    Raises ArtefactError for a file that cannot be read.
    """
    files = (one.path for one in _sources(values) if isinstance(one, ContextFile))
    return [version for file in files if (version := named_version(file)) is not None]


def _sources(values: Iterable[object]) -> Iterator[Source]:
    for value in values:
        if isinstance(value, Source):
            yield value
        elif isinstance(value, tuple | list):  # what pytest.param makes is a tuple, too
            yield from _sources(value)


def narrowed(
    runtimes: Mapping[str, Mapping[str, Sequence[str]]], named: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, Sequence[str]]]:
    """The runtimes of each device, of these only the ones that a test names for it."""
    return {
        device: {name: own[name] for name in own if name in named.get(device, ())}
        for device, own in runtimes.items()
    }


def sources_in(parameters: Mapping[str, object]) -> list[Source]:
    """The sources among a test's parameters, in the order in which they are taken in turn."""
    return list(_sources(parameters.values()))


def sources_of(parameters: Mapping[str, object], folder: Path) -> tuple[Source, ...]:
    """What a test takes contexts of: the sources among its parameters, alone or in tuples.

    Relative paths are meant from `folder`.
    """
    return tuple(dict.fromkeys(one.seen_from(folder) for one in _sources(parameters.values())))


def files_of(parameters: Mapping[str, object]) -> tuple[Path, ...]:
    """The files among a test's parameters that an engine loads as they are, with what is beside."""
    return tuple(
        path
        for value in parameters.values()
        if isinstance(value, WholeFile)
        for path in value.files
    )
