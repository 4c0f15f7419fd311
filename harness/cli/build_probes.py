"""`python -m harness.cli.build_probes`: build the probes that are part of the package.

The wheel `ziglang` compiles them, so that the same sources give the same bytes everywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from harness.core.socs import TARGETS
from harness.probe.build import SHIPPED, ProbeBuilder, built_by_zig


def main() -> None:
    """Build the probes for all targets. Raises ConfigError."""
    shutil.rmtree(SHIPPED, ignore_errors=True)
    SHIPPED.mkdir()
    environment = {**os.environ, **built_by_zig(f"{sys.executable} -m ziglang")}
    with tempfile.TemporaryDirectory() as folder:
        builder = ProbeBuilder(Path(folder), environment)
        for target in TARGETS:
            built = builder.build(target)
            shutil.copyfile(built, SHIPPED / f"{built.name}-{target}")


if __name__ == "__main__":
    main()
