"""The kind of a file is recognised by its content."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.containers.artefact import ArtefactError, Piece
from harness.containers.extract import extract
from harness.containers.open import open_artefact, open_artefacts
from tests.snapshots import Snapshot
from tests.unit.containers.made import FIELD, bytes_of

CONTEXT = min(FIELD.glob("add_add_1*.bin"))


def test_a_context_binary_is_one_piece_whatever_it_is_called(tmp_path: Path) -> None:
    renamed = tmp_path / "model.txt"
    renamed.write_bytes(CONTEXT.read_bytes())
    artefact = open_artefact(renamed)
    assert artefact.kind == "context"
    (piece,) = artefact.pieces
    assert piece == Piece(renamed, 0, 17776, "", "context")
    assert bytes_of(piece) == CONTEXT.read_bytes()
    assert piece.sha256() == hashlib.sha256(CONTEXT.read_bytes()).hexdigest()


def test_what_no_reader_knows(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "empty.bin").touch()
    (tmp_path / "text.bin").write_text("hello")
    os.mkfifo(tmp_path / "pipe.bin")
    for name in ("empty.bin", "text.bin", "pipe.bin", "."):
        with snapshot.raises(ArtefactError) as error:
            open_artefact(tmp_path / name)
        assert error.value.file == tmp_path / name  # type: ignore[attr-defined]


def test_what_the_system_refuses_is_told_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, entries = Path.stat, Path.iterdir
    locked = tmp_path / "locked"  # a folder without rights: root would read it

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path.parent == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    def listed(path: Path) -> Iterator[Path]:
        if path == locked:
            refused(path / "any")
        return entries(path)

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "iterdir", listed)
    locked.mkdir()
    long = tmp_path / ("x" * 300)
    paths = [locked, locked / "a.bin", long, CONTEXT]
    messages: list[str] = []
    (artefact,) = open_artefacts(paths, lambda error: messages.append(str(error)))
    assert artefact.path == CONTEXT
    assert [message.partition(": ")[0] for message in messages] == [*map(str, paths[:3])]


def test_a_file_that_was_cut_off_after_it_was_opened(tmp_path: Path, snapshot: Snapshot) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(CONTEXT.read_bytes())
    (piece,) = open_artefact(path).pieces
    os.truncate(path, 9000)
    with snapshot.raises(ArtefactError):
        piece.sha256()


def test_what_lies_beside_a_manifest_is_not_skipped(tmp_path: Path) -> None:
    """An empty .bin, or one more context, in the folder of an extraction went unseen."""
    out = tmp_path / "out"
    extract([open_artefact(CONTEXT), open_artefact(FIELD / "test_abs.dlc")], out)
    (listed,) = open_artefacts([out])
    assert (listed.kind, len(listed.pieces)) == ("manifest", 2)
    (out / "more.bin").write_bytes(CONTEXT.read_bytes())
    assert [artefact.path.name for artefact in open_artefacts([out])] == [
        "manifest.json",
        "more.bin",
    ]
    (out / "empty.bin").touch()
    with pytest.raises(ArtefactError, match=r"empty\.bin: "):
        open_artefacts([out])


@pytest.mark.parametrize("content", ['{"architectures": []}', "{", "[" * 1000, ""])
def test_json_about_something_else_is_passed_by(tmp_path: Path, content: str) -> None:
    """JSON of other tools, such as config.json, is no broken manifest."""
    (tmp_path / "model.bin").write_bytes(CONTEXT.read_bytes())
    (tmp_path / "config.json").write_text(content)
    (artefact,) = open_artefacts([tmp_path])
    assert artefact.path == tmp_path / "model.bin"
    (tmp_path / "config.json").rename(tmp_path / "manifest.json")
    with pytest.raises(ArtefactError, match=r"manifest\.json: "):
        open_artefacts([tmp_path])


def test_a_manifest_that_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(CONTEXT.read_bytes())
    (tmp_path / "manifest.json").symlink_to("/nowhere")
    with pytest.raises(ArtefactError, match=r"manifest\.json"):
        open_artefacts([tmp_path])
