"""Tables of a model's accuracy: outputs that were compared, and outputs that were not."""

from __future__ import annotations

import pytest

from harness.core.engine import DEFAULT_ENGINE
from harness.core.engines import ENGINES
from harness.models.source import IN_RANGE, MADE_UP
from harness.report.document import Span, Table, markdown
from harness.report.model_figures import (
    accuracy,
    elements,
    figure_blocks,
    latency,
    versions,
)
from tests.unit.results.records import DEVICE, record


def test_what_is_not_compared_is_told_below_the_table() -> None:
    figures = {"output": "y", "max_abs": 0.5, "cosine": 0.75, "sqnr_db": None, "against": "files"}
    skipped = [{"output": "big", "why": "it was not kept"}]
    text = markdown(
        accuracy([record(measurements={"accuracy": [figures], "not_compared": skipped})])
    )
    assert "| `y` | 0.5 | 0.75 |   | `files` | `?` |" in text
    assert "`big` is not compared: it was not kept" in text
    alone = markdown(accuracy([record(measurements={"not_compared": skipped})]))
    assert "How right" not in alone
    assert "`big` is not compared" in alone
    assert accuracy([record(measurements={"not_compared": 3})]) == []


@pytest.mark.parametrize(
    ("figures", "row"),
    [
        ({"max_abs": 0, "max_steps": 0, "cosine": 1, "sqnr_db": None}, "0 | 0 | 1 | equal"),
        ({"max_abs": 2, "max_steps": 4, "cosine": None, "sqnr_db": None}, "2 | 4 |   |  "),
        (
            {"not_finite": 3, "max_steps": 9, "same_not_finite": 2},
            "3 of 8 NaN or infinite on one side, 2 on both | 9 |   |  ",
        ),
        (
            {"max_abs": 1, "max_steps": 9, "same_not_finite": 2},
            "1 (2 of 8 NaN or infinite on both) | 9 |   |  ",
        ),
    ],
)
def test_a_figure_that_there_is_not_is_no_number(figures: dict[str, object], row: str) -> None:
    output = {"output": "y", "elements": 8, "against": "the CPU", "inputs": "given", **figures}
    text = markdown(accuracy([record(measurements={"accuracy": [output]})]))
    assert f"| `y` | {row} | `the CPU` | `given` |" in text
    assert "--inputs" not in text


def test_figures_of_inputs_that_are_made_up_say_so() -> None:
    for inputs in (MADE_UP, IN_RANGE):
        text = markdown(accuracy([record(measurements={"accuracy": [{"inputs": inputs}]})]))
        assert f"`{inputs}`" in text
        assert "--inputs DIR" in text


def test_a_page_has_a_folded_table_of_each_outputs_worst() -> None:
    worst = {"index": [0, 3, 1], "got": 1.5, "expected": 1.0}
    output = {"output": "y", "max_abs": 0.5, "cosine": 1, "worst": worst}
    ran = record(
        case="a/m.onnx::t[x]",
        suite=ENGINES[DEFAULT_ENGINE].suite,
        measurements={"accuracy": [output]},
    )
    (table,) = elements([ran])
    assert isinstance(table, Table)
    assert (table.title, table.folded) == ("y of m.onnx::t[x]: where it is off most", True)
    assert [list(row) for row in table.rows] == [
        [Span("furthest, at [0, 3, 1]"), "1.5", "1", "0.5"],
    ]
    assert table in figure_blocks([ran], page=True)
    assert table not in figure_blocks([ran])
    many = record(measurements={"accuracy": [output] * 99})
    assert len(elements([many])) == 60
    assert len(elements([record(measurements={"accuracy": [{"output": "y", "worst": 3}]})])) == 1


