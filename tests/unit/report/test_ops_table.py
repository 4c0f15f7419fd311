"""Tables of slow ops: in a terminal and on the page."""

from __future__ import annotations

from typing import Any

import pytest

from harness.report.document import Paragraph, Table, html, markdown
from harness.report.model_figures import ops_tables
from harness.results.op_events import csv_events, phases_in, profile_of, runs_in
from harness.results.record import CaseRecord
from tests.unit.results.records import record
from tests.unit.results.test_op_events import CSV


def profiled(**changed: Any) -> CaseRecord:
    events = csv_events(CSV)
    profile = profile_of(
        "ops",
        {"g": runs_in(events)},
        phases=phases_in(events),
        nodes=["conv1", "relu1"],
        added_us=7,
        notes=["something is missing"],
    )
    return record(measurements={"profile": profile | changed})


def test_the_most_expensive_op_is_first_with_its_share_and_that_of_all_before_it() -> None:
    head, ops, phases = ops_tables([record(), profiled()])
    assert isinstance(head, Paragraph)
    assert isinstance(ops, Table)
    assert isinstance(phases, Table)
    text = markdown([head])
    assert "1,100 cycles (Accelerator (execute) time (cycles))" in text
    assert "of which the ops are 100.0%; 2 runs, 18% apart" in text
    assert "added 7 us" in text
    assert "something is missing" in text
    assert ops.title == "The 3 most expensive of 3 ops"
    assert [line for line in markdown([ops]).splitlines() if line.startswith("|")][2:] == [
        "| relu1:OpId_26 | relu1 | 1,000 | 90.9% | 90.9% | 20% |",
        "| Input OpId_2 |   | 100 | 9.1% | 100.0% | 0% |",
        "| conv1_token_1:OpId_22 | conv1 | 0 | 0.0% | 100.0% |   |",
    ]
    assert [row[1] for row in phases.rows] == ["12,441", "10,250"]


def test_the_page_can_be_sorted() -> None:
    shown = html(ops_tables([profiled()], page=True))
    assert 'class="measured sortable"' in shown


def test_a_terminal_has_ten_ops_of_many() -> None:
    ops = [
        {"op": f"n{index}", "source": None, "us": index, "share": index / 100}
        for index in range(40)
    ]
    (_, table) = ops_tables([profiled(ops=ops, phases=[])])
    assert isinstance(table, Table)
    assert len(table.rows) == 10
    assert table.columns[2] == "us"
    assert table.title == "The 10 most expensive of 40 ops"


@pytest.mark.parametrize(
    "changed",
    [
        {"ops": 3, "phases": "x", "total": [], "notes": None, "added_us": "<b>"},
        {"ops": [{}, 4, {"op": "<b>", "cycles": [], "share": None, "runs": [None, "x"]}]},
        {"total": {"cycles": 3, "event": "<b>", "spread": "x", "runs": 3, "ops_share": {}}},
        {"phases": [{"phase": None, "us": "y"}, 3]},
    ],
)
def test_whatever_a_record_holds_becomes_a_page(changed: dict[str, Any]) -> None:
    assert "<b><" not in html(ops_tables([profiled(**changed)], page=True))


def test_an_op_of_several_graphs_says_which_it_is_of() -> None:
    runs = runs_in(csv_events(CSV))
    profile = profile_of("ops", {"a": runs, "b": runs})
    (_, table) = ops_tables([record(measurements={"profile": profile})])
    assert isinstance(table, Table)
    text = markdown([table])
    assert "relu1:OpId_26 of a" in text
    assert "relu1:OpId_26 of b" in text


def test_a_case_without_a_profile_has_no_table() -> None:
    assert ops_tables([record()]) == []
