"""ONNX files of models: the same model is the same whole file, whatever was there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.contexts.models import Model
from harness.contexts.onnx_files import OnnxFiles
from harness.errors import InfraError

TINY = Model("tiny")


def test_a_models_file_is_made_once(tmp_path: Path) -> None:
    path = OnnxFiles(tmp_path).path(TINY)
    assert path.read_bytes() == TINY.serialized()
    made = path.stat().st_mtime_ns
    assert OnnxFiles(tmp_path).path(TINY) == path
    assert path.stat().st_mtime_ns == made
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_variants_have_files_of_their_own(tmp_path: Path) -> None:
    files = OnnxFiles(tmp_path)
    assert files.path(TINY) != files.path(Model("tiny", variant=1))


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    path = OnnxFiles(tmp_path).path(TINY)
    path.write_bytes(path.read_bytes()[:-1])
    assert OnnxFiles(tmp_path).path(TINY).read_bytes() == TINY.serialized()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "onnx").write_text("in the way")
    with pytest.raises(InfraError, match="cannot keep"):
        OnnxFiles(tmp_path).path(TINY)
