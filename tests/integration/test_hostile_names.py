"""No name of somebody else's leads any reader or writer out of its folder."""

from __future__ import annotations

import contextlib
import json
import stat
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape
from zlib import crc32

import onnx
import pytest
from pydantic import ValidationError

from harness.containers.artefact import Artefact, Tensor
from harness.containers.extract import extract
from harness.containers.open import open_artefacts
from harness.core.archive import names_of, unpack_once
from harness.core.errors import ConfigError, HarnessError
from harness.core.names_inside import list_inside
from harness.core.verified_folder import FolderChangedError, find_damage, open_verified
from harness.deploy.instances import merge_store
from harness.engines.ort import open_session
from harness.evidence.case_evidence import CaseEvidence
from harness.evidence.text import EvidenceFile
from harness.history.importing import _digest
from harness.models.artefact_sources import contexts_of
from harness.models.context_file import ContextFile, ContextFiles
from harness.models.onnx_model import OnnxModel
from harness.models.tensor_files import TensorFiles
from harness.report.html import _tail
from harness.report.merge import _copied
from harness.results.journal import read_journal
from harness.results.run_folder import INFO, JOURNAL, OUTPUTS, RunFolder
from harness.runtimes.local_sources import FolderSource, SdkSource
from harness.runtimes.maven_repository import Coordinates, Repository, metadata_versions
from tests.integration.hostile_names import Example, Watched, example, stays_below
from tests.unit.containers.made import CONTEXT, epcontext
from tests.unit.results.records import record
from tests.unit.runtimes.elf_files import elf_file

SIZE = len(CONTEXT)
TENSOR = Tensor("x", SIZE, "uint8")

Refused = (HarnessError, OSError, ValueError, FolderChangedError, ValidationError)
"""What says that a name is not taken; anything else is a bug."""


def manifest(name: str, main: str) -> str:
    tensors = [{"file": name, "size": SIZE}]
    entry = {"file": main, "size": SIZE, "sha256": None, "kind": "context", "artefact": name}
    entry |= {"origin": "o", "facts": {}, "inputs": tensors, "expected": tensors}
    return json.dumps({"schema": 1, "pieces": [entry, entry]})


def packed(world: Watched, name: str, members: dict[str, bytes], mode: int = 0) -> Path:
    """A zip, stored; the names stand in it as they are, also those that zipfile would change."""
    made, end, count = bytearray(), bytearray(), 0
    for called, content in members.items():
        raw = called.encode("utf-8", "surrogatepass")
        if len(raw) > 0xFFFF:
            continue
        crc = crc32(content)
        sizes = (crc, len(content), len(content), len(raw), 0)
        end += struct.pack("<4sHHHHHHIIIHH", b"PK\x01\x02", 0x314, 20, 0x800, 0, 0, 0, *sizes)
        kind = mode if called == name else stat.S_IFREG
        end += struct.pack("<HHHII", 0, 0, 0, (kind | 0o644) << 16, len(made)) + raw
        made += struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0x800, 0, 0, 0, *sizes) + raw
        made += content
        count += 1
    tail = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, len(end), len(made), 0)
    path = world.given / "given.zip"
    path.write_bytes(bytes(made + end) + tail)
    return path


def taken_apart(world: Watched, found: list[Artefact]) -> None:
    for one in found:
        for source in contexts_of(one, world.cache):
            assert isinstance(source, ContextFile)
            assert world.root in source.path.parents
    extract(found, world.out / "new")
    suffixes = {path.suffix for path in (world.out / "new").rglob("*")}
    assert suffixes <= {".bin", ".raw", ".npy", ".json"}


def a_bundle(world: Watched, one: Example) -> None:
    """The name is that of the inputs of its context, and of every second one itself."""
    main = one.name if one.number // 40 % 2 else "m"
    files = {"manifest.json": manifest(one.name, main).encode(), "m": CONTEXT}
    taken_apart(world, open_artefacts([packed(world, one.name, files | {one.name: CONTEXT})]))


def listed(world: Watched, text: str) -> None:
    """A manifest.json, unless the example is called so: to write to its FIFO would wait."""
    file = world.given / "manifest.json"
    if not file.is_symlink() and not file.exists():
        with contextlib.suppress(UnicodeEncodeError):
            file.write_text(text)


def a_manifest(world: Watched, one: Example) -> None:
    world.put(world.given, one)
    (world.given / "m").write_bytes(CONTEXT)
    listed(world, manifest(one.name, main="m"))
    world.seen()
    taken_apart(world, open_artefacts([world.given]))


