"""Makes ready what a later run may need, beside the run that uses the device.

`python -m harness.workbench.ahead JSON` fetches, compiles and pushes it, one placement after the
other. It takes no lease, since whoever starts it has one, and never touches a device's health: what
it cannot do is left to the run that needs it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.adb.device import AdbDevice
from harness.adb.guard import GuardedProcess, spawn_guarded
from harness.adb.server import AdbServer
from harness.cache import cache_root
from harness.contexts.compile import ContextStore
from harness.contexts.models import ModelSpec
from harness.contexts.onnx_files import OnnxFiles
from harness.errors import HarnessError
from harness.lab.attach import AttachedDevice
from harness.lab.inventory import load_lab
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.deploy import Deployer, runtime_set
from harness.runtimes.device_store import FileSet
from harness.workbench.libraries import Libraries
from harness.workbench.placement import Need, Placement
from harness.workbench.pushed import context_set, model_set


class Reach(BaseModel):
    """How a device is reached that somebody else has attached, and what it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: int
    serial: str
    workdir: str
    target: str
    htp_arch: int | None
    cap_bytes: int | None

    @classmethod
    def of(cls, device: AttachedDevice) -> Reach:
        """That of an attached device."""
        limit = device.config.store_limit_mb
        return cls(
            host=device.adb.server.host,
            port=device.adb.server.port,
            serial=device.adb.serial,
            workdir=device.workdir,
            target=device.target,
            htp_arch=device.htp_arch,
            cap_bytes=None if limit is None else limit * 1_000_000,
        )


class Errand(BaseModel):
    """What is to be made ready on a device; `needs` in the order in which it is likely wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lab: Path
    reach: Reach
    needs: tuple[Need, ...]


def start(errand: Errand) -> GuardedProcess:
    """Begins to make it ready in a process that ends with this one at the latest.

    Raises InfraError if it cannot be started.
    """
    return spawn_guarded([sys.executable, "-m", __name__, errand.model_dump_json()])


class _Maker:
    def __init__(self, errand: Errand) -> None:
        lab, cache = load_lab(errand.lab), cache_root()
        catalog = Catalog.of(lab, os.environ, cache, notify=_silent, warn=_silent)
        self._reach = errand.reach
        self._libraries = Libraries(catalog, cache)
        self._contexts = ContextStore(cache, catalog, ProbeBuilder(cache / "probe"))
        self._onnx = OnnxFiles(cache)
        server = AdbServer(self._reach.host, self._reach.port)
        self._deployer = Deployer(
            AdbDevice(self._reach.serial, server),
            self._reach.workdir,
            notify=_silent,
            cap_bytes=self._reach.cap_bytes,
        )

    def close(self) -> None:
        self._deployer.release()

    def make(self, need: Need) -> None:
        """Raises HarnessError for what cannot be made ready."""
        placement, reach = need.placement, self._reach
        arch = reach.htp_arch if placement.backend == "htp" else None
        sets = [runtime_set(self._libraries.runtime(placement, reach.target, arch))]
        if placement.engine == "ort":
            sets += self._model_sets(need)
        elif placement.backend == "htp" and arch is not None:
            sets += self._context_sets(placement, need.models, arch)
        self._deployer.deploy_sets(sets)

    def _context_sets(
        self, placement: Placement, models: tuple[ModelSpec, ...], arch: int
    ) -> list[FileSet]:
        made = self._contexts.without_refused(
            [(model, placement.compiler, arch) for model in models]
        )
        contexts = self._contexts.get_many(made)
        return [
            context_set(self._deployer, model, context)
            for (model, _, _), context in zip(made, contexts, strict=True)
        ]

    def _model_sets(self, need: Need) -> list[FileSet]:
        references = self._contexts.references(need.models, need.placement.compiler)
        return [
            model_set(self._deployer, self._onnx.path(model), reference)
            for model, reference in zip(need.models, references, strict=True)
        ]


def _silent(text: str) -> None:
    """Nobody waits for what is said here."""


def main(text: str) -> int:
    """Makes an errand's needs ready; 1 if one of them could not be."""
    errand = Errand.model_validate_json(text)
    failed = 0
    maker = _Maker(errand)
    try:
        for need in errand.needs:
            try:
                maker.make(need)
            except HarnessError:
                failed = 1
    finally:
        maker.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
