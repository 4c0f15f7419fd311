"""Outputs that a case has kept, told against what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.contexts.context.source import ClosenessAsked
from harness.run.experiments.accuracy import Accuracy, compare, judge_asked
from harness.verdict import held
from harness.verdict.results.drift import NUMPY_TYPES

if TYPE_CHECKING:
    import numpy as np

    from harness.run.bench import Bench
    from harness.run.bench.kept_outputs import KeptOutput


def tell_accuracy(bench: Bench, kept: Sequence[KeptOutput], asked: ClosenessAsked) -> None:
    """Measures how far outputs are from their reference; a condition that breaks fails the case.

    So does a condition on outputs that nothing is known about. Raises TargetFailure.
    """
    found = [one for one in map(accuracy_of, kept) if one is not None]
    if found:
        bench.measure(accuracy=[asdict(one) for one in found])
        bench.outputs_compared()
    checks = [check for one in found for check in judge_asked(one, asked)]
    if asked and len(found) < max(1, len(kept)):
        why = f"{len(found)} of {len(kept)} outputs could be told against a reference"
        checks.append(held("reference", False, why))
    if checks:
        bench.expect(*checks)


def accuracy_of(kept: KeptOutput) -> Accuracy | None:
    """How far an output is from its reference; None where nobody can tell.

    That is so for what was too large to be kept, has no elements or a type without numbers, or has
    another size than its reference. Both files are mapped, not read.
    """
    got, expected = (_mapped(kept, file) for file in (kept.file, kept.reference))
    if got is None or expected is None or got.shape != expected.shape:
        return None
    offset = kept.offset if kept.data_type.startswith(("ufixed", "sfixed")) else None
    step = kept.scale if offset is not None else None
    return compare(kept.name, got, expected, step=step, offset=offset, against=kept.against)


def _mapped(kept: KeptOutput, file: Any) -> np.ndarray[Any, Any] | None:
    import numpy as np

    dtype = NUMPY_TYPES.get(kept.data_type)
    if dtype is None or not file.is_file() or not file.stat().st_size:
        return None
    try:
        flat = np.memmap(file, dtype, "r")
    except ValueError:  # it is no whole number of elements
        return None
    whole = int(np.prod(kept.shape)) == flat.size
    return flat.reshape(kept.shape) if whole else flat
