"""Profiles: what a library tells of ops, by the probe and by ONNX Runtime's file."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harness.results.op_events import (
    OPS_MOST,
    ProfileEvent,
    cost_of,
    csv_events,
    dearest,
    most_expensive,
    op_costs,
    ops_of,
    phases_in,
    probe_events,
    profile_of,
    runs_in,
    total_of,
)
from tests.properties import reached, reaches

CSV = b"""Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier
0,FINALIZE,12441,US,BACKEND,ROOT,QNN (finalize) time
0,UNKNOWN,10250,US,BACKEND,SUB-EVENT,Graph Optimizations
0,BACKEND,4,COUNT,BACKEND,ROOT,Number of HVX threads used
0,BACKEND,1000,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)
0,NODE,0,CYCLES,BACKEND,SUB-EVENT,conv1_token_1:OpId_22 (cycles)
0,NODE,900,CYCLES,BACKEND,SUB-EVENT,relu1:OpId_26 (cycles)
0,NODE,100,CYCLES,BACKEND,SUB-EVENT,Input OpId_2 (cycles)
0,BACKEND,15,US,BACKEND,ROOT,Accelerator (execute) time
0,EXECUTE,16,US,BACKEND,ROOT,QNN (execute) time
0,BACKEND,1200,CYCLES,BACKEND,ROOT,Accelerator (execute) time (cycles)
0,NODE,0,CYCLES,BACKEND,SUB-EVENT,conv1_token_1:OpId_22 (cycles)
0,NODE,1100,CYCLES,BACKEND,SUB-EVENT,relu1:OpId_26 (cycles)
0,NODE,100,CYCLES,BACKEND,SUB-EVENT,Input OpId_2 (cycles)
0,EXECUTE,18,US,BACKEND,ROOT,QNN (execute) time
"""
"""As QNN 2.51.0 writes it for a convolution that is fused with what follows, with other figures."""


def test_runs_are_apart_from_what_came_before_them() -> None:
    events = csv_events(CSV)
    runs = runs_in(events)
    assert [len(run) for run in runs] == [7, 5]
    assert phases_in(events) == [
        {"phase": "QNN (finalize) time", "us": 12441, "part": False},
        {"phase": "Graph Optimizations", "us": 10250, "part": True},
    ]


def test_ops_have_their_nodes_and_the_accelerators_total_is_what_they_are_parts_of() -> None:
    runs = runs_in(csv_events(CSV))
    ops = ops_of(runs, ["conv1", "relu1", "relu"])
    assert [tuple(op.values()) for op in ops] == [
        ("conv1_token_1:OpId_22", "conv1", 0, [0, 0]),
        ("relu1:OpId_26", "relu1", 1000, [900, 1100]),
        ("Input OpId_2", None, 100, [100, 100]),
    ]
    profile = profile_of("ops", {"g": runs}, added_us=7)
    assert profile["total"] == {
        "cycles": 1100,
        "event": "Accelerator (execute) time (cycles)",
        "runs": [1000, 1200],
        "spread": pytest.approx(2 / 11),
        "ops_share": 1.0,
    }
    assert profile["added_us"] == 7
    assert profile["ops"][1] == {
        "op": "relu1:OpId_26",
        "source": None,
        "cycles": 1000,
        "share": pytest.approx(10 / 11),
        "runs": [900, 1100],
    }
    assert profile["events"][-1] == {"name": "QNN (execute) time", "unit": "us", "value": 18}
    (first, _), (second, all_), _ = most_expensive(profile)
    assert (first["op"], second["op"]) == ("relu1:OpId_26", "Input OpId_2")
    assert all_ == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("op", "source"),
    [
        ("conv1_token_5:OpId_31", "conv1"),
        ("conv12:OpId_3", None),
        ("conv1 OpId_3", "conv1"),
        ("conv1_a_token_5:OpId_31", "conv1_a"),
        ("/block/MatMul_token_5:OpId_31", "/block/MatMul"),
        ("Transpose:OpId_17", None),
    ],
)
def test_the_longest_name_of_a_node_counts(op: str, source: str | None) -> None:
    event = ProfileEvent("node", "us", 3, op, 1)
    assert ops_of([[event]], ["conv1", "conv1_a", "/block/MatMul", ""])[0]["source"] == source


def test_the_probes_numbers_are_the_words_of_the_file() -> None:
    events = [
        {"type": 3005, "unit": 3, "value": 9, "name": "Accelerator (execute) time (cycles)"}
        | {"depth": 0},
        {"type": 404, "unit": 3, "value": 9, "name": "relu1:OpId_26 (cycles)", "depth": 1},
        {"type": 400, "unit": 1, "value": 5, "name": "QNN (execute) time", "depth": 0},
    ]
    (run,) = runs_in(probe_events({"profile_events": events}))
    assert [(event.kind, event.unit) for event in run] == [
        ("other", "cycles"),
        ("node", "cycles"),
        ("execute", "us"),
    ]
    assert [event["cycles"] for event in ops_of([run])] == [9]


@pytest.mark.parametrize(
    ("events", "total"),
    [
        ([("execute", "us", 20, "QNN (execute) time")], "QNN (execute) time"),
        (
            [
                ("other", "us", 19, "Accelerator (execute) time"),
                ("execute", "us", 20, "QNN (execute) time"),
            ],
            "Accelerator (execute) time",
        ),
        (
            [
                ("other", "count", 4, "Accelerator threads"),
                ("execute", "us", 20, "QNN (execute) time"),
            ],
            "QNN (execute) time",
        ),
    ],
)
def test_without_ops_the_accelerators_time_counts(
    events: list[tuple[str, str, int, str]], total: str | None
) -> None:
    found = total_of([ProfileEvent(*event) for event in events])
    assert (None if found is None else found.name) == total


def test_totals_of_several_graphs_add_up_and_their_ops_say_which_they_are_of() -> None:
    runs = runs_in(csv_events(CSV))
    profile = profile_of("ops", {"a": runs, "b": runs}, nodes=["relu1"])
    assert profile["total"]["cycles"] == 2200
    assert {entry["graph"] for entry in profile["ops"]} == {"a", "b"}
    assert "a/relu1" in op_costs(profile)
    assert sum(entry["share"] for entry in profile["ops"]) == pytest.approx(1.0)


def test_more_ops_than_are_kept_are_told() -> None:
    run = [
        ProfileEvent("other", "cycles", 10**6, "Accelerator (execute) time (cycles)"),
        *(ProfileEvent("node", "cycles", index, f"n{index}", 1) for index in range(OPS_MOST + 3)),
    ]
    profile = profile_of("ops", {"g": [run]})
    assert len(profile["ops"]) == OPS_MOST
    assert [note.count("3 ops") for note in profile["notes"]] == [1]
    assert min(entry["cycles"] for entry in profile["ops"]) == 3


def test_a_backend_without_ops_gives_no_shares() -> None:
    profile = profile_of(
        "basic", {"g": [[ProfileEvent("execute", "us", 20, "QNN (execute) time")]]}
    )
    assert profile["ops"] == []
    assert profile["total"]["us"] == 20
    assert profile["total"]["ops_share"] is None
    assert profile_of("basic", {})["total"] is None


@given(st.binary(max_size=200))
def test_whatever_a_file_holds_is_read_without_an_error(content: bytes) -> None:
    before = csv_events(CSV)
    assert csv_events(CSV + content)[: len(before) - 1] == before[:-1]


node = st.builds(
    ProfileEvent,
    st.sampled_from(["node", "execute", "other", "init"]),
    st.sampled_from(["cycles", "us", "count"]),
    st.integers(0, 1 << 40),
    st.sampled_from(["a", "b:OpId_3 (cycles)", "Accelerator"]),
    st.integers(0, 2),
)


@given(st.lists(st.lists(node, max_size=8), max_size=4))
def test_shares_are_parts_of_one_whole(runs: list[list[ProfileEvent]]) -> None:
    profile = profile_of("ops", {"g": runs})
    shares = [entry["share"] for entry in profile["ops"]]
    assert sum(shares) == pytest.approx(1.0) or not any(shares)
    assert [total for _, total in most_expensive(profile)] == sorted(
        total for _, total in most_expensive(profile)
    )


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


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "unit", "value", "depth", "name", "ops", "op", "us", "runs"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(json_like)
def test_whatever_a_probe_says_is_read_without_an_error(data: Any) -> None:
    events = probe_events({"profile_events": data})
    assert all(event.value >= 0 and event.depth >= 0 for event in events)


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
