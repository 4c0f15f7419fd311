"""The manifest of an Android app: binary XML in an APK, protobuf in a bundle (.aab)."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from harness.containers.artefact import ArtefactError, FileBytes
from harness.containers.open import LENGTH, VARINT, WireField, fields
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.files import read_bounded, scratch_folder
from harness.core.guarded_process import spawn_guarded
from harness.models.compiler import output_text, own_environment, worker_command

MAX_BYTES: Final = 1 << 20
"""The largest manifest that is read."""
MAX_DEPTH: Final = 32
MAX_ELEMENTS: Final = 20_000

_WORKER: Final = Path(__file__).with_name("manifest_worker.py")
_CPU_S: Final = 5
_WAIT_S: Final = 60.0
_MEMORY_BYTES: Final = 512 << 20
_TEXT_BYTES: Final = 32 << 20
_ANDROID: Final = "{http://schemas.android.com/apk/res/android}"
_PREVIEW: Final = 10_000  # Build.VERSION_CODES.CUR_DEVELOPMENT
_DEFAULT_SDK: Final = 1


class ManifestError(ConfigError):
    """A manifest that cannot be read."""


@dataclass(frozen=True)
class Element:
    """An element: its tag, that of its parent, its attributes, and its line in the source.

    Attributes have their names without a namespace. Only bundles have lines.
    """

    tag: str
    parent: str
    attributes: Mapping[str, str]
    line: int | None = None


@dataclass(frozen=True)
class LibraryTag:
    """A <uses-native-library>, or a <uses-library>, whose name is that of a native one."""

    name: str
    required: bool
    tag: str
    parent: str
    line: int | None = None

    @property
    def counts(self) -> bool:
        """Whether the package manager takes it for a native library."""
        return (self.tag, self.parent) == ("uses-native-library", "application")


@dataclass(frozen=True)
class AppManifest:
    """What a manifest says of the app, or of the split or module that it is of.

    `split` is empty for the base. Values are None if they are missing, or a resource that decides.
    `line` is that of <application>.
    """

    package: str
    split: str = ""
    min_sdk: int = _DEFAULT_SDK
    target_sdk: int = _DEFAULT_SDK
    debuggable: bool | None = None
    extract_native_libs: bool | None = None
    libraries: tuple[LibraryTag, ...] = ()
    line: int | None = None


def app_manifest(elements: Sequence[Element]) -> AppManifest:
    """Return the facts in the elements of a manifest (pure). Raises ValueError without a root."""
    root = next((element for element in elements if not element.parent), None)
    if root is None or root.tag != "manifest":
        raise ValueError("it has no element <manifest>")
    named: dict[str, Element] = {}
    for element in elements:
        if element.parent == "manifest":
            named.setdefault(element.tag, element)
    sdk = named["uses-sdk"].attributes if "uses-sdk" in named else {}
    application = named.get("application", Element("application", "manifest", {}))
    min_sdk = _sdk(sdk.get("minSdkVersion"), _DEFAULT_SDK)
    return AppManifest(
        package=root.attributes.get("package", ""),
        split=root.attributes.get("split", ""),
        min_sdk=min_sdk,
        target_sdk=_sdk(sdk.get("targetSdkVersion"), min_sdk),
        debuggable=_boolean(application.attributes.get("debuggable")),
        extract_native_libs=_boolean(application.attributes.get("extractNativeLibs")),
        libraries=tuple(_library_tags(elements)),
        line=application.line,
    )


def _library_tags(elements: Sequence[Element]) -> Iterator[LibraryTag]:
    for element in elements:
        name = element.attributes.get("name", "")
        native = element.tag == "uses-native-library"
        if native or (element.tag == "uses-library" and name.startswith("lib")):
            required = _boolean(element.attributes.get("required")) is not False
            yield LibraryTag(name, required, element.tag, element.parent, element.line)


def _sdk(text: str | None, default: int) -> int:
    if not text or text.startswith("@"):
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else _PREVIEW


def _boolean(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get(text or "")


def read_binary_manifest(content: bytes, file: Path) -> AppManifest:
    """Return the facts of an APK's manifest; `file` is that for errors. Raises ManifestError.

    Another process turns it into text: its reader takes any memory.
    """
    try:
        return app_manifest(list(_elements(_text_of(content))))
    except (ValueError, ElementTree.ParseError, OSError) as error:
        raise ManifestError(f"its AndroidManifest.xml is damaged: {error}", file=file) from error


def _text_of(content: bytes) -> str:
    with scratch_folder() as folder, tempfile.TemporaryFile() as output:
        archive, made, refusal = (folder / name for name in ("a.apk", "made", "refusal"))
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("AndroidManifest.xml", content)
        files = {"archive": archive, "made": made, "refusal": refusal}
        request = {**files, "most_cpu_s": _CPU_S, "most_bytes": _MEMORY_BYTES}
        command = worker_command(_WORKER, folder, request)
        with spawn_guarded(
            command, env=own_environment(), cwd=folder, stdout=output, stderr=output
        ) as child:
            code = child.wait(Deadline(_WAIT_S))
        if code == 0 and refusal.exists():
            raise ValueError(read_bounded(refusal, 1 << 16).decode("utf-8", "replace"))
        if code != 0 or not made.exists():
            ending = "was stopped" if code is None else f"ended with exit code {code}"
            last = output_text(output).strip().splitlines()[:1] or ["it wrote nothing"]
            raise ValueError(
                f"a process that may take {_CPU_S} s and {_MEMORY_BYTES >> 20} MiB to read it "
                f"{ending}: {last[0][:200]}"
            )
        return read_bounded(made, _TEXT_BYTES).decode("utf-8", "replace")


def _elements(text: str) -> Iterator[Element]:
    if "<!" in text:  # no reader of manifests writes a document type, or a comment
        raise ValueError("a name in it has characters that no name has")
    pending = [(ElementTree.fromstring(text), "", 0)]
    count = 0
    while pending:
        node, parent, depth = pending.pop()
        count += 1
        _require_usual(count, depth)
        attributes = {
            name.removeprefix(_ANDROID): value
            for name, value in node.attrib.items()
            if not name.startswith("{") or name.startswith(_ANDROID)
        }
        yield Element(node.tag, parent, attributes)
        pending += [(child, node.tag, depth + 1) for child in reversed(node)]


def _require_usual(count: int, depth: int) -> None:
    if depth > MAX_DEPTH or count > MAX_ELEMENTS:
        raise ValueError(f"it has more than {MAX_ELEMENTS} elements, or {MAX_DEPTH} in each other")


# numbers of fields in aapt2's Resources.proto
_NODE_ELEMENT, _NODE_SOURCE, _LINE = 1, 3, 1
_ELEMENT_NAME, _ELEMENT_ATTRIBUTE, _ELEMENT_CHILD = 3, 4, 5
_ATTRIBUTE_URI, _ATTRIBUTE_NAME, _ATTRIBUTE_VALUE, _ATTRIBUTE_ITEM = 1, 2, 3, 6
_ITEM_PRIMITIVE, _DECIMAL, _BOOLEAN = 7, 6, 8


def read_proto_manifest(path: Path, file: Path) -> AppManifest:
    """Return the facts of a bundle's manifest at `path`. Raises ManifestError about `file`."""
    try:
        with FileBytes(path) as data:
            elements: list[Element] = []
            _add_node(data, WireField(0, LENGTH, 0, 0, data.size), "", elements, 0)
        return app_manifest(elements)
    except (ValueError, ArtefactError) as error:
        problem = getattr(error, "problem", error)
        raise ManifestError(f"its AndroidManifest.xml is damaged: {problem}", file=file) from error


