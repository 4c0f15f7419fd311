"""Hooks by which other packages extend the harness.

An implementation is marked by `@pytest.hookimpl`, and may leave out parameters. It is found in a
conftest.py, in a plug-in of pytest, or in a module that an entry point of the group `qnn_harness`
names; commands other than pytest load only the last kind. The harness adds its own parts by the
same hooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from harness.core.engine import Engine
    from harness.diagnosis.rule import Rule
    from harness.lab.config_fields import RuntimeSource
    from harness.lab.device_config import DeviceConfig, DeviceSource
    from harness.report.sections import RunData, Section

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def qnn_engines() -> Iterable[Engine]:
    """Return engines, which execute the contexts or models of a case.

    The harness's own come first, from `qnn_engines` of `harness.engines`.
    """
    raise NotImplementedError


@hookspec
def qnn_run_finished(
    folder: Path, outcomes: Mapping[str, int], exit_code: int, run: RunData
) -> Iterable[str] | None:
    """Notify, upload or display a pytest run of devices, and return lines for the terminal.

    Called once, in the process that writes the journal, when the run's `folder` has its reports;
    also for each run of a night or a bisection. `outcomes` has the number of cases of each outcome,
    expected failures as `expected`, without zeros; `run` has the records, run.json, and the
    coverage. An exception is printed and stored as one of the `plugin_errors` in run.json; a run
    that would end with 0 ends with 3 then.
    """
    raise NotImplementedError


@hookspec
def qnn_runtime_sources() -> Iterable[type[RuntimeSource]]:
    """Return kinds of sources of libraries, for entries of `runtimes` in devices.yaml.

    A kind is a model of an entry's fields with `kind: Literal["..."]`; its `open` makes a
    `LibrarySource`, which lists versions and fetches one.
    """
    raise NotImplementedError


@hookspec
def qnn_diagnosis_rules() -> Iterable[Rule]:
    """Return rules by which the failures of cases, and logs, are diagnosed.

    Of the rules that fit, the surest decides; of equally sure ones, those of plug-ins come before
    the harness's own, `rules.yaml` of `harness.diagnosis`.
    """
    raise NotImplementedError


@hookspec
def qnn_report_sections(run: RunData) -> Iterable[Section]:
    """Return sections of report.html, which follow the harness's own.

    Called each time that the page of a run is made. `run` has its run.json, its folder, and all of
    its records; the content of a section is made later, from the records of the cases. An exception
    is printed, and shown in the page instead of the section.
    """
    raise NotImplementedError


@hookspec
def qnn_transports() -> Iterable[type[DeviceConfig | DeviceSource]]:
    """Return kinds of devices, and sources of devices, for devices.yaml.

    A kind is a model of an entry of `devices` with `transport: Literal["..."]`; its `open` returns
    the `Transport` to the device. A source is a model of a section of its own, named `section`,
    which finds devices and reserves them for a run.
    """
    raise NotImplementedError
