"""Outputs that a case has kept, told against what they should be."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contexts.context.source import CONDITIONS, ClosenessAsked
from harness.ground import ConfigError
from harness.run.bench.kept_outputs import MAX_BYTES
from harness.run.experiments.accuracy import Accuracy, compare, judge_asked
from harness.verdict import held
from harness.verdict.results.drift import NUMPY_TYPES

if TYPE_CHECKING:
    import numpy as np

    from harness.run.bench import Bench, Observation
    from harness.run.bench.kept_outputs import KeptOutput


def tell_accuracy(bench: Bench, seen: Observation, asked: ClosenessAsked) -> None:
    """Measures how far outputs are from their reference; a condition that breaks fails the case.

    So does a condition on outputs that cannot be compared, and what `seen.check` fails for. Raises
    TargetFailure, and ConfigError for a condition where there is no reference at all.
    """
    if not seen.kept:
        seen.check()
        if asked:
            raise ConfigError("nothing tells what the outputs should be", field=CONDITIONS)
    told = [(one, accuracy_of(one)) for one in seen.kept]
    found = [accuracy for _, accuracy in told if accuracy is not None]
    untold = [
        {"output": one.name, "why": _why_untold(one)} for one, accuracy in told if accuracy is None
    ]
    if found:
        bench.measure(accuracy=[asdict(one) for one in found])
        bench.outputs_compared()
    if untold:
        bench.measure(not_compared=untold)
    checks = [check for one in found for check in judge_asked(one, asked)]
    if asked:
        checks += [held(f"reference[{one['output']}]", False, one["why"]) for one in untold]
    if checks:
        bench.expect(*checks)
    seen.check()


def _why_untold(kept: KeptOutput) -> str:
    if kept.file is None or not kept.file.is_file():
        return f"it was not kept: at most {MAX_BYTES >> 20} MiB of a case are"
    return "its type or its size is not that of its reference"


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


def _mapped(kept: KeptOutput, file: Path | None) -> np.ndarray[Any, Any] | None:
    import numpy as np

    dtype = NUMPY_TYPES.get(kept.data_type)
    if dtype is None or file is None or not file.is_file() or not file.stat().st_size:
        return None
    try:
        flat = np.memmap(file, dtype, "r")
    except ValueError:  # it is no whole number of elements
        return None
    whole = int(np.prod(kept.shape)) == flat.size
    return flat.reshape(kept.shape) if whole else flat
