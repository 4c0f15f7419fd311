"""The first wrong op by its errors, and curves that are divided where not all fits."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.layers.divergence import (
    Because,
    CurvePoint,
    Divergence,
    FirstOp,
    as_page,
    lines,
    picture,
)
from harness.layers.first_wrong_op import chunks, difference, error_limit, first_wrong
from tests.snapshots import Snapshot


def point(
    error: float | None,
    error_made: float | None,
    inherited: float | None,
    changed: float | None = None,
) -> CurvePoint:
    errors = {"error": error, "made": error_made, "inherited": inherited, "changed": changed}
    return CurvePoint(op="a", type="Relu", nodes=("a",), output="y", **errors)  # type: ignore[arg-type]


SMALL = point(0.0004, 0.0003, 0.0003)


@pytest.mark.parametrize(
    ("curve", "first"),
    [
        ([], None),
        ([SMALL, SMALL], None),
        # made, and inherited by what comes behind it
        ([SMALL, point(0.5, 0.5, 0.0), point(0.5, 0.0003, 0.5)], (1, "arithmetic")),
        # inherited alone is nobody's fault
        ([point(0.5, 0.0003, 0.5)], None),
        # by itself it is right: it is wrong only together with its neighbours
        ([SMALL, point(0.5, 0.0003, 0.0004), point(0.5, 0.0003, 0.5)], (1, "the graph")),
        # what it inherits is not known: nothing is said
        ([point(0.5, None, None)], None),
        # an op of another model comes first, wherever it stands
        ([point(0.5, 0.5, 0.0, 0.0), point(0.5, 0.0, 0.5, 0.001)], (1, "the model")),
        ([point(0.0, 0.0, 0.0, 1e-7), point(0.0, 0.0, 0.0, 0.0)], None),
        # also where most are another
        (
            [point(0.0, 0.0, 0.0, changed) for changed in (0.0, 0.1, 0.2, 0.3, 0.4)],
            (1, "the model"),
        ),
        # an overflow: what comes behind it is as wrong
        (
            [SMALL, *(point(0.4, error, 0.4) for error in (0.07, 3e-4, 0.4, 0.07))],
            (1, "arithmetic"),
        ),
    ],
)
def test_first_wrong(curve: list[CurvePoint], first: tuple[int, Because] | None) -> None:
    assert first_wrong(curve, 0.01, 1e-6) == first


def test_where_most_ops_are_above_the_threshold_only_one_that_stands_out_counts() -> None:
    assert error_limit([0.02, 0.03, 0.02, 0.9], 0.01) == pytest.approx(0.1)
    assert error_limit([1e-4, 2e-4, 1e-4, 0.9], 0.0) == pytest.approx(0.0015)
    assert error_limit([0.0, 0.0, 0.0, 0.9], 0.01) == 0.01
    assert error_limit([None, None], 0.01) == 0.01


@pytest.mark.parametrize(
    ("got", "expected", "zero", "far"),
    [
        ([3.0, 4.5], [3.0, 4.0], 0, 0.1),
        ([131, 132], [131, 133], 128, (1 / 34) ** 0.5),
        ([0.0], [0.0], 0, 0.0),
        ([1.0], [0.0], 0, np.inf),
        ([np.nan, 1.0], [np.nan, 1.0], 0, 0.0),
        ([np.nan, 1.0], [0.0, 1.0], 0, np.inf),
        ([[1.0, 2.0]], [1.0, 2.0], 0, np.inf),
        ([True, False], [True, True], 0, 0.5**0.5),
    ],
)
def test_difference(got: list[float], expected: list[float], zero: int, far: float) -> None:
    both = np.array(got), np.array(expected)
    error, why = difference(*both, zero)
    assert error == pytest.approx(far)
    assert (why is None) == (far < np.inf)


def test_a_difference_in_the_last_block_is_seen() -> None:
    filled = np.ones((1 << 20) + 5, "f4")
    other = filled.copy()
    other[-1] = 2
    assert difference(filled, other)[0] > 0


@given(st.lists(st.integers(1, 50)), st.integers(1, 60), st.integers(1, 5))
def test_chunks_keep_their_bounds_and_leave_out_only_what_is_too_large(
    sizes: list[int], most_bytes: int, most: int
) -> None:
    parts = chunks(sizes, most_bytes, most)
    assert [index for part in parts for index in part] == [
        index for index, size in enumerate(sizes) if size <= most_bytes
    ]
    assert all(len(part) <= most for part in parts)
    assert all(sum(sizes[index] for index in part) <= most_bytes for part in parts)


def divergence(**changed: Any) -> Divergence:
    point: dict[str, Any] = {"type": "Conv", "output": "y"}
    curve = [
        CurvePoint(op=f"<op{index}>", nodes=(f"<op{index}>",), error=error, made=error, **point)
        for index, error in enumerate((1e-8, None, 1e-4, 1.0, 50.0))
    ]
    first = FirstOp(
        op="<op2>", nodes=("<op2>",), in_graph=1e-4, because="arithmetic", error=1e-4, **point
    )
    values = {"model": "net.onnx", "tested": "htp", "against": "float", "threshold": 1e-4}
    return Divergence(**({"reference": None, "first": first, "curve": curve} | values | changed))


def test_what_is_said_of_each_cause(snapshot: Snapshot) -> None:
    first_op = divergence().first
    firsts = [
        first_op.model_copy(update=fields)
        for fields in (
            {"because": "the graph", "together": 3, "made": 0.0, "exported": "a b/op"},
            {"because": "the graph", "together": 0, "made": None},
            {"because": "the model", "error": None, "skipped": "its shape is [1]"},
        )
    ]
    assert [*lines(divergence())] == snapshot
    assert [line for first in firsts for line in [*lines(divergence(first=first))][7:]] == snapshot
    for fields in ({}, {"threshold": 99.0}, {"threshold": 99.0, "refused": "no"}):
        assert [*lines(divergence(first=None, **fields))][-1] == snapshot


def test_the_picture_has_a_title_axes_a_legend_and_the_threshold(snapshot: Snapshot) -> None:
    svg = picture(divergence())
    assert re.findall(r"<(?:text|figcaption)[^>]*>([^<]{2,})</", svg)[9:] == snapshot
    assert svg.count("</i>") == svg.count("<polyline") == 3
    assert "net.onnx" in as_page(divergence())
    assert "<polyline" in picture(divergence(curve=(), first=None, threshold=0))


def test_heights_are_those_of_the_axis() -> None:
    svg = picture(divergence(), width=400, height=80)
    (points,) = re.findall(r'points="([^"]*)"><title>in the graph', svg)
    heights = {float(x): float(y) for x, y in (point.split(",") for point in points.split())}
    assert heights == {0: 80, 200: 40, 300: 0, 400: 0}, "beyond 1 it stays at the top"
    assert 'x2="400.0" y2="40.0" stroke="#a60"' in svg, "the threshold"
