"""A name from a file, an archive or a device leads no reader or writer out of its folder."""

import contextlib
import json
import stat
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
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
from harness.core.paths_inside import list_inside
from harness.core.verified_folder import FolderChangedError, find_damage, open_verified
from harness.deploy.simulated_storage import merge_store
from harness.engines.ort import open_session
from harness.evidence.case_evidence import CaseEvidence
from harness.evidence.redaction import EvidenceFile
from harness.history.importing import _digest
from harness.models.artefact_sources import contexts_of
from harness.models.context_file import ContextFiles
from harness.models.onnx_model import OnnxModel
from harness.models.tensor_files import TensorFiles
from harness.report.html import _tail
from harness.report.merge import _copied
from harness.results.journal import read_journal
from harness.results.run_folder import INFO, JOURNAL, OUTPUTS, RunFolder
from harness.runtimes.local_sources import FolderSource, SdkSource
from harness.runtimes.maven_repository import Coordinates, Repository, metadata_versions
from tests.integration.hostile_names import Example, Watched, make_example, stays_below
from tests.unit.containers.made import CONTEXT, epcontext
from tests.unit.results.records import record
from tests.unit.runtimes.elf_files import elf_file

SIZE = len(CONTEXT)
TENSOR = Tensor("x", SIZE, "uint8")

Refused = (HarnessError, OSError, ValueError, FolderChangedError, ValidationError)
"""Errors that refuse a name; anything else is a bug."""


def manifest(name: str, main: str) -> str:
    tensors = [{"file": name, "size": SIZE}]
    entry = {"file": main, "size": SIZE, "sha256": None, "kind": "context", "artefact": name}
    entry |= {"origin": "o", "facts": {}, "inputs": tensors, "expected": tensors}
    return json.dumps({"schema": 1, "pieces": [entry, entry]})


def write_zip(world: Watched, name: str, members: dict[str, bytes], mode: int = 0) -> Path:
    """A zip, stored; the names stand in it as they are, also those that zipfile would change."""
    archive, directory, count = bytearray(), bytearray(), 0
    for member, content in members.items():
        raw = member.encode("utf-8", "surrogatepass")
        if len(raw) > 0xFFFF:
            continue
        crc = crc32(content)
        sizes = (crc, len(content), len(content), len(raw), 0)
        directory += struct.pack("<4sHHHHHHIIIHH", b"PK\x01\x02", 0x314, 20, 0x800, 0, 0, 0, *sizes)
        kind = mode if member == name else stat.S_IFREG
        directory += struct.pack("<HHHII", 0, 0, 0, (kind | 0o644) << 16, len(archive)) + raw
        archive += struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0x800, 0, 0, 0, *sizes) + raw
        archive += content
        count += 1
    lengths = (len(directory), len(archive))
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, *lengths, 0)
    path = world.inputs / "input.zip"
    path.write_bytes(bytes(archive + directory) + end)
    return path


def read_and_extract(world: Watched, artefacts: list[Artefact]) -> None:
    for artefact in artefacts:
        for source in contexts_of(artefact, world.cache):
            assert world.root in source.path.parents
    extract(artefacts, world.out / "new")
    suffixes = {path.suffix for path in (world.out / "new").rglob("*")}
    assert suffixes <= {".bin", ".raw", ".npy", ".json"}


def open_bundle(world: Watched, example: Example) -> None:
    """Name the inputs of a context so, and in every second example the context itself."""
    main = example.name if example.number // 40 % 2 else "m"
    files = {"manifest.json": manifest(example.name, main).encode(), "m": CONTEXT}
    read_and_extract(
        world, open_artefacts([write_zip(world, example.name, files | {example.name: CONTEXT})])
    )


def write_manifest(world: Watched, text: str) -> None:
    """A manifest.json, unless the example is called so: to write to its FIFO would wait."""
    file = world.inputs / "manifest.json"
    if not file.is_symlink() and not file.exists():
        with contextlib.suppress(UnicodeEncodeError):
            file.write_text(text)


def open_manifest(world: Watched, example: Example) -> None:
    world.put(world.inputs, example)
    (world.inputs / "m").write_bytes(CONTEXT)
    write_manifest(world, manifest(example.name, main="m"))
    world.new_events()
    read_and_extract(world, open_artefacts([world.inputs]))


def open_folder(world: Watched, example: Example) -> None:
    (world.inputs / "good.bin").write_bytes(CONTEXT)
    world.put(world.inputs, example)
    world.new_events()
    errors: list[HarnessError] = []
    artefacts = open_artefacts([world.inputs], errors.append)
    # where something else has the name of a manifest there is an error, and nothing else
    assert artefacts or errors
    if artefacts:
        extract(artefacts, world.out / str(len(list(world.out.iterdir()))))
    if errors:
        raise errors[0]


