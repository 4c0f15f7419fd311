"""Test of the probe on a device, deployed already or deployed for the test."""

from __future__ import annotations

import logging
import posixpath
from typing import Final

from harness.core.errors import ConfigError, DeviceError, DeviceLost, DeviceRefused, DeviceTimeout
from harness.deploy.deploy import Deployer
from harness.lab.lab_device import AttachedDevice
from harness.probe.build import PROBE_NAME, ProbeBuilder, read_sources, source_hash
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import EXIT_DONE, run_plan
from harness.probe.transcript import misfit
from harness.transport.device import Transport

_log = logging.getLogger(__name__)
_TIMEOUT_S: Final = 10.0


def probe_problem(way: Transport, probe: str, *, source: str | None = None) -> str | None:
    """Run a plan that does nothing. Return why it fails; None if it works, or the file is gone.

    `source` is the hash of the sources that it must report. A file that is gone is no fault of the
    device: the next deployment brings it back. Raises DeviceLost or DeviceTimeout if the link
    fails, which says nothing about the probe.
    """
    if way.stat(probe) is None:
        return None
    try:
        run = run_plan(
            way,
            probe,
            Plan((Step("noop"),)),
            env={},
            cwd=posixpath.dirname(probe),
            timeout_s=_TIMEOUT_S,
        )
    except (DeviceLost, DeviceTimeout):
        raise
    except DeviceError as error:
        output = error.output.decode("utf-8", "replace").strip()[-300:]
        return f"{error.problem}: {output}" if output else error.problem
    reported_source = None if run.transcript.start is None else run.transcript.start.source
    if source is not None and reported_source != source:
        return f"it reports that it was built from {reported_source}, not from {source}"
    problem = "it does not complete an empty plan"
    if run.transcript.first_failure is None and run.exit_code == EXIT_DONE:
        unfit = misfit(run.transcript, run.plan)
        return f"{problem}: {unfit}" if unfit else None
    return run.stderr.decode("utf-8", "replace").strip()[-300:] or problem


def built_probe_problem(builder: ProbeBuilder, device: AttachedDevice) -> str | None:
    """Build the probe for a device, deploy it if need be, and run it.

    Return why it does not run, None if it does. If it cannot be built here, that is a warning: it
    is no fault of the device. Raises InfraError if the device cannot be reached, or the host cannot
    store the probe.
    """
    try:
        probe = builder.build(device.target)
    except ConfigError as error:
        _log.warning(f"the probe was not tested on {device.name}: {error}")
        return None
    deployer = Deployer(device.transport, device.workdir, cap_bytes=device.config.store_limit_bytes)
    try:
        folder = deployer.deploy_files("probe", {PROBE_NAME: probe}, programs=[PROBE_NAME])
        source = source_hash(read_sources())
        return probe_problem(device.transport, f"{folder}/{PROBE_NAME}", source=source)
    except DeviceRefused as refused:
        return f"it cannot be pushed: {refused.problem}"
    finally:
        deployer.release()