def _add_node(
    data: FileBytes, node: WireField, parent: str, elements: list[Element], depth: int
) -> None:
    _require_usual(len(elements), depth)
    parts = _parts(data, node, "a node")
    line = _last(_parts(data, source, "a source") for source in parts.get(_NODE_SOURCE, ()))
    for element in parts.get(_NODE_ELEMENT, ()):
        inner = _parts(data, element, "an element")
        tag = "".join(_text(data, name) for name in inner.get(_ELEMENT_NAME, ())[-1:])
        attributes = dict(_attribute(data, item) for item in inner.get(_ELEMENT_ATTRIBUTE, ()))
        number = line.get(_LINE, ())[-1:]
        elements.append(Element(tag, parent, attributes, number[0].value if number else None))
        for child in inner.get(_ELEMENT_CHILD, ()):
            _add_node(data, child, tag, elements, depth + 1)


def _attribute(data: FileBytes, item: WireField) -> tuple[str, str]:
    parts = _parts(data, item, "an attribute")
    uri, name, value = (
        "".join(_text(data, part) for part in parts.get(number, ())[-1:])
        for number in (_ATTRIBUTE_URI, _ATTRIBUTE_NAME, _ATTRIBUTE_VALUE)
    )
    compiled = _last(_parts(data, part, "a value") for part in parts.get(_ATTRIBUTE_ITEM, ()))
    primitive = _last(_parts(data, part, "a value") for part in compiled.get(_ITEM_PRIMITIVE, ()))
    # the text may be missing beside a compiled value
    for part in primitive.get(_DECIMAL, ()) if not value else ():
        value = str(part.value)
    for part in primitive.get(_BOOLEAN, ()) if not value else ():
        value = "true" if part.value else "false"
    return (name if not uri or f"{{{uri}}}" == _ANDROID else f"{uri}:{name}"), value


def _last(groups: Iterator[dict[int, list[WireField]]]) -> dict[int, list[WireField]]:
    return next(iter([*groups][-1:]), {})


def _parts(data: FileBytes, part: WireField, label: str) -> dict[int, list[WireField]]:
    """Return the fields of a message by number, messages and texts, and varints."""
    grouped: dict[int, list[WireField]] = {}
    for field in fields(data, part.offset, part.size, label):
        if field.wire in (LENGTH, VARINT):
            grouped.setdefault(field.number, []).append(field)
    return grouped


def _text(data: FileBytes, part: WireField) -> str:
    return data.read(part.offset, part.size, "a name").decode("utf-8", "replace")
