"""The selection of a run: its lab, its matrix, and the failures that it expects."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from harness.core.errors import ConfigError, HarnessError, VersionError, plugin_faults
from harness.plugin.options import Options
from harness.plugin.terminal import NOT_ASKED

if TYPE_CHECKING:
    from harness.bench.case_placement import Placement
    from harness.core.engine import Engine
    from harness.lab.device_config import DeviceConfig, DeviceSource, SourceDevice
    from harness.lab.inventory import Lab
    from harness.plugin.axes import DeviceRuntimes
    from harness.results.known_issues import KnownIssue
    from harness.results.record import CaseRecord, DeviceRecord, Fixed
    from harness.runtimes.catalog import Catalog

_log = logging.getLogger(__name__)

_PER_PROCESSOR: Final = 4


class Selection:
    """Options, lab and known issues; each is read when it is first needed."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.reserves_places = False
        """Reserve places of the lab's sources instead of only listing them."""
        self._reserved = ExitStack()
        self._named_runtimes: dict[tuple[str, ...], DeviceRuntimes] = {}

    @cached_property
    def lab(self) -> Lab:
        """The lab. Raises ConfigError naming file, line and field, InfraError without places."""
        from harness.lab.inventory import load_lab

        devices, file = self.options.axes["device"], self.options.lab
        # devices that are named by addresses need no lab
        alone = bool(devices) and all("://" in name for name in devices)
        find = self._reserve if self.reserves_places else methodcaller("find")
        lab = load_lab(file, names=devices, find=None if alone else find)
        if not lab.undescribed_devices:
            return lab
        from harness.lab.new_devices import with_hardware

        return with_hardware(lab)

    @cached_property
    def _names(self) -> list[str]:
        named = ((name, self.lab.find(name)) for name in self.options.axes["device"])
        return [name if device is None else device.name for name, device in named]

    def _reserve(self, source: DeviceSource) -> Iterable[SourceDevice]:
        return source.reserve(self._reserved)

    def close(self) -> None:
        self._reserved.close()

    @cached_property
    def devices(self) -> Sequence[DeviceConfig]:
        """The devices selected by name or pool, or all enabled ones."""
        pools: dict[str, list[str]] = {}
        for device in self.lab.enabled_devices():
            pools.setdefault(device.pool or "", []).append(device.name)
        groups = (pools.get(name, [name]) for name in self._names)
        return self.lab.select([name for names in groups for name in names] or None)

    @cached_property
    def sharing(self) -> dict[str, str]:
        """The name under which each device shares cases with others, for those that do.

        By default the devices of a pool share cases; one selected by name has cases of its own.
        """
        from harness.lab.matching import ANY, kinds

        match self.options.spread:
            case "device":
                return {}
            case "soc":
                return {name: kind for name, kind in kinds(self.devices).items() if kind != name}
            case "any":
                if any(ANY in (device.name, device.pool) for device in self.lab.devices):
                    problem = (
                        f"a device or pool in {self.options.lab} has the name {ANY!r}; rename it"
                    )
                    raise ConfigError(problem, field="--spread any")
                return dict.fromkeys((device.name for device in self.devices), ANY)
        named = self._names
        pooled = ((device.name, device.pool) for device in self.devices if device.name not in named)
        return {name: pool for name, pool in pooled if pool}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each device; a case has the same result on devices of one kind."""
        from harness.lab.matching import kinds

        if self.options.spread == "any":
            return kinds(self.devices)
        return {name: self.sharing.get(name, name) for name in self.device_names}

    @property
    def device_names(self) -> list[str]:
        """The names of the selected devices; empty if the lab cannot be read."""
        try:
            return [device.name for device in self.devices]
        except HarnessError:
            return []

    @property
    def most_workers(self) -> int:
        """One worker for each device that has a selected backend; 0 without a lab.

        At most four for each processor of this computer, since a worker mostly waits for its
        device. Places that are reserved later are counted by their number.
        """
        from harness.lab.matching import misfits

        requirements = [{"backend": name} for name in self.options.axes["backend"]] or [{}]
        try:
            fit = [d for d in self.devices if not all(misfits(d, each) for each in requirements)]
        except HarnessError:
            return 0
        places = len([device for device in fit if self.lab.place_of(device.name)])
        reserved = sum(source.most for source in self.lab.sources)
        workers = len(fit) - max(0, places - reserved)
        return min(workers, _PER_PROCESSOR * (os.cpu_count() or 1))

    @cached_property
    def known_issues(self) -> Sequence[KnownIssue]:
        """The expected failures. Raises ConfigError like `lab`."""
        from harness.results.known_issues import load_known_issues

        path = self.options.known_issues
        return load_known_issues(path) if path else ()

    @cached_property
    def catalog(self) -> Catalog:
        """The sources of libraries. Raises ConfigError for an invalid source."""
        from harness.core.state_folders import cache_root
        from harness.runtimes.catalog import Catalog

        return Catalog.of(self.lab, os.environ, cache_root())

    @cached_property
    def runtimes(self) -> DeviceRuntimes:
        return self._device_runtimes(self.options.axes["qnn"] or ("latest",), "--qnn")

    def placements(
        self,
        requirements: dict[str, Any],
        *,
        compiled: bool = True,
        made_by: Callable[[], Sequence[str]] = tuple,
    ) -> tuple[list[Placement], list[str]]:
        """Return the placements of a test with these requirements, and why others do not fit.

        `compiled`: it may use contexts that are compiled here; `made_by` returns the QNN versions
        that made the contexts in its files. Raises ConfigError for an unknown device, version,
        backend or requirement.
        """
        from harness.bench.case_placement import merge_pools
        from harness.core.matrix_axes import check_names
        from harness.plugin.axes import placements, required_engine

        axes = self.options.axes
        check_names(axes)
        runtimes, reasons = self._runtimes_for(requirements.get("qnn"))
        named = axes["qnn"] or requirements.get("qnn")
        if not named:
            runtimes = self._fitting(required_engine(requirements), made_by) or runtimes
        with_compilers = any(any(names.values()) for names in runtimes.compilers.values())
        if compiled and runtimes.reasons and not with_compilers:
            raise VersionError("; ".join(runtimes.reasons))
        fitting, unfit = placements(self.devices, requirements, axes, runtimes, compiled=compiled)
        return merge_pools(fitting, self.sharing), [*unfit, *reasons, *runtimes.reasons]

    def _runtimes_for(self, named: str | Iterable[str] | None) -> tuple[DeviceRuntimes, list[str]]:
        """Return the runtimes of a test that may name versions of QNN, and why it has none.

        A test that names versions gets these, limited to the selected ones if `--qnn` is given. A
        single case (`qnn_only_case`) always runs with the selected ones.
        """
        specs = (named,) if isinstance(named, str) else tuple(named or ())
        if not specs or self.options.only_case is not None:
            return self.runtimes, []
        if specs not in self._named_runtimes:
            self._named_runtimes[specs] = self._device_runtimes(specs, "qnn")
        test_runtimes = self._named_runtimes[specs]
        if not (selected := self.options.axes["qnn"]):
            return test_runtimes, []
        of_test = test_runtimes.compilers
        both = {
            device: {name: names[name] for name in names if name in of_test.get(device, ())}
            for device, names in self.runtimes.compilers.items()
        }
        reasons = [f"{NOT_ASKED} QNN {' or '.join(specs)}, not {', '.join(selected)}"]
        runtimes = replace(self.runtimes, compilers=both, reasons=())
        return runtimes, [] if any(both.values()) else reasons

    def _fitting(
        self, engine: Engine, made_by: Callable[[], Sequence[str]]
    ) -> DeviceRuntimes | None:
        """Return for each device the newest QNN that an engine runs with; None for any QNN."""
        with plugin_faults(engine, "fitting_qnn"):
            fitting = engine.fitting_qnn(self.options.builds.get(engine.name), made_by)
        if fitting is None:
            return None
        version, reason = fitting
        key = (engine.name, version)
        if key not in self._named_runtimes:
            try:
                runtimes = self._device_runtimes((version,), "--qnn")
            except ConfigError:
                return None  # no source has it: preflight and the run report the consequences
            compilers = runtimes.compilers.items()
            newest = {device: dict([*names.items()][-1:]) for device, names in compilers}
            self._named_runtimes[key] = replace(runtimes, compilers=newest)
            chosen = ", ".join(dict.fromkeys(name for names in newest.values() for name in names))
            if self.reserves_places:  # not a worker, whose controller has logged it
                _log.warning("running with QNN %s: %s", chosen, reason)
        return self._named_runtimes[key]

    def _device_runtimes(self, qnn: Sequence[str], field: str) -> DeviceRuntimes:
        from harness.plugin.axes import device_runtimes

        axes = {**self.options.axes, "qnn": qnn}
        return device_runtimes(self.catalog, self.devices, axes, field=field)

    def check(self) -> None:
        """Raise ConfigError for an error in the lab, the known issues, the options or a rule."""
        from harness.diagnosis.rule_sources import all_rules

        all_rules()
        _ = self.known_issues
        self.placements({})

    def device_record(self, placement: Placement) -> DeviceRecord:
        """Return a record's `device` from devices.yaml, before the device was queried."""
        from harness.results.record import DeviceRecord

        (config,) = self.lab.select([placement.device])
        keys = ("name", "serial", "soc", "target", "simulated")
        return DeviceRecord.model_validate({key: getattr(config, key, None) for key in keys})

    def fixed(self, record: Callable[[], CaseRecord]) -> Fixed | None:
        """Return the known issues that a passed case was expected to show, None without any."""
        from harness.results.known_issues import fixed_issues
        from harness.results.record import Fixed

        passed = fixed_issues(record(), self.known_issues) if self.known_issues else ()
        names = tuple(issue.id for issue in passed)
        return Fixed(known_issues=names, fails=self.options.strict_known) if names else None

    def note_problem(self, error: HarnessError) -> None:
        """Write the error that stops the run into `qnn_problem_file`, if there is one."""
        if self.options.problem_file is not None:
            from harness.plugin.problem_file import Problem, write_problem

            write_problem(self.options.problem_file, Problem.of(error))
