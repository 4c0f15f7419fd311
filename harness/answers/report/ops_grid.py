"""Ops by versions: what each op of a profiled case took with each version of QNN (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness.answers.report.document import Block, Line, Table, code
from harness.ground.facts.axes import VERSIONS
from harness.ground.facts.versions import QnnVersion
from harness.verdict.results.op_costs import OpCost, op_costs
from harness.verdict.results.record import CaseRecord

_MOST_OPS: Final = 20
_Columns = dict[str, dict[str, OpCost]]


def ops_by_version(records: Iterable[CaseRecord]) -> list[Block]:
    """A table for each case that was profiled with several versions, the largest ops first.

    An op that was fused into another one says into which, one that is not there has a dash.
    """
    found: dict[str, _Columns] = {}
    for record in records:
        costs = op_costs(record.measurements.get("profile"))
        if costs and record.outcome == "passed":
            where = record.device.name if record.device is not None else ""
            axes = record.axes.items()
            apart = [f"{value}" for name, value in axes if name not in VERSIONS and value != where]
            title = ", ".join(filter(None, [*dict.fromkeys([where, *apart])]))
            found.setdefault(title, {})[f"{record.axes.get('qnn')}"] = costs
    return [_table(title, one) for title, one in found.items() if len(one) > 1]


def _table(title: str, columns: _Columns) -> Table:
    versions = sorted(columns, key=version_order)
    largest: dict[str, float] = {}
    for costs in columns.values():
        whole = sum(one.value for one in costs.values()) or 1
        for op, one in costs.items():
            largest[op] = max(largest.get(op, 0.0), one.value / whole)
    ops = sorted(largest, key=lambda op: -largest[op])[:_MOST_OPS]
    rows: list[Sequence[Line]] = [
        [code(op), *(_cell(columns[version].get(op)) for version in versions)] for op in ops
    ]
    return Table(f"Ops by version: {title}", ["Op", *versions], rows)


def _cell(one: OpCost | None) -> Line:
    if one is None:
        return "-"
    return ["in ", code(one.inside)] if one.inside else f"{one.value:,.0f} {one.unit}"


def version_order(version: str) -> tuple[tuple[int, ...], str]:
    """What versions are sorted by: their numbers, however many digits these have."""
    found = QnnVersion.found_in(version)
    return found.parts if found else (), version