def a_folder(world: Watched, one: Example) -> None:
    (world.given / "good.bin").write_bytes(CONTEXT)
    world.put(world.given, one)
    world.seen()
    told: list[HarnessError] = []
    found = open_artefacts([world.given], told.append)
    # of a folder that has one, what is no manifest is told, and nothing else is taken
    assert found or told
    if found:
        extract(found, world.out / str(len(list(world.out.iterdir()))))
    if told:
        raise told[0]


def a_side_file(world: Watched, one: Example) -> None:
    world.put(world.given, one)
    with contextlib.suppress(UnicodeEncodeError):
        node = {"embed_mode": 0, "ep_cache_context": one.name.encode()}
        (world.given / "model.onnx").write_bytes(epcontext([node]))
    world.seen()
    taken_apart(world, open_artefacts([world.given / "model.onnx"]))
    open_session(world.given / "model.onnx")


def weights(world: Watched, one: Example) -> None:
    world.put(world.given, one)
    tensor = onnx.TensorProto(name="w", data_location=onnx.TensorProto.EXTERNAL, dims=[SIZE])
    tensor.data_type = onnx.TensorProto.UINT8
    tensor.external_data.add(key="location", value=one.name)
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    model = onnx.helper.make_model(graph).SerializeToString()
    (world.given / "model.onnx").write_bytes(model)
    world.seen()
    OnnxModel.of(world.given / "model.onnx").build()
    open_session(world.given / "model.onnx")


def an_archive(world: Watched, one: Example) -> None:
    kinds = {"link": stat.S_IFLNK, "fifo": stat.S_IFIFO, "hard": stat.S_IFREG}
    content = {one.name: bytes(f"{world.root}/secret/secret.bin", "ascii"), "lib/x.so": b"x"}
    path = packed(world, one.name, content, kinds.get(one.place, stat.S_IFREG))
    names_of(path)
    unpack_once(path, world.out / "aar", {}, lambda _: True, lambda _, __: {}, title="it")
    assert open_verified(world.out / "aar", {}) is not None


def a_verified_folder(world: Watched, one: Example) -> None:
    world.put(world.given, one)
    entry = {"size": SIZE, "mtime_ns": 1, "sha256": "0" * 64}
    said = {"format": 1, "facts": {}, "data": {}, "files": {one.name: entry}}
    listed(world, json.dumps(said))
    world.seen()
    assert find_damage(world.given)
    open_verified(world.given, {})


def a_part_of_a_run(world: Watched, one: Example) -> None:
    logs = world.given / "logs"
    logs.mkdir()
    world.put(logs, one)
    world.seen()
    record(logs=(f"logs/{one.name}",))
    name = f"logs/{one.name}"
    if not _copied(world.given, world.out, name, (name,)):
        raise ValueError("left out")
    assert (world.out / "logs" / one.name).read_bytes() == CONTEXT


def a_log(world: Watched, one: Example) -> None:
    world.put(world.given, one)
    world.seen()
    if not _tail(world.given, one.name):
        raise ValueError("left out")


def a_run(world: Watched, one: Example) -> None:
    """Its own files are called as ever: what lies in their place is what the example says."""
    for name in (JOURNAL, INFO, OUTPUTS):
        world.put(world.given, Example(one.number, name, one.place))
    world.put(world.given, one)
    world.seen()
    folder = RunFolder(world.given)
    with contextlib.suppress(ConfigError):
        assert folder.info() == {}
    assert folder.kept_output(one.name) is None
    with contextlib.suppress(OSError):
        list_inside(world.given, OUTPUTS)
    read_journal(world.given / JOURNAL)
    _digest(world.given / JOURNAL)


def a_run_gone_on_with(world: Watched, one: Example) -> None:
    run = RunFolder.create(world.given, command=[], lab={}, devices=[])
    run.journal.close()
    for below in ("", "logs/", "logs/case/"):
        world.put(run.path, Example(one.number, f"{below}{one.name}", one.place))
    world.seen()
    again = RunFolder.reopen(run.path)
    again.resume([])
    again.journal.append(record())
    again.close()


def evidence(world: Watched, one: Example) -> None:
    """A device names files of its own: what was there already is replaced, wherever it led to."""
    world.put(world.given, one)
    world.seen()
    files = [EvidenceFile(one.name, "text\n"), EvidenceFile("dmesg.txt", "text\n")]
    written = CaseEvidence(None)._write(world.given, files, {})
    if one.name not in written:
        raise ValueError("left out")
    assert (world.given / one.name).read_text() == "text\n"


def a_store(world: Watched, one: Example) -> None:
    for folder in ("store", "listed", "sets/set.1", "inuse"):
        (world.given / folder).mkdir(parents=True)
    (world.given / ".links").write_text("hard")
    world.put(world.given / "store", one)
    (world.given / "store" / f"{'a' * 64}.1").write_bytes(CONTEXT)
    world.seen()
    merge_store(world.given, world.out, set())
    if not (world.out / "store" / one.name).exists():
        raise ValueError("left out")


