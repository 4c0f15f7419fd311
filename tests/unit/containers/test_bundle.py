"""Bundles: what is packed comes out again, in the same bytes each time; others are refused."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from harness.containers.artefact import ArtefactError
from harness.containers.extract import extract, piece_file, unpacked_model
from harness.containers.manifest import (
    Expects,
    Manifest,
    PieceEntry,
    RunPlan,
    TensorEntry,
    write_bundle,
)
from harness.containers.open import open_artefact, open_artefacts
from harness.core.errors import ConfigError
from harness.models.artefact_sources import ModelOptions, contexts_of
from harness.models.context_file import ContextFile
from harness.reduce.bundle import entries_of
from tests.snapshots import Snapshot
from tests.unit.containers.made import CONTEXT, OTHER, bytes_of, epcontext

PLAN = RunPlan(
    residency="window",
    tolerance=0.5,
    graph="g",
    qnn="2.51.0",
    backend="htp",
    context_options={"reused_io_limit_mb": 64},
)
EXPECTS = Expects(outcome="failed", signature="call|1|why")


def entry(number: int, content: bytes, inputs: int = 0) -> PieceEntry:
    return PieceEntry(
        file=f"context-{number}.bin",
        size=len(content),
        sha256=None,
        kind="context",
        artefact="model.pte",
        origin=f"forward/{number}",
        facts={},
        inputs=tuple(
            TensorEntry(file=f"{number}.input-{index}.raw", size=4) for index in range(inputs)
        ),
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Two contexts, the first of them twice; the second has an input."""
    files = {"context-0.bin": CONTEXT, "context-1.bin": OTHER, "1.input-0.raw": b"1234"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    pieces = (entry(0, CONTEXT), entry(1, OTHER, 1), entry(0, CONTEXT))
    manifest = Manifest(pieces=pieces, plan=PLAN, expects=EXPECTS)
    path = tmp_path / "case.zip"
    write_bundle(
        path, manifest, {"README.txt": b"read me"}, {name: tmp_path / name for name in files}
    )
    return path


def test_what_is_packed_comes_out_again(bundle: Path, tmp_path: Path) -> None:
    artefact = open_artefact(bundle)
    assert artefact.kind == "bundle"
    assert [bytes_of(piece) for piece in artefact.pieces] == [CONTEXT, OTHER, CONTEXT]
    assert (artefact.facts["plan"], artefact.facts["expects"]) == (PLAN, EXPECTS)
    sources = contexts_of(artefact, tmp_path / "cache")
    assert (sources.plan, sources.expects, sources.name) == (PLAN, EXPECTS, "case.zip")
    first, second, third = (source for source in sources if isinstance(source, ContextFile))
    assert first.path == third.path
    assert (first.tolerance, first.graph, first.inputs) == (0.5, "g", None)
    assert isinstance(second.inputs, tuple)
    assert [input.read_bytes() for input in second.inputs] == [b"1234"]
    assert sources.context_options == PLAN.context_options == {"reused_io_limit_mb": 64}
    changed = contexts_of(artefact, tmp_path / "cache", ModelOptions(tolerance=2.0, graph="other"))
    assert (changed[0].tolerance, changed[0].graph) == (2.0, "other")
    assert piece_file(artefact.pieces[1], tmp_path / "cache").read_bytes() == OTHER
    extract([artefact], tmp_path / "out")
    (again,) = open_artefacts([tmp_path / "out"])
    assert [bytes_of(piece) for piece in again.pieces] == [CONTEXT, OTHER, CONTEXT]
    assert (again.facts["plan"], again.facts["expects"]) == (None, None)


def test_the_same_is_packed_in_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    manifest, files = Manifest(pieces=(entry(0, CONTEXT),)), {"context-0.bin": bundle}
    for name in ("a.zip", "b.zip"):
        write_bundle(tmp_path / name, manifest, {}, files)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(bundle) as opened:
        assert opened.testzip() is None
        assert opened.namelist()[:2] == ["manifest.json", "README.txt"]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, snapshot: Snapshot) -> None:
    manifest = Manifest(pieces=(entry(0, CONTEXT),))
    with snapshot.raises(ConfigError):
        write_bundle(tmp_path, manifest, {}, {})
    with snapshot.raises(ConfigError):
        write_bundle(tmp_path / "none/a.zip", manifest, {}, {})
    with snapshot.raises(ConfigError):
        write_bundle(tmp_path / "a.zip", manifest, {}, {"context-0.bin": tmp_path / "gone"})
    assert not list(tmp_path.iterdir())


