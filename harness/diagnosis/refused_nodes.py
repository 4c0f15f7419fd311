"""Which nodes ONNX Runtime's QNN provider refused, and why, as its log says it (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_TAKEN: Final = "QNNExecutionProvider_"
"""What nodes are called that the provider has taken, and is asked for again."""

_MOST_WORDS: Final = 600
_MOST_NODES: Final = 4096
_MOST_NAMED: Final = 8
_FAILED: Final = re.compile(r"Validation FAILED for \d+ nodes? in ")
_NODE: Final = re.compile(r"Operator type: (\S+) Node name: (.*?) Node index: (\d+)")
_REASON: Final = re.compile(r"REASON : (.*)", re.S)
_UNSUPPORTED: Final = re.compile(r"\{ name: ([^{}]*), type: ([^{},]*) \}")
_PLACE: Final = re.compile(r"\s*\[[^\[\]]*\.(?:cc|cpp|h):\d+ [^\]]*\]\s*$")
_STATUS: Final = re.compile(r"\S*\.(?:cc|cpp|h):\d+ .*?\) |^.*? status\.IsOK\(\) was false\. ")
_ASSIGNED: Final = re.compile(r"(?:\w+ node `[^`]*`|Node) will not be assigned to QNN EP\.?")
_NEW_MESSAGE: Final = re.compile(r"\n(?=(?:\x1b\[[\d;]*m)?\d{4}-\d\d-\d\d \d\d:)")
_BACKEND: Final = re.compile(r"<E>\s*(.*)")


@dataclass(frozen=True)
class RefusedNode:
    """A node that did not go to the NPU; `reason` is None where the log does not say it."""

    name: str
    op_type: str
    reason: str | None = None


def messages_of(output: str) -> list[str]:
    """What a process that compiles printed, message by message: each begins with its time."""
    return _NEW_MESSAGE.split(output)


def refused_nodes(lines: Iterable[str]) -> list[RefusedNode]:
    """The nodes that messages of a log name, each once; each message may have several lines.

    To the provider's reason belong the lines that the backend logged as errors before it.
    """
    found: dict[tuple[str, str], RefusedNode] = {}
    said: list[str] = []
    for text in lines:
        if (backend := _BACKEND.search(text)) and not _FAILED.search(text):
            said.append(_without_place(backend[1]))
        elif _FAILED.search(text):
            why = _REASON.search(text)
            words = [_ASSIGNED.sub("", _without_place(why[1] if why else "")), *said]
            reason = "; ".join(dict.fromkeys(filter(None, map(_plain, words)))) or None
            for op_type, name, _ in _NODE.findall(text):
                known = RefusedNode(name, op_type, reason and reason[:_MOST_WORDS])
                found[name, op_type] = known
            said = []
        elif "Unsupported nodes in QNN EP:" in text:
            for name, op_type in _UNSUPPORTED.findall(text):
                found.setdefault((name, op_type), RefusedNode(name, op_type))
            said = []
    own = [one for one in found.values() if not one.op_type.startswith(_TAKEN)]
    return own[:_MOST_NODES]


def _without_place(text: str) -> str:
    return _PLACE.sub("", text)


def _plain(text: str) -> str:
    return _STATUS.sub("", " ".join(text.split())).strip(" ;")


def refusal_text(refused: Iterable[RefusedNode], shapes: Mapping[str, str], hint: str) -> str:
    """What a user is told of nodes that the NPU refused: name, op, type and shape, reason.

    `shapes` has type and shape of what a node reads, by the node's name. `hint` says what to do.
    """
    nodes = list(refused)
    lines = []
    for one in nodes[:_MOST_NAMED]:
        told = ", ".join(filter(None, (one.op_type, shapes.get(one.name))))
        why = one.reason or "the provider names no reason"
        lines.append(f"op {one.name or 'without a name'} ({told}) is not supported here: {why}")
    if more := len(nodes) - _MOST_NAMED:
        lines += [f"... and {more} more"] if more > 0 else []
    return "\n".join([*lines, hint])
