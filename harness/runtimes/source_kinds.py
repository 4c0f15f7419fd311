"""The kinds of sources that devices.yaml can name in `runtimes`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from harness.core.errors import ConfigError
from harness.core.socs import Target
from harness.core.yaml_document import Text
from harness.lab.config_fields import RuntimeSource, Word
from harness.runtimes.aar import AAR_TARGET, AarSource, MavenSource
from harness.runtimes.local_sources import FolderSource, SdkSource
from harness.runtimes.maven_repository import QNN_RUNTIME, Coordinates

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


def _below(folder: Path, path: str) -> Path:
    return (folder / Path(path).expanduser()).absolute()


class SdkTree(RuntimeSource):
    """An SDK tree of QAIRT, or a folder of them."""

    kind: Literal["qairt"]

    path: Text
    """The tree or folder; relative to the folder of devices.yaml."""

    toolchain: Word | None = None
    """Which of several folders of an SDK for one target, e.g. aarch64-oe-linux-gcc9.3."""

    def open(self, folder: Path, cache_root: Path) -> SdkSource:
        path = _below(folder, self.path)
        return SdkSource(self.name, path, cache_root, toolchain=self.toolchain)


class LibraryFolder(RuntimeSource):
    """Libraries that somebody put together."""

    kind: Literal["folder"]

    path: Text
    """The folder; relative to that of devices.yaml."""

    version: Word | None = None
    """The QNN version, if the libraries do not tell it."""

    target: Target | None = None
    """What the libraries are built for, if they do not tell it."""

    def open(self, folder: Path, cache_root: Path) -> FolderSource:
        path = _below(folder, self.path)
        return FolderSource(self.name, path, cache_root, version=self.version, target=self.target)


class AndroidArchive(RuntimeSource):
    """One archive for Android."""

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
    """What the libraries are built for."""

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


KINDS: Final = (SdkTree, LibraryFolder, AndroidArchive, MavenArtifact)
