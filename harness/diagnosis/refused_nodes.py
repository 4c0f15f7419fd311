"""Nodes that ONNX Runtime's QNN provider refused, and the reasons in its log (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_TAKEN: Final = "QNNExecutionProvider_"
"""The prefix of fused nodes, which the provider has accepted already."""

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
    """A node that does not run on the NPU; `reason` is None if it is not in the log."""

    name: str
    op_type: str
    reason: str | None = None


def messages_of(output: str) -> list[str]:
    """Split the output of a compiling process into messages, each of which begins with a time."""
    return _NEW_MESSAGE.split(output)


def refused_nodes(lines: Iterable[str]) -> list[RefusedNode]:
    """Return the distinct nodes in messages of a log; each message may have several lines.

    The reason includes the error lines that the backend logged before the provider's message.
    """
    nodes: dict[tuple[str, str], RefusedNode] = {}
    errors: list[str] = []
    for text in lines:
        if (backend := _BACKEND.search(text)) and not _FAILED.search(text):
            errors.append(_PLACE.sub("", backend[1]))
        elif _FAILED.search(text):
            match = _REASON.search(text)
            words = [_ASSIGNED.sub("", _PLACE.sub("", match[1] if match else "")), *errors]
            reason = "; ".join(dict.fromkeys(filter(None, map(_plain, words)))) or None
            for op_type, name, _ in _NODE.findall(text):
                node = RefusedNode(name, op_type, reason and reason[:_MOST_WORDS])
                nodes[name, op_type] = node
            errors = []
        elif "Unsupported nodes in QNN EP:" in text:
            for name, op_type in _UNSUPPORTED.findall(text):
                nodes.setdefault((name, op_type), RefusedNode(name, op_type))
            errors = []
    refused = [node for node in nodes.values() if not node.op_type.startswith(_TAKEN)]
    return refused[:_MOST_NODES]


def _plain(text: str) -> str:
    return _STATUS.sub("", " ".join(text.split())).strip(" ;")


def refusal_text(refused: Iterable[RefusedNode], shapes: Mapping[str, str], hint: str) -> str:
    """Return a message about nodes that the NPU refused: name, op, type and shape, reason.

    `shapes` has type and shape of a node's inputs, by its name. `hint` says what to do.
    """
    nodes = list(refused)
    lines = []
    for node in nodes[:_MOST_NAMED]:
        kind = ", ".join(filter(None, (node.op_type, shapes.get(node.name))))
        why = node.reason or "the provider gives no reason"
        lines.append(f"op {node.name or 'without a name'} ({kind}) is not supported here: {why}")
    if (more := len(nodes) - _MOST_NAMED) > 0:
        lines.append(f"... and {more} more")
    return "\n".join([*lines, hint])
