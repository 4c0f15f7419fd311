"""How close outputs are to the reference, and how close each arithmetic must come (pure)."""

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
from harness.models.source import CONDITIONS, MADE_UP, READ, ClosenessAsked
from harness.results.drift import NUMPY_TYPES
from harness.results.record import Check, held

if TYPE_CHECKING:
    import numpy as np

    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation
    from harness.bench.kept_outputs import KeptOutput
    from harness.models.contexts import SourceList


Arithmetic = Literal["float32", "float16", "uint8"]
"""What a backend calculates in; the outputs themselves may have another type."""

_BLOCK: Final = 1 << 20
_MOST_CHANNELS: Final = 1 << 16
_CHANNELS_TOLD: Final = 16


@dataclass(frozen=True)
class ChannelAccuracy:
    """One channel of an output (its number along axis 1), with the figures of `Accuracy`."""

    channel: int
    max_abs: float | None
    cosine: float | None
    sqnr_db: float | None


@dataclass(frozen=True)
class Worst:
    """The element that is furthest off: its place in the output, both values, of which inputs."""

    index: tuple[int, ...]
    got: float
    expected: float
    sample: str = ""


@dataclass(frozen=True)
class Accuracy:
    """An output against its reference, as it stands in a record's measurements.

    `max_abs` is the largest difference, `relative_max_abs` that difference as a part of the
    reference's largest value, `max_steps` the same in steps of a quantised output. `cosine` is the
    cosine of the angle between both, 1 if both are all zeros. `sqnr_db` is the reference's power
    over that of the difference, in dB. A figure that there is not is None: there is no SQNR without
    a difference, and where the reference is all zeros there is no part of it.

    `not_finite` counts NaN and infinities on one side only, `not_a_number` the NaN among them: with
    any there is no other figure. Those that are the same on both sides (`same_not_finite`) are left
    out of the figures. `channels` are the worst ones, where there are several of several elements
    each. `against` and `inputs` say in plain words what the reference is, and the inputs; `samples`
    of how many sets of these all this is.
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
    channels: tuple[ChannelAccuracy, ...] = ()
    against: str = ""
    inputs: str = ""
    same_not_finite: int = 0
    samples: int = 1

    @property
    def equals(self) -> bool:
        """Whether there is no difference at all."""
        return self.max_abs == 0


CLOSENESS: Final[Mapping[Arithmetic, ClosenessAsked]] = MappingProxyType(
    {
        # 24 bits, sums in another order: libQnnCpu.so 2.47.0 gave 1 - 1.4e-13 and 5e-7
        "float32": ClosenessAsked(min_cosine=0.999_999, max_relative=0.0001),
        # 11 bits over 53 layers: the HTP simulator gave 1 - 4.5e-7 and 9e-4 at most
        "float16": ClosenessAsked(min_cosine=0.999_9, max_relative=0.01),
        # 8 bits, where a tie may be rounded either way and 53 layers hand it on: the HTP simulator
        # gave 0.99948 and 0.029, four steps of the output
        "uint8": ClosenessAsked(min_cosine=0.998, max_relative=0.08),
    }
)
"""More than twice as wide as what was measured on MobileNet-v2 (QNN 2.47.0 to 2.51.0)."""


def arithmetic(backend: str, data_type: str) -> Arithmetic:
    """What a backend calculates a model of this type in.

    HTP: half precision, which sessions and contexts of float models ask for. GPU: the driver may
    take half precision as well, so no more can be asked of it.
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
    """Compares two arrays of one shape; `step` is the size of a step of a quantised output.

    With an `offset` both hold raw data: values are that plus the offset, times the step.
    Works block by block: both arrays may be as large as memory maps can be. Raises ValueError if
    they differ in shape or are empty.
    """
    return compare_all(output, {"": (got, expected)}, step=step, offset=offset, against=against)


