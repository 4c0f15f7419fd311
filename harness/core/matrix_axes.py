"""Tables of the axes of a matrix, and of backends."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

from harness.core.errors import ConfigError

Backend = Literal["htp", "gpu", "cpu"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

BACKEND_LIBRARIES: Final[Mapping[str, str]] = MappingProxyType(
    {"htp": "libQnnHtp.so", "gpu": "libQnnGpu.so", "cpu": "libQnnCpu.so"}
)
RPC_LIBRARY: Final = "libcdsprpc.so"
"""The library by which the HTP's stubs reach the DSP: the device's own, which is never pushed."""


def backend_of(name: str) -> Backend | None:
    """Return the backend of that name, None if there is none."""
    return next((backend for backend in BACKENDS if backend == name), None)


DEFAULT_POWER: Final = "default"
"""The power profile without a vote; records have null."""
POWER_PROFILES: Final = (
    DEFAULT_POWER,
    "burst",
    "sustained_high_performance",
    "high_performance",
    "balanced",
    "low_balanced",
    "high_power_saver",
    "power_saver",
    "low_power_saver",
    "extreme_power_saver",
)


@dataclass(frozen=True)
class Axis:
    """One axis; `name` is its name in records, conditions of known issues and `--axis`.

    A value of `type` "version" is matched against the available versions, and may be a range with
    commas; a "name" stands for itself, and lists of names are split at commas. `help` describes its
    `option` for such a list; without one, the value follows from other axes or from the test.
    `values` are all names, if they are known beforehand. Names of cases have the values of axes
    with an option; a `mark` precedes a value that is left out if it is the default.
    """

    name: str
    type: Literal["version", "name"]
    help: str = ""
    mark: str = ""
    values: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        return "--qnn-version" if self.name == "qnn" else f"--qnn-{self.name}"


_AXES: Final = (
    Axis(
        "device",
        "name",
        "devices by name, serial or address (adb://host:port/serial, ssh://user@host/serial); "
        "default: that of ANDROID_SERIAL, else all",
    ),
    Axis("soc", "name"),
    Axis("engine", "name"),
    Axis(
        "backend",
        "name",
        "backends: htp, gpu, cpu (default: those that a test names, else htp)",
        values=BACKENDS,
    ),
    Axis(
        "qnn",
        "version",
        "QNN runtimes: versions (2.51.0, 2.48), ranges (>=2.48,<2.51), `latest`, `all`, any of "
        "them of one source of the lab (sdk:latest), or the path of an SDK, folder or AAR "
        "(default: latest)",
    ),
    Axis("ort", "version", "ONNX Runtime versions for tests that use it: as for --qnn", "ort"),
    Axis(
        "compiler",
        "version",
        "QNN versions that compile the contexts (default: the runtime's own)",
        "by",
    ),
    Axis(
        "power",
        "name",
        "power profiles that cases on HTP vote for: default (no vote), burst, balanced, "
        "power_saver and others, named as ONNX Runtime's `htp_performance_mode`",
        "power",
        values=POWER_PROFILES,
    ),
)
AXES: Final[Mapping[str, Axis]] = MappingProxyType({axis.name: axis for axis in _AXES})
"""All axes by name, in the order of a case's name. No parameter of a test is called like one."""

LISTED: Final = tuple(axis for axis in _AXES if axis.help)
"""The axes with an option for a list of values."""

VERSIONS: Final = tuple(axis.name for axis in AXES.values() if axis.type == "version")
"""The axes whose values are versions."""

SEARCHED: Final = (*VERSIONS, "power")
"""The axes that a bisection can search: versions from old to new, power profiles as listed."""

IN_AXES: Final = tuple(axis.name for axis in LISTED if axis.name != "device")
"""The axes that are among the `axes` of every record, null for a case without one."""


if TYPE_CHECKING:
    AxisName = str
else:  # for models and their schemas, which name the values
    AxisName = Literal[SEARCHED]


def nonblank(text: str) -> str:
    """Return names; reject a blank text, as from a shell variable that is not set."""
    if not text.strip(" ,"):
        raise argparse.ArgumentTypeError("the value is empty; leave the option out for its default")
    return text


def check_names(axes: Mapping[str, Sequence[str]], field: str | None = None) -> None:
    """Raise ConfigError for a value that its axis does not have."""
    for name, values in axes.items():
        known, noun = AXES[name].values, "power profile" if name == "power" else name
        if known and (unknown := [value for value in values if value not in known]):
            problem = f"unknown {noun} {unknown[0][:80]!r}"
            raise ConfigError(problem, field=field or f"--{name}", choices=known)
