"""How fast contexts of a language model make tokens, told by shapes and names of graphs (pure).

Names as exporters give them: AI Hub calls graphs `prompt_ar128_cl4096_1_of_3` and
`token_ar1_cl4096_1_of_3` and caches `past_key_0_in`; ExecuTorch calls graphs `prefill_forward` and
`kv_forward` and caches `input_3_args_0@0`, which only shapes tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.contexts.context.metadata import entries

PROMPT_TOKENS: Final = 512
"""The length of the prompt whose first token is reckoned with, if the context has room for it."""

_AR: Final = re.compile(r"(?:^|_)ar(\d{1,6})(?:_|$)")
_CL: Final = re.compile(r"(?:^|_)cl(\d{1,7})(?:_|$)")
_IDS: Final = re.compile(r"(?i)input_ids|tokens?(?![a-z])")
_CACHE: Final = re.compile(r"(?i)past_?(?:key|value|kv)|(?:key|value|kv?|v)_?cache|cache_?(?:k|v)")


@dataclass(frozen=True)
class TokenGraph:
    """A graph of a language model: how many tokens an execution takes, and how that was told.

    `length` is how many tokens its context has room for, None: not known. `cache_bytes` is what
    its inputs hold of keys and values.
    """

    tokens: int
    length: int | None
    cache_bytes: int
    told: str


def named_graphs(
    contexts: Iterable[tuple[str, Mapping[str, Any]]],
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The graphs in the metadata of contexts, by the names of both."""
    return {
        (name, str(graph.get("name"))): graph
        for name, metadata in contexts
        for graph in entries(metadata, "graphs")
    }


def token_graphs(
    graphs: Mapping[tuple[str, str], Mapping[str, Any]],
) -> dict[tuple[str, str], TokenGraph]:
    """Those graphs of contexts that take tokens; none where no graph has keys and values.

    `graphs` are the metadata of each, by the names of its context and of itself.
    """
    sizes = {key: found for key, one in graphs.items() if (found := _tokens(key[1], one))}
    pairs = {key: [*_pairs(graphs[key], tokens)] for key, (tokens, _) in sizes.items()}
    lengths = [
        (name, length)
        for found in pairs.values()
        for name, _, length in found
        if length is not None
    ]
    grown = {name for name, _ in lengths}
    longest = max((length for _, length in lengths), default=None)
    made = {}
    for key, (tokens, told) in sizes.items():
        by_shape = {name: one for name, one, _ in pairs[key] if name in grown}
        by_name = {
            str(one.get("name")): one
            for one in entries(graphs[key], "inputs")
            if _CACHE.search(str(one.get("name")))
        }
        cache = by_name or by_shape
        how = "named" if by_name else "that grow by what comes out"
        caches = f"; {len(cache)} inputs {how} are keys and values" if cache else ""
        in_name = _CL.search(key[1])
        length = int(in_name[1]) if in_name else longest
        size = sum(_number(one.get("bytes")) for one in cache.values())
        made[key] = TokenGraph(tokens, length, size, told + caches)
    return made if any(one.cache_bytes for one in made.values()) else {}


def _tokens(name: str, graph: Mapping[str, Any]) -> tuple[int, str] | None:
    if (found := _AR.search(name)) and int(found[1]):
        return int(found[1]), f"ar{found[1]} in its name"
    for one in entries(graph, "inputs"):
        called, shape = str(one.get("name")), _shape(one)
        whole = re.match(r"u?int(32|64)$", str(one.get("data_type")))
        if whole and shape and _IDS.search(called):
            return math.prod(shape), f"its input {called[:60]} is {shape}"
    return None


def _pairs(
    graph: Mapping[str, Any], tokens: int
) -> Iterator[tuple[str, Mapping[str, Any], int | None]]:
    """Inputs to which an output of so many tokens is added, and the length with both.

    Where both are as long, no axis tells it: None.
    """
    outputs = [(_shape(one), one.get("data_type")) for one in entries(graph, "outputs")]
    for one in entries(graph, "inputs"):
        shape, kind = _shape(one), one.get("data_type")
        for made, of in outputs:
            if of != kind or len(made) != len(shape) or len(shape) < 3:
                continue
            axes = [at for at, size in enumerate(shape) if size != made[at]]
            if not axes and tokens in shape:
                yield str(one.get("name")), one, None
                break
            if len(axes) == 1 and made[axes[0]] == tokens and shape[axes[0]] > tokens:
                yield str(one.get("name")), one, shape[axes[0]] + tokens
                break


def token_figures(
    graphs: Sequence[Mapping[str, Any]],
    metadata: Mapping[tuple[str, str], Mapping[str, Any]],
    prompt: int = PROMPT_TOKENS,
) -> dict[str, Any] | None:
    """The `tokens` of a record: how fast each stage is, and the time to the first token.

    `graphs` are those of `graph_figures`. Graphs that take as many tokens are parts of one model,
    one after the other. None where there is no such graph.
    """
    known = token_graphs(metadata)
    stages: dict[tuple[int, int | None], dict[str, Any]] = {}
    seen = set()
    for one in graphs:
        key = str(one["context"]), str(one["graph"])
        found = known.get(key)
        if found is None or key in seen:
            continue
        seen.add(key)
        in_name = _CL.search(key[1])
        stage = stages.setdefault(
            (found.tokens, int(in_name[1]) if in_name else None),
            {"stage": "decode" if found.tokens == 1 else "prefill", "tokens": found.tokens}
            | {"context_length": None, "graphs": [], "us": 0, "kv_bytes": 0, "told": found.told},
        )
        stage["context_length"] = stage["context_length"] or found.length
        stage["graphs"].append(key[1])
        stage["us"] += one["median_us"]
        stage["kv_bytes"] += found.cache_bytes
    if not stages:
        return None
    listed = [stages[key] for key in sorted(stages, key=lambda key: (-key[0], key[1] or 0))]
    for stage in listed:
        stage["tokens_per_s"] = round(stage["tokens"] * 1e6 / max(1, stage["us"]), 3)
    return {"stages": listed, "first_token": _first_token(listed, prompt)}


def _first_token(stages: Sequence[Mapping[str, Any]], prompt: int) -> dict[str, Any]:
    """After how long the first token of an answer is there: the prompt goes through in chunks."""
    longest = max(_number(one["context_length"]) for one in stages)
    # of several lengths the longest, of several sizes of a chunk the largest
    stage = max(
        (one for one in stages if _number(one["context_length"]) == longest),
        key=lambda one: int(one["tokens"]),
    )
    asked = min(prompt, longest - 1) if longest > 1 else prompt
    chunks = math.ceil(asked / stage["tokens"])
    size = stage["tokens"]
    return {"prompt_tokens": asked, "chunk": size, "chunks": chunks, "us": chunks * stage["us"]}


def _shape(tensor: Mapping[str, Any]) -> list[int]:
    shape = tensor.get("dimensions")
    return [_number(one) for one in shape] if isinstance(shape, list) else []


def _number(value: object) -> int:
    return value if type(value) is int else 0
