"""Android apps made for tests: binary and protobuf manifests, aligned archives, a healthy app."""

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.runtimes.elf_files import elf_file

ANDROID = "http://schemas.android.com/apk/res/android"
# numbers of android.R.attr
ATTRIBUTES = {
    "name": 0x01010003,
    "debuggable": 0x0101000F,
    "minSdkVersion": 0x0101020C,
    "targetSdkVersion": 0x01010270,
    "required": 0x0101028E,
    "extractNativeLibs": 0x010104EA,
}
NONE = 0xFFFFFFFF
BUILD = b"\0v2.51.0.260929181845\0"
OTHER_BUILD = b"\0v2.50.40.260831140417\0"
ASKS = b"\0QnnInterface_getProviders\0"
PAGES = 16384
LIB = "lib/arm64-v8a/"
CONTEXT = b"\0\0\0\2\0\0\0\3" + bytes(200)

Node = tuple[str, Mapping[str, Any], Sequence[Any]]


def manifest(
    *tags: Node,
    split: str | None = None,
    package: str = "com.example",
    min_sdk: object = 29,
    target: object = 35,
    debuggable: object = None,
    extract: object = True,
    within: str = "application",
) -> Node:
    """A manifest; by default libcdsprpc.so is declared, and libraries are unpacked."""
    tags = tags or (("uses-native-library", {"name": "libcdsprpc.so", "required": False}, ()),)
    flags = {"debuggable": debuggable, "extractNativeLibs": extract}
    flags = {name: value for name, value in flags.items() if value is not None}
    inner = tags if within == "application" else ()
    outer = () if within == "application" else tags
    sdk = {"minSdkVersion": min_sdk, "targetSdkVersion": target}
    sdk = {name: value for name, value in sdk.items() if value is not None}
    root = {"package": package} | ({"split": split} if split else {})
    children = [("uses-sdk", sdk, ()), ("application", flags, inner), *outer]
    return ("manifest", root, children)


def axml(root: Node) -> bytes:
    """Binary XML as aapt2 writes it (AOSP's ResourceTypes.h)."""
    strings = [name for name in ATTRIBUTES if name in set(_names(root))]
    ids = struct.pack(f"<{len(strings)}I", *(ATTRIBUTES[name] for name in strings))

    def index(text: str) -> int:
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    def chunk(kind: int, content: bytes) -> bytes:
        return struct.pack("<HHIII", kind, 16, 16 + len(content), 1, NONE) + content

    def element(node: Node) -> bytes:
        tag, attributes, children = node
        content = b""
        for name, value in attributes.items():
            namespace = index(ANDROID) if name in ATTRIBUTES else NONE
            text = index(value) if isinstance(value, str) else NONE
            kind, data = 3, text
            if isinstance(value, bool):
                kind, data = 0x12, NONE if value else 0
            elif isinstance(value, int):
                kind, data = 0x10, value
            content += struct.pack("<IIIHBBI", namespace, index(name), text, 8, 0, kind, data)
        head = struct.pack("<II6H", NONE, index(tag), 20, 20, len(attributes), 0, 0, 0)
        inner = b"".join(map(element, children))
        return chunk(0x102, head + content) + inner + chunk(0x103, head[:8])

    prefix = struct.pack("<II", index("android"), index(ANDROID))
    nodes = chunk(0x100, prefix) + element(root) + chunk(0x101, prefix)
    data, offsets = b"", []
    for text in strings:
        offsets.append(len(data))
        data += struct.pack("<H", len(text)) + text.encode("utf-16-le") + b"\0\0"
    data += bytes(-len(data) % 4)
    pool = string_pool(offsets, data)
    resources = struct.pack("<HHI", 0x180, 8, 8 + len(ids)) + ids
    return document(pool + resources + nodes)


def document(content: bytes) -> bytes:
    return struct.pack("<HHI", 3, 8, 8 + len(content)) + content


def string_pool(offsets: Sequence[int], data: bytes) -> bytes:
    start = 28 + 4 * len(offsets)
    head = struct.pack("<HHIIIIII", 1, 28, start + len(data), len(offsets), 0, 0, start, 0)
    return head + struct.pack(f"<{len(offsets)}I", *offsets) + data


def _names(node: Node) -> Iterator[str]:
    yield from node[1]
    for child in node[2]:
        yield from _names(child)


