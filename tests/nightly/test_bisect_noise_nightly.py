"""Flaky answers at many pairs of rates, long enough to see an error of one in a hundred."""

from __future__ import annotations

import pytest

from tests.unit.bisect.test_noise import Show, seeds

pytestmark = pytest.mark.nightly
RATES = (0.0, 0.10, 0.25, 0.35)


@pytest.mark.parametrize("hides", RATES)
@pytest.mark.parametrize("alarms", RATES)
def test_the_confidence_holds_at_every_pair_of_rates(
    hides: float, alarms: float, show_figures: Show
) -> None:
    right, wrong, _ = seeds(show_figures, 300, hides, alarms)
    assert right >= 291
    assert wrong <= 3


def test_just_below_the_worst_rate_a_range_may_be_all_but_is_honest(show_figures: Show) -> None:
    _, wrong, _ = seeds(show_figures, 100, 0.39, 0.39)
    assert wrong <= 1
