"""A pytest plug-in for tests: what a bench drives is the stand-in, in front of the real library.

Loaded with `-p tests.stand_in.in_front` in a run on a simulated device, whose paths are paths of
this host. STAND_IN_FOLDER holds the built stand-in; what it is told goes into its stand_in.conf, or
into told.json, by a part of the name of each case: cases that nothing is said of tell it nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    from harness.bench.bench import Bench
    from harness.models.source import Libraries

    del config
    folder = Path(os.environ["STAND_IN_FOLDER"])
    plain = Bench.libraries

    def libraries(bench: Bench) -> Libraries:
        libraries = plain(bench)
        for name, path in (
            ("real_htp.so", libraries.backend),
            ("real_system.so", libraries.system),
        ):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(path)
        return Libraries(backend=str(folder / "libQnnHtp.so"), system=libraries.system)

    pytest.MonkeyPatch().setattr(Bench, "libraries", libraries)


def pytest_runtest_setup(item: pytest.Item) -> None:
    folder = Path(os.environ["STAND_IN_FOLDER"])
    if (table := folder / "told.json").exists():
        wishes = [wish for part, wish in json.loads(table.read_text()).items() if part in item.name]
        (folder / "stand_in.conf").write_text("\n".join(wishes).replace(",", "\n"))
