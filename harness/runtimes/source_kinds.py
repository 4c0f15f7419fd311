"""The kinds of sources that devices.yaml can name in `runtimes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from harness.core.errors import ConfigError
from harness.core.socs import Target
from harness.core.yaml_document import Text, in_schema, matching
from harness.lab.config_fields import RuntimeSource, SourceName, Word
from harness.runtimes.aar import AAR_TARGET, AarSource, MavenSource
from harness.runtimes.local_sources import FolderSource, SdkSource
from harness.runtimes.maven_repository import QNN_RUNTIME, Coordinates
from harness.runtimes.qairt_url import COMMUNITY_URL, QAIRT, VERSION_FIELD, QairtUrlSource

_URL: Final = re.compile(
    r"https?://(?:[^\s/?#@]{1,200}@)?(?:[\w.-]{1,253}|\[[\da-f.:]{2,45}\])(?::\d{1,5})?"
    r"(?:[/?#][!-~]{0,500})?",
    re.ASCII | re.IGNORECASE,
)


def _repository(text: str) -> str:
    if "://" in text and not _URL.fullmatch(text):
        raise PydanticCustomError(
            "repository",
            "must be a folder, or an http or https URL; in its user and password, write / ? # @ : "
            "as %2F %3F %23 %40 %3A",
        )
    return text


def _archives(text: str) -> str:
    if not _URL.fullmatch(text) or VERSION_FIELD not in text:
        problem = "must be an http or https URL with {field} in it, as in {url}"
        context = {"field": VERSION_FIELD, "url": COMMUNITY_URL}
        raise PydanticCustomError("archives", problem, context)
    return text


def _below(folder: Path, path: str) -> Path:
    return (folder / Path(path).expanduser()).absolute()


class SdkTree(RuntimeSource):
    """An SDK tree of QAIRT, or a folder of them."""

    kind: Literal["qairt"]

    path: Text
    """The tree or folder; relative to the folder of devices.yaml."""

    toolchain: Word | None = None
    """The folder, if an SDK has several for a target, such as aarch64-oe-linux-gcc9.3."""

    def open(self, folder: Path, cache_root: Path) -> SdkSource:
        return SdkSource(self.name, _below(folder, self.path), cache_root, toolchain=self.toolchain)


class LibraryFolder(RuntimeSource):
    """A folder with a set of libraries."""

    kind: Literal["folder"]

    path: Text
    """The folder; relative to that of devices.yaml."""

    version: Word | None = None
    """The QNN version, if the libraries do not tell it."""

    target: Target | None = None
    """The target of the libraries, if it cannot be read from them."""

    def open(self, folder: Path, cache_root: Path) -> FolderSource:
        path = _below(folder, self.path)
        return FolderSource(self.name, path, cache_root, version=self.version, target=self.target)


class AndroidArchive(RuntimeSource):
    """An AAR, the archive format of Android libraries."""

    kind: Literal["aar"]

    path: Text
    """The archive; relative to the folder of devices.yaml."""

    def open(self, folder: Path, cache_root: Path) -> AarSource:
        return AarSource(self.name, _below(folder, self.path), cache_root)


class MavenArtifact(RuntimeSource):
    """qnn-runtime of a Maven repository."""

    kind: Literal["maven"]

    coordinates: Text
    """com.qualcomm.qti:qnn-runtime, or com.qualcomm.qti:qnn-runtime:VERSION for one version."""

    repository: Annotated[Text, AfterValidator(_repository)]
    """A folder (relative to that of devices.yaml), or an http(s) URL."""

    target: Target = AAR_TARGET
    """The target of the libraries."""

    def open(self, folder: Path, cache_root: Path) -> MavenSource:
        try:
            coordinates = Coordinates.parse(self.coordinates)
        except ConfigError as error:
            raise ConfigError(error.problem, field=f"runtimes.{self.name}.coordinates") from error
        if "onnxruntime" in coordinates.artifact:
            problem = "must be an artifact of QNN; for an ORT use --ort=FILE.aar"
            field = f"runtimes.{self.name}.coordinates"
            raise ConfigError(problem, field=field, choices=[QNN_RUNTIME])
        is_url = "://" in self.repository
        location = self.repository if is_url else _below(folder, self.repository)
        return MavenSource(self.name, coordinates, location, cache_root, target=self.target)


_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_is_sha256 = matching(_SHA256, "sha256", "must be 64 hexadecimal digits in lower case")


Sha256 = Annotated[Text, AfterValidator(_is_sha256), in_schema(_SHA256)]


class SdkArchives(RuntimeSource):
    """QAIRT SDKs as zip archives behind a URL."""

    kind: Literal["qairt-url"]

    name: SourceName = QAIRT

    url: Annotated[Text, AfterValidator(_archives)] = COMMUNITY_URL
    """The URL of an archive, with `{version}` in place of its version."""

    sha256: Mapping[Word, Sha256] = Field(default_factory=dict)
    """The hashes of archives by version; others must stay as they are when first fetched."""

    def open(self, folder: Path, cache_root: Path) -> QairtUrlSource:
        return QairtUrlSource(self.name, self.url, cache_root, sha256=self.sha256)


KINDS: Final = (SdkTree, LibraryFolder, AndroidArchive, MavenArtifact, SdkArchives)
