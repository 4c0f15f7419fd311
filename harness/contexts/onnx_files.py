"""The ONNX files of models: for a device that makes sessions of them. Written once, kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.contexts.models import Model
from harness.files.whole_file import keep_whole


class OnnxFiles:
    """Model files below `<cache_root>/onnx`; the same model is the same file."""

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root / "onnx"
        self._found: dict[Model, Path] = {}

    def path(self, model: Model) -> Path:
        """The model's file, made if it is missing or damaged. Raises InfraError."""
        if model not in self._found:
            content = model.serialized()
            digest = hashlib.sha256(content).hexdigest()
            path = self._root / f"{model}-{digest[:16]}.onnx"
            keep_whole(path, content)
            self._found[model] = path
        return self._found[model]
