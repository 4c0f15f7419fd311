"""Whether a device can run our probe, found out by putting it there: before one is taken back."""

from __future__ import annotations

from collections.abc import Callable

from harness.errors import ConfigError, DeviceRefused
from harness.lab.attach import AttachedDevice
from harness.probe.build import PROBE_NAME, ProbeBuilder, read_sources, source_hash
from harness.probe.check import probe_problem
from harness.runtimes.deploy import Deployer, DeployFile


class ProbeFitness:
    """Builds the probe for a device, puts it there and runs it; what is there does not travel.

    `notify` is told of a probe that cannot be built: that is no fault of the device.
    """

    def __init__(
        self, builder: ProbeBuilder, *, notify: Callable[[str], None] = lambda text: None
    ) -> None:
        self._builder = builder
        self._notify = notify

    def problem(self, device: AttachedDevice) -> str | None:
        """Why the probe does not run on a device, None if it does or cannot be built here.

        Raises InfraError if the device cannot be asked, or the host cannot keep the probe.
        """
        try:
            probe = self._builder.build(device.target, android_api=device.facts.android_api)
        except ConfigError as error:
            self._notify(f"the probe was not tried on {device.name}: {error}")
            return None
        limit = device.config.store_limit_mb
        deployer = Deployer(
            device.adb,
            device.workdir,
            notify=lambda text: None,
            cap_bytes=None if limit is None else limit * 1_000_000,
        )
        try:
            folder = deployer.deploy_files("probe", [DeployFile(probe, PROBE_NAME, mode=0o755)])
            source = source_hash(read_sources())
            return probe_problem(device.adb, f"{folder}/{PROBE_NAME}", source=source)
        except DeviceRefused as refused:
            return f"it cannot be put there: {refused.problem}"
        finally:
            deployer.release()
