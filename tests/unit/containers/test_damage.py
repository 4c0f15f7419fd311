"""Damaged files of every kind: an error that names the file, or what it truly says."""

import random
from pathlib import Path

import pytest

from harness.containers import artefact
from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from tests.snapshots import Snapshot
from tests.unit.containers.damage import SMALL, damaged, require_error_or_truth, seeds
from tests.unit.containers.made import Pte

SEEDS = seeds()
CORPUS = Path(__file__).parent / "corpus"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "side.bin").write_bytes(SMALL)
    return tmp_path


@pytest.mark.parametrize("name", SEEDS)
def test_at_random(name: str, folder: Path) -> None:
    chance = random.Random(name)
    path = folder / "artefact"
    readable = 0
    for _ in range(150):
        path.write_bytes(damaged(SEEDS[name], chance))
        readable += require_error_or_truth(path)
    assert readable < 150


def test_what_was_found_once(folder: Path) -> None:
    """Findings of the tests of the night belong there."""
    for damaged_file in CORPUS.iterdir():
        path = folder / damaged_file.name
        path.write_bytes(damaged_file.read_bytes())
        require_error_or_truth(path)


def test_a_damaged_dlc_is_told_with_its_place(folder: Path) -> None:
    path = folder / "artefact"
    path.write_bytes(b"PK\3\4" + bytes(200))
    with pytest.raises(ArtefactError) as refused:
        open_artefact(path)
    assert (refused.value.file, refused.value.offset) == (path, 0)


def test_a_file_that_was_made_to_be_endless_has_an_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setattr(artefact, "_BUDGET", 1 << 16)
    delegates = {"forward": [("Other", 0)] * 5000}
    (folder / "artefact").write_bytes(Pte(delegates, [SMALL]).content())
    with snapshot.raises(ArtefactError):
        open_artefact(folder / "artefact")
