"""`python -m harness.cli.build_probes`: build the probes that are part of the package.

The wheel `ziglang` compiles them, so that the same sources give the same bytes everywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from harness.cli.say import say
from harness.core.errors import ConfigError
from harness.probe.build import SHIPPED, ProbeBuilder, built_by_zig

_ALWAYS: Final = ("linux-x64", "linux-arm64")


def main() -> None:
    """Build all probes, including the Android one if an NDK is found. Raises ConfigError."""
    shutil.rmtree(SHIPPED, ignore_errors=True)
    SHIPPED.mkdir()
    environment = {**os.environ, **built_by_zig(f"{sys.executable} -m ziglang")}
    with tempfile.TemporaryDirectory() as folder:
        builder = ProbeBuilder(Path(folder), environment)
        for target in (*_ALWAYS, "android-arm64"):
            try:
                built = builder.build(target)
            except ConfigError:
                if target in _ALWAYS:
                    raise
                say(f"no probe for {target}: no NDK found; set ANDROID_NDK_HOME", err=True)
                continue
            shutil.copyfile(built, SHIPPED / f"{built.name}-{target}")


if __name__ == "__main__":
    main()
