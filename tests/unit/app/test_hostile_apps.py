"""Apps that lie, break off or explode are refused or read, in bounded time and memory."""

import io
import resource
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.app.checks import report
from harness.app.package import read_app
from harness.core.errors import ConfigError
from tests.properties import reached, reaches
from tests.unit.app.apps import (
    LIB,
    Node,
    apk,
    axml,
    bundle,
    document,
    healthy,
    library,
    manifest,
    message,
    proto,
    string_pool,
    varint,
    write,
)
from tests.unit.core.test_archive import BAD

GOOD = axml(manifest())
POOL_AT, POOL_BYTES = 8, struct.unpack_from("<I", GOOD, 12)[0]
REST = GOOD[POOL_AT + POOL_BYTES :]
ENTRIES = healthy()
START = GOOD.index(struct.pack("<HH", 0x102, 16))
START_TAG, END_TAG = GOOD[START : START + 56], struct.pack("<HHIIIII", 0x103, 16, 24, 1, 0, 0, 0)


def patched(offset: int, form: str, value: int, content: bytes = GOOD) -> bytes:
    changed = bytearray(content)
    struct.pack_into(f"<{form}", changed, offset, value)
    return bytes(changed)


def same_string(count: int, size: int) -> bytes:
    """A pool whose entries all name one long string."""
    data = struct.pack("<HH", 0x8000 | size >> 16, size & 0xFFFF) + b"a\0" * size + bytes(4)
    return document(string_pool([0] * count, data) + REST)


def nested(depth: int) -> Node:
    node: Node = ("a", {}, ())
    for _ in range(depth):
        node = ("a", {}, [node])
    return node


def deep_axml(depth: int) -> bytes:
    return document(GOOD[POOL_AT:START] + START_TAG * depth + END_TAG * depth)


