"""Costs of ops by stable names: numbers left out, sums of one name, fused ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harness.results.op_events import cost_of, dearest, op_costs
from tests.properties import reached, reaches


def op(name: str, *runs: int, source: str | None = None, **more: Any) -> dict[str, Any]:
    return {"op": name, "source": source, "cycles": runs[0], "runs": list(runs), **more}


PROFILE = {
    "ops": [
        op("Input OpId_2", 5, 6),
        op("conv1_token_1:OpId_22", 0, 0, source="conv1"),
        op("relu1:OpId_26", 90, 110, source="relu1"),
        op("Transpose_token_8:OpId_43", 3, 4),
        op("Transpose:OpId_44", 10, 20),
        op("last:OpId_50", 0, 0),
    ]
}


def test_ops_have_names_that_other_versions_have_too() -> None:
    costs = op_costs(PROFILE)
    assert [*costs] == ["Input", "conv1", "relu1", "Transpose", "last"]
    assert costs["Transpose"].runs == (13, 24)
    assert costs["conv1"].inside == "relu1"
    # nothing behind it took time: it is in none
    assert costs["last"].inside is None
    assert dearest(PROFILE, 2) == ["relu1", "Transpose"]


@pytest.mark.parametrize(
    ("name", "cost"), [("relu1", 100), ("conv1", 100), ("Transpose", 18.5), ("conv", None)]
)
def test_the_cost_of_an_op_is_that_of_what_it_is_fused_into(name: str, cost: float | None) -> None:
    assert cost_of(PROFILE, name) == cost


def test_ops_of_several_graphs_are_kept_apart() -> None:
    ops = [op("a", 1, graph="g"), op("a", 2, graph="h")]
    assert [*op_costs({"ops": ops})] == ["g/a", "h/a"]


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["ops", "op", "cycles", "us", "runs"]), inner)
    ),
)

ops_like = st.fixed_dictionaries(
    {"op": st.text(max_size=5) | json_like},
    optional={
        "cycles": st.integers(),
        "us": json_like,
        "runs": st.lists(st.integers()) | json_like,
    },
)


proper_ops = st.fixed_dictionaries({"op": st.text(min_size=1, max_size=5), "us": st.integers(0)})


@reaches(0.15)
@settings(max_examples=100)
@given(
    st.fixed_dictionaries({"ops": st.lists(proper_ops | ops_like | json_like, max_size=6)})
    | json_like
)
def test_a_malformed_profile_has_no_ops_or_proper_ones(content: Any) -> None:
    costs = op_costs(content)
    if not costs:
        return
    reached()
    for name, cost in costs.items():
        assert name == cost.op
        assert cost.value >= 0
