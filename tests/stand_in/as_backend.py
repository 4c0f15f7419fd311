"""A pytest plug-in for tests: another library answers for the backend of a case, ORT's included.

Loaded with `-p tests.stand_in.as_backend` in a run on a simulated device, whose paths are paths of
this host. STAND_IN_FOLDER holds the built stand-in; STAND_IN_BEHIND names the library of the case's
runtime that does the work behind it; what the stand-in is told goes into its stand_in.conf.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    from harness.bench.bench import Bench
    from harness.bench.session import OrtOnDevice
    from harness.models.source import Libraries

    del config
    folder, behind = Path(os.environ["STAND_IN_FOLDER"]), os.environ["STAND_IN_BEHIND"]
    stand_in, plain, ort = folder / "libQnnHtp.so", Bench.libraries, Bench.ort

    def link(bench: Bench) -> None:
        whole = bench.case.prepared.provisioner.catalog.runtime(bench.placement.qnn, "linux-x64")
        for name, library in (("real_htp.so", behind), ("real_system.so", "libQnnSystem.so")):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(whole.library(library))

    def libraries(bench: Bench) -> Libraries:
        link(bench)
        return Libraries(backend=str(stand_in), system=plain(bench).system)

    def on_ort(bench: Bench, *arguments: str) -> OrtOnDevice:
        link(bench)
        return replace(ort(bench, *arguments), backend=str(stand_in))

    patch = pytest.MonkeyPatch()
    patch.setattr(Bench, "libraries", libraries)
    patch.setattr(Bench, "ort", on_ort)
