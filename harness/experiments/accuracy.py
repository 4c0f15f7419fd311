"""The distance of outputs from their reference, and the limits for each arithmetic (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from harness.bench.kept_outputs import MAX_BYTES
from harness.core.errors import ConfigError
from harness.models.artefact_sources import WholeFile
from harness.models.context_file import ContextFile
from harness.models.onnx_model import OnnxModel
from harness.models.session_plan import CONDITIONS, MADE_UP, READ, ClosenessLimits
from harness.results.output_drift import NUMPY_TYPES
from harness.results.record import Check, held

if TYPE_CHECKING:
    import numpy as np

    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation
    from harness.bench.kept_outputs import KeptOutput
    from harness.models.contexts import SourceList


Arithmetic = Literal["float32", "float16", "uint8"]
"""The type in which a backend calculates; the outputs may have another one."""

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Worst:
    """The element with the largest error: its index, and both values."""

    index: tuple[int, ...]
    got: float
    expected: float


@dataclass(frozen=True)
class Accuracy:
    """The comparison of an output with its reference, an entry in a record's measurements.

    `max_abs` is the largest difference, `relative_max_abs` that difference as a part of the
    reference's largest value, `max_steps` the same in steps of a quantised output. `cosine` is the
    cosine of the angle between both, 1 if both are all zeros. `sqnr_db` is the reference's power
    over that of the difference, in dB. Undefined figures are None: the SQNR without a difference,
    and the relative error if the reference is all zeros.

    `not_finite` counts NaN and infinities on one side only, `not_a_number` the NaN among them: with
    any of these all other figures are None. Those that are equal on both sides (`same_not_finite`)
    are left out. `against` and `inputs` describe the reference and the inputs in words.
    """

    output: str
    elements: int
    cosine: float | None
    max_abs: float | None
    relative_max_abs: float | None
    not_finite: int = 0
    not_a_number: int = 0
    max_steps: float | None = None
    sqnr_db: float | None = None
    worst: Worst | None = None
    against: str = ""
    inputs: str = ""
    same_not_finite: int = 0

    @property
    def equals(self) -> bool:
        """Return whether there is no difference at all."""
        return self.max_abs == 0


CLOSENESS: Final[Mapping[Arithmetic, ClosenessLimits]] = MappingProxyType(
    {
        # 24 bits, sums in another order: libQnnCpu.so 2.47.0 gave 1 - 1.4e-13 and 5e-7
        "float32": ClosenessLimits(min_cosine=0.999_999, max_relative=0.0001),
        # 11 bits over 53 layers: the HTP simulator gave 1 - 4.5e-7 and 9e-4 at most
        "float16": ClosenessLimits(min_cosine=0.999_9, max_relative=0.01),
        # 8 bits; ties may be rounded either way, and errors pass through 53 layers: the HTP
        # simulator gave 0.99948 and 0.029, four steps of the output
        "uint8": ClosenessLimits(min_cosine=0.998, max_relative=0.08),
    }
)
"""More than twice the errors that were measured on MobileNet-v2 (QNN 2.47.0 to 2.51.0)."""


def arithmetic(backend: str, data_type: str) -> Arithmetic:
    """Return the arithmetic that a backend uses for a model of this type.

    HTP: half precision, which sessions and contexts of float models request. GPU: the driver may
    use half precision, so no more can be expected.
    """
    if data_type != "float32":
        return "uint8"
    return "float32" if backend == "cpu" else "float16"


def compare(
    output: str,
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    *,
    step: float | None = None,
    offset: int | None = None,
    against: str = "",
) -> Accuracy:
    """Compare two arrays of one shape; `step` is the size of a step of a quantised output.

    With an `offset` both have raw data; values are (raw + offset) * step. Works block by block, so
    that both may be large memory maps. Raises ValueError if they differ in shape or are empty.
    """
    import numpy as np

    if got.shape != expected.shape or not got.size:
        raise ValueError(f"{output}: shape {got.shape}, expected {expected.shape}")
    flat = got.reshape(-1), expected.reshape(-1)
    sums = np.zeros(4)
    # values are scaled, because squares of very large or small ones would overflow or underflow

    def values(side: np.ndarray[Any, Any], start: int) -> np.ndarray[Any, Any]:
        block = side[start : start + _BLOCK].astype("<f8")
        return block if offset is None or step is None else (block + offset) * step

    starts = range(0, got.size, _BLOCK)
    largest_got, largest = (max(_largest(values(side, start)) for start in starts) for side in flat)
    exponent = math.frexp(max(largest_got, largest))[1]
    place, largest_error, not_finite, not_a_number, same = 0, -1.0, 0, 0, 0
    for start in starts:
        x, y = (values(side, start) for side in flat)
        finite = np.isfinite(x) & np.isfinite(y)
        alike = ~finite & ((x == y) | (np.isnan(x) & np.isnan(y)))
        same += int(np.count_nonzero(alike))
        bad = ~finite & ~alike
        not_finite += int(np.count_nonzero(bad))
        not_a_number += int(np.count_nonzero(np.isnan(x) != np.isnan(y)))
        x, y = (np.ldexp(np.where(finite, side, 0.0), -exponent) for side in (x, y))
        error = np.abs(x - y)
        error[bad] = np.inf
        if (block_error := float(error.max())) > largest_error:
            place, largest_error = start + int(error.argmax()), block_error
        sums += [float(part.sum()) for part in (x * y, x * x, y * y, error * error)]
    cosine, sqnr = _cosine_and_sqnr(*sums)
    max_abs = math.ldexp(largest_error, exponent) if math.isfinite(largest_error) else None
    relative: float | None = None
    if max_abs is not None and (largest or not max_abs):
        relative = max_abs / largest if largest else 0.0
    index = tuple(int(i) for i in np.unravel_index(place, got.shape))
    got_value, expected_value = (float(values(side, place)[0]) for side in flat)
    return Accuracy(
        output,
        got.size,
        cosine,
        max_abs,
        relative,
        not_finite,
        not_a_number,
        max_abs / step if step and max_abs is not None else None,
        sqnr,
        Worst(index, got_value, expected_value),
        against,
        same_not_finite=same,
    )


def _largest(block: np.ndarray[Any, Any]) -> float:
    """Return the largest finite magnitude."""
    import numpy as np

    return float(np.max(np.abs(block[np.isfinite(block)]), initial=0.0))


def _cosine_and_sqnr(
    product: float, got: float, expected: float, error: float
) -> tuple[float | None, float | None]:
    """Return cosine and SQNR from the sums of products, both squares and squared errors."""
    if not math.isfinite(error):
        return None, None
    cosine = 1.0 if got == expected else None
    if lengths := math.sqrt(got) * math.sqrt(expected):
        cosine = max(-1.0, min(product / lengths, 1.0))
    sqnr = 10 * (math.log10(expected) - math.log10(error)) if error and expected else None
    return cosine, sqnr


def judge_accuracy(figures: Accuracy, limits: ClosenessLimits) -> list[Check]:
    """Return a check for each limit, naming the output, its error and the worst element.

    NaN on one side only is wrong with any limits.
    """
    worst, bad = "", ""
    count, element = figures.elements, figures.worst
    if element is not None and not figures.equals:
        place = list(element.index)
        worst = f"; worst at {place}: {element.got:.6g}, expected {element.expected:.6g}"
    if figures.not_finite:
        bad = f"; {figures.not_finite} of {count} elements are NaN or infinite on one side"
    against = f" against {figures.against}" if figures.against else ""
    sqnr = math.inf if figures.equals else figures.sqnr_db
    rows = (
        ("max_error", figures.max_abs, limits.max_error, "at most", -1),
        ("cosine", figures.cosine, limits.min_cosine, "at least", 1),
        ("sqnr_db", sqnr, limits.min_sqnr, "at least", 1),
        ("max_abs", figures.relative_max_abs, limits.max_relative, "of the maximum, at most", -1),
    )
    checks = [
        held(
            f"{name}[{figures.output}]",
            figure is not None and sign * figure >= sign * limit,
            f"{'no figure' if figure is None else f'{figure:.9g}'}{against}, {words} {limit:.9g} "
            f"required{worst}{bad}",
            **{name: figure, "asked": limit},
        )
        for name, figure, limit, words, sign in rows
        if limit is not None
    ]
    if figures.not_a_number:
        reason = f"{figures.not_a_number} of {count} elements are NaN on one side only{worst}"
        checks.append(held(f"nan[{figures.output}]", False, reason, nan=figures.not_a_number))
    return checks


def record_accuracy(bench: Bench, result: Observation, sources: SourceList) -> None:
    """Record the accuracy of outputs; an exceeded limit fails the case.

    So does a limit for outputs that cannot be compared, and a failure of `result.check`. Raises
    TargetFailure, and ConfigError for a limit without any reference.
    """
    limits = sources.closeness
    if not result.kept:
        result.check()
        if limits:
            problem = "the outputs have no reference; pass --expected DIR or --reference MODEL"
            raise ConfigError(problem, field=CONDITIONS)
    compared: dict[tuple[str, str], KeptOutput] = {}
    not_compared = []
    for output in _with_original(bench, result.kept, sources):
        if _pair(output) is None:
            not_compared.append({"output": output.name, "why": _why_not_compared(output)})
        else:
            compared[output.of, output.name] = output
    inputs = inputs_of(sources)
    figures = [replace(accuracy_of(output), inputs=inputs) for output in compared.values()]
    if figures:
        bench.measure(accuracy=[asdict(figure) for figure in figures])
        bench.outputs_compared()
    if not_compared:
        bench.measure(not_compared=not_compared)
    checks = [check for figure in figures for check in judge_accuracy(figure, limits)]
    if limits:
        missing = [(entry["output"], entry["why"]) for entry in not_compared]
        checks += [held(f"reference[{name}]", False, why) for name, why in missing]
    if checks:
        bench.expect(*checks)
    result.check()


def inputs_of(sources: SourceList) -> str:
    """Describe the inputs of a file in words."""
    if models := [source for source in sources if isinstance(source, OnnxModel)]:
        return models[0].inputs_are
    inputs = sources.options.inputs if isinstance(sources, WholeFile) else None
    read = [source.inputs for source in sources if isinstance(source, ContextFile)]
    return READ if inputs is not None or (read and None not in read) else MADE_UP


def _with_original(
    bench: Bench, outputs: Sequence[KeptOutput], sources: SourceList
) -> Sequence[KeptOutput]:
    """Return the outputs with those of another model on the CPU as reference, if selected."""
    if (original := sources.closeness.original) is None:
        return outputs
    model, files = OnnxModel.of(original), dict[str, Path]()
    for source in sources:
        if isinstance(source, OnnxModel):
            other = model.reading(bench.reference(source).inputs)
            files |= zip(other.outputs(), bench.reference(other).expected, strict=True)
    against = f"{original.name} on the CPU"
    references = [files[output.name] for output in outputs]
    pairs = zip(outputs, references, strict=True)
    return [replace(output, reference=file, against=against) for output, file in pairs]


def _why_not_compared(output: KeptOutput) -> str:
    if output.file is None or not output.file.is_file():
        return f"the output was not stored: the limit is {MAX_BYTES >> 20} MiB per case"
    return "the type or the size of the output differs from its reference"


def accuracy_of(output: KeptOutput) -> Accuracy:
    """Compare an output with its reference.

    Files are memory-mapped. Raises ValueError if they cannot be compared.
    """
    if (pair := _pair(output)) is None:
        raise ValueError(f"{output.name}: {_why_not_compared(output)}")
    offset = output.offset if output.data_type.startswith(("ufixed", "sfixed")) else None
    step = output.scale if offset is not None else None
    return compare(output.name, *pair, step=step, offset=offset, against=output.against)


def _pair(output: KeptOutput) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    """Return output and reference as arrays; None if they cannot be compared.

    That is so for an output that was too large to keep, is empty, has no numeric type, or has
    another size than its reference.
    """
    got, expected = (_mapped(output, file) for file in (output.file, output.reference))
    if got is None or expected is None or got.shape != expected.shape:
        return None
    return got, expected


def _mapped(output: KeptOutput, file: Path | None) -> np.ndarray[Any, Any] | None:
    import numpy as np

    dtype = NUMPY_TYPES.get(output.data_type)
    if dtype is None or file is None or not file.is_file() or not file.stat().st_size:
        return None
    try:
        flat = np.memmap(file, dtype, "r")
    except ValueError:  # the size is not a multiple of the element's
        return None
    is_whole = int(np.prod(output.shape)) == flat.size
    return flat.reshape(output.shape) if is_whole else flat
