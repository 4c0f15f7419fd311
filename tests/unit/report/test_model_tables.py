"""Tables of a model: its accuracy and latency, its ops, and where its nodes ran."""

from typing import Any

import pytest

from harness.core.engine import DEFAULT_ENGINE, ENGINES
from harness.models.session_plan import IN_RANGE, MADE_UP
from harness.report.document import Table, html, markdown
from harness.report.model_tables import (
    accuracy,
    figure_blocks,
    latency,
    nodes_tables,
    ops_tables,
    versions,
)
from harness.results.op_events import csv_events, phases_in, profile_of, runs_in
from harness.results.record import CaseRecord
from tests.snapshots import Snapshot
from tests.unit.results.records import DEVICE, record
from tests.unit.results.test_op_events import CSV


def test_what_is_not_compared_is_told_below_the_table(snapshot: Snapshot) -> None:
    figures = {"output": "y", "max_abs": 0.5, "cosine": 0.75, "sqnr_db": None, "against": "files"}
    skipped = [{"output": "big", "why": "it was not kept"}]
    measured = {"accuracy": [figures], "not_compared": skipped}
    assert markdown(accuracy([record(measurements=measured)])) == snapshot
    alone = markdown(accuracy([record(measurements={"not_compared": skipped})]))
    assert ("`big`" in alone, "`y`" in alone) == (True, False)
    assert accuracy([record(measurements={"not_compared": 3})]) == []
    for inputs in (MADE_UP, IN_RANGE):
        text = markdown(accuracy([record(measurements={"accuracy": [{"inputs": inputs}]})]))
        assert (f"`{inputs}`" in text, "--inputs DIR" in text) == (True, True)


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


def test_graphs_of_one_name_are_told_apart_by_their_contexts() -> None:
    graphs = [{"graph": "forward", "context": f"m.pte#{index}", "p50_us": 5} for index in (0, 1)]
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
    graphs = [{"graph": "qnn_qnn_1737_0_0", "context": context, "p50_us": 5}]
    assert f"`{called}" in markdown(latency([record(measurements={"graphs": graphs})]))


@pytest.mark.parametrize(
    ("power", "simulated", "is_told"),
    [(None, False, True), ("burst", False, False), (None, True, False)],
)
def test_times_of_a_phone_in_its_default_mode(
    power: str | None, simulated: bool, is_told: bool
) -> None:
    figures = {"graphs": [{"graph": "g", "p50_us": 5}]}
    ran = record(measurements=figures, axes={"backend": "htp", "power": power})
    device = ran.device.model_copy(update={"simulated": simulated})
    text = markdown(latency([ran.model_copy(update={"device": device})]))
    assert ("Without a power profile (--power) times are of" in text) is is_told


def test_power_profiles_of_all_cases_with_their_answers() -> None:
    def ran(profile: str, answer: str) -> CaseRecord:
        return record(measurements={"power": {"profile": profile, "answer": answer}})

    cases = [ran("burst", "accepted"), ran("burst", "refused"), ran("burst", "accepted")]
    assert markdown(figure_blocks([*cases, record(), record(measurements={"power": 7})])) == (
        "Power profile burst, 2 cases: accepted.\n\nPower profile burst, 1 case: refused.\n\n"
    )


@pytest.mark.parametrize(
    ("rounds", "has_median"), [(1, False), (2, False), (3, True), (None, True)]
)
def test_few_rounds_have_no_median(rounds: int | None, has_median: bool) -> None:
    graph = {"graph": "g", "first_us": 7, "p50_us": 5, "p90_us": 6, "rounds": rounds}
    figures = {"graphs": [graph], "accuracy": [{"output": "y", "cosine": 1}]}
    (table, *_) = latency([record(measurements=figures)])
    assert isinstance(table, Table)
    assert [name in table.columns for name in ("p50", "p90")] == [has_median] * 2
    assert [text in table.rows[0] for text in ("7 us", "5 us", "6 us")] == [True, *[has_median] * 2]
    both = [record(measurements=figures), record(measurements=figures)]
    assert ("5 us" in markdown(versions(both))) is has_median
    many = record(measurements={"graphs": [graph, {**graph, "graph": "h", "rounds": 9}]})
    (table, *_) = latency([many])
    assert [row[2] for row in table.rows] == ["5 us" if has_median else "", "5 us"]


