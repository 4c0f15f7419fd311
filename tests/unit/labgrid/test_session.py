"""What a session sees of its places while a keeper, which is only a lock here, keeps them."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.labgrid.place import Place
from harness.labgrid.session import ALIVE, LOST, Found, lost_file


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Found]:
    (tmp_path / LOST).mkdir()
    with open(tmp_path / ALIVE, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Found([Place("p1"), Place("p2")], "", tmp_path)


def test_a_place_is_lost_and_back_again(found: Found) -> None:
    assert found.folder is not None
    said = ["lost to bob", "had again", "lost to eve"]
    for number, line in enumerate(said, 1):
        with lost_file(found.folder, "p1").open("a") as file:
            file.write(f"{line}\n")
        assert found.changes("p1") == said[:number]
        assert found.why_not("p1") == (None if line == "had again" else line)
        assert (found.changes("p2"), found.why_not("p2")) == ([], None)


def test_without_its_keeper_no_place_is_ours(found: Found, tmp_path: Path) -> None:
    assert "its keeper ended" in str(Found(found.places, "", tmp_path / "gone").why_not("p1"))
    assert Found(found.places, "").changes("p1") == []
