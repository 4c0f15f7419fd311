"""The manifest of an Android app: binary XML in an APK, protobuf in a bundle (.aab)."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from harness.containers.artefact import FileBytes
from harness.containers.open import LENGTH, WireField, last_field, nested, text_of
from harness.core.files import read_bounded, scratch_folder
from harness.models.compiler import own_environment

MAX_DEPTH: Final = 32
"""Most elements inside each other in a bundle's manifest."""

_WORKER: Final = Path(__file__).with_name("manifest_worker.py")
_CPU_S: Final = 5
_MEMORY_BYTES: Final = 512 << 20
_TEXT_BYTES: Final = 16 << 20
_ANDROID: Final = "{http://schemas.android.com/apk/res/android}"
_PREVIEW: Final = 10_000  # Build.VERSION_CODES.CUR_DEVELOPMENT
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class LibraryTag:
    """A <uses-native-library>, or a <uses-library>, which is for others; `parent` is its parent."""

    name: str
    required: bool
    tag: str
    parent: str

    @property
    def counts(self) -> bool:
        """True if the package manager treats it as a native library."""
        return (self.tag, self.parent) == ("uses-native-library", "application")


@dataclass(frozen=True)
class AppManifest:
    """Facts of a manifest, which is that of the app, of a split, or of a bundle's module.

    `split` is empty for the base. Flags are None if they are missing, or a resource decides them.
    """

    package: str
    split: str
    min_sdk: int
    target_sdk: int
    debuggable: bool | None
    extract_native_libs: bool | None
    libraries: tuple[LibraryTag, ...]

    def __str__(self) -> str:
        return f"{self.package}, {self.split or 'base'}"


def app_manifest(root: Element) -> AppManifest:
    """Return the facts of a manifest (pure). Raises ValueError for other documents."""
    if root.tag != "manifest":
        raise ValueError("its manifest has no element <manifest>")
    application, sdk = root.find("application"), root.find("uses-sdk")
    min_sdk = _sdk(sdk, "minSdkVersion", 1)
    return AppManifest(
        package=root.get("package", ""),
        split=root.get("split", ""),
        min_sdk=min_sdk,
        target_sdk=_sdk(sdk, "targetSdkVersion", min_sdk),
        debuggable=_BOOLEANS.get(_attribute(application, "debuggable")),
        extract_native_libs=_BOOLEANS.get(_attribute(application, "extractNativeLibs")),
        libraries=tuple(_library_tags(root)),
    )


def _library_tags(root: Element) -> Iterator[LibraryTag]:
    for parent in root.iter():
        for tag in parent:
            if tag.tag in ("uses-native-library", "uses-library"):
                required = _BOOLEANS.get(_attribute(tag, "required")) is not False
                yield LibraryTag(_attribute(tag, "name"), required, tag.tag, parent.tag)


def _attribute(element: Element | None, name: str) -> str:
    return "" if element is None else element.get(_ANDROID + name, "")


def _sdk(element: Element | None, name: str, default: int) -> int:
    text = _attribute(element, name)
    if not text or text.startswith("@"):
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else _PREVIEW


def read_binary_manifest(content: bytes) -> AppManifest:
    """Return the facts of an APK's manifest. Raises ValueError, OSError.

    Another process turns it into text, since apk-info takes any memory.
    """
    text = _text_of(content)
    if "<!" in text:  # apk-info writes no document type, and no comment
        raise ValueError("a name in its manifest has invalid characters")
    try:
        return app_manifest(ElementTree.fromstring(text))
    except ElementTree.ParseError as error:
        raise ValueError(f"its manifest is not XML: {error}") from error


def _text_of(content: bytes) -> str:
    with scratch_folder() as folder:
        archive, text = folder / "manifest.apk", folder / "manifest.xml"
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("AndroidManifest.xml", content)
        limits = map(str, (_CPU_S, _MEMORY_BYTES))
        command = [sys.executable, "-P", "-B", str(_WORKER), str(archive), str(text), *limits]
        child = subprocess.run(command, env=own_environment(), capture_output=True, check=False)
        if child.returncode == 0:
            return read_bounded(text, _TEXT_BYTES).decode("utf-8", "replace")
    reason = child.stderr.decode("utf-8", "replace").strip().partition("\n")[0][:300]
    too_much = f"reading its manifest takes more than {_CPU_S} s or {_MEMORY_BYTES >> 20} MiB"
    raise ValueError(reason or too_much)


# numbers of fields in aapt2's Resources.proto
_ELEMENT, _NAME, _ATTRIBUTE, _CHILD = 1, 3, 4, 5
_URI, _KEY, _VALUE = 1, 2, 3
_DECIMAL, _BOOLEAN = (6, 7, 6), (6, 7, 8)  # of a compiled value, whose text may be missing


def read_proto_manifest(path: Path) -> AppManifest:
    """Return the facts of a bundle's manifest. Raises ValueError, ArtefactError."""
    with FileBytes(path) as data:
        top = Element("")
        _add_node(data, WireField(0, LENGTH, 0, 0, data.size), top, MAX_DEPTH)
    return app_manifest(next(iter(top), top))


def _add_node(data: FileBytes, node: WireField, parent: Element, depth: int) -> None:
    if not depth:
        raise ValueError(f"its manifest nests more than {MAX_DEPTH} elements")
    for part in nested(data, node, _ELEMENT):
        element = ElementTree.SubElement(parent, text_of(data, last_field(data, part, _NAME)))
        for attribute in nested(data, part, _ATTRIBUTE):
            key, value, uri = (
                text_of(data, last_field(data, attribute, number))
                for number in (_KEY, _VALUE, _URI)
            )
            if not value and (number := last_field(data, attribute, *_DECIMAL)):
                value = str(number.value)
            elif not value and (flag := last_field(data, attribute, *_BOOLEAN)):
                value = "true" if flag.value else "false"
            element.set(f"{{{uri}}}{key}" if uri else key, value)
        for child in nested(data, part, _CHILD):
            _add_node(data, child, element, depth - 1)
