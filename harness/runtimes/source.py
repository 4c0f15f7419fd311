"""What every source of runtimes can do, whichever kind it is."""

from __future__ import annotations

from typing import Protocol

from harness.errors import ConfigError
from harness.qnn.versions import QnnVersion
from harness.runtimes.runtime import Runtime


class Source(Protocol):
    """A place that runtimes come from.

    `versions` and `is_cached` fetch nothing but lists; `runtime` fetches and unpacks what it
    needs. All raise ConfigError where the description of the source is wrong (no such folder, a
    version that it does not have) and InfraError where the lab is (network, disk, damaged files).
    """

    @property
    def name(self) -> str:
        """What users call it, and what stands in front of its versions."""

    @property
    def origin(self) -> str:
        """Where that is, for people: a path, a URL, a project."""

    def versions(self, target: str) -> list[str]:
        """The versions for a target, oldest first; none for a target it has nothing for."""

    def is_cached(self, version: str, target: str) -> bool:
        """Whether a runtime can be had without a network."""

    def is_kept(self, version: str, target: str) -> bool:
        """Whether anything of a runtime is on this computer, be it damaged."""

    def runtime(self, version: str, target: str) -> Runtime:
        """The runtime of an exact version of `versions`, checked."""

    def damage(self, version: str, target: str) -> list[str]:
        """What is not as it was when it was kept, every byte read; nothing is repaired."""


def version_key(version: str) -> tuple[tuple[int, ...], str]:
    """Sorts versions as versions; what is none comes first."""
    try:
        return QnnVersion.parse(version.split("_")[0]).parts, version
    except ConfigError:
        return (), version
