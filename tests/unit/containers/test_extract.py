"""Contexts as files of their own: by hand and in the cache."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from harness.containers.artefact import Artefact, ArtefactError, Blob, Piece
from harness.containers.extract import extract, piece_file
from harness.containers.open import open_artefact, open_artefacts
from harness.core.errors import ConfigError, InfraError
from harness.core.files import copy_range
from tests.logged import Logged
from tests.snapshots import Snapshot
from tests.unit.containers.made import CONTEXT, FIELD, OTHER, bytes_of, epcontext

PTE = FIELD / "executorch-3-contexts.pte"


def contents(artefacts: list[Artefact]) -> list[tuple[str, bytes]]:
    return [(piece.origin, bytes_of(piece)) for artefact in artefacts for piece in artefact.pieces]


def test_the_manifest_is_taken_again(tmp_path: Path) -> None:
    known = open_artefacts([FIELD])
    extract(known, tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name for name in names if not name.startswith("add_")] == [
        *[f"executorch-3-contexts.pte.{number}.bin" for number in range(3)],
        "manifest.json",
        *[f"qnn_multi_ctx_embed.onnx.{number}.bin" for number in range(2)],
        "simple_add_op.sm8750.tflite.bin",
        "simple_model_qualcomm_sm8650_precompiled.tflite.bin",
        "test_abs.dlc",
    ]
    again = open_artefact(tmp_path / "out/manifest.json")
    assert contents([again]) == contents(known)
    assert [piece.facts["artefact"] for piece in again.pieces[:4]] == [PTE.name] * 3 + [
        "qnn_multi_ctx_embed.onnx"
    ]
    for piece in again.pieces:
        assert piece.sha256() == piece.facts["sha256"]
    side = open_artefact(FIELD / "qnn_multi_ctx_external.onnx").pieces[0]
    assert piece_file(side, tmp_path / "cache") == side.path
    # once more, out of what was copied: the same
    extract(open_artefacts([tmp_path / "out"]), tmp_path / "twice")
    manifests = [(tmp_path / name / "manifest.json").read_text() for name in ("out", "twice")]
    assert manifests[0] == manifests[1]


def test_files_of_the_same_name_and_empty_caches(tmp_path: Path, logged: Logged) -> None:
    for folder, content in (("a", CONTEXT), ("b", OTHER)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.bin").write_bytes(content)
    (tmp_path / "empty.onnx").write_bytes(epcontext([{"embed_mode": 1}]))
    artefacts = open_artefacts([tmp_path / "a", tmp_path / "b", tmp_path / "empty.onnx"])
    files = [
        (piece.file, bool(piece.sha256)) for piece in extract(artefacts, tmp_path / "out").pieces
    ]
    assert files == [("model.bin", True), ("2-model.bin", True), (None, False)]
    assert "node n0 is empty" in logged.warnings[0]
    again = open_artefacts([tmp_path / "out"])
    assert contents(again) == [("", CONTEXT), ("", OTHER), ("node n0", b"")]


def test_a_folder_in_use_and_nothing_to_copy(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot.hide(FIELD, "FIELD")
    (tmp_path / "used").write_text("mine")
    for folder in (tmp_path, tmp_path / "used", tmp_path / "used/below"):
        with snapshot.raises(ConfigError):
            extract([open_artefact(PTE)], folder)
    with snapshot.raises(InfraError):
        extract([open_artefact(PTE)], Path("/proc/nowhere"))
    with snapshot.raises(ConfigError):
        extract([Artefact(PTE, "onnx", ())], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_ends_it_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, copied = tmp_path / "out", []

    def stopped(read: BinaryIO, offset: int, size: int, write: BinaryIO) -> None:
        copy_range(read, offset, size, write)
        copied.append(offset)
        if len(copied) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("harness.containers.extract.copy_range", stopped)
    with pytest.raises(KeyboardInterrupt):
        extract([open_artefact(PTE)], out)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert len(extract([open_artefact(PTE)], out).pieces) == 3


def test_a_manifest_that_is_wrong(tmp_path: Path, snapshot: Snapshot) -> None:
    out = tmp_path / "out"
    extract([open_artefact(PTE)], out)
    manifest, first = out / "manifest.json", out / "executorch-3-contexts.pte.0.bin"
    right = manifest.read_text()
    for wrong in (
        *("{", "{" * 100_000, "{}", right.replace('"sha256": "', '"sha256": "x', 1)),
        *(right.replace(first.name, name) for name in ("../secret", "..", "nowhere")),
    ):
        manifest.write_text(wrong)
        with pytest.raises(ArtefactError, match=str(out)):
            open_artefact(manifest)
    manifest.write_text(right)
    changed = bytearray(first.read_bytes())
    changed[5000] ^= 1
    first.write_bytes(changed)
    piece = open_artefact(manifest).pieces[0]
    for use in (piece.sha256, lambda: piece_file(piece, tmp_path)):
        with snapshot.raises(ArtefactError):
            use()
    with snapshot.raises(ArtefactError):
        extract([open_artefact(manifest)], tmp_path / "again")
    os.truncate(first, 9)
    with snapshot.raises(ArtefactError):
        open_artefact(manifest)


def test_a_piece_in_the_cache_is_copied_once(tmp_path: Path) -> None:
    mine = tmp_path / "model.pte"
    mine.write_bytes(PTE.read_bytes())
    first, second, _ = open_artefact(mine).pieces
    copied = piece_file(first, tmp_path)
    assert copied.read_bytes() == bytes_of(first)
    status = copied.stat()
    assert piece_file(first, tmp_path) == copied
    assert copied.stat().st_ino == status.st_ino  # nothing was copied again
    assert piece_file(second, tmp_path) != copied
    os.truncate(copied, 3)
    assert piece_file(first, tmp_path).read_bytes() == bytes_of(first)
    changed = bytearray(mine.read_bytes())
    changed[first.offset + 4000] ^= 1
    mine.write_bytes(changed)
    os.utime(mine, (1, 1))
    assert piece_file(first, tmp_path) != copied
    assert not [path for path in copied.parent.iterdir() if path.name.startswith(".")]


def test_pieces_that_cannot_be_had(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot.hide(FIELD, "FIELD")
    for piece in (Piece(PTE, 0, 0, "node n", "empty"), Piece(PTE, 157_000, 999, "x", "context")):
        with snapshot.raises(ArtefactError):
            piece_file(piece, tmp_path)
    with snapshot.raises(ArtefactError):
        piece_file(Piece(tmp_path / "none", 0, 9, "x", "context"), tmp_path)
    (tmp_path / "file").touch()
    with snapshot.raises(InfraError):
        piece_file(open_artefact(PTE).pieces[0], tmp_path / "file")
    assert list((tmp_path / "pieces").iterdir()) == []


def test_no_name_becomes_a_program_or_the_manifest(tmp_path: Path) -> None:
    """A name of somebody else's is kept only if nothing that it may be called is ever run."""
    for name in ("conftest.py", "x.BIN", ".bin", "manifest.json"):
        (tmp_path / name).write_bytes(CONTEXT)
    node = {"embed_mode": 0, "ep_cache_context": "manifest.json"}
    (tmp_path / "model.onnx").write_bytes(epcontext([node]))
    paths = [tmp_path / name for name in ("conftest.py", "x.BIN", ".bin", "model.onnx")]
    manifest = extract(map(open_artefact, paths), tmp_path / "out")
    names = ["conftest.py.bin", "x.BIN.bin", "file.bin", "manifest.json.bin"]
    assert [piece.file for piece in manifest.pieces] == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*names, "manifest.json"}


