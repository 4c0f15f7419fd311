"""Runtimes out of the wheels of qai-appbuilder: more versions of QNN for Linux boards.

Qualcomm's own project, of BSD-3-Clause, with the libraries of QAIRT inside; for Linux it has wheels
for aarch64 only. They hold the CPU backend, which newer ones of onnxruntime-qnn lack, and have
neither ORT's plug-in nor stub and skel of every HTP arch: none of v69, of v81 only in 2.51.40.
What both projects have of 2.48.40 is the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.device.lab.runtime_sources import APPBUILDER
from harness.ground.errors import ConfigError, VersionError
from harness.ground.facts.versions import QnnVersion
from harness.libraries.runtimes.pypi import FileRule, Use, WheelSource, use_of
from harness.libraries.runtimes.wheels import WheelRequest

APPBUILDER_PROJECT: Final = "qai-appbuilder"
APPBUILDER_TARGET: Final = "linux-arm64"

# QNN version -> version of the wheel. Source: the build that stands in the libraries of each. The
# wheel 2.40.0.73 was withdrawn in favour of 2.40.0.
APPBUILDER_WHEELS: Final[Mapping[str, str]] = MappingProxyType(
    {"2.40.0": "2.40.0", "2.48.40": "2.48.40", "2.51.40": "2.51.40"}
)

# Every Python tag of 2.51.40 holds the same libraries; all versions have this one.
_TAGS: Final = ("manylinux_2_39_aarch64", "3.12", "cp312")
_FOLDER: Final = "qai_appbuilder/libs"
APPBUILDER_RULES: Final = (
    FileRule(f"{_FOLDER}/libQnnHtpPrepare.so", "host", "as in the wheels of onnxruntime-qnn"),
    FileRule(f"{_FOLDER}/libQnnHtpNetRunExtensions.so", "none", "for qnn-net-run's config file"),
    FileRule(f"{_FOLDER}/libQnn*.so", "device", "backends, stubs, skels, system library"),
    FileRule("*", "none", "Python, its extensions, Genie, licence"),
)


class AppBuilderSource(WheelSource):
    """The QNN versions of qai-appbuilder on a package index."""

    name = APPBUILDER
    origin = f"{APPBUILDER_PROJECT} on the package index of pip"

    def versions(self, target: str) -> list[str]:
        """See `LibrarySource`."""
        return appbuilder_versions() if target == APPBUILDER_TARGET else []

    def wheel(self, version: str, target: str) -> WheelRequest:
        """See `WheelSource`."""
        return appbuilder_wheel(version, target)

    def use_of(self, name: str) -> Use:
        """See `WheelSource`."""
        return use_of(name, APPBUILDER_RULES)


def appbuilder_versions() -> list[str]:
    """Every QNN version that has a wheel of qai-appbuilder, oldest first (pure)."""
    return sorted(APPBUILDER_WHEELS, key=QnnVersion.parse)


def appbuilder_wheel(version: str, target: str) -> WheelRequest:
    """The wheel of an exact QNN version. Raises ConfigError for another target or version."""
    if target != APPBUILDER_TARGET:
        problem = f"{APPBUILDER_PROJECT} has no QNN libraries for target {target!r}"
        raise ConfigError(problem, choices=[APPBUILDER_TARGET])
    if version not in APPBUILDER_WHEELS:
        raise VersionError(f"unknown QNN version {version[:80]!r}", choices=appbuilder_versions())
    return WheelRequest(APPBUILDER_PROJECT, APPBUILDER_WHEELS[version], *_TAGS)
