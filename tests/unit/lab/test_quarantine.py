"""Quarantine outlasts a run, whatever becomes of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.lab.health import Quarantine


def test_put_find_lift(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine")
    assert quarantine.find("local:ABC") is None
    put = quarantine.put("local:ABC", "unplugged")
    assert Quarantine(tmp_path / "quarantine").find("local:ABC") == put
    assert put.why == "unplugged"
    assert quarantine.find("local:ABD") is None
    assert quarantine.lift("local:ABC")
    assert not quarantine.lift("local:ABC")
    assert quarantine.find("local:ABC") is None


def test_names_that_look_alike_or_lead_elsewhere(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "q")
    names = ["a:b", "a/b", "a_b", "../../etc/passwd", "x" * 500]
    for name in names:
        quarantine.put(name, name)
    assert [quarantine.find(name).why for name in names] == names  # type: ignore[union-attr]
    assert len(list((tmp_path / "q").iterdir())) == len(names)
    assert list(tmp_path.iterdir()) == [tmp_path / "q"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"since": 1}', b"\xff" * 10, b"[" * 9999])
def test_a_damaged_entry_still_counts(tmp_path: Path, content: bytes) -> None:
    quarantine = Quarantine(tmp_path)
    quarantine.put("phone", "why")
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    entry = quarantine.find("phone")
    assert entry is not None
    assert "cannot be read" in entry.why
    assert quarantine.lift("phone")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfraError, match=r"cannot write which devices.*set QNN_HARNESS_QUARANTINE"):
        Quarantine(tmp_path / "file" / "quarantine").put("phone", "why")


def test_a_file_in_place_of_the_folder_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfraError, match=r"Not a directory; remove.*QNN_HARNESS_QUARANTINE"):
        Quarantine(tmp_path / "file").find("phone")