def compare_all(
    output: str,
    pairs: Mapping[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    *,
    step: float | None = None,
    offset: int | None = None,
    against: str = "",
) -> Accuracy:
    """As `compare`, over what came of several sets of inputs, which are called like the pairs."""
    import numpy as np

    (got, _), *_ = pairs.values()
    for one, other in pairs.values():
        if not one.shape == other.shape == got.shape or not one.size:
            raise ValueError(f"{output}: shape {one.shape} against {other.shape}")
    flat = {name: (one.reshape(-1), other.reshape(-1)) for name, (one, other) in pairs.items()}
    count = got.shape[1] if got.ndim > 1 else 1
    inner = math.prod(got.shape[2:]) if got.ndim > 1 else got.size
    if count > _MOST_CHANNELS:
        count, inner = 1, got.size
    sums, furthest = np.zeros((4, count)), np.zeros(count)
    # squares of very large or very small values leave what a float can hold

    def values(side: np.ndarray[Any, Any], start: int) -> np.ndarray[Any, Any]:
        block = side[start : start + _BLOCK].astype("<f8")
        return block if offset is None or step is None else (block + offset) * step

    starts = [(sample, start) for sample in flat for start in range(0, got.size, _BLOCK)]
    own, largest = (
        max(_largest(values(flat[sample][side], start)) for sample, start in starts)
        for side in (0, 1)
    )
    exponent = math.frexp(max(own, largest))[1]
    worst, place, most, not_finite, not_a_number, same = "", 0, -1.0, 0, 0, 0
    for sample, start in starts:
        x, y = (values(side, start) for side in flat[sample])
        finite = np.isfinite(x) & np.isfinite(y)
        alike = ~finite & ((x == y) | (np.isnan(x) & np.isnan(y)))
        same += int(np.count_nonzero(alike))
        bad = ~finite & ~alike
        not_finite += int(np.count_nonzero(bad))
        not_a_number += int(np.count_nonzero(np.isnan(x) != np.isnan(y)))
        x, y = (np.ldexp(np.where(finite, side, 0.0), -exponent) for side in (x, y))
        off = np.abs(x - y)
        off[bad] = np.inf
        if (here := float(off.max())) > most:
            worst, place, most = sample, start + int(off.argmax()), here
        channel = np.arange(start, start + x.size) // inner % count
        for row, weights in enumerate((x * y, x * x, y * y, off * off)):
            sums[row] += np.bincount(channel, weights, count)
        np.maximum.at(furthest, channel, off)
    cosine, sqnr = _cosine_and_sqnr(*sums.sum(axis=1))
    max_abs = _largest_error(most, exponent)
    relative: float | None = None
    if max_abs is not None and (largest or not max_abs):
        relative = max_abs / largest if largest else 0.0
    index = tuple(int(at) for at in np.unravel_index(place, got.shape))
    channels: tuple[ChannelAccuracy, ...] = ()
    if count > 1 and got.size > count:
        order = sorted(range(count), key=lambda at: -furthest[at])[:_CHANNELS_TOLD]
        channels = tuple(
            ChannelAccuracy(
                at, _largest_error(furthest[at], exponent), *_cosine_and_sqnr(*sums[:, at])
            )
            for at in order
        )
    came, asked = (float(values(side, place)[0]) for side in flat[worst])
    return Accuracy(
        output,
        got.size * len(flat),
        cosine,
        max_abs,
        relative,
        not_finite,
        not_a_number,
        max_abs / step if step and max_abs is not None else None,
        sqnr,
        Worst(index, came, asked, worst),
        channels,
        against,
        same_not_finite=same,
        samples=len(flat),
    )


def _largest_error(error: float, exponent: int) -> float | None:
    return math.ldexp(error, exponent) if math.isfinite(error) else None


def _largest(block: np.ndarray[Any, Any]) -> float:
    """The largest magnitude that is finite."""
    import numpy as np

    return float(np.max(np.abs(block[np.isfinite(block)]), initial=0.0))


def _cosine_and_sqnr(
    product: float, got: float, expected: float, off: float
) -> tuple[float | None, float | None]:
    """Of the sums of products and squares: both sides', the sides' own, the difference's."""
    if not math.isfinite(off):
        return None, None
    cosine = 1.0 if got == expected else None
    if lengths := math.sqrt(got) * math.sqrt(expected):
        cosine = max(-1.0, min(product / lengths, 1.0))
    sqnr = 10 * (math.log10(expected) - math.log10(off)) if off and expected else None
    return cosine, sqnr


def judge_asked(found: Accuracy, asked: ClosenessAsked) -> list[Check]:
    """A check for each condition: by how much which output is off, and where most.

    NaN on one side only is wrong, whatever is asked.
    """
    worst, bad = "", ""
    if found.worst is not None and not found.equals:
        place = list(found.worst.index)
        of = f" of {found.worst.sample}" if found.worst.sample else ""
        worst = f"; furthest at {place}{of}: {found.worst.got:.6g} for {found.worst.expected:.6g}"
    if found.not_finite:
        bad = f"; {found.not_finite} of {found.elements} elements are NaN or infinite on one side"
    against = f" of {found.against}" if found.against else ""
    rows = (
        ("max_error", found.max_abs, asked.max_error, "at most", -1),
        ("cosine", found.cosine, asked.min_cosine, "at least", 1),
        ("sqnr_db", math.inf if found.equals else found.sqnr_db, asked.min_sqnr, "at least", 1),
        (
            "max_abs",
            found.relative_max_abs,
            asked.max_relative,
            "of the largest value, at most",
            -1,
        ),
    )
    checks = [
        held(
            f"{name}[{found.output}]",
            figure is not None and sign * figure >= sign * limit,
            f"{'no figure' if figure is None else f'{figure:.9g}'}, {words} {limit:.9g}{against} "
            f"is asked{worst}{bad}",
            **{name: figure, "asked": limit},
        )
        for name, figure, limit, words, sign in rows
        if limit is not None
    ]
    if found.not_a_number:
        reason = (
            f"{found.not_a_number} of {found.elements} elements are NaN on one side only{worst}"
        )
        checks.append(held(f"nan[{found.output}]", False, reason, nan=found.not_a_number))
    return checks


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