def tensors(world: Watched, one: Example) -> None:
    world.put(world.given, one)
    world.seen()
    files = TensorFiles(world.cache).resolve("inputs", world.given, [TENSOR], Path("m.bin"))
    assert [file.read_bytes() for file in files] == [CONTEXT]


def a_graphs_folder(world: Watched, one: Example) -> None:
    with contextlib.suppress(OSError, ValueError):
        folder = world.given / "m.raw"
        if "link" in one.place and stays_below(one.name):
            (world.given / one.name).symlink_to(world.root / "secret/dir")
        folder.mkdir()
        (folder / "x.raw").write_bytes(CONTEXT)
    world.seen()
    files = ContextFiles(world.cache, None, None)
    assert files._tensor_files("inputs", world.given, [TENSOR], one.name, Path("m.bin"))


def a_repository(world: Watched, one: Example) -> None:
    text = escape("".join(c for c in one.name if c.isprintable()))
    listed = f"<m><versioning><versions><version>{text}</version></versions></versioning></m>"
    artifact = Coordinates.parse("com.g:a")
    versions = metadata_versions(listed.encode("utf-8", "replace"))
    found = [artifact.with_version(version) for version in versions]
    repository = Repository(world.given, world.cache)
    for at in found:
        name = at.aar()
        world.put(world.given, Example(one.number, name, one.place))
        world.put(world.given, Example(one.number, f"{name}.sha1", one.place))
        world.seen()
        repository.versions(at)
        assert repository.file(name) == world.given / name
    if not found:
        raise ValueError("left out")


def runtimes(world: Watched, one: Example) -> None:
    """A tree of libraries, and the same as a plain folder."""
    libraries = world.given / "lib/x86_64-linux-clang"
    libraries.mkdir(parents=True)
    said = b"v2.31.0.250130151446\0"
    library = elf_file("x86-64", needed=["libc.so.6"], content=said)
    for name in ("libQnnHtp.so", "libQnnGpu.so"):
        (libraries / name).write_bytes(library)
    for name in (one.name, "libQnnSystem.so", "libonnxruntime.so"):
        world.put(libraries, Example(one.number, name, one.place))
    (world.given / "sdk.yaml").write_text("version: 2.31.0.250130\n")
    skel = "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so"
    for name in ("include/QNN/QnnSdkBuildId.h", skel):
        world.put(world.given, Example(one.number, name, one.place))
    world.seen()
    sdk = SdkSource("a", world.given, world.cache)
    for source in (sdk, FolderSource("b", libraries, world.cache)):
        (version,) = source.versions("linux-x64")
        runtime = source.runtime(version, "linux-x64")
        assert all(world.given in file.path.resolve().parents for file in runtime.files)


SUBJECTS: tuple[Callable[[Watched, Example], None], ...] = (
    *(a_bundle, a_manifest, a_folder, a_side_file, weights, an_archive, a_verified_folder),
    *(a_part_of_a_run, a_log, a_run, a_run_gone_on_with, evidence, a_store, tensors),
    *(a_graphs_folder, a_repository, runtimes),
)


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__)
@pytest.mark.parametrize(
    "count", [200, pytest.param(10_000, marks=pytest.mark.nightly)], ids=["day", "night"]
)
def test_no_name_leads_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subject: Callable[[Watched, Example], None],
    count: int,
) -> None:
    world, told = Watched(tmp_path), Counter[str]()
    if subject is weights:  # it starts a process for each example
        count = min(count, 1000)
    monkeypatch.chdir(tmp_path / "cwd")
    # what is kept on the disk for good is another matter, and takes ten times as long as all else
    monkeypatch.setattr("os.fsync", lambda file: None)
    try:
        for number in range(count):
            # another process that searches the disk may look in, but not each time; what is tried
            # again lies in new folders, of which nothing that was kept knows anything
            for again in range(3):
                if again:
                    world.close()
                    world = Watched(tmp_path / f"{number}-{again}")
                    monkeypatch.chdir(world.root / "cwd")
                one = example(number, world.root)
                world.clear()
                world.seen()
                try:
                    subject(world, one)
                    outcome = "taken"
                except Refused:
                    outcome = "refused"
                if not (events := world.seen()):
                    break
            assert events == [], one
            told[outcome] += 1
    finally:
        world.close()
    assert told.total() == count
    assert told["refused"] > count / 10, told
    # a verified folder is never whole here
    assert told["taken"] > count / 200 or subject is a_verified_folder, told
