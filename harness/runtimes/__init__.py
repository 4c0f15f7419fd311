"""Sources of QNN and ONNX Runtime, and the check before they are used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from harness.lab.config_fields import RuntimeSource


@pluggy.HookimplMarker("pytest")
def qnn_runtime_sources() -> Iterable[type[RuntimeSource]]:
    """Return the kinds of docs/howto/lab.md."""
    from harness.runtimes.source_kinds import KINDS  # only where devices.yaml names a source

    return KINDS
