"""Closeness of outputs: figures, and what they come to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from harness.run.experiments.accuracy import (
    CLOSENESS,
    Accuracy,
    Arithmetic,
    arithmetic,
    compare,
    judge_accuracy,
)

NUMBERS = arrays("f4", st.integers(1, 30), elements=st.floats(-1000, 1000, width=32))


@pytest.mark.parametrize(
    ("got", "expected", "cosine", "max_abs", "relative"),
    [
        ([1, 2], [1, 2], 1.0, 0.0, 0.0),
        ([2, 4], [1, 2], 1.0, 2.0, 1.0),
        ([-1, -2], [1, 2], -1.0, 4.0, 2.0),
        ([1, 0], [0, 1], 0.0, 1.0, 1.0),
        ([0, 0], [0, 0], 1.0, 0.0, 0.0),
        ([0, 0], [1, 2], 0.0, 2.0, 1.0),
        ([1, 2], [0, 0], 0.0, 2.0, math.inf),
    ],
)
def test_figures(
    got: list[float], expected: list[float], cosine: float, max_abs: float, relative: float
) -> None:
    found = compare("y", np.array(got, "f4"), np.array(expected, "f4"))
    assert (found.cosine, found.max_abs) == (pytest.approx(cosine), max_abs)
    assert found.relative_max_abs == pytest.approx(relative)
    assert (found.elements, found.not_finite) == (len(got), 0)
    told = None if math.isinf(relative) else found.relative_max_abs
    figures = {"max_abs": max_abs, "relative_max_abs": told, "most": 0.08}
    assert judge_accuracy(found, "uint8")[1].figures == figures


@pytest.mark.parametrize(
    ("kind", "cosine", "relative"),
    [("float32", 0.999_999, 0.0001), ("float16", 0.9999, 0.01), ("uint8", 0.998, 0.08)],
)
def test_how_close_is_close_enough(kind: Arithmetic, cosine: float, relative: float) -> None:
    near = Accuracy("y", 10, cosine, 1.0, relative, 0)
    assert [check.verdict for check in judge_accuracy(near, kind)] == ["held", "held"]
    off = Accuracy("y", 10, cosine - 1e-7, 1.0, relative * 1.001, 0)
    assert [check.verdict for check in judge_accuracy(off, kind)] == ["broken", "broken"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_close(bad: float) -> None:
    found = compare("y", np.array([1, bad], "f4"), np.array([1, 2], "f4"))
    assert found.not_finite == 1
    checks = judge_accuracy(found, "uint8")
    assert [check.verdict for check in checks] == ["broken", "broken"]
    assert "1 elements are not finite" in checks[0].reason
    assert checks[1].figures == {"max_abs": None, "relative_max_abs": None, "most": 0.08}


@pytest.mark.parametrize("shape", [(3,), (0,)])
def test_other_shapes_are_no_comparison(shape: tuple[int]) -> None:
    with pytest.raises(ValueError, match="y: shape"):
        compare("y", np.zeros(shape, "f4"), np.zeros(0 if shape == (0,) else 2, "f4"))


@given(NUMBERS)
def test_an_output_is_as_close_as_can_be_to_itself(values: np.ndarray) -> None:  # type: ignore[type-arg]
    found = compare("y", values, values)
    assert (found.max_abs, found.relative_max_abs) == (0, 0)
    assert found.cosine == pytest.approx(1)


@given(NUMBERS, st.randoms(use_true_random=False))
def test_figures_stay_in_their_bounds(values: np.ndarray, random: object) -> None:  # type: ignore[type-arg]
    other = values[::-1].copy()
    found = compare("y", values, other)
    assert -1.000001 <= found.cosine <= 1
    assert found.max_abs >= 0


@pytest.mark.parametrize("kind", CLOSENESS)
def test_each_bound_counts_by_itself(kind: Arithmetic) -> None:
    asked = CLOSENESS[kind]
    at_bounds = Accuracy("y", 10, asked.cosine, 1.0, asked.relative)
    turned = Accuracy("y", 10, asked.cosine - 1e-7, 1.0, asked.relative)
    far = Accuracy("y", 10, asked.cosine, 1.0, asked.relative * 1.001)
    verdicts = [
        [check.verdict for check in judge_accuracy(one, kind)] for one in (at_bounds, turned, far)
    ]
    assert verdicts == [["held", "held"], ["broken", "held"], ["held", "broken"]]


@pytest.mark.parametrize(
    ("backend", "data_type", "kind"),
    [
        ("cpu", "float32", "float32"),
        ("htp", "float32", "float16"),
        ("gpu", "float32", "float16"),
        ("htp", "uint8", "uint8"),
        ("cpu", "uint8", "uint8"),
    ],
)
def test_arithmetic(backend: str, data_type: str, kind: str) -> None:
    assert arithmetic(backend, data_type) == kind
