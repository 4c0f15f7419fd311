"""Ops down, versions across."""

from __future__ import annotations

from typing import Any

from harness.report.document import Table, markdown
from harness.report.model_figures import ops_by_version
from harness.results.record import CaseRecord
from tests.unit.history.runs import attempt


def case(qnn: str, **cycles: int) -> CaseRecord:
    ops: list[dict[str, Any]] = [{"op": op, "cycles": n} for op, n in cycles.items()]
    return attempt("a passed", qnn=qnn, measurements={"profile": {"ops": ops}})


def test_versions_stand_in_their_order_and_the_largest_ops_first() -> None:
    blocks = ops_by_version(
        [case("2.51.0", small=1, conv=0, relu=90), case("2.9.0", conv=4000, relu=9, gone=5)]
    )
    (table,) = blocks
    assert isinstance(table, Table)
    assert table.columns == ["Op", "2.9.0", "2.51.0"]
    assert markdown(blocks).strip().splitlines()[4:] == [
        "| `conv` | 4,000 cycles | in `relu` |",
        "| `relu` | 9 cycles | 90 cycles |",
        "| `small` | - | 1 cycles |",
        "| `gone` | 5 cycles | - |",
    ]


def test_one_version_alone_or_no_profile_is_no_grid() -> None:
    assert ops_by_version([case("2.51.0", conv=1)]) == []
    failed = attempt("a failed", measurements={"profile": {"ops": [{"op": "a", "cycles": 1}]}})
    assert ops_by_version([failed, attempt("b passed"), case("2.51.0", conv=1)]) == []
