"""The figures of a run that answers are made of, by their names (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Final

from harness.verdict.results.op_costs import cost_of, dearest

OP: Final = "op "
"""Stands before the name of an op of a profile."""
_OF_MANY: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "count": lambda values: float(len(values)),
}


class Unmeasured(Exception):
    """A figure that the comparison needs is not there, or cannot be computed."""


def figure(figures: Mapping[str, object], path: str) -> float:
    """A figure by its dotted path, as in `rss_bytes.peak` or `load_us.median`.

    Of a list, the last part is one of min, max, mean, median, first, last, count; without one it
    is the median. `op NAME` is what an op took, with what it is fused into. Raises Unmeasured.
    """
    if path.startswith(OP):
        return _of_op(figures, path.removeprefix(OP))
    value: object = figures
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part in _OF_MANY:
            value = _of_many(value, part, path)
        else:
            raise Unmeasured(f"{path} was not measured")
    if isinstance(value, list | tuple):
        value = _of_many(value, "median", path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unmeasured(f"{path} is not a number")
    return _float(value)


def _of_op(figures: Mapping[str, object], name: str) -> float:
    profile = figures.get("profile")
    cost = cost_of(profile, name)
    if cost is None:
        there = ", ".join(dearest(profile))
        some = f": the largest are {there}" if there else ", nor any other"
        raise Unmeasured(f"no op {name} was profiled{some}")
    return cost


def _of_many(values: list[object] | tuple[object, ...], how: str, path: str) -> float:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if not numbers or len(numbers) < len(values):
        raise Unmeasured(f"{path} is not a list of numbers")
    return float(_OF_MANY[how]([_float(number) for number in numbers]))


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise Unmeasured("a number is too large") from error
