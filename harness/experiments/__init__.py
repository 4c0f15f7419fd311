"""What suites measure, and how it is judged, side by side. A name is loaded when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.experiments.backends import measure_backend, measure_context
    from harness.experiments.capacity import Limit, SizePoint, find_limit
    from harness.experiments.growth import GrowthTolerance, measure_growth
    from harness.experiments.latency import LatencyTolerance
    from harness.experiments.pairing import Pairing, Tolerances, by_memory, measure_pairing
    from harness.experiments.sharing import (
        STRATEGIES,
        Strategy,
        measure_sharing,
        planned_sharing,
        release_orders,
        spill_fill_bytes,
    )
    from harness.qnn.memory_types import TENSOR_MEMORIES, TensorMemory

_NAMES = {
    "backends": ("measure_backend", "measure_context"),
    "capacity": ("Limit", "SizePoint", "find_limit"),
    "growth": ("GrowthTolerance", "measure_growth"),
    "latency": ("LatencyTolerance",),
    "pairing": (
        "TENSOR_MEMORIES",
        "Pairing",
        "TensorMemory",
        "Tolerances",
        "by_memory",
        "measure_pairing",
    ),
    "sharing": (
        "STRATEGIES",
        "Strategy",
        "measure_sharing",
        "planned_sharing",
        "release_orders",
        "spill_fill_bytes",
    ),
}

__all__ = [
    "STRATEGIES",
    "TENSOR_MEMORIES",
    "GrowthTolerance",
    "LatencyTolerance",
    "Limit",
    "Pairing",
    "SizePoint",
    "Strategy",
    "TensorMemory",
    "Tolerances",
    "by_memory",
    "find_limit",
    "measure_backend",
    "measure_context",
    "measure_growth",
    "measure_pairing",
    "measure_sharing",
    "planned_sharing",
    "release_orders",
    "spill_fill_bytes",
]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
