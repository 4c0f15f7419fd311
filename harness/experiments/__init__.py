"""The measurements of suites, and how they are judged."""

from harness.core.error_codes import TENSOR_MEMORIES, TensorMemory
from harness.experiments.backend_phases import measure_backend, measure_context
from harness.experiments.capacity import Limit, SizePoint, fill, find_limit
from harness.experiments.context_options import (
    OPTION_NAMES,
    ORT_OPTION_NAMES,
    try_option,
    try_ort_option,
)
from harness.experiments.context_remedies import REMEDIES, Remedy, try_remedy
from harness.experiments.dsp_restart import measure_restart
from harness.experiments.latency import GrowthTolerance, measure_growth, memory_samples
from harness.experiments.memory_type_pairing import Pairing, Tolerances, by_memory, measure_pairing
from harness.experiments.spill_fill_sharing import (
    STRATEGIES,
    Strategy,
    measure_sharing,
    release_orders,
    spill_fill_bytes,
)
from harness.models.generated_models import OPERATORS

__all__ = [
    "OPERATORS",
    "OPTION_NAMES",
    "ORT_OPTION_NAMES",
    "REMEDIES",
    "STRATEGIES",
    "TENSOR_MEMORIES",
    "GrowthTolerance",
    "Limit",
    "Pairing",
    "Remedy",
    "SizePoint",
    "Strategy",
    "TensorMemory",
    "Tolerances",
    "by_memory",
    "fill",
    "find_limit",
    "measure_backend",
    "measure_context",
    "measure_growth",
    "measure_pairing",
    "measure_restart",
    "measure_sharing",
    "memory_samples",
    "release_orders",
    "spill_fill_bytes",
    "try_option",
    "try_ort_option",
    "try_remedy",
]