def test_copies_of_a_context_have_one_row() -> None:
    graphs = [{"graph": "g", "context": "m", "first_us": us, "rounds": 1} for us in (7, 5, 6)]
    (table, *_) = latency([record(measurements={"graphs": graphs})])
    assert isinstance(table, Table)
    assert "`g, the first of 3` | 7 us | 1" in markdown([table])


@pytest.mark.parametrize(
    ("figures", "row"),
    [
        (
            {"rounds": 1020, "warmup_count": 4, "steady": True, "throttled_share": 0.25},
            ["5 to 6 us", "", "7 us to ?", "4", "25.0%"],
        ),
        (
            {"rounds": 1020, "warmup_count": 3, "steady": False, "throttled_share": None},
            ["5 to 6 us", "", "7 us to ?", "3", "unknown"],
        ),
    ],
)
def test_a_full_profile_run_has_intervals(figures: dict[str, Any], row: list[str]) -> None:
    intervals = {"p50_interval_us": [5, 6], "p90_interval_us": 9, "p99_interval_us": [7, None]}
    measurements = {"graphs": [{"graph": "g", **intervals, **figures}]}
    assert len(latency([record(measurements=measurements)])) == 3 + (not figures["steady"])
    full = record(measurements={**measurements, "surroundings": {"profile_run": "full"}})
    (_, table, *notes) = latency([full])
    assert list(table.rows[0])[1:] == row
    flaws = [f"{flaw}: g." in markdown(notes) for flaw in ("drifts", "1,024 rounds")]
    assert flaws == [not figures["steady"]] * 2


def test_only_a_page_has_a_row_for_each_of_many_graphs() -> None:
    graphs = [{"graph": f"g{index}", "p50_us": 5, "on": "HTP"} for index in range(66)]
    ran = record(
        case="a/m.onnx::t[x]", suite=ENGINES[DEFAULT_ENGINE].suite, measurements={"graphs": graphs}
    )
    page, text = (markdown(figure_blocks([ran], page=page)) for page in (True, False))
    assert ("`g59`" in page, "`g19`" in text, "`g20`" in text) == (True, True, False)
    assert "and 46 more" in text
    assert "On `HTP`." in text
    several = [{**graph, "on": f"HTP {index}"} for index, graph in enumerate(graphs)]
    text = markdown(latency([record(measurements={"graphs": several})]))
    assert ("`HTP 7` |" in text, "On `HTP" in text) == (True, False)


def test_devices_and_outputs_of_versions_are_named_where_there_are_several() -> None:
    def columns(*names: str, devices: tuple[object, ...] = (DEVICE, DEVICE)) -> tuple[str, ...]:
        figures = {"accuracy": [{"output": name, "cosine": 1} for name in names]}
        (table,) = versions([record(measurements=figures, device=device) for device in devices])
        assert len(table.rows) == len(devices) * len(names)
        return tuple(table.columns)

    assert columns("y")[:2] == ("Model", "QNN")
    assert columns("y", devices=(DEVICE, {**DEVICE, "name": "other"}))[:3] == (
        *("Model", "Device", "QNN"),
    )
    assert columns("y", "z")[3:5] == ("Output", "SQNR (dB)"), "nothing has a p50"
    figures = {"accuracy": [{"output": "y", "cosine": 1}]}
    copies = [record(measurements=figures, axes={"contexts": n, "qnn": "2.47.0"}) for n in (1, 2)]
    (table,) = versions(copies)
    assert table.columns[3] == "Contexts"
    assert table.rows[0] != table.rows[1]
    alone = [
        record(case=f"{name}::t[x]", measurements=figures, axes={"workload": name, "qnn": "2.47.0"})
        for name in ("a.onnx", "b.onnx")
    ]
    assert versions(alone) == [], "nothing is beside it"
    (table,) = versions(alone * 2)
    assert [*table.columns[:3]] == ["Model", "QNN", "Backend"], "a workload is its model"


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


