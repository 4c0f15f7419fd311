"""A pytest plug-in for tests: what a bench drives is the stand-in, in front of the real library.

Loaded with `-p tests.stand_in.in_front` in a run on a simulated device, whose paths are paths of
this host. STAND_IN_FOLDER holds the built stand-in; what it is told goes into its stand_in.conf.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    from harness.bench import Bench
    from harness.contexts.session_plan import Libraries

    del config
    folder = Path(os.environ["STAND_IN_FOLDER"])
    plain = Bench.libraries

    def libraries(bench: Bench, backend: str) -> Libraries:
        found = plain(bench, backend)
        for name, path in (("real_htp.so", found.backend), ("real_system.so", found.system)):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(path)
        return Libraries(backend=str(folder / "libQnnHtp.so"), system=found.system)

    pytest.MonkeyPatch().setattr(Bench, "libraries", libraries)