def deep_proto(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = message((1, message((3, "a"), (5, content))))
    return content


def renamed(old: str, new: str) -> bytes:
    assert len(old) == len(new)
    return GOOD.replace(old.encode("utf-16-le"), new.encode("utf-16-le"))


def with_entry(name: str, content: bytes = b"x") -> bytes:
    return apk(manifest(), ENTRIES | {name: content})


def packed(name: str, size: int) -> bytes:
    return apk(manifest(), ENTRIES | {name: bytes(size)}, packed=[name])


def twice() -> bytes:
    buffer = io.BytesIO(apk(manifest(), ENTRIES))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("AndroidManifest.xml", GOOD)
    return buffer.getvalue()


def many(count: int) -> bytes:
    return apk(manifest(), {f"r/{number}": b"" for number in range(count)}, align=1)


LIES: dict[str, Callable[[], bytes]] = {
    "no manifest": lambda: apk(None, ENTRIES),
    "empty manifest": lambda: apk(b"", ENTRIES),
    "text manifest": lambda: apk(b"<manifest/>", ENTRIES),
    "cut manifest": lambda: apk(GOOD[: len(GOOD) // 2], ENTRIES),
    "large manifest": lambda: apk(GOOD + bytes(2 << 20), ENTRIES),
    "another root": lambda: apk(axml(("resources", {}, ())), ENTRIES),
    "pool too large": lambda: apk(patched(12, "I", 0x7FFFFFFF), ENTRIES),
    "pool of many": lambda: apk(patched(16, "I", 0xFFFFFFFF), ENTRIES),
    "pool of none": lambda: apk(patched(16, "I", 0), ENTRIES),
    "pool elsewhere": lambda: apk(patched(28, "I", 0xFFFFFFF0), ENTRIES),
    "one string for all": lambda: apk(same_string(100_000, 100_000), ENTRIES),
    "long string": lambda: apk(same_string(1, 400_000), ENTRIES),
    "nested": lambda: apk(deep_axml(12_000), ENTRIES),
    "chunk of none": lambda: apk(patched(START + 4, "I", 0), ENTRIES),
    "chunk too large": lambda: apk(patched(START + 4, "I", 1 << 31), ENTRIES),
    "many attributes": lambda: apk(patched(START + 28, "H", 0xFFFF), ENTRIES),
    "document type": lambda: apk(renamed("manifest", "!DOCTYPE"), ENTRIES),
    "name of a tag": lambda: apk(renamed("manifest", "a><b/><c"), ENTRIES),
    "control characters": lambda: apk(renamed("com.example", "com\x1b[2J\x01a.e"), ENTRIES),
    "manifest twice": twice,
    "parent": lambda: with_entry("../../x.bin", ENTRIES["assets/model.bin"]),
    "parent in a folder": lambda: with_entry("assets/../../x.bin", ENTRIES["assets/model.bin"]),
    "absolute": lambda: with_entry("/assets/x.bin", ENTRIES["assets/model.bin"]),
    "library elsewhere": lambda: with_entry(f"{LIB}../../libQnnHtp.so", library()),
    "file and folder": lambda: with_entry("assets/model.bin/x.bin", ENTRIES["assets/model.bin"]),
    "library of zeros": lambda: packed(f"{LIB}libQnnHtpV75Skel.so", 20 << 20),
    "model of zeros": lambda: packed("assets/zeros.bin", 20 << 20),
    "many entries": lambda: many(20_000),
    "empty bundle manifest": lambda: bundle(b"", ENTRIES),
    "cut bundle manifest": lambda: bundle(proto(manifest())[:-9], ENTRIES),
    "nested bundle manifest": lambda: bundle(deep_proto(400), ENTRIES),
    "endless number": lambda: bundle(b"\x0a" + b"\xff" * 12, ENTRIES),
    "length beyond": lambda: bundle(b"\x0a" + varint(1 << 40), ENTRIES),
    "bundle of another root": lambda: bundle(proto(("a", {}, ())), ENTRIES),
}


READ = {
    *("pool of many", "pool of none", "chunk of none", "control characters", "parent", "absolute"),
    *("parent in a folder", "library elsewhere", "library of zeros", "model of zeros"),
    "many entries",
}
"""Lies that do no harm."""


def refusal(path: Path) -> str | None:
    """Read and check an app; return the error's text, None for a report."""
    try:
        report(read_app([path], lambda pieces: [{}] * len(pieces)))
    except ConfigError as error:
        return str(error)
    return None


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", [*LIES, *(f"zip: {name}" for name in BAD)])
def test_a_hostile_app_is_bounded(name: str, tmp_path: Path) -> None:
    content = BAD[name[5:]]() if name.startswith("zip: ") else LIES[name]()
    path = write(tmp_path, content)
    before, begin = peak_bytes(), time.process_time()
    problem = refusal(path)
    assert (problem is None) == (name in READ)
    assert problem is None or (str(path) in problem and len(problem) < 500)
    assert "qnn-harness-tmp" not in str(problem)
    assert peak_bytes() - before < 300 << 20
    assert time.process_time() - begin < 20
    assert [entry.name for entry in tmp_path.iterdir()] == ["app.apk"]


EDITS = st.lists(
    st.tuples(st.integers(0, len(GOOD) - 4), st.sampled_from("BHI"), st.integers(0, (1 << 32) - 1)),
    min_size=1,
    max_size=4,
)


@reaches(0.9)
@settings(max_examples=25, deadline=None)
@given(EDITS, st.integers(0, len(GOOD)) | st.just(len(GOOD)))
def test_any_manifest_gives_facts_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, str, int]], end: int
) -> None:
    content = GOOD
    for offset, form, value in edits:
        content = patched(offset, form, value % (1 << 8 * struct.calcsize(form)), content)
    path = write(tmp_path_factory.getbasetemp(), apk(content[:end], ENTRIES))
    reached()
    assert len(refusal(path) or "") < 1000


@reaches(0.9)
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_bundle_manifest_gives_facts_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(proto(manifest()))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    path = write(tmp_path_factory.getbasetemp(), bundle(bytes(content[:end]), {}))
    reached()
    assert len(refusal(path) or "") < 1000