def test_a_model_is_unpacked_with_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(epcontext([], others=1))
    (tmp_path / "x.npy").write_bytes(b"1234")
    files = {"model/a.onnx": tmp_path / "model.onnx", "inputs/0/x.npy": tmp_path / "x.npy"}
    plan = RunPlan(engine="ort", fallback=True)
    manifest = Manifest(pieces=(), model=entries_of(files), plan=plan, expects=EXPECTS)
    write_bundle(tmp_path / "case.zip", manifest, {}, files)
    packed = open_artefact(tmp_path / "case.zip")
    assert (packed.kind, packed.pieces, packed.facts["plan"]) == ("bundle", (), plan)
    model = unpacked_model(packed, tmp_path / "cache")
    assert (model.parent.name, open_artefact(model).kind) == ("model", "onnx")
    assert (model.parent.parent / "inputs/0/x.npy").read_bytes() == b"1234"
    assert unpacked_model(packed, tmp_path / "cache") == model
    (entry, blob), *_ = packed.facts["model"]
    other = replace(
        packed, facts={"model": [(entry.model_copy(update={"sha256": "0" * 64}), blob)]}
    )
    with pytest.raises(ArtefactError):
        unpacked_model(other, tmp_path / "cache")


@pytest.mark.parametrize("name", ["model/../../x", "/model/x", "other/x", "model/", "x"])
def test_no_file_of_a_model_lies_elsewhere(tmp_path: Path, name: str) -> None:
    entry = {"file": name, "size": 1, "sha256": "0" * 64}
    content = json.dumps({"schema": 1, "pieces": [], "model": [entry]}).encode()
    path = wrong(tmp_path / "case.zip", {"manifest.json": content, "x": b"1"})
    with pytest.raises(ArtefactError):
        open_artefact(path)


def wrong(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_what_is_no_bundle_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    good = Manifest(pieces=(entry(0, CONTEXT),)).text().encode()
    outside = good.replace(b"context-0.bin", b"../out.bin")
    bomb = {"manifest.json": good, "context-0.bin": b"\0" * (1 << 24)}
    for path in (
        wrong(tmp_path / "bomb", bomb, zipfile.ZIP_DEFLATED),
        wrong(tmp_path / "lacks", {"manifest.json": good}),
        wrong(tmp_path / "out", {"manifest.json": outside}),
        wrong(tmp_path / "size", {"manifest.json": good, "context-0.bin": b"short"}),
        wrong(tmp_path / "other", {"a.json": b"{}"}),
    ):
        with snapshot.raises(ArtefactError):
            open_artefact(path)
    with snapshot.raises(ArtefactError):
        open_artefact(wrong(tmp_path / "json", {"manifest.json": b"{"}))


def test_sizes_that_lie(bundle: Path, tmp_path: Path) -> None:
    content = bytearray(bundle.read_bytes())
    entry_at = content.index(b"PK\x01\x02")
    for offset in (20, 24):  # packed and real size
        changed = content.copy()
        changed[entry_at + offset : entry_at + offset + 4] = b"\xf0\xff\xff\x7f"
        (tmp_path / "lie.zip").write_bytes(changed)
        with pytest.raises(ArtefactError):
            open_artefact(tmp_path / "lie.zip")


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown context option 'a'"):
        RunPlan(context_options={"a": 1})
