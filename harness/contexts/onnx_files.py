"""The ONNX files of models: for a device that makes sessions of them. Written once, kept."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from harness.contexts.models import ModelSpec
from harness.errors import InfraError


class OnnxFiles:
    """Model files below `<cache_root>/onnx`; the same model is the same file."""

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root / "onnx"
        self._found: dict[ModelSpec, Path] = {}

    def path(self, model: ModelSpec) -> Path:
        """The model's file, made if it is missing or damaged. Raises InfraError."""
        if model not in self._found:
            content = model.serialized()
            digest = hashlib.sha256(content).hexdigest()
            path = self._root / f"{model}-{digest[:16]}.onnx"
            try:
                if not path.is_file() or path.read_bytes() != content:
                    _write(path, content)
            except OSError as error:
                raise InfraError(f"cannot keep {path}: {error.strerror or error}") from error
            self._found[model] = path
        return self._found[model]


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing, whoever else writes the same file meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
