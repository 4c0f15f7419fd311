"""ExecuTorch out of its wheel: headers to build a runner with, and the libraries that it needs.

No torch comes along: the wheel alone has 19 MB, and what is unpacked of it 13 MB. For devices that
it has no libraries for, a user's own build of ExecuTorch has a runner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.ground.errors import ConfigError
from harness.ground.facts.platforms import PLATFORMS
from harness.ground.facts.versions import VersionRange
from harness.ground.files.verified_folder import VerifiedFolder
from harness.libraries.runtimes.elf import ElfError, read_elf
from harness.libraries.runtimes.local_sources import kept_inside
from harness.libraries.runtimes.pypi import UnpackedWheels
from harness.libraries.runtimes.wheels import WheelRequest

EXECUTORCH_VERSION: Final = "1.5.1"
EXECUTORCH_TARGET: Final = "linux-x64"
"""What the libraries of the wheel are for; on other devices it takes a program of the user's."""

EXECUTORCH_TAKES: Final = VersionRange.parse(">=2.49,<2.50")
"""The QNN versions whose HTP backend reads a device configuration as ExecuTorch 1.5.1 writes it.

Behind the option word its fields start at byte 4 in the HTP API 5.49 (QNN 2.49.40), and at byte 8
before and after that. Measured with QNN 2.47.0 to 2.51.0; see also native/backend.c of the probe.
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

OWN_BUILD: Final = "own build"
"""What a record calls the ExecuTorch of a user's own build, which does not tell its version."""

RUNNER: Final = "qnn_executor_runner"
_BACKEND: Final = "libqnn_executorch_backend.so"
# as ExecuTorch's CMake leaves them below a build folder, or side by side
_RUNNERS: Final = ("", "examples/qualcomm/executor_runner")
_LIBRARIES: Final = ("", "lib", "backends/qualcomm")
_MOST_LIBRARIES: Final = 64
_MOST_BYTES: Final = 1 << 30


def executorch_folder(unpacked: UnpackedWheels, target: str) -> VerifiedFolder:
    """The wheel, unpacked; its files are below `executorch/`.

    Raises ConfigError for a target that it has no libraries for, InfraError if it cannot be had.
    """
    if target != EXECUTORCH_TARGET:
        raise ConfigError(
            f"ExecuTorch's wheel has no libraries for {target}; --executorch BUILD_DIR names a "
            "build of your own with qnn_executor_runner",
            choices=[EXECUTORCH_TARGET],
        )
    libraries = {f"{_FOLDER}/lib/{name}" for name in EXECUTORCH_LIBRARIES}
    return unpacked.folder(
        _REQUEST, lambda name: name in libraries or name.startswith(f"{_FOLDER}/include/")
    )


def runner_files(folder: Path, target: str) -> dict[str, Path]:
    """The runner of a build folder and the libraries beside it, by name.

    Raises ConfigError where one of them is missing, or for another kind of device.
    """
    field = "--executorch"
    runner = next((path for at in _RUNNERS if (path := folder / at / RUNNER).is_file()), None)
    if runner is None:
        places = [f"{at}/{RUNNER}".lstrip("/") for at in _RUNNERS]
        raise ConfigError(f"no {RUNNER} in it", file=folder, field=field, choices=places)
    found: dict[str, Path] = {}
    for at in (*_LIBRARIES, _RUNNERS[1]):
        for path in sorted((folder / at).glob("*.so"))[:_MOST_LIBRARIES]:
            if path.is_file():
                found.setdefault(path.name, path)
    if not any(name.startswith(("libexecutorch", _BACKEND)) for name in found):
        places = [f"{at}/{_BACKEND}".lstrip("/") for at in _LIBRARIES]
        raise ConfigError(f"no {_BACKEND} in it", file=folder, field=field, choices=places)
    kept_inside({RUNNER: runner, **found}, folder, field=field)
    for path in (runner, *found.values()):
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"has more than {_MOST_BYTES} bytes", file=path, field=field)
    try:
        machine = read_elf(runner.read_bytes()).machine
    except ElfError as error:
        raise ConfigError(f"is no program: {error}", file=runner, field=field) from error
    if machine != PLATFORMS[target].machine:
        problem = f"is for {machine}, and the device ({target}) takes {PLATFORMS[target].machine}"
        raise ConfigError(problem, file=runner, field=field)
    return {RUNNER: runner, **found}