def test_the_most_expensive_op_is_first_with_its_share_and_that_of_all_before_it(
    snapshot: Snapshot,
) -> None:
    assert markdown(ops_tables([record(), profiled()])) == snapshot
    assert 'class="measured sortable"' in html(ops_tables([profiled()], page=True))
    assert ops_tables([record()]) == []
    ops = [{"op": f"n{index}", "us": index, "share": index / 100} for index in range(40)]
    (_, table) = ops_tables([profiled(ops=ops, phases=[])])
    assert (len(table.rows), table.columns[2]) == (10, "us")
    runs = runs_in(csv_events(CSV))
    profile = profile_of("ops", {"a": runs, "b": runs})
    text = markdown(ops_tables([record(measurements={"profile": profile})]))
    assert ("relu1:OpId_26 of a" in text, "relu1:OpId_26 of b" in text) == (True, True)


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


def node(name: str, op: str, on: str = "NPU", reason: str | None = None) -> dict[str, Any]:
    return {"node": name, "op_type": op, "on": on, "reason": reason}


def test_nodes_on_the_npu_are_counted_and_the_others_named(snapshot: Snapshot) -> None:
    added = node("Transpose_token_1", "Transpose") | {"added_by": "ONNX Runtime"}
    nodes = [node("r1", "Relu"), node("r2", "Relu"), node("s", "Shrink", "CPU", "no | kernel")]
    nodes += [node(f"g{index}", "Cos", "GPU") for index in range(3)]
    figures = {"nodes": nodes, "partitions": 2, "transfers": {"tensors": 2, "bytes": 2048}}
    other = {"nodes": [node("c", "Conv"), added, added], "partitions": 1, "transfers": None}
    records = [
        record(case="../m.onnx::test_session[a]", measurements=figures),
        record(measurements=other),
    ]
    assert markdown(nodes_tables(records)) == snapshot


@pytest.mark.parametrize(
    ("executed", "figures"),
    [
        (False, {}),
        (False, {"executed": 0}),
        (True, {"executed": 2}),
        (False, {"runs": 0}),
        (True, {"runs": 0, "session_outputs": {"y": "wrong.raw"}}),
        (True, {"executed": 0, "outputs": "reference"}),
    ],
)
def test_where_nothing_ran_it_is_told_as_planned(
    executed: bool, figures: dict[str, object]
) -> None:
    figures = {"nodes": [node("1", "Sigmoid", "CPU", "x")], **figures}
    compared = figures.pop("outputs", None)
    failed = record(outcome="failed", measurements=figures, outputs=compared)
    line, table = nodes_tables([failed])
    assert ("no run finished" in markdown([line])) is not executed
    assert ("Planned" in table.title) is not executed
    assert "| node 1 | Sigmoid |" in markdown([table])


def test_long_tables_are_cut_and_say_so() -> None:
    nodes = [node(f"n{index}", f"Op{index}") for index in range(12)]
    nodes += [node(f"c{index}", "Cos", "CPU", "x" * 999) for index in range(25)]
    table = nodes_tables([record(measurements={"nodes": nodes})])[1]
    assert len(table.rows) == 8 + 1 + 25
    assert table.rows[8][:2] == ("4 nodes", "4 other ops")
    nine = [node(f"n{index}", f"Op{index}") for index in range(9)]
    (table,) = nodes_tables([record(measurements={"nodes": nine})])[1:]
    assert all("other ops" not in str(row) for row in table.rows)
    assert len(nodes_tables([record(measurements={"nodes": nodes})] * 30)) == 41


def test_what_is_no_list_of_nodes_makes_no_table() -> None:
    for odd in (None, 3, [], [3, {"node": 1, "op_type": "x", "on": "NPU"}], {"node": "a"}):
        assert nodes_tables([record(measurements={"nodes": odd})]) == []
    assert nodes_tables([record()]) == []
