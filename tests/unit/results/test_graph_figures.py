"""The figures of graphs, of steps as the probe reports them."""

from __future__ import annotations

from typing import Any

from harness.probe.transcript import StepResult
from harness.results.measurements import (
    MOST_GRAPHS,
    graph_figures,
    percentile,
    typical_us,
)


def executed(*times: int, context: int = 0, verb: str = "execute", **data: Any) -> StepResult:
    data_of_rounds = {"run_us": list(times), "runs": len(times), "warmup": 0} | data
    completed = {"begun": True, "ended": True, "code": 0, "duration_us": sum(times)}
    return StepResult(0, verb, context=context, data=data_of_rounds, **completed)


def test_steps_of_one_graph_are_one_line() -> None:
    steps = [
        executed(10, 30, 20, graph="a", warmup=2, first_us=900),
        executed(40, graph="a", first_us=40),
        executed(7, graph="b", first_us=7),
        executed(5, graph="a", context=1, first_us=5),
        StepResult(0, "execute", context=2, begun=True),
    ]
    first, second, third = graph_figures(steps, ["m.bin"], "HTP v73")
    assert first == {
        "graph": "a",
        "context": "m.bin",
        "warmup": 2,
        "rounds": 4,
        "first_us": 900,
        "median_us": 25,
        "p95_us": 40,
        "on": "HTP v73",
    }
    assert (second["graph"], third["graph"], third["context"]) == ("b", "a", "m.bin")


def test_a_typical_execution_is_the_median_of_its_rounds() -> None:
    assert typical_us(executed(9000, 10, 12)) == 12
    assert typical_us(executed(9000)) == 9000
    assert typical_us(StepResult(0, "ort-run", duration_us=5)) == 5
    assert typical_us(StepResult(0, "ort-run")) is None


def test_what_a_probe_does_not_say_is_not_made_up() -> None:
    odd = executed(3, verb="ort-run", run_us="x", runs="y", warmup=None, first_us=[])
    (row,) = graph_figures([odd], [], "CPU")
    assert (row["graph"], row["context"], row["rounds"], row["first_us"]) == (None, None, 1, 3)


def test_many_graphs_do_not_fill_a_record() -> None:
    steps = [executed(1, context=index) for index in range(MOST_GRAPHS + 9)]
    assert len(graph_figures(steps, ["m"], "HTP")) == MOST_GRAPHS


def test_percentiles() -> None:
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([5], 0.95) == 5
    assert percentile([1, 2], 0.95) == 2
