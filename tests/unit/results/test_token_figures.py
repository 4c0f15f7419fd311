"""Recognition of language models, and the figures of their graphs, on exporters' shapes."""

from __future__ import annotations

from typing import Any

import pytest

from harness.results.measurements import named_graphs, token_figures

Shapes = dict[str, list[int]]


def graph(name: str, inputs: Shapes, outputs: Shapes, ids: str = "int32") -> dict[str, Any]:
    def tensor(called: str, shape: list[int]) -> dict[str, Any]:
        size = 4
        for one in shape:
            size *= one
        kind = ids if "ids" in called or "tokens" in called or "pos" in called else "float32"
        return {"name": called, "dimensions": shape, "data_type": kind, "bytes": size}

    ends = {"inputs": inputs, "outputs": outputs}
    return {"name": name} | {
        key: [tensor(*item) for item in value.items()] for key, value in ends.items()
    }


def executorch(name: str, tokens: int) -> dict[str, Any]:
    """As ExecuTorch's llama of 16 tokens has it: nothing but shapes tells its caches."""
    rest = 16 - tokens
    inputs = {"input_1_atten_mask@0": [1, tokens, 16], "input_2_input_pos@0": [1, tokens]}
    inputs |= {"input_0_tokens@0": [1, tokens], "input_3_args_0@0": [1, 2, 8, rest]}
    inputs |= {"input_4_args_1@0": [1, 2, rest, 8]}
    outputs = {"a@0": [1, 2, 8, tokens], "b@0": [1, 2, tokens, 8], "c@0": [1, tokens, 64]}
    return graph(name, inputs, outputs)


def part(stage: str, tokens: int, length: int, number: int) -> dict[str, Any]:
    """As AI Hub's exports are cut: the first part has no caches."""
    name = f"{stage}_ar{tokens}_cl{length}_{number}_of_2"
    hidden = {"hidden": [1, tokens, 64]}
    if number == 1:
        return graph(name, {"input_ids": [1, tokens]}, hidden)
    caches = {"past_key_0_in": [8, 1, 64, length - tokens]}
    return graph(name, hidden | caches, {"logits": [1, tokens, 999]})


def figures(timed: dict[str, int], *graphs: dict[str, Any], prompt: int = 512) -> Any:
    rows = [{"context": "m", "graph": name, "median_us": us} for name, us in timed.items()]
    return token_figures(rows, named_graphs([("m", {"graphs": list(graphs)})]), prompt)


def test_executorchs_graphs_are_told_by_shapes() -> None:
    document = figures(
        {"kv_forward": 2000, "prefill_forward": 8000},
        executorch("kv_forward", 1),
        executorch("prefill_forward", 8),
    )
    prefill, decode = document["stages"]
    assert (prefill["stage"], prefill["tokens"], prefill["tokens_per_s"]) == ("prefill", 8, 1000)
    assert (decode["stage"], decode["tokens"], decode["tokens_per_s"]) == ("decode", 1, 500)
    assert (prefill["context_length"], decode["context_length"]) == (16, 16)
    assert decode["kv_bytes"] == 2 * 2 * 8 * 15 * 4
    assert decode["told"].startswith(
        "its input input_0_tokens@0 is [1, 1]; keys and values: 2 inputs"
    )
    # of 16 tokens one is the answer's
    expected = {"prompt_tokens": 15, "chunk": 8, "chunks": 2, "us": 16000}
    assert document["first_token"] == expected


def test_parts_of_one_model_follow_each_other() -> None:
    parts = [
        part(*stage, 512, number) for stage in (("prompt", 128), ("token", 1)) for number in (1, 2)
    ]
    document = figures({part["name"]: 1000 * index for index, part in enumerate(parts, 1)}, *parts)
    prefill, decode = document["stages"]
    assert (prefill["us"], decode["us"]) == (3000, 7000)
    assert decode["graphs"] == ["token_ar1_cl512_1_of_2", "token_ar1_cl512_2_of_2"]
    assert (decode["kv_bytes"], prefill["kv_bytes"]) == (8 * 64 * 511 * 4, 8 * 64 * 384 * 4)
    assert decode["told"].startswith("ar1 in its name")
    assert document["first_token"]["us"] == 4 * 3000


def test_each_length_of_a_context_is_a_stage_of_its_own() -> None:
    parts = [part("token", 1, length, 2) for length in (512, 4096)]
    document = figures({part["name"]: 1000 for part in parts}, *parts, prompt=100)
    assert [entry["context_length"] for entry in document["stages"]] == [512, 4096]
    # without a graph for prompts each of its tokens is an execution
    assert document["first_token"] == {
        "prompt_tokens": 100,
        "chunk": 1,
        "chunks": 100,
        "us": 100_000,
    }


@pytest.mark.parametrize(
    "other",
    [
        graph("cnn", {"x": [1, 3, 8, 8]}, {"y": [1, 3, 8, 1]}),
        graph("encoder", {"input_ids": [1, 128]}, {"y": [1, 128, 64]}),
        # a hidden state comes out as it went in: no cache
        graph("block", {"input_ids": [1, 8], "h": [1, 8, 64]}, {"y": [1, 8, 64]}),
        graph("tokens", {"tokens": [1, 8], "past_key_in": [1, 8, 8]}, {"y": [1, 8]}, "float32"),
        {"name": "odd", "inputs": 5, "outputs": [{"name": 3, "dimensions": "x"}]},
    ],
    ids=lambda graph: str(graph["name"]),
)
def test_what_is_no_language_model(other: dict[str, Any]) -> None:
    assert figures({other["name"]: 1000}, other) is None


def test_a_graph_that_did_not_execute_is_no_stage() -> None:
    first, other = executorch("kv_forward", 1), executorch("prefill_forward", 8)
    assert [stage["stage"] for stage in figures({"kv_forward": 1}, first, other)["stages"]] == [
        "decode"
    ]
