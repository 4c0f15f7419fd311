"""How right a model was, as a table: what was compared, and what was not."""

from __future__ import annotations

from harness.answers.report.document import markdown
from harness.answers.report.model_figures import accuracy
from tests.unit.verdict.results.records import record


def test_what_is_not_compared_is_told_below_the_table() -> None:
    one = {"output": "y", "max_abs": 0.5, "cosine": 0.75, "sqnr_db": None, "against": "files"}
    gone = [{"output": "big", "why": "it was not kept"}]
    told = markdown(accuracy([record(measurements={"accuracy": [one], "not_compared": gone})]))
    assert "| `y` | 0.5 |   | 0.75 | equal | `files` |" in told
    assert "`big` is not compared: it was not kept" in told
    alone = markdown(accuracy([record(measurements={"not_compared": gone})]))
    assert "How right" not in alone
    assert "`big` is not compared" in alone
    assert accuracy([record(measurements={"not_compared": 3})]) == []
