"""Figures of a process: its sessions, and what they leave. A leak of any size is found, and what
happens once or comes back is none."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.probe.transcript import StepResult, Transcript
from harness.results.measurements import (
    ROUNDS_TOGETHER,
    WARM_ROUNDS,
    growth_of,
    measure,
    ort_figures,
)

LEVELS = st.integers(min_value=12, max_value=80)
BYTES = st.integers(min_value=0, max_value=1 << 34)

# kB that 40 sessions left, one after the other, on a busy computer; malloc kept what it freed
KEPT_BY_MALLOC = (
    *(54644, 6628, 2924, 2920, 0, 0, 0, 4, 3908, 0, 980, 0, 2924, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    *(-17440, 6700, 2924, 0, 3912, 2924, 0, 0, 156, 4, 1288, 0, 5196, 4, 1144, 4, 0),
)


def test_too_few_rounds_tell_nothing() -> None:
    assert growth_of(range(4 * ROUNDS_TOGETHER - 1)) is None
    assert growth_of(range(4 * ROUNDS_TOGETHER)) is not None


@given(LEVELS, BYTES, BYTES, st.data())
def test_a_leak_is_found_behind_a_jump(
    rounds: int, leak: int, jump: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(min_value=0, max_value=rounds))
    found = growth_of([leak * one + (jump if one >= at else 0) for one in range(rounds)])
    assert found is not None
    # the jump is in one rise at most, and a median of three does not count it
    assert leak <= found.per_round
    assert found.per_round == leak or rounds // ROUNDS_TOGETHER % 2
    assert found.came_back == 0


@given(st.lists(BYTES, min_size=8, max_size=60), BYTES)
def test_what_comes_back_within_three_rounds_is_none(high: list[int], low: int) -> None:
    levels = [level for one in pairwise(high) for level in (*one, 0)]
    found = growth_of([low + level for level in levels])
    assert found is not None
    assert (found.per_round, found.noise, found.in_all, found.came_back) == (0, 0, 0, 0)


def test_what_malloc_keeps_is_no_leak() -> None:
    found = growth_of(list(accumulate(KEPT_BY_MALLOC))[8:])
    assert found is not None
    assert found.per_round > 64  # it rises in most rounds, and once it falls
    assert found.per_round - found.noise < 0


@given(st.lists(st.integers(-50, 50), min_size=60, max_size=80), st.integers(100, 10**6))
def test_noise_hides_no_leak_that_is_larger(noise: list[int], leak: int) -> None:
    found = growth_of([leak * at + one for at, one in enumerate(noise)])
    assert found is not None
    assert abs(found.per_round - leak) <= 34  # twice 50, in three rounds
    assert found.noise < leak


def step(verb: str, **more: Any) -> StepResult:
    return StepResult(0, verb, **({"begun": True, "ended": True, "code": 0} | more))


def rounds(levels: list[int]) -> list[StepResult]:
    steps = [step("ort-load", data={"version": "1.26.0"})]
    for level in levels:
        steps += [
            step("ort-session", data={"anonymous_before_bytes": 1000}, duration_us=7),
            step("ort-run", duration_us=5, data={"outputs": [{"max_abs": 0.5, "beyond": 0}]}),
            step("ort-session-free", data={"anonymous_bytes": level}, duration_us=3),
        ]
    return steps


def test_figures_of_sessions_one_after_the_other() -> None:
    placement = {"placement": [{"ep": "QNN", "nodes": 3}, {"ep": 4}, "noise"]}
    warm = [5000] * WARM_ROUNDS
    steady = [6000 + 10 * at for at in range(11)] + [9110]
    steps = [*rounds([*warm, *steady]), step("ort-placement", data=placement)]
    figures = ort_figures(steps)
    assert figures["ort_version"] == "1.26.0"
    assert (figures["sessions"], figures["runs"], figures["released"]) == (20, 20, 20)
    assert figures["placement"] == {"QNN": 3}
    assert figures["kept_bytes"] == 8110
    assert (figures["growth_bytes_per_session"], figures["growth_noise_bytes"]) == (10, 0)
    assert (figures["drift_bytes"], figures["drift_noise_bytes"]) == (90, 0)


def test_sessions_that_exist_together_say_nothing_of_growth() -> None:
    created = [step("ort-session", data={"anonymous_before_bytes": 0}) for _ in range(30)]
    released = [step("ort-session-free", data={"anonymous_bytes": 99 - at}) for at in range(30)]
    figures = ort_figures([*created, *released])
    assert figures["kept_bytes"] == 70
    assert "growth_bytes_per_session" not in figures


@pytest.mark.parametrize("value", [None, "many", True, -5, 1.5])
def test_memory_that_the_device_does_not_tell(value: object) -> None:
    steps = [
        step("ort-session", data={"anonymous_before_bytes": 1}),
        step("ort-session-free", data={"anonymous_bytes": value}),
    ]
    assert "kept_bytes" not in ort_figures(steps)


def test_a_process_without_ort_has_no_figures_of_it() -> None:
    assert ort_figures([step("context-load")]) == {}


def test_outputs_of_sessions_are_summed_up() -> None:
    assert measure(Transcript(steps=rounds([1, 2])))["outputs"] == {
        "compared": 2,
        "max_abs": 0.5,
        "beyond_tolerance": 0,
    }
