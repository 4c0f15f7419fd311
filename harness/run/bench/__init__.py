"""What a test holds in its hand: a device made ready, and a way to say what was found out."""

from harness.run.bench.bench import Bench
from harness.run.bench.case_bench import (
    CaseBench,
    Notes,
    NotPassed,
    NoVerdict,
    Observation,
    TargetFailure,
)

__all__ = ["Bench", "CaseBench", "NoVerdict", "NotPassed", "Notes", "Observation", "TargetFailure"]
