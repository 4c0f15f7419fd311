"""Contexts for prompts and for single tokens: a small one that is compiled, a llama that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.containers.open import open_artefact
from harness.models.metadata import Unreadable, read_each
from harness.models.model_graphs import random_floats
from harness.probe.build import ProbeBuilder
from harness.results.measurements import named_graphs, token_figures
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.models.test_many_graphs import sharing

VERSION = "2.51.0"
LENGTH, WIDTH, WORDS = 64, 16, 32
PROGRAM = ROOT / "tests/executorch/stories-like.pte"


def attention(tokens: int) -> bytes:
    """Takes so many tokens and the keys and values of those before, gives theirs and logits."""
    from onnx import TensorProto, checker, helper, numpy_helper

    def tensor(name: str, *shape: int, of: int = TensorProto.FLOAT) -> object:
        return helper.make_tensor_value_info(name, of, shape)

    def weight(name: str, *shape: int) -> object:
        name = f"{name}_{tokens}"
        return numpy_helper.from_array(random_floats(name, *shape), name)

    past = LENGTH - tokens
    node = helper.make_node
    # ONNX Runtime calls graphs by a hash of these names, and a context takes no name twice
    x = f"words_of_{tokens}"
    nodes = [node("Gather", [f"words_{tokens}", "input_ids"], [x])]
    for letter in ("q", "k", "v"):
        nodes += [node("MatMul", [x, f"w{letter}_{tokens}"], [f"{letter}_new"])]
    for letter, name in (("k", "past_key_0"), ("v", "past_value_0")):
        nodes += [
            node("Relu", [f"{letter}_new"], [f"{name}_out"]),
            node("Concat", [f"{name}_in", f"{name}_out"], [f"{letter}_all"], axis=1),
        ]
    nodes += [
        node("Transpose", ["k_all"], ["k_turned"], perm=[0, 2, 1]),
        node("MatMul", ["q_new", "k_turned"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v_all"], ["seen"]),
        node("MatMul", ["seen", f"out_{tokens}"], ["logits"]),
    ]
    caches = [tensor(f"past_{kind}_0_in", 1, past, WIDTH) for kind in ("key", "value")]
    outputs = [tensor(f"past_{kind}_0_out", 1, tokens, WIDTH) for kind in ("key", "value")]
    graph = helper.make_graph(
        nodes,
        f"ar{tokens}",
        [tensor("input_ids", 1, tokens, of=TensorProto.INT32), *caches],
        [tensor("logits", 1, tokens, WORDS), *outputs],
        [
            weight("words", WORDS, WIDTH),
            *(weight(f"w{letter}", WIDTH, WIDTH) for letter in "qkv"),
            weight("out", WIDTH, WORDS),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def binary(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = [attention(tokens) for tokens in (32, 1)]
    return sharing(catalog.compiler_host(VERSION), tmp_path_factory.mktemp("tokens"), models)


def test_both_graphs_of_a_binary_are_stages(
    binary: Path, user_cache: Path, runtime_for: RuntimeFor
) -> None:
    """The simulator loads no context whose graphs share weights: its times are made up here."""
    library = runtime_for(VERSION).library("libQnnSystem.so")
    probes = ProbeBuilder(user_cache / "probe")
    (metadata,) = read_each(probes, library, open_artefact(binary).pieces)
    assert not isinstance(metadata, Unreadable)
    graphs = named_graphs([("m", metadata)])
    timed = [{"context": "m", "graph": name, "median_us": 1000} for _, name in graphs]
    figures = token_figures(timed, graphs)
    assert figures is not None
    prefill, decode = figures["stages"]
    assert (prefill["stage"], prefill["tokens"], decode["tokens"]) == ("prefill", 32, 1)
    assert (prefill["context_length"], decode["context_length"]) == (LENGTH, LENGTH)
    assert "keys and values: 2 inputs named" in decode["told"]
    assert decode["kv_bytes"] == 2 * (LENGTH - 1) * WIDTH * 4
    assert figures["first_token"] == {
        "prompt_tokens": LENGTH - 1,
        "chunk": 32,
        "chunks": 2,
        "us": 2000,
    }


def test_executorchs_llama_is_told_by_its_shapes(lab: DeviceRuns) -> None:
    code, output, (record,) = lab.run_files(PROGRAM, f"--qnn={VERSION}", "--rounds=6", "--warmup=2")
    assert code == 0, output
    stages = record["measurements"]["tokens"]["stages"]
    assert [stage["graphs"] for stage in stages] == [["prefill_forward"], ["kv_forward"]]
    assert [stage["tokens"] for stage in stages] == [8, 1]
    assert [stage["context_length"] for stage in stages] == [16, 16]
    graphs = record["measurements"]["graphs"]
    assert [(graph["rounds"], graph["warmup"]) for graph in graphs] == [(6, 2), (6, 2)]
    assert {graph["on"] for graph in graphs} == {"HTP v73, simulated on this computer"}
    assert [stage["us"] for stage in stages] == [stage["median_us"] for stage in reversed(graphs)]
    assert len(record["measurements"]["execute_us"]) == 4
    for words in ("Tokens/s", "First token of a prompt of 15 tokens: ", "nothing about a phone"):
        assert words in output
    report = (lab.reports / "latest" / "report.html").read_text()
    assert "<h2>How well</h2>" in report
    assert "Tokens/s" in report
