"""The units of figures by their names."""

from __future__ import annotations

import pytest

from harness.history.attempts import resolution_of, unit_of


@pytest.mark.parametrize(
    ("name", "unit", "step"),
    [
        ("run_us", "us", 1),
        ("run_ns", "ns", 1),
        ("rss_bytes", "bytes", 1),
        ("rss_bytes.peak", "bytes", 1),
        ("steady_ms.max", "ms", 1e-3),
        ("probe.took_s", "s", 1e-6),
        ("took_s.of.all", "s", 1e-6),
        ("steady_ms.count", None, 1),
        ("steady_ms.count.of", None, 1),
        ("steady_ms.counted", "ms", 1e-3),
        ("nodes", None, 1),
        ("bytes", None, 1),
        ("run_us_more", None, 1),
    ],
)
def test_a_name_ends_with_its_unit(name: str, unit: str | None, step: float) -> None:
    assert (unit_of(name), resolution_of(name)) == (unit, step)