def test_graphs_of_one_name_are_told_apart_by_their_contexts() -> None:
    graphs = [{"graph": "forward", "context": f"m.pte#{index}", "median_us": 5} for index in (0, 1)]
    text = markdown(latency([record(measurements={"graphs": graphs})]))
    assert ("`m.pte#0`" in text, "`m.pte#1`" in text, "forward" in text) == (True, True, False)
    assert "`forward` " in markdown(latency([record(measurements={"graphs": graphs[:1]})]))
    twice = [*graphs, *({**graph, "graph": "decode"} for graph in graphs)]
    assert "`decode of m.pte#1`" in markdown(latency([record(measurements={"graphs": twice})]))


@pytest.mark.parametrize(
    ("context", "called"), [("cnn.onnx", "cnn"), ("cnn.bin", "qnn_qnn_1737_0_0"), (None, "qnn_qnn")]
)
def test_a_graph_that_was_compiled_here_is_called_like_its_model(
    context: str | None, called: str
) -> None:
    graphs = [{"graph": "qnn_qnn_1737_0_0", "context": context, "median_us": 5}]
    assert f"`{called}" in markdown(latency([record(measurements={"graphs": graphs})]))


@pytest.mark.parametrize(
    ("rounds", "has_median"), [(1, False), (2, False), (3, True), (None, True)]
)
def test_few_rounds_have_no_median(rounds: int | None, has_median: bool) -> None:
    graph = {"graph": "g", "first_us": 7, "median_us": 5, "p95_us": 6, "rounds": rounds}
    figures = {"graphs": [graph], "accuracy": [{"output": "y", "cosine": 1}]}
    (table, *_) = latency([record(measurements=figures)])
    assert isinstance(table, Table)
    assert [name in table.columns for name in ("Median", "p95")] == [has_median, has_median]
    assert [text in table.rows[0] for text in ("7 us", "5 us", "6 us")] == [
        True,
        has_median,
        has_median,
    ]
    both = [record(measurements=figures), record(measurements=figures)]
    assert ("5 us" in markdown(versions(both))) is has_median
    many = record(measurements={"graphs": [graph, {**graph, "rounds": 9}]})
    (table, *_) = latency([many])
    assert isinstance(table, Table)
    assert [row[2] for row in table.rows] == ["5 us" if has_median else "", "5 us"]


def test_only_a_page_has_a_row_for_each_of_many_graphs() -> None:
    graphs = [{"graph": f"g{index}", "median_us": 5, "on": "HTP"} for index in range(66)]
    ran = record(
        case="a/m.onnx::t[x]", suite=ENGINES[DEFAULT_ENGINE].suite, measurements={"graphs": graphs}
    )
    page, text = (markdown(figure_blocks([ran], page=page)) for page in (True, False))
    assert ("`g59`" in page, "`g19`" in text, "`g20`" in text) == (True, True, False)
    assert "... and 40 more rows, in the report" in text
    assert "On `HTP`." in text
    several = [{**graph, "on": f"HTP {index}"} for index, graph in enumerate(graphs)]
    text = markdown(latency([record(measurements={"graphs": several})]))
    assert ("`HTP 7` |" in text, "On `HTP" in text) == (True, False)


def test_versions_are_told_by_device_where_there_are_several() -> None:
    figures = {"accuracy": [{"output": "y", "cosine": 1}]}
    other = {**DEVICE, "name": "other"}
    ran = [record(measurements=figures, device=device) for device in (DEVICE, other)]
    (table,) = versions(ran)
    assert isinstance(table, Table)
    assert table.columns[:3] == ("Model", "Device", "QNN")
    (alike,) = versions([ran[0], ran[0]])
    assert isinstance(alike, Table)
    assert alike.columns[:2] == ("Model", "QNN")
    assert versions(ran[:1]) == []


def test_outputs_of_versions_are_named_where_there_are_several() -> None:
    figures = {"accuracy": [{"output": name, "cosine": 1} for name in "yz"]}
    assert versions([record(measurements=figures)]) == [], "nothing is beside it"
    (table,) = versions([record(measurements=figures)] * 2)
    assert isinstance(table, Table)
    assert table.columns[3:5] == ("Output", "Median")
    assert len(table.rows) == 4
