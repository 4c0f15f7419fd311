"""What suites measure, and how it is judged, side by side."""

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
