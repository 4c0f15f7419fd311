"""Kept outputs against files: what can be told, and what a condition makes of what cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.run.bench.kept_outputs import KeptOutput
from harness.run.experiments.reference import accuracy_of


def kept(folder: Path, data_type: str = "float32", shape: tuple[int, ...] = (1, 2)) -> KeptOutput:
    got, expected = folder / "got.raw", folder / "expected.raw"
    return KeptOutput("y", data_type, shape, 0.5, -1, got, expected, "the expected files")


def test_an_output_is_read_as_its_type_and_shape(tmp_path: Path) -> None:
    np.array([1, 2], "f4").tofile(tmp_path / "got.raw")
    assert accuracy_of(kept(tmp_path)) is None
    np.array([1, 3], "f4").tofile(tmp_path / "expected.raw")
    found = accuracy_of(kept(tmp_path))
    assert found is not None
    assert found.worst is not None
    assert (found.max_abs, found.max_steps, found.worst.index) == (1.0, None, (0, 1))
    assert found.against == "the expected files"
    flat = accuracy_of(kept(tmp_path, shape=(7,)))
    assert flat is not None
    assert flat.worst is not None
    assert flat.worst.index == (1,)
    quantised = accuracy_of(kept(tmp_path, "ufixed8"))
    assert quantised is not None
    assert quantised.elements == 8
    assert quantised.max_steps == 2 * quantised.max_abs > 0


def test_nobody_tells_what_does_not_fit(tmp_path: Path) -> None:
    np.array([1, 2], "f4").tofile(tmp_path / "got.raw")
    np.array([1, 2, 3], "f4").tofile(tmp_path / "expected.raw")
    assert accuracy_of(kept(tmp_path)) is None
    assert accuracy_of(kept(tmp_path, "sfixed4")) is None
    (tmp_path / "expected.raw").write_bytes(b"odd")
    assert accuracy_of(kept(tmp_path)) is None
    (tmp_path / "expected.raw").write_bytes(b"")
    assert accuracy_of(kept(tmp_path)) is None
