"""Closeness of outputs: figures, and what they come to."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from harness.containers.manifest import Expects
from harness.core.errors import ConfigError
from harness.experiments.accuracy import (
    CLOSENESS,
    arithmetic,
    compare,
    judge_accuracy,
)
from harness.models.session_plan import ClosenessLimits
from tests.snapshots import Snapshot

NAN, INF = math.nan, math.inf
PAIRS = [
    ([1, 2], [1, 2]),
    ([2, 4], [1, 2]),
    ([-1, -2], [1, 2]),
    ([1, 0], [0, 1]),
    ([0, 0], [0, 0]),
    ([0, 0], [3, 4]),
    ([1, 2], [0, 0]),
    ([10, 11], [10, 10]),
    # what is not finite is never close, and NaN on one side is wrong whatever is asked
    ([1, INF], [1, 2]),
    ([1, -INF], [1, 2]),
    ([INF, 1], [9, 1]),
    ([1, NAN], [1, 2]),
    ([0, 0], [NAN, NAN]),
    ([INF, 1], [NAN, NAN]),
    ([NAN, 1], [NAN, 1]),
]


def test_figures_and_what_they_come_to(snapshot: Snapshot) -> None:
    lines = []
    for got, expected in PAIRS:
        accuracy = compare("y", np.array(got, "f4"), np.array(expected, "f4"), step=0.25)
        names = "cosine", "max_abs", "relative_max_abs", "sqnr_db", "max_steps", "not_finite"
        figures = {name: getattr(accuracy, name) for name in names}
        listed = (f"{name} {value and round(value, 4)}" for name, value in figures.items())
        checks = judge_accuracy(accuracy, CLOSENESS["uint8"])
        verdicts = (f"{check.name} {check.verdict}" for check in checks)
        lines.append(f"{got} for {expected}: {', '.join([*listed, *verdicts])}")
        wrong = [check.figures for check in judge_accuracy(accuracy, ClosenessLimits())]
        assert wrong == [{"nan": accuracy.not_a_number}] * bool(accuracy.not_a_number)
    assert lines == snapshot


@pytest.mark.parametrize("shape", [(3,), (0,)])
def test_other_shapes_are_no_comparison(shape: tuple[int]) -> None:
    with pytest.raises(ValueError, match="y: "):
        compare("y", np.zeros(shape, "f4"), np.zeros(0 if shape == (0,) else 2, "f4"))


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


WIDE = arrays("f8", st.integers(1, 40), elements=st.floats(allow_nan=False, allow_infinity=False))
ODD = arrays("f4", st.integers(1, 40), elements=st.floats(width=32))


@given(WIDE, st.integers(0, 39))
def test_squares_of_no_size_are_too_large(values: np.ndarray, index: int) -> None:  # type: ignore[type-arg]
    other = values.copy()
    other[index % values.size] = other[index % values.size] / 2 + 1.0
    accuracy = compare("y", other, values)
    assert accuracy.cosine is None or -1 <= accuracy.cosine <= 1
    assert accuracy.not_finite == 0
    assert accuracy.sqnr_db is None or math.isfinite(accuracy.sqnr_db)
    assert accuracy.equals == np.array_equal(other, values)


@given(ODD, ODD)
def test_what_is_furthest_is_told_with_its_place(array: np.ndarray, other: np.ndarray) -> None:  # type: ignore[type-arg]
    size = min(array.size, other.size)
    got, expected = array[:size], other[:size]
    accuracy = compare("y", got, expected)
    assert accuracy.worst is not None
    (index,) = accuracy.worst.index
    # NaN is told as it is
    assert np.array_equal(
        [accuracy.worst.got, accuracy.worst.expected], [got[index], expected[index]], True
    )
    odd = ~(np.isfinite(got) & np.isfinite(expected))
    alike = odd & ((got == expected) | (np.isnan(got) & np.isnan(expected)))
    assert accuracy.same_not_finite == int(alike.sum())
    assert accuracy.not_finite == int((odd & ~alike).sum())
    if accuracy.not_finite:
        assert (accuracy.cosine, accuracy.max_abs, accuracy.sqnr_db) == (None, None, None)
    else:
        off = np.abs(got[~odd].astype("f8") - expected[~odd].astype("f8"))
        assert accuracy.max_abs == pytest.approx(float(off.max(initial=0.0)), rel=1e-12)


def test_the_worst_element_is_named() -> None:
    expected = np.ones((2, 20, 3, 3), "f4")
    got = expected.copy()
    got[1, 7, 2, 0] += 4
    got[0, 3, 0, 1] -= 2
    accuracy = compare("y", got, expected, against="a reference")
    assert accuracy.worst is not None
    assert (accuracy.worst.index, accuracy.worst.got, accuracy.worst.expected) == (
        (1, 7, 2, 0),
        5.0,
        1.0,
    )
    alone = compare("y", got[:, 7], expected[:, 7])
    assert alone.sqnr_db == pytest.approx(10 * math.log10(18 / 16))
    assert accuracy.against == "a reference"


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    got, expected = random.normal(size=(2, 3, 5, 7)), random.normal(size=(2, 3, 5, 7))
    whole = compare("y", got, expected)
    monkeypatch.setattr("harness.experiments.accuracy._BLOCK", 13)
    parts = compare("y", got, expected)
    assert parts.worst == whole.worst
    assert parts.cosine == pytest.approx(whole.cosine)
    assert parts.sqnr_db == pytest.approx(whole.sqnr_db)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("max_error", (-1.0, math.nan, math.inf)),
        ("min_cosine", (2.0, -1.1, math.nan)),
        ("min_sqnr", (math.nan, math.inf)),
    ],
)
def test_what_no_output_can_keep_is_no_condition(option: str, values: tuple[float, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError) as error:
            ClosenessLimits(**{option: value})  # type: ignore[arg-type]
        assert error.value.field == f"--limit {option.replace('_', '-')}"


@pytest.mark.parametrize(
    ("limits", "verdicts"),
    [
        (ClosenessLimits(), []),
        (ClosenessLimits(2.0, 0.5, 0.0), ["held", "held", "held"]),
        (ClosenessLimits(max_error=1.9), ["broken"]),
        (ClosenessLimits(min_cosine=0.99), ["broken"]),
        (ClosenessLimits(min_sqnr=30.0), ["broken"]),
    ],
    ids=["none", "all", "max-error", "min-cosine", "min-sqnr"],
)
def test_what_a_user_asks_of_an_output(
    limits: ClosenessLimits, verdicts: list[str], snapshot: Snapshot
) -> None:
    accuracy = compare("y", np.array([[3.0, 1.0]]), np.array([[3.0, 3.0]]), against="a file")
    checks = judge_accuracy(accuracy, limits)
    assert [check.verdict for check in checks] == verdicts
    assert bool(limits) == bool(verdicts)
    assert [check.reason for check in checks] == snapshot
    elsewhere = compare("y", np.array([[3.0, 1.0]]), np.array([[3.0, 3.0]]), against="the CPU")
    for check, other in zip(checks, judge_accuracy(elsewhere, limits), strict=True):
        assert Expects(outcome="failed", signature=check.reason).met_by("failed", other.reason)
    same = compare("y", np.ones(2), np.ones(2))
    assert all(check.verdict == "held" for check in judge_accuracy(same, limits))


def test_raw_data_of_a_quantised_output_is_told_in_its_values() -> None:
    got, expected = np.array([10, 14], "u1"), np.array([10, 12], "u1")
    accuracy = compare("y", got, expected, step=0.5, offset=-10)
    assert (accuracy.max_abs, accuracy.max_steps, accuracy.relative_max_abs) == (1.0, 2.0, 1.0)
    assert accuracy.worst is not None
    assert (accuracy.worst.got, accuracy.worst.expected) == (2.0, 1.0)
