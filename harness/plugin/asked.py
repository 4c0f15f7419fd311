"""What a run is asked for: its lab, its matrix, and the failures that it expects."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from harness.core.axes import EXECUTORCH
from harness.core.errors import ConfigError, HarnessError, NoLabError
from harness.plugin.options import Options
from harness.plugin.terminal import NOT_ASKED

if TYPE_CHECKING:
    from harness.bench.placement import Placement
    from harness.lab.inventory import DeviceConfig, Lab
    from harness.labgrid.session import FoundPlaces, Session, Wanted
    from harness.plugin.axes import DeviceRuntimes
    from harness.results.known_issues import KnownIssue
    from harness.results.record import CaseRecord, DeviceRecord, Fixed
    from harness.runtimes.catalog import Catalog

_log = logging.getLogger(__name__)

ANY: Final = "any"
"""What stands for the device in the name of a case that any device runs that fits."""
_PER_PROCESSOR: Final = 4


class Selection:
    """What options, lab and known issues say; each is read when it is first needed."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.takes_places = False
        """Whether places of labgrid are reserved, and not only looked at."""
        self._session: Session | None = None
        self._named_runtimes: dict[tuple[str, ...], DeviceRuntimes] = {}
        self._addressed: dict[str, str] = {}

    @cached_property
    def lab(self) -> Lab:
        """The lab; raises ConfigError naming file, line and field, InfraError for no places."""
        from harness.lab.inventory import load_lab
        from harness.labgrid.session import found_places

        addresses = [name for name in self.options.devices if "://" in name]
        # who names devices by their addresses needs no lab for them
        alone = addresses and len(addresses) == len(self.options.devices)
        find = self._take_places if self.takes_places else found_places
        none = alone and not self.options.lab.exists()
        try:
            lab = None if none else load_lab(self.options.lab, places=None if alone else find)
        except NoLabError as error:
            above = self.lab_above and f"no such file, but {self.lab_above}"
            raise NoLabError(above or error.problem, file=self.options.lab) from error
        if lab is not None and not addresses:
            return lab
        from harness.core.cache import cache_root, simulated_root
        from harness.lab.attach import OpenLab
        from harness.lab.new_devices import with_addresses

        def open_lab(lab: Lab) -> OpenLab:
            # without a lease: it is asked only, also where a worker uses it already
            cache = cache_root()
            return OpenLab(lab, key_folder=cache / "keys", storage_root=simulated_root(cache))

        lab, self._addressed = with_addresses(lab, addresses, open_lab)
        return lab

    @property
    def lab_above(self) -> str | None:
        """What to do where a folder above has the lab, which pytest took no root from."""
        file = self.options.lab
        above = next((one for up in file.parents if (one := up / file.name).is_file()), None)
        if above is None:
            return None
        return (
            f"above: --lab={above} names it, and a pytest.ini beside it makes its folder the root"
        )

    @cached_property
    def _names(self) -> list[str]:
        _ = self.lab
        return [self._addressed.get(name, name) for name in self.options.devices]

    def _take_places(self, wanted: Wanted) -> FoundPlaces:
        from harness.labgrid.session import Session

        self._session = Session(wanted)
        return self._session.found

    def close(self) -> None:
        """Gives back the places that were reserved."""
        if self._session is not None:
            self._session.close()

    @cached_property
    def devices(self) -> Sequence[DeviceConfig]:
        """The devices asked for, by name or by pool, or all enabled ones."""
        pools: dict[str, list[str]] = {}
        for device in self.lab.in_use():
            pools.setdefault(device.pool or "", []).append(device.name)
        asked = (pools.get(name, [name]) for name in self._names)
        return self.lab.select([name for names in asked for name in names] or None)

    @cached_property
    def sharing(self) -> dict[str, str]:
        """By device the name under which it shares cases with others, if it does.

        Those of a pool do if nothing else is said; one asked for by name has cases of its own.
        """
        from harness.lab.matching import kinds

        match self.options.fan_out:
            case "device":
                return {}
            case "soc":
                found = kinds(self.devices)
                return {name: kind for name, kind in found.items() if kind != name}
            case "any":
                if any(ANY in (device.name, device.pool) for device in self.lab.devices):
                    problem = f"a device or a pool of {self.options.lab} is called {ANY!r}"
                    raise ConfigError(problem, field="--any-device")
                return dict.fromkeys((device.name for device in self.devices), ANY)
        named = self._names
        pooled = ((one.name, one.pool) for one in self.devices if one.name not in named)
        return {name: pool for name, pool in pooled if pool}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """By device its kind: on devices of one kind a case says the same."""
        from harness.lab.matching import kinds

        if self.options.fan_out == "any":
            return kinds(self.devices)
        return {name: self.sharing.get(name, name) for name in self.device_names}

    @property
    def device_names(self) -> list[str]:
        """The names of the devices asked for; none if the lab cannot be read."""
        try:
            return [device.name for device in self.devices]
        except HarnessError:
            return []

    @property
    def most_workers(self) -> int:
        """One for each device that has a backend asked for; 0 without a lab.

        At most four for each of this computer's processors: a worker mostly waits for its device.
        Of places that are reserved later it is not known yet which these will be.
        """
        from harness.lab.matching import misfits

        wanted = [{"backend": name} for name in self.options.backends] or [{}]
        try:
            fit = [one for one in self.devices if not all(misfits(one, each) for each in wanted)]
        except HarnessError:
            return 0
        places = len([one for one in fit if self.lab.place_of(one.name)])
        reserved = self.lab.labgrid.places if self.lab.labgrid else 0
        workers = len(fit) - max(0, places - reserved)
        return min(workers, _PER_PROCESSOR * (os.cpu_count() or 1))

    @cached_property
    def known_issues(self) -> Sequence[KnownIssue]:
        """The expected failures; raises ConfigError like the lab."""
        from harness.results.known_issues import load_known_issues

        path = self.options.known_issues
        return load_known_issues(path) if path else ()

    @cached_property
    def catalog(self) -> Catalog:
        """Where libraries come from. Raises ConfigError for a source that cannot be."""
        from harness.core.cache import cache_root
        from harness.runtimes.catalog import Catalog

        return Catalog.of(self.lab, os.environ, cache_root())

    @cached_property
    def runtimes(self) -> DeviceRuntimes:
        return self._device_runtimes(self.options.qnn, "--qnn")

    def placements(
        self, requirements: dict[str, Any], *, compiled: bool = True, made_by: Sequence[str] = ()
    ) -> tuple[list[Placement], list[str]]:
        """The placements of a test with these requirements, and why the others do not fit.

        `compiled`: it may take contexts that are compiled here; `made_by` are the QNN versions that
        made those it takes out of files. Raises ConfigError for an unknown device, version, backend
        or requirement.
        """
        from harness.bench.placement import shared
        from harness.core.axes import BACKENDS
        from harness.plugin.axes import placements

        options = self.options
        for backend in options.backends:
            if backend not in BACKENDS:
                raise ConfigError(
                    f"unknown backend {backend!r}", field="--backend", choices=BACKENDS
                )
        runtimes, reasons = self._runtimes_for(requirements.get("qnn"))
        named = options.qnn_given or requirements.get("qnn")
        if requirements.get("engine") == EXECUTORCH.name and not named:
            runtimes = self._fitting_executorch(made_by) or runtimes
        if compiled:
            runtimes.require_compilers()
        found, unfit = placements(
            self.devices,
            requirements,
            options.backends,
            runtimes.compilers,
            runtimes.orts,
            compiled=compiled,
        )
        return shared(found, self.sharing), [*unfit, *reasons, *runtimes.reasons]

    def _runtimes_for(self, named: str | Iterable[str] | None) -> tuple[DeviceRuntimes, list[str]]:
        """The runtimes of a test that names versions of QNN, or none; and why it has none.

        A test that names some gets these, and if any were asked for, only those among them. A
        single case (`--only-case`) is run with what is asked for.
        """
        from harness.plugin.axes import narrowed

        specs = _specs(named)
        if not specs or self.options.only_case is not None:
            return self.runtimes, []
        if specs not in self._named_runtimes:
            self._named_runtimes[specs] = self._device_runtimes(specs, "qnn")
        of_test = self._named_runtimes[specs]
        if not self.options.qnn_given:
            return of_test, []
        both = narrowed(self.runtimes.compilers, of_test.compilers)
        reasons = [f"{NOT_ASKED} QNN {' or '.join(specs)}, asked for {', '.join(self.options.qnn)}"]
        found = replace(self.runtimes, compilers=both, reasons=())
        return found, [] if any(both.values()) else reasons

    def _fitting_executorch(self, made_by: Sequence[str]) -> DeviceRuntimes | None:
        """Of each device the newest QNN that ExecuTorch takes; None where there is no such one.

        Only contexts made for a user's build tell which QNN that takes.
        """
        from harness.core.versions import QnnVersion
        from harness.runtimes.ort import EXECUTORCH_TAKES, EXECUTORCH_VERSION

        if self.options.executorch is None:
            wanted = str(EXECUTORCH_TAKES)
            why = f"ExecuTorch {EXECUTORCH_VERSION} takes no other"
        elif made_by:
            wanted = max(made_by, key=QnnVersion.parse)
            why = "it made the contexts; --qnn names another"
        else:
            return None
        if (wanted,) not in self._named_runtimes:
            try:
                found = self._device_runtimes((wanted,), "--qnn")
            except ConfigError:
                return None  # no source has it: preflight and the run tell what comes of that
            newest = {name: dict([*own.items()][-1:]) for name, own in found.compilers.items()}
            self._named_runtimes[(wanted,)] = replace(found, compilers=newest)
            chosen = ", ".join(dict.fromkeys(name for own in newest.values() for name in own))
            if self.takes_places:  # a worker's controller has said so
                _log.warning("running with QNN %s: %s", chosen, why)
        return self._named_runtimes[(wanted,)]

    def _device_runtimes(self, qnn: Sequence[str], field: str) -> DeviceRuntimes:
        from harness.plugin.axes import device_runtimes

        options = self.options
        return device_runtimes(
            self.catalog, self.devices, qnn, options.compilers, options.ort, field=field
        )

    def check(self) -> None:
        """Raises ConfigError for anything wrong in the lab, the known issues or the options."""
        _ = self.known_issues
        self.placements({})

    def device_record(self, placement: Placement) -> DeviceRecord:
        """The `device` of a record before the device itself has said anything."""
        from harness.results.record import DeviceRecord

        (config,) = self.lab.select([placement.device])
        keys = ("name", "serial", "soc", "target", "simulated")
        return DeviceRecord.model_validate({key: getattr(config, key) for key in keys})

    def fixed(self, record: Callable[[], CaseRecord]) -> Fixed | None:
        """What a case that passed says of known issues that it was expected to show."""
        if not self.known_issues:
            return None
        from harness.results.known_issues import passed_anyway
        from harness.results.record import Fixed

        found = passed_anyway(record(), self.known_issues)
        if not found:
            return None
        names = tuple(issue.id for issue in found)
        return Fixed(known_issues=names, fails=self.options.strict_known)

    def note_problem(self, error: HarnessError) -> None:
        """Tells whoever started the run what keeps it from its cases, if that was asked for."""
        if self.options.problem_file is not None:
            from harness.plugin.problem import Problem, write_problem

            write_problem(self.options.problem_file, Problem.of(error))


def _specs(named: str | Iterable[str] | None) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else tuple(named or ())
