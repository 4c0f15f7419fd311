"""ExecuTorch for a device: the libraries of its wheel, or a user's own build with a runner.

The wheel comes without torch and has 19 MB, its unpacked files 13 MB. It has no libraries for
phones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.core.errors import ConfigError
from harness.core.socs import PLATFORMS
from harness.core.verified_folder import VerifiedFolder
from harness.core.versions import VersionRange
from harness.runtimes.elf import ElfError, read_elf
from harness.runtimes.local_sources import require_inside
from harness.runtimes.pypi import WheelCache, WheelRequest

VERSION: Final = "1.5.1"
TARGET: Final = "linux-x64"
"""Target of the wheel's libraries; other devices need a user's own build."""

TAKES: Final = VersionRange.parse(">=2.49,<2.50")
"""QNN versions whose HTP backend reads a device configuration as ExecuTorch 1.5.1 writes it.

After the option word its fields start at byte 4 in the HTP API 5.49 (QNN 2.49.40), and at byte 8
before and after that. Measured with QNN 2.47.0 to 2.51.0; see also native/backend.c of the probe.
"""

# Its headers and these libraries are the same for each Python.
_REQUEST: Final = WheelRequest("executorch", VERSION, "manylinux_2_28_x86_64", "3.11", "cp311")
_FOLDER: Final = "executorch"
LIBRARIES: Final = (
    "libexecutorch.so",
    "libexecutorch_backend_qnn.so",
    "libexecutorch_kernels_optimized.so",
    "libexecutorch_threadpool.so",
)
"""Libraries of the runner, and those that they need besides the system's C++ runtime."""

OWN_BUILD: Final = "own build"
"""Version in records of a user's own build of ExecuTorch, which does not name its version."""

RUNNER: Final = "qnn_executor_runner"
_BACKEND: Final = "libqnn_executorch_backend.so"
# below a build folder of ExecuTorch's CMake, or side by side
_RUNNER_FOLDERS: Final = ("", "examples/qualcomm/executor_runner")
_LIBRARY_FOLDERS: Final = ("", "lib", "backends/qualcomm")
_MOST_LIBRARIES: Final = 64
_MOST_BYTES: Final = 1 << 30


def executorch_folder(wheels: WheelCache, target: str) -> VerifiedFolder:
    """Return the unpacked wheel, with its files below `executorch/`.

    Raises ConfigError for a target that it has no libraries for, InfraError if it is unavailable.
    """
    if target != TARGET:
        raise ConfigError(
            f"ExecuTorch's wheel has no libraries for {target}; name your own build that has "
            "qnn_executor_runner: pytest -o qnn_executorch=DIR, or run FILE -- -o ...",
            choices=[TARGET],
        )
    libraries = {f"{_FOLDER}/lib/{name}" for name in LIBRARIES}
    return wheels.folder(
        _REQUEST, lambda name: name in libraries or name.startswith(f"{_FOLDER}/include/")
    )


def runner_files(folder: Path, target: str) -> dict[str, Path]:
    """Return a build's runner and libraries, by name. Raises ConfigError if one does not fit."""
    field = "qnn_executorch"
    runner = next(
        (path for part in _RUNNER_FOLDERS if (path := folder / part / RUNNER).is_file()), None
    )
    if runner is None:
        places = [f"{part}/{RUNNER}".lstrip("/") for part in _RUNNER_FOLDERS]
        raise ConfigError(f"has no {RUNNER}", file=folder, field=field, choices=places)
    libraries: dict[str, Path] = {}
    for part in (*_LIBRARY_FOLDERS, _RUNNER_FOLDERS[1]):
        for path in sorted((folder / part).glob("*.so"))[:_MOST_LIBRARIES]:
            if path.is_file():
                libraries.setdefault(path.name, path)
    if not any(name.startswith(("libexecutorch", _BACKEND)) for name in libraries):
        places = [f"{part}/{_BACKEND}".lstrip("/") for part in _LIBRARY_FOLDERS]
        raise ConfigError(f"has no {_BACKEND}", file=folder, field=field, choices=places)
    require_inside({RUNNER: runner, **libraries}, folder, field=field)
    for path in (runner, *libraries.values()):
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"has more than {_MOST_BYTES} bytes", file=path, field=field)
    try:
        machine = read_elf(runner.read_bytes()).machine
    except ElfError as error:
        raise ConfigError(f"is not a program: {error}", file=runner, field=field) from error
    if machine != PLATFORMS[target].machine:
        problem = f"is for {machine}, but the device ({target}) needs {PLATFORMS[target].machine}"
        raise ConfigError(problem, file=runner, field=field)
    return {RUNNER: runner, **libraries}
