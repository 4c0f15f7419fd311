"""The engines that are built in, each in a module with its class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from harness.core.engine import Engine


@pluggy.HookimplMarker("pytest")
def qnn_engines() -> Iterable[Engine]:
    """Return the built-in engines, the default first."""
    from harness.engines.executorch import ExecuTorch
    from harness.engines.litert import LiteRT
    from harness.engines.ort import OnnxRuntime
    from harness.engines.qnn import Probe

    return Probe(), OnnxRuntime(), ExecuTorch(), LiteRT()
