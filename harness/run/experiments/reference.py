"""Outputs that a case has kept, told against what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contexts.context.source import CONDITIONS, MADE_UP, READ
from harness.contexts.sources.artefact_sources import WholeFile
from harness.contexts.sources.context_file import ContextFile
from harness.contexts.sources.onnx_model import OnnxModel
from harness.ground.errors import ConfigError
from harness.run.bench.kept_outputs import MAX_BYTES
from harness.run.experiments.accuracy import Accuracy, compare_all, judge_asked
from harness.verdict.results.checks import held
from harness.verdict.results.drift import NUMPY_TYPES

if TYPE_CHECKING:
    import numpy as np

    from harness.contexts.sources.contexts import SourceList
    from harness.run.bench.bench import Bench
    from harness.run.bench.case_session import Observation
    from harness.run.bench.kept_outputs import KeptOutput


def tell_accuracy(bench: Bench, seen: Observation, ran: SourceList) -> None:
    """Measures how far outputs are from their reference; a condition that breaks fails the case.

    So does a condition on outputs that cannot be compared, and what `seen.check` fails for. Raises
    TargetFailure, and ConfigError for a condition where there is no reference at all.
    """
    asked = ran.closeness
    if not seen.kept:
        seen.check()
        if asked:
            raise ConfigError("nothing tells what the outputs should be", field=CONDITIONS)
    together: dict[tuple[str, str], list[KeptOutput]] = {}
    untold = []
    for one in _told_against_original(bench, seen.kept, ran):
        if _pair(one) is None:
            of = f" of {one.sample}" if one.sample else ""
            untold.append({"output": f"{one.name}{of}", "why": _why_untold(one)})
        else:
            together.setdefault((one.of, one.name), []).append(one)
    inputs = inputs_of(ran)
    found = [replace(accuracy_of(*kept), inputs=inputs) for kept in together.values()]
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


def inputs_of(ran: SourceList) -> str:
    """What the inputs of a file are, in plain words."""
    if models := [one for one in ran if isinstance(one, OnnxModel)]:
        return models[0].inputs_are
    given = ran.given.inputs if isinstance(ran, WholeFile) else None
    read = [one.inputs for one in ran if isinstance(one, ContextFile)]
    return READ if given is not None or (read and None not in read) else MADE_UP


def _told_against_original(
    bench: Bench, kept: Sequence[KeptOutput], ran: SourceList
) -> Sequence[KeptOutput]:
    """The outputs, told against those of another model on the CPU if that is asked for."""
    if (original := ran.closeness.original) is None:
        return kept
    model, files = OnnxModel.of(original), dict[tuple[str, str], Path]()
    for one in ran:
        if isinstance(one, OnnxModel):
            like = replace(model, sample=one.sample).reading(bench.reference(one).inputs)
            named = zip(like.outputs(), bench.reference(like).expected, strict=True)
            files |= {(one.sample, name): file for name, file in named}
    against = f"{original.name} on the CPU"
    return [replace(one, reference=files[one.sample, one.name], against=against) for one in kept]


def _why_untold(kept: KeptOutput) -> str:
    if kept.file is None or not kept.file.is_file():
        return f"it was not kept: at most {MAX_BYTES >> 20} MiB of a case are"
    return "its type or its size is not that of its reference"


def accuracy_of(*kept: KeptOutput) -> Accuracy:
    """How far an output is from its reference, over all sets of inputs that it comes of.

    Files are mapped, not read. Raises ValueError where nobody can tell.
    """
    first = kept[0]
    offset = first.offset if first.data_type.startswith(("ufixed", "sfixed")) else None
    step = first.scale if offset is not None else None
    pairs = {one.sample: pair for one in kept if (pair := _pair(one)) is not None}
    return compare_all(first.name, pairs, step=step, offset=offset, against=first.against)


def _pair(kept: KeptOutput) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    """What came and what should have; None where nobody can compare these.

    That is so for what was too large to be kept, has no elements or a type without numbers, or has
    another size than its reference.
    """
    got, expected = (_mapped(kept, file) for file in (kept.file, kept.reference))
    if got is None or expected is None or got.shape != expected.shape:
        return None
    return got, expected


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
