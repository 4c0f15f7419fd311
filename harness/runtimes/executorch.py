"""ExecuTorch out of its wheel: headers to build a runner with, and the libraries that it needs.

No torch comes along: the wheel alone has 19 MB, and what is unpacked of it 13 MB.
"""

from __future__ import annotations

from typing import Final

from harness.errors import ConfigError
from harness.files.verified_folder import VerifiedFolder
from harness.qnn.versions import VersionRange
from harness.runtimes.pypi import UnpackedWheels
from harness.runtimes.wheels import WheelRequest

EXECUTORCH_VERSION: Final = "1.5.1"
EXECUTORCH_TARGET: Final = "linux-x64"
"""What the libraries of the wheel are for; on other devices it takes a program of the user's."""

EXECUTORCH_TAKES: Final = VersionRange.parse(">=2.49,<2.50")
"""The QNN versions whose HTP backend reads a device configuration as ExecuTorch 1.5.1 writes it.

Behind the option word its fields start at byte 4 in the HTP API 5.49 (QNN 2.49.40), and at byte 8
before and after that; measured with QNN 2.47.0 to 2.51.0, see also native/backend.c of the probe.
"""

# Its headers and these libraries are the same for each Python.
_REQUEST: Final = WheelRequest(
    "executorch", EXECUTORCH_VERSION, "manylinux_2_28_x86_64", "3.11", "cp311"
)
_FOLDER: Final = "executorch"
EXECUTORCH_LIBRARIES: Final = (
    "libexecutorch.so",
    "libexecutorch_backend_qnn.so",
    "libexecutorch_kernels_optimized.so",
    "libexecutorch_threadpool.so",
)
"""What the runner is linked with, and what those need besides the C++ runtime of the system."""


def executorch_folder(unpacked: UnpackedWheels, target: str) -> VerifiedFolder:
    """The wheel, unpacked; its files are below `executorch/`.

    Raises ConfigError for a target that it has no libraries for, InfraError if it cannot be had.
    """
    if target != EXECUTORCH_TARGET:
        raise ConfigError(
            f"ExecuTorch's wheel has no libraries for {target}", choices=[EXECUTORCH_TARGET]
        )
    libraries = {f"{_FOLDER}/lib/{name}" for name in EXECUTORCH_LIBRARIES}
    return unpacked.folder(
        _REQUEST, lambda name: name in libraries or name.startswith(f"{_FOLDER}/include/")
    )