def test_files_of_somebody_else_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    """Of two that make one folder at once, the second leaves what the first made."""
    out = tmp_path / "out"

    def meanwhile(read: BinaryIO, offset: int, size: int, write: BinaryIO) -> None:
        out.mkdir(exist_ok=True)
        (out / "1.bin").write_text("somebody else's")
        copy_range(read, offset, size, write)

    monkeypatch.setattr("harness.containers.extract.copy_range", meanwhile)
    with snapshot.raises(ConfigError):
        extract([open_artefact(PTE)], out)
    assert [path.read_text() for path in out.iterdir()] == ["somebody else's"]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
@pytest.mark.parametrize("shared", ["", "below"])
def test_what_somebody_else_could_swap_is_copied_once(
    tmp_path: Path, mode: int, shared: str
) -> None:
    """A link that is put there after a file was looked at would be followed by what opens it."""
    folder = tmp_path / "given/below"
    folder.mkdir(parents=True)
    (folder / "x.npy").write_bytes(CONTEXT)
    blob = Blob(folder / "x.npy", 0, len(CONTEXT), "x.npy", root=tmp_path / "given")
    (tmp_path / "given" / shared).chmod(mode)
    copied = piece_file(blob, tmp_path / "cache")
    assert (copied == blob.path) == (mode == 0o755)
    (folder / "x.npy").unlink()
    (folder / "x.npy").symlink_to("/etc/passwd")
    if mode != 0o755:
        assert copied.read_bytes() == CONTEXT
        assert copied.suffix == ".npy"
    with pytest.raises(ArtefactError):
        piece_file(blob, tmp_path / "cache")
    # a file that its user has named himself lies within nothing
    tmp_path.chmod(0o777)
    (tmp_path / "m.bin").write_bytes(CONTEXT)
    assert piece_file(Blob(tmp_path / "m.bin", 0, len(CONTEXT), ""), tmp_path) == tmp_path / "m.bin"
