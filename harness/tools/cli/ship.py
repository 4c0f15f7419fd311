"""`python -m harness.tools.cli.ship`: builds the probes that come with the package.

The wheel `ziglang` compiles them, so that the same sources give the same bytes everywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from harness.device.simulator.emulation import ZIG_TARGET
from harness.ground import ConfigError
from harness.probe import ProbeBuilder
from harness.probe.prebuilt import SHIPPED
from harness.tools.cli.say import say

# those of QNN's own libraries, or older
_LINUX: Final = {
    "linux-x64": ("CC_LINUX_X64", "x86_64", "x86_64-linux-gnu.2.28"),
    "linux-arm64": ("CC_LINUX_ARM64", "aarch64", ZIG_TARGET),
}


def main() -> None:
    """Builds them anew. An Android one is among them where an NDK is named. Raises ConfigError."""
    shutil.rmtree(SHIPPED, ignore_errors=True)
    SHIPPED.mkdir()
    environment = dict(os.environ)
    for variable, machine, target in _LINUX.values():
        # no path of this computer and nothing for a debugger
        compiler = f"{sys.executable} -m ziglang cc -target {target} -s"
        environment["CC" if machine == os.uname().machine else variable] = compiler
    with tempfile.TemporaryDirectory() as folder:
        builder = ProbeBuilder(Path(folder), environment)
        for target in (*_LINUX, "android-arm64"):
            try:
                built = builder.build(target)
            except ConfigError:
                if target in _LINUX:
                    raise
                say(f"no probe for {target}: no NDK is named", err=True)
                continue
            shutil.copyfile(built, SHIPPED / f"{built.name}-{target}")


if __name__ == "__main__":
    main()
