"""What ran where, or would: nodes of each case's model, and why one is not on the NPU (pure).

Nodes without a reason are counted by their op; those that were refused are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from harness.answers.report.document import Block, Line, Paragraph, Span, Table, code
from harness.ground.errors.outgoing_text import counted
from harness.verdict.results.record import CaseRecord

_MOST_CASES: Final = 20
_MOST_NODES: Final = 20
_MOST_OPS: Final = 8
_MOST_CHARS: Final = 160

_Row = tuple[str, str, str, str]
"""Node, op, where, why not on the NPU."""

_Added = Counter[str]
"""The ops of nodes that a runtime has added to those of the model."""


def nodes_tables(records: Iterable[CaseRecord]) -> list[Block]:
    """A line and a table for each case that knows where nodes run, of at most 20 cases."""
    found = [(one, told) for one in records if any(told := _rows(one))]
    blocks: list[Block] = []
    for record, (rows, added) in found[:_MOST_CASES]:
        on = Counter(where for _, _, where, _ in rows)
        where = sorted(on.items(), reverse=True)
        places = ", ".join(f"{number} on the {where}" for where, number in where)
        cut = "".join(f"; {words}" for words in (*_added(added), *_cut(record)))
        title, which = "What ran where", "of"
        if not _ran(record):
            title, which = "What would run where", "nothing ran; if it did, of"
        line: list[str | Span] = [
            code(record.case.rpartition("/")[2]),
            f": {which} {counted(len(rows), 'node')} ",
            Span(places),
            cut,
        ]
        columns = ("Node", "Op", "On", "Why not on the NPU")
        blocks += [Paragraph(line), Table(title, columns, [*_lines(rows)])]
    if (more := len(found) - _MOST_CASES) > 0:
        blocks.append(Paragraph(f"... and what ran where in {counted(more, 'case')} more"))
    return blocks


def _ran(record: CaseRecord) -> bool:
    of_runs = ("executed", "runs", "session_outputs")
    ran = record.outcome == "passed" or record.outputs is not None
    return ran or any(map(record.measurements.get, of_runs))


def _rows(record: CaseRecord) -> tuple[list[_Row], _Added]:
    """The nodes of the model as the record has them, of those in their proper form, and others."""
    told: Any = record.measurements.get("nodes")
    found, added = [], Counter[str]()
    for one in told if isinstance(told, list | tuple) else ():
        match one:
            case {"added_by": str(), "op_type": str(op)}:
                added[op] += 1
            case {"node": str(node), "op_type": str(op), "on": str(on)}:
                reason = one.get("reason")
                found.append((node, op, on, reason if isinstance(reason, str) else ""))
    return found, added


def _added(added: _Added) -> Iterator[str]:
    if added:
        ops = ", ".join(f"{number} {op}" for op, number in added.most_common(_MOST_OPS))
        yield f"ONNX Runtime added {counted(added.total(), 'node')}: {ops}"


def _cut(record: CaseRecord) -> Iterator[str]:
    parts, carried = (record.measurements.get(name) for name in ("partitions", "transfers"))
    if isinstance(parts, int):
        yield counted(parts, "partition")
    match carried:
        case {"tensors": 0}:
            return
        case {"tensors": int(number), "bytes": int(size)}:
            yield f"{counted(number, 'tensor')} of {size:,} bytes carried over"
        case {"tensors": int(number)}:
            yield f"{counted(number, 'tensor')} carried over, not all of a known size"
        case None if isinstance(parts, int) and parts:
            yield "it is not known what is carried over"


def _lines(rows: Sequence[_Row]) -> Iterator[Sequence[Line]]:
    counts = Counter((op, where) for _, op, where, reason in rows if not reason)
    shown = len(counts) if len(counts) == _MOST_OPS + 1 else _MOST_OPS  # a row for one is a row
    for (op, where), number in counts.most_common(shown):
        yield counted(number, "node"), Span(op), where, ""
    if rest := sum(number for _, number in counts.most_common()[shown:]):
        yield counted(rest, "node"), f"{len(counts) - shown} other ops", "", ""
    others = [one for one in rows if one[3]]
    for node, op, where, reason in others[:_MOST_NODES]:
        # a number alone would read as a count
        name = f"node {node}" if node.isdecimal() else node
        yield Span(name[:_MOST_CHARS]), Span(op), where, Span(reason[:_MOST_CHARS])
    if (more := len(others) - _MOST_NODES) > 0:
        yield f"... and {more} more", "", "", "the record has them all"
