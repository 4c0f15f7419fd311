"""A runtime out of a plain folder of libraries: whatever somebody has put together."""

from __future__ import annotations

from pathlib import Path

from harness.errors import ConfigError, VersionError
from harness.runtimes.device_sets import is_device_file
from harness.runtimes.ledger import Ledger
from harness.runtimes.local_tree import is_library, listed_files, local_runtime, telling_facts
from harness.runtimes.runtime import Runtime
from harness.runtimes.said_versions import (
    SaidVersion,
    given_version,
    library_target,
    library_version,
)

_DEPTH = 4


class FolderSource:
    """One folder with libraries for one target; a `Source`.

    Version and target are what the libraries say, unless they are given. Every library below it
    belongs to the runtime, also one that QNN has no part in.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        cache_root: Path,
        *,
        version: str | None = None,
        target: str | None = None,
    ) -> None:
        self.name = name
        self.origin = str(path)
        self._path = path
        self._ledger = Ledger(cache_root, path)
        self._version = version
        self._target = target
        self._said: tuple[SaidVersion, str] | None = None

    def versions(self, target: str) -> list[str]:
        """See `Source`."""
        said, own_target = self._look()
        return [said.version] if target == own_target else []

    def is_cached(self, version: str, target: str) -> bool:
        """See `Source`: it is on this computer."""
        return True

    def is_kept(self, version: str, target: str) -> bool:
        """See `Source`: it is on this computer."""
        return True

    def runtime(self, version: str, target: str) -> Runtime:
        """See `Source`."""
        said, own_target = self._look()
        if (version, target) != (said.version, own_target):
            raise VersionError(f"{self._path} has QNN {said.version} for {own_target} only")
        return local_runtime(
            self._files(),
            self._ledger,
            source=self.name,
            said=said,
            target=target,
            root=self._path,
        )

    def damage(self, version: str, target: str) -> list[str]:
        """See `Source`: what differs from when it was last used."""
        return self._ledger.changed(self._files())

    def _look(self) -> tuple[SaidVersion, str]:
        if self._said is None:
            facts = telling_facts(self._files())
            said = (
                given_version(self._version, f"runtimes.{self.name}.version")
                if self._version
                else library_version(facts)
            )
            target = self._target or library_target(facts)
            if said is None:
                raise self._untold("QNN version", "version")
            if target is None:
                raise self._untold("target", "target")
            self._said = said, target
        return self._said

    def _untold(self, what: str, field: str) -> ConfigError:
        return ConfigError(
            f"the libraries in {self._path} do not tell their {what}: list it in `runtimes` of "
            f"devices.yaml with a `{field}`",
            field=f"runtimes.{self.name}.{field}",
        )

    def _files(self) -> dict[str, Path]:
        field = f"runtimes.{self.name}.path"
        if not self._path.is_dir():
            raise ConfigError(f"{self._path} is not a folder", field=field)
        listed = listed_files(self._path, "lib", field=field, depth=_DEPTH)
        files = {
            name: path for name, path in listed.items() if is_library(name) or is_device_file(name)
        }
        if not files:
            raise ConfigError(f"{self._path} has no libraries", field=field)
        return files
