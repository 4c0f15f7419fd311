"""QAIRT SDKs behind a URL: archives that are kept in the cache, and unpacked for each target.

An archive has one tree (qairt/2.44.0.260225/lib/aarch64-android/...), and 1.5 GB. Only the files
that devices use are unpacked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.core.archive import ArchiveLimits, names_of, unpack, unpack_once
from harness.core.errors import InfraError, VersionError
from harness.core.outgoing_text import outgoing, without_secrets
from harness.core.verified_folder import MANIFEST, FetchedFile, FetchedFiles, find_damage
from harness.core.versions import QnnVersion
from harness.runtimes.download import Bounds, NotOnServer, download
from harness.runtimes.local_sources import SDK_TARGETS, SdkSource, sdk_files, sdk_version
from harness.runtimes.runtime import LibrarySource, Runtime, version_key

QAIRT: Final = "qairt"
VERSION_FIELD: Final = "{version}"
COMMUNITY_URL: Final = (
    "https://softwarecenter.qualcomm.com/api/download/software/sdks/Qualcomm_AI_Runtime_Community"
    "/All/{version}/v{version}.zip"
)
"""Qualcomm's SDKs without a login, as the CI of ExecuTorch and of LiteRT downloads them."""

BOUNDS: Final = Bounds(max_bytes=8 << 30, timeout_s=4 * 3600.0)
"""Enough for 1.5 GB over 1 Mbit/s."""

LIMITS: Final = ArchiveLimits(
    members=50_000,
    directory_bytes=10 << 20,
    archive_bytes=BOUNDS.max_bytes,
    zip64=True,
    judged=lambda _: False,
)
_LAYOUT: Final = 1


class QairtUrlSource(LibrarySource):
    """SDKs behind a URL with `{version}` in it.

    Any whole version may be named; `versions` has those in `sha256` and those in the cache. An
    archive must have the hash in `sha256`, else the one that it had when it was first fetched.
    """

    example = "2.47.0.260601"

    def __init__(
        self, name: str, url: str, cache_root: Path, *, sha256: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.origin = name, outgoing(url)
        self._url, self._cache_root, self._sha256 = url, cache_root, sha256 or {}
        key = hashlib.sha256(without_secrets(url).encode()).hexdigest()[:16]
        self._root = cache_root / "qairt" / key
        self._files = FetchedFiles(self._root, timeout_s=BOUNDS.timeout_s)

    def versions(self, target: str) -> list[str]:
        if target not in SDK_TARGETS:
            return []
        unpacked = {path.parent.name for path in self._root.glob(f"{target}/[0-9]*/{MANIFEST}")}
        return sorted(unpacked | self._sha256.keys(), key=version_key)

    def is_cached(self, version: str, target: str) -> bool:
        return self._files.is_cached(f"v{version}.zip")

    def runtime(self, version: str, target: str) -> Runtime:
        title = f"{self.name}:{version}"
        try:
            archive = self._archive(version, target, title)
            tree, names = sdk_files(names_of(archive.path, LIMITS), target)
            if not names:
                raise VersionError(f"{title} has no libraries for {target}")
            facts = {"layout": _LAYOUT, "archive": archive.sha256, "names": sorted(names)}
            folder = self._folder(version, target)
            wanted = names.__contains__
            limits = replace(LIMITS, judged=wanted)
            unpack_once(
                archive.path, folder, facts, wanted, lambda *_: {}, title=title, limits=limits
            )
        except NotOnServer as error:
            raise VersionError(f"there is no {title}: {error}") from error
        except InfraError as error:
            raise InfraError(f"{title}: {error}") from error
        sdk = SdkSource(self.name, folder / tree, self._cache_root, field=title)
        (its_version,) = sdk.versions(target)
        return replace(sdk.runtime(its_version, target), qnn_version=version)

    def damage(self, version: str, target: str) -> list[str]:
        archive = self._files.damage(f"v{version}.zip", self._sha256.get(version))
        return [*archive, *find_damage(self._folder(version, target))]

    def _folder(self, version: str, target: str) -> Path:
        return self._root / target / version

    def _archive(self, version: str, target: str, title: str) -> FetchedFile:
        name = f"v{version}.zip"

        def bring(folder: Path) -> Path:
            part = self._files.path(f"{name}.part")
            download(self._url.replace(VERSION_FIELD, version), part, BOUNDS)
            archive = part.replace(folder / name)
            names = names_of(archive, LIMITS)
            sdks = (sdk_files(names, each) for each in (target, *SDK_TARGETS))
            if (sdk := next((sdk for sdk in sdks if sdk[1]), None)) is None:
                raise InfraError(f"{name} is not a QAIRT SDK: it has no lib/aarch64-android/")
            tree, wanted = sdk[0], sdk[1].__contains__
            (trial := folder / "unpacked").mkdir()
            unpack(archive, trial, wanted, replace(LIMITS, judged=wanted))
            own, named = QnnVersion.found_in(sdk_version(trial / tree)), QnnVersion.parse(version)
            if own is None or not (named.matches(own) or own.matches(named)):
                other = f"QAIRT {own or 'of an unknown version'}"
                raise InfraError(f"{self.origin} has {other} under the name of {version}")
            return archive

        pinned = self._sha256.get(version) or self._files.noted_sha256(name)
        return self._files.get(name, bring, title=title, expected=pinned)
