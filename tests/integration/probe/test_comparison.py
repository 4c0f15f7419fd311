"""The comparison of outputs on the device, against the same comparison by numpy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from harness.probe import plan
from tests.integration.probe.conftest import DATA_TYPES, Runner, StandIn

ELEMENTS = 96


def pairs(kind: type[np.generic], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An array and one that differs from it in some places, by little, by much, by everything."""
    random = np.random.default_rng(seed)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        got = random.integers(limits.min, limits.max, ELEMENTS, kind, endpoint=True)
        expected = got.copy()
        expected[5] ^= kind(1)
        expected[6], got[6] = limits.min, limits.max
        expected[7::9] = random.permutation(got)[7::9]
        return got, expected
    got = random.standard_normal(ELEMENTS).astype(kind)
    expected = got.copy()
    expected[3] = np.nextafter(got[3], kind(9))
    expected[4:9] += kind(0.25)
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(kind).tiny, np.finfo(kind).max]
    got[10:17], expected[10:17] = odd, odd
    got[20], expected[21] = np.nan, np.nan
    got[22], expected[22] = np.inf, -np.inf
    got[23], expected[23] = 0.0, -0.0
    return got, expected


def compared(got: np.ndarray, expected: np.ndarray, tolerance: float) -> dict[str, object]:
    """Return the comparison that the probe should report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if np.issubdtype(got.dtype, np.integer):
            gaps = [abs(int(a) - int(b)) for a, b in zip(got, expected, strict=True)]
            beyond = [float(gap) > tolerance for gap in gaps]
        else:
            real, target = got.astype(np.float64), expected.astype(np.float64)
            same = (real == target) | (np.isnan(real) & np.isnan(target))
            both = np.isfinite(real) & np.isfinite(target)
            gaps = np.where(both, np.abs(real - target), 0.0).tolist()
            beyond = (~same & (~both | (np.abs(real - target) > tolerance))).tolist()
    nan = 0 if np.issubdtype(got.dtype, np.integer) else int(np.isnan(got).sum())
    result: dict[str, object] = {"max_abs": max(gaps), "beyond": sum(beyond), "nan": nan}
    if any(beyond):
        result["first_index"] = beyond.index(True)
    return result


@pytest.mark.parametrize("data_type", DATA_TYPES, ids=hex)
def test_it_finds_what_numpy_finds(run: Runner, stand_in: StandIn, data_type: int) -> None:
    kind = DATA_TYPES[data_type]
    steps, results = [], []
    binary = stand_in.binary("plain", data_type, (ELEMENTS,))
    for seed in range(4):
        got, expected = pairs(kind, seed)
        if seed == 3:
            expected = got.copy()
        files = [stand_in.file(f"got{seed}", got)], [stand_in.file(f"expected{seed}", expected)]
        for tolerance in (0.0, 0.2, 1.0, 1e9):
            # behind `cleanup`, a failure does not keep the others from being tried
            steps.append(plan.execute(0, inputs=files[0], expected=files[1], tolerance=tolerance))
            results.append(compared(got, expected, tolerance))
    opened = stand_in.opened(plan.context_load(0, binary), plan.Step("cleanup"))
    completed = run(*opened, *steps)
    for step, figures in zip(completed.transcript.steps[7:], results, strict=True):
        (output,) = step.data["outputs"]
        assert output["elements"] == ELEMENTS
        assert output["max_abs"] == pytest.approx(figures.pop("max_abs"), rel=1e-8)
        assert {key: output.get(key) for key in figures} == figures
        assert step.error == ("mismatch" if figures["beyond"] else None)
