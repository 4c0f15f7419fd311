"""Makes ready what a later run may need, beside the run that uses the device.

`python -m harness.run.workbench.ahead JSON` fetches, compiles and pushes it, one placement after
the other. It takes no lease, since whoever starts it has one, and never touches a device's health:
what it cannot do is left to the run that needs it.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pydantic import BaseModel

from harness.device.adb.address import ServerAddress
from harness.device.adb.device import AdbDevice
from harness.device.lab.attach import AttachedDevice
from harness.device.lab.first_contact import transport_at
from harness.device.lab.inventory import DeviceConfig, load_lab
from harness.device.lab.unknown_arch import unknown_arch
from harness.device.store.deploy import Deployer
from harness.device.transport.device import Transport
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.files.cache import cache_root
from harness.ground.host.guard import GuardedProcess, spawn_guarded
from harness.libraries.runtimes.catalog import Catalog
from harness.run.workbench.placement import Need
from harness.run.workbench.supplies import Supplies


class DevicePlace(BaseModel, extra="forbid", frozen=True):
    """How a device is reached that somebody else has attached, and what it is."""

    config: DeviceConfig
    server: ServerAddress | None
    serial: str
    workdir: str
    target: str
    htp_arch: int | None
    android_api: int | None

    @classmethod
    def of(cls, device: AttachedDevice) -> DevicePlace:
        """The place of an attached device."""
        way = device.transport
        return cls(
            config=device.config,
            server=way.server.address if isinstance(way, AdbDevice) else None,
            serial=way.serial,
            workdir=device.workdir,
            target=device.target,
            htp_arch=device.htp_arch,
            android_api=device.facts.android_api,
        )

    def unknown_arch(self) -> ConfigError:
        """Why nobody knows its HTP."""
        return unknown_arch(self.config)

    def transport(self) -> Transport:
        """The way to it."""
        return transport_at(self.serial, self.server, self.config.login)


class PrefetchJob(BaseModel, extra="forbid", frozen=True):
    """What is to be made ready on a device; `needs` in the order in which it is likely wanted.

    `executorch` is as in `Supplies`.
    """

    lab: Path
    executorch: Path | None
    address: DevicePlace
    needs: tuple[Need, ...]


def start(job: PrefetchJob) -> GuardedProcess:
    """Begins to make it ready in a process that ends with this one at the latest.

    Raises InfraError if it cannot be started.
    """
    return spawn_guarded([sys.executable, "-m", __name__, job.model_dump_json()])


def main(text: str) -> int:
    """Makes a job's needs ready; 1 if one of them could not be. Nobody hears how it goes."""
    logging.getLogger("harness").addHandler(logging.NullHandler())
    job = PrefetchJob.model_validate_json(text)
    address, cache, failed = job.address, cache_root(), 0
    catalog = Catalog.of(load_lab(job.lab, places=None), os.environ, cache)
    supplies = Supplies(catalog, cache, job.executorch)
    cap_bytes = address.config.store_limit_bytes
    deployer = Deployer(address.transport(), address.workdir, cap_bytes=cap_bytes)
    try:
        for need in job.needs:
            try:
                made = supplies.materialise(need, address, strict=False)
                deployer.deploy_sets(made.sets(deployer))
            except HarnessError:
                failed = 1
    finally:
        deployer.release()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