def message(*parts: tuple[int, bytes | str | int]) -> bytes:
    """A protobuf message: numbers of fields and values."""
    content = b""
    for number, value in parts:
        if isinstance(value, int):
            content += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            content += varint(number << 3 | 2) + varint(len(value)) + value
    return content


def varint(number: int) -> bytes:
    content = b""
    while number > 0x7F:
        content, number = content + bytes([number & 0x7F | 0x80]), number >> 7
    return content + bytes([number])


def proto(root: Node, line: int = 1, *, compiled: bool = False) -> bytes:
    """The same as `axml` in protobuf, as bundles have it; `compiled`: values without their text."""
    tag, attributes, children = root
    parts: list[tuple[int, bytes | str | int]] = [(3, tag)]
    for name, value in attributes.items():
        uri = [(1, ANDROID)] if name in ATTRIBUTES else []
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if compiled and isinstance(value, int):
            primitive = (8, int(value)) if isinstance(value, bool) else (6, value)
            item = message((7, message(primitive)))
            parts.append((4, message(*uri, (2, name), (6, item))))
        else:
            parts.append((4, message(*uri, (2, name), (3, text))))
    for number, child in enumerate(children):
        parts.append((5, proto(child, line + 1 + number, compiled=compiled)))
    return message((1, message(*parts)), (3, message((1, line))))


def library(content: bytes = BUILD, machine: str = "aarch64", **more: Any) -> bytes:
    options: dict[str, Any] = {"needed": ["libc.so"], "pages": PAGES} | more
    return elf_file(machine, content=content, **options)


def skel(content: bytes = BUILD) -> bytes:
    return library(content, "hexagon", bits=32, flags=0x73, needed=["libc.so"], pages=4096)


def stub(content: bytes = BUILD) -> bytes:
    return library(content, needed=["libc.so", "libcdsprpc.so"])


def healthy() -> dict[str, bytes]:
    """The entries of an app that has no finding, without its manifest."""
    return {
        f"{LIB}libQnnHtp.so": library(),
        f"{LIB}libQnnHtpPrepare.so": library(),
        f"{LIB}libQnnHtpV73Skel.so": skel(),
        f"{LIB}libQnnHtpV73Stub.so": stub(),
        f"{LIB}libQnnSystem.so": library(b"\000260929181845\0"),
        f"{LIB}libonnxruntime.so": library(b"\0VERS_1.24.2\0" + ASKS),
        "assets/model.bin": CONTEXT,
        "classes.dex": b"dex\n035\0\x11ADSP_LIBRARY_PATH\0" + bytes(100),
        "resources.arsc": bytes(100),
    }


def apk(
    root: Node | bytes | None,
    entries: Mapping[str, bytes],
    *,
    packed: Sequence[str] = (),
    align: int = PAGES,
    manifest_entry: str = "AndroidManifest.xml",
) -> bytes:
    """An archive with its entries stored and aligned, those that are `packed` compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        if root is not None:
            content = root if isinstance(root, bytes) else axml(root)
            archive.writestr(manifest_entry, content, zipfile.ZIP_DEFLATED)
        for name, content in entries.items():
            member = zipfile.ZipInfo(name)
            if name in packed:
                member.compress_type = zipfile.ZIP_DEFLATED
            else:
                begin = buffer.tell() + 30 + len(name.encode()) + 4
                padding = -begin % align
                member.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
            archive.writestr(member, content)
    return buffer.getvalue()


def bundle(
    root: Node | bytes,
    entries: Mapping[str, bytes],
    *,
    stores: bool | None = False,
    globs: Sequence[str] = ("**.[bB][iI][nN]",),
    compiled: bool = False,
) -> bytes:
    """A bundle with one module, which leaves libraries packed unless it `stores` them."""
    content = root if isinstance(root, bytes) else proto(root, compiled=compiled)
    optimizations = b"" if stores is None else message((2, message((1, int(stores)))))
    compression = message(*((1, glob) for glob in globs))
    config = message((1, message((2, "1.18.1"))), (2, optimizations), (3, compression))
    inner = {f"base/{name}": entry for name, entry in entries.items()}
    named = {"BundleConfig.pb": config, **inner}
    return apk(content, named, manifest_entry="base/manifest/AndroidManifest.xml")


def write(folder: Path, content: bytes, name: str = "app.apk") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