def open_side_file(world: Watched, example: Example) -> None:
    world.put(world.inputs, example)
    with contextlib.suppress(UnicodeEncodeError):
        node = {"embed_mode": 0, "ep_cache_context": example.name.encode()}
        (world.inputs / "model.onnx").write_bytes(epcontext([node]))
    world.new_events()
    read_and_extract(world, open_artefacts([world.inputs / "model.onnx"]))
    open_session(world.inputs / "model.onnx")


def load_weights(world: Watched, example: Example) -> None:
    world.put(world.inputs, example)
    tensor = onnx.TensorProto(name="w", data_location=onnx.TensorProto.EXTERNAL, dims=[SIZE])
    tensor.data_type = onnx.TensorProto.UINT8
    tensor.external_data.add(key="location", value=example.name)
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    model = onnx.helper.make_model(graph).SerializeToString()
    (world.inputs / "model.onnx").write_bytes(model)
    world.new_events()
    OnnxModel.of(world.inputs / "model.onnx").build()
    open_session(world.inputs / "model.onnx")


def unpack_archive(world: Watched, example: Example) -> None:
    kinds = {"link": stat.S_IFLNK, "fifo": stat.S_IFIFO, "hard": stat.S_IFREG}
    content = {example.name: bytes(f"{world.root}/secret/secret.bin", "ascii"), "lib/x.so": b"x"}
    path = write_zip(world, example.name, content, kinds.get(example.place, stat.S_IFREG))
    names_of(path)
    unpack_once(path, world.out / "aar", {}, lambda _: True, lambda _, __: {}, title="it")
    assert open_verified(world.out / "aar", {}) is not None


def verify_folder(world: Watched, example: Example) -> None:
    world.put(world.inputs, example)
    entry = {"size": SIZE, "mtime_ns": 1, "sha256": "0" * 64}
    manifest = {"format": 1, "facts": {}, "data": {}, "files": {example.name: entry}}
    write_manifest(world, json.dumps(manifest))
    world.new_events()
    assert find_damage(world.inputs)
    open_verified(world.inputs, {})


def copy_part_of_a_run(world: Watched, example: Example) -> None:
    logs = world.inputs / "logs"
    logs.mkdir()
    world.put(logs, example)
    world.new_events()
    record(logs=(f"logs/{example.name}",))
    name = f"logs/{example.name}"
    if not _copied(world.inputs, world.out, name, (name,)):
        raise ValueError("left out")
    assert (world.out / "logs" / example.name).read_bytes() == CONTEXT


def show_log(world: Watched, example: Example) -> None:
    world.put(world.inputs, example)
    world.new_events()
    if not _tail(world.inputs, example.name):
        raise ValueError("left out")


def read_run(world: Watched, example: Example) -> None:
    """Its own files are called as ever: what lies in their place is what the example says."""
    for name in (JOURNAL, INFO, OUTPUTS):
        world.put(world.inputs, Example(example.number, name, example.place))
    world.put(world.inputs, example)
    world.new_events()
    folder = RunFolder(world.inputs)
    with contextlib.suppress(ConfigError):
        assert folder.info() == {}
    assert folder.kept_output(example.name) is None
    with contextlib.suppress(OSError):
        list_inside(world.inputs, OUTPUTS)
    read_journal(world.inputs / JOURNAL)
    _digest(world.inputs / JOURNAL)


def resume_run(world: Watched, example: Example) -> None:
    run = RunFolder.create(world.inputs, command=[], lab={}, devices=[])
    run.journal.close()
    for below in ("", "logs/", "logs/case/"):
        world.put(run.path, Example(example.number, f"{below}{example.name}", example.place))
    world.new_events()
    again = RunFolder.reopen(run.path)
    again.resume([])
    again.journal.append(record())
    again.close()


def write_evidence(world: Watched, example: Example) -> None:
    """A device names files of its own: what was there already is replaced, wherever it led to."""
    world.put(world.inputs, example)
    world.new_events()
    files = [EvidenceFile(example.name, "text\n"), EvidenceFile("dmesg.txt", "text\n")]
    written = CaseEvidence(None)._write(world.inputs, files, {})
    if example.name not in written:
        raise ValueError("left out")
    assert (world.inputs / example.name).read_text() == "text\n"


def copy_store(world: Watched, example: Example) -> None:
    for folder in ("store", "listed", "sets/set.1", "inuse"):
        (world.inputs / folder).mkdir(parents=True)
    (world.inputs / ".links").write_text("hard")
    world.put(world.inputs / "store", example)
    (world.inputs / "store" / f"{'a' * 64}.1").write_bytes(CONTEXT)
    world.new_events()
    merge_store(world.inputs, world.out, set())
    if not (world.out / "store" / example.name).exists():
        raise ValueError("left out")


