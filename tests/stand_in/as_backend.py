"""A pytest plug-in for tests: the stand-in answers for a case's backend, also where ORT loads it.

Loaded with `-p tests.stand_in.as_backend` in a run on a simulated device, whose paths are paths of
this host. STAND_IN_FOLDER holds the built stand-in. STAND_IN_BEHIND names the library of the case's
runtime that does the work behind it, libQnnHtp.so unless told. What the stand-in is told goes into
its stand_in.conf, or into told.json, by a part of the name of each case: cases that nothing is said
of tell it nothing.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    from harness.bench.bench import Bench
    from harness.bench.ort_on_device import OrtOnDevice
    from harness.models.session_plan import Libraries

    del config
    folder = Path(os.environ["STAND_IN_FOLDER"])
    behind = os.environ.get("STAND_IN_BEHIND", "libQnnHtp.so")
    stand_in, plain, ort = str(folder / "libQnnHtp.so"), Bench.libraries, Bench.ort

    def link(bench: Bench) -> None:
        whole = bench.case.prepared.provisioner.catalog.runtime(bench.placement.qnn, "linux-x64")
        for name, library in (("real_htp.so", behind), ("real_system.so", "libQnnSystem.so")):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(whole.library(library))

    def libraries(bench: Bench) -> Libraries:
        link(bench)
        return Libraries(backend=stand_in, system=plain(bench).system)

    def on_ort(bench: Bench, *arguments: str) -> OrtOnDevice:
        link(bench)
        return replace(ort(bench, *arguments), backend=stand_in)

    patch = pytest.MonkeyPatch()
    patch.setattr(Bench, "libraries", libraries)
    patch.setattr(Bench, "ort", on_ort)


def pytest_runtest_setup(item: pytest.Item) -> None:
    folder = Path(os.environ["STAND_IN_FOLDER"])
    if (table := folder / "told.json").exists():
        wishes = [wish for part, wish in json.loads(table.read_text()).items() if part in item.name]
        (folder / "stand_in.conf").write_text("\n".join(wishes).replace(",", "\n"))
