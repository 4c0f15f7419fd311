"""`runtimes:` in devices.yaml: where libraries come from besides the package index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel
from pydantic_core import PydanticCustomError

from harness.device.lab.fields import LabName, Word
from harness.ground.errors import ConfigError
from harness.ground.facts.platforms import Target
from harness.ground.yaml_lines.document import Document
from harness.ground.yaml_lines.models import Text, entries_of, names_taken_twice

SourceKind = Literal["qairt", "folder", "aar", "maven"]

PACKAGE_INDEX: Final = "pypi"
"""The source that no lab has to name; it is asked last."""

# What each kind needs, and what it may have besides.
_FIELDS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = MappingProxyType(
    {
        "qairt": (frozenset({"path"}), frozenset({"toolchain"})),
        "folder": (frozenset({"path"}), frozenset({"version", "target"})),
        "aar": (frozenset({"path"}), frozenset({"version", "target"})),
        "maven": (frozenset({"coordinates", "repository"}), frozenset({"target"})),
    }
)
_OWN: Final = frozenset({"name", "kind"})
_URL = re.compile(r"https?://[!-~]{1,500}", re.ASCII)


def _source_name(text: str) -> str:
    if text == PACKAGE_INDEX:
        raise PydanticCustomError(
            "source", "is the name of a source that is always there: take another"
        )
    if text in ("latest", "all") or text[0].isdigit():
        raise PydanticCustomError("source", "is what a version looks like: take another")
    return text


def _repository(text: str) -> str:
    if "://" in text and not _URL.fullmatch(text):
        raise PydanticCustomError("repository", "must be a folder, or an http or https URL")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        parts = None
    if "://" in text and (parts is None or not parts.hostname):
        raise PydanticCustomError(
            "repository",
            "has no host, or a port that is no number; in user and password / ? # @ : are "
            "written %2F %3F %23 %40 %3A",
        )
    return text


class RuntimeSource(BaseModel, extra="forbid", frozen=True):
    """One more place that libraries come from."""

    name: Annotated[LabName, AfterValidator(_source_name)]
    """What stands in front of its versions: `--qnn NAME:2.31.0`, `--qnn NAME:latest`."""

    kind: SourceKind
    """qairt: an SDK tree, or a folder of them; folder: libraries that somebody put together;
    aar: one archive for Android; maven: an artifact of a Maven repository."""

    path: Text | None = None
    """The tree, folder or archive; relative to the folder of devices.yaml."""

    version: Word | None = None
    """The QNN version of a folder or AAR whose libraries do not tell it."""

    target: Target | None = None
    """What the libraries of a folder are built for if they do not tell it, or those of an archive
    if that is not android-arm64."""

    toolchain: Word | None = None
    """Which of several folders of an SDK for one target, e.g. aarch64-oe-linux-gcc9.3."""

    coordinates: Text | None = None
    """group:artifact, or group:artifact:version, e.g. com.qualcomm.qti:qnn-runtime."""

    repository: Annotated[Text, AfterValidator(_repository)] | None = None
    """A Maven repository: a folder (relative to that of devices.yaml), or an http(s) URL."""

    def located(self, folder: Path) -> Path:
        """Its folder or file as an absolute path, relative ones being below `folder`."""
        return (folder / Path(self.path or self.repository or "").expanduser()).absolute()


def mistakes_of_sources(document: Document) -> Iterator[ConfigError]:
    """What a source of its kind lacks or cannot have, and names that are taken twice."""
    sources = entries_of(document, "runtimes")
    yield from names_taken_twice(document, "runtimes", sources, "name")
    for index, entry in sources.items():
        kind = entry.get("kind")
        if not isinstance(kind, str) or kind not in _FIELDS:
            continue
        required, optional = _FIELDS[kind]
        for field in sorted(required):
            if entry.get(field) is None:
                yield document.mistake(
                    ("runtimes", index, field), f"is missing: a source of kind {kind} needs it"
                )
        known = RuntimeSource.model_fields.keys()
        for field in sorted(entry.keys() & (known - required - optional - _OWN)):
            if entry[field] is not None:
                yield document.mistake(
                    ("runtimes", index, field),
                    f"a source of kind {kind} has none",
                    sorted(required | optional),
                )
