"""`--ahead`: what later runs may need is made ready while the cases of this one run."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.facts.axes import VERSIONS
from harness.run.pytest_plugin.axes import device_runtimes
from harness.run.workbench.ahead import DevicePlace, PrefetchJob, start
from harness.run.workbench.placement import Need, by_placement

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from harness.ground.host.guard import GuardedProcess
    from harness.run.pytest_plugin.asked import Selection
    from harness.run.workbench.workbench import Workbench


def begin_ahead(
    asked: Selection, workbench: Workbench, needs: Sequence[Need]
) -> GuardedProcess | None:
    """Begins with what `--ahead` asks for, on the device of the first of `needs`.

    None if there is nothing to do. What cannot be had is left to the run that needs it. Raises
    ConfigError for what is not of the form of versions.
    """
    own = needs[0].placement
    device = workbench.lab.device(own.device)
    sources = by_placement(needs)[own]
    found: dict[Need, None] = {}
    options = asked.options
    for versions in [parse_versions(text) for text in options.ahead]:
        try:
            runtimes = device_runtimes(
                asked.catalog,
                [device.config],
                versions.get("qnn", options.qnn),
                versions.get("compiler", options.compilers),
                versions.get("ort", options.ort),
            )
        except HarnessError as error:
            _log.warning(f"--ahead: {error}")
            continue
        orts = runtimes.orts[own.device] if own.takes_models else ()
        for qnn, compilers in runtimes.compilers[own.device].items():
            compiler = None if own.compiler is None else next(iter(compilers), None)
            other = replace(own, qnn=qnn, compiler=compiler, ort=orts[0] if orts else own.ort)
            found[Need(other, sources)] = None
    wanted = tuple(need for need in found if need.placement != own)
    if not wanted:
        return None
    try:
        at, build = DevicePlace.of(workbench.held(device).device), options.executorch
        return start(PrefetchJob(lab=options.lab, executorch=build, address=at, needs=wanted))
    except InfraError as error:
        _log.warning(f"--ahead: {error}")
        return None


def parse_versions(text: str) -> dict[str, list[str]]:
    """{axis: [version]} of "qnn=2.50.40 compiler=2.47.0", quoted as in a shell (pure).

    Raises ConfigError.
    """
    try:
        parts = [part.partition("=") for part in shlex.split(text)]
    except ValueError as error:
        raise ConfigError(f"{text[:80]!r}: {error}", field="--ahead") from None
    if not parts or any(axis not in VERSIONS or not version for axis, _, version in parts):
        problem = f'{text[:80]!r} is not of the form "qnn=2.50.40 compiler=2.47.0"'
        raise ConfigError(problem, field="--ahead", choices=VERSIONS)
    return {axis: [version] for axis, _, version in parts}
