"""From the user's words to sources: `runtimes:` of devices.yaml, the environment, a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from harness.errors import ConfigError
from harness.lab.runtime_sources import PACKAGE_INDEX, RuntimeSource
from harness.runtimes.aar import AAR_TARGET, AarSource
from harness.runtimes.maven import MavenSource
from harness.runtimes.maven_files import QNN_RUNTIME, Coordinates
from harness.runtimes.notices import Say
from harness.runtimes.plain_folder import FolderSource
from harness.runtimes.sdk_tree import SdkSource, holds_sdk, sdk_of_environment
from harness.runtimes.source import Source

SDK_NAME: Final = "sdk"
"""What the tree is called that QAIRT_SDK_ROOT or QNN_SDK_ROOT names."""


def described_sources(
    described: Iterable[RuntimeSource],
    folder: Path,
    environment: Mapping[str, str],
    cache_root: Path,
    *,
    notify: Say,
    warn: Say,
) -> list[Source]:
    """The sources of devices.yaml, whose folder is `folder`, and the environment's SDK after them.

    Nothing is opened yet. Raises ConfigError for coordinates that are none.
    """
    made = [_described(one, folder, cache_root, notify=notify, warn=warn) for one in described]
    sdk = sdk_of_environment(environment)
    if sdk is not None and SDK_NAME not in {source.name for source in made}:
        variable, path = sdk
        made.append(SdkSource(SDK_NAME, path.expanduser().absolute(), cache_root, field=variable))
    return made


def source_at(
    path: Path, taken: Collection[str], cache_root: Path, *, notify: Say, warn: Say
) -> Source:
    """The source that a path is: an AAR, a QAIRT tree, a Maven repository or a plain folder.

    Its name is made of the path's last part, and is none of `taken`. Raises ConfigError if there
    is nothing of that kind.
    """
    path = path.expanduser().absolute()
    name = _free_name(path, {*taken, PACKAGE_INDEX})
    if path.is_file() and path.suffix.lower() == ".aar":
        return AarSource(name, path, cache_root, notify=notify, warn=warn)
    if not path.is_dir():
        what = "is neither a folder nor an AAR" if path.exists() else "does not exist"
        raise ConfigError(f"{path} {what}")
    if holds_sdk(path):
        return SdkSource(name, path, cache_root)
    coordinates = Coordinates.parse(QNN_RUNTIME)
    if (path / coordinates.folder).is_dir():
        return MavenSource(name, coordinates, path, cache_root, notify=notify, warn=warn)
    return FolderSource(name, path, cache_root)


def _described(
    one: RuntimeSource, folder: Path, cache_root: Path, *, notify: Say, warn: Say
) -> Source:
    place = one.located(folder)
    makers: Mapping[str, Callable[[], Source]] = {
        "qairt": lambda: SdkSource(one.name, place, cache_root, toolchain=one.toolchain),
        "folder": lambda: FolderSource(
            one.name, place, cache_root, version=one.version, target=one.target
        ),
        "aar": lambda: AarSource(
            one.name,
            place,
            cache_root,
            version=one.version,
            target=one.target or AAR_TARGET,
            notify=notify,
            warn=warn,
        ),
        "maven": lambda: MavenSource(
            one.name,
            _coordinates(one),
            one.repository or "" if one.is_remote else place,
            cache_root,
            target=one.target or AAR_TARGET,
            notify=notify,
            warn=warn,
        ),
    }
    return makers[one.kind]()


def _coordinates(one: RuntimeSource) -> Coordinates:
    try:
        return Coordinates.parse(one.coordinates or "")
    except ConfigError as error:
        field = f"runtimes.{one.name}.coordinates"
        raise ConfigError(error.problem, field=field) from error


def _free_name(path: Path, taken: Collection[str]) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", path.name.removesuffix(".aar").lower()).strip("-.")
    plain = plain[:40] or "folder"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name