def resolve_tensors(world: Watched, example: Example) -> None:
    world.put(world.inputs, example)
    world.new_events()
    tensor = replace(TENSOR, name=Path(example.name).stem)
    files = TensorFiles(world.cache).resolve("inputs", world.inputs, [tensor], Path("m.bin"))
    assert [file.read_bytes() for file in files] == [CONTEXT]


def open_graph_folder(world: Watched, example: Example) -> None:
    with contextlib.suppress(OSError, ValueError):
        folder = world.inputs / "m.raw"
        if "link" in example.place and stays_below(example.name):
            (world.inputs / example.name).symlink_to(world.root / "secret/dir")
        folder.mkdir()
        (folder / "x.raw").write_bytes(CONTEXT)
    world.new_events()
    files = ContextFiles(world.cache, None, None)
    assert files._tensor_files("inputs", world.inputs, [TENSOR], example.name, Path("m.bin"))


def list_repository(world: Watched, example: Example) -> None:
    text = escape("".join(c for c in example.name if c.isprintable()))
    metadata = f"<m><versioning><versions><version>{text}</version></versions></versioning></m>"
    artifact = Coordinates.parse("com.g:a")
    versions = metadata_versions(metadata.encode("utf-8", "replace"))
    repository = Repository(world.inputs, world.cache)
    for version in versions:
        coordinates = artifact.with_version(version)
        name = coordinates.aar()
        world.put(world.inputs, Example(example.number, name, example.place))
        world.put(world.inputs, Example(example.number, f"{name}.sha1", example.place))
        world.new_events()
        repository.versions(coordinates)
        assert repository.file(name) == world.inputs / name
    if not versions:
        raise ValueError("left out")


def load_runtimes(world: Watched, example: Example) -> None:
    """A tree of libraries, and the same as a plain folder."""
    libraries = world.inputs / "lib/x86_64-linux-clang"
    libraries.mkdir(parents=True)
    build = b"v2.31.0.250130151446\0"
    library = elf_file("x86-64", needed=["libc.so.6"], content=build)
    for name in ("libQnnHtp.so", "libQnnGpu.so"):
        (libraries / name).write_bytes(library)
    for name in (example.name, "libQnnSystem.so", "libonnxruntime.so"):
        world.put(libraries, Example(example.number, name, example.place))
    (world.inputs / "sdk.yaml").write_text("version: 2.31.0.250130\n")
    skel = "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so"
    for name in ("include/QNN/QnnSdkBuildId.h", skel):
        world.put(world.inputs, Example(example.number, name, example.place))
    world.new_events()
    sdk = SdkSource("a", world.inputs, world.cache)
    for source in (sdk, FolderSource("b", libraries, world.cache)):
        (version,) = source.versions("linux-x64")
        runtime = source.runtime(version, "linux-x64")
        assert all(world.inputs in file.path.resolve().parents for file in runtime.files)


SUBJECTS: tuple[Callable[[Watched, Example], None], ...] = (
    *(open_bundle, open_manifest, open_folder, open_side_file, load_weights, unpack_archive),
    *(verify_folder, copy_part_of_a_run, show_log, read_run, resume_run, write_evidence),
    *(copy_store, resolve_tensors, open_graph_folder, list_repository, load_runtimes),
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
    world, outcomes = Watched(tmp_path), Counter[str]()
    if subject is load_weights:  # it starts a process for each example
        count = min(count, 1000)
    monkeypatch.chdir(tmp_path / "cwd")
    # what is kept on the disk for good is another matter, and takes ten times as long as all else
    monkeypatch.setattr("os.fsync", lambda file: None)
    try:
        for number in range(count):
            # another process that searches the disk may look in, but not each time; a second try
            # has new folders, of which no cache knows anything
            for again in range(3):
                if again:
                    world.close()
                    world = Watched(tmp_path / f"{number}-{again}")
                    monkeypatch.chdir(world.root / "cwd")
                example = make_example(number, world.root)
                world.clear()
                world.new_events()
                try:
                    subject(world, example)
                    outcome = "taken"
                except Refused:
                    outcome = "refused"
                if not (events := world.new_events()):
                    break
            assert events == [], example
            outcomes[outcome] += 1
    finally:
        world.close()
    assert outcomes.total() == count
    assert outcomes["refused"] > count / 10, outcomes
    # a verified folder is never whole here
    assert outcomes["taken"] > count / 200 or subject is verify_folder, outcomes
