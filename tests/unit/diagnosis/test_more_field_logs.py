"""Reported failures that the table was not written for: right, near, no answer, or wrong.

Half of them came after the table. `near`: the area, not the cause. `pytest -s` prints the figures.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.diagnosis.explanation import explain
from harness.diagnosis.rule import Rule
from harness.diagnosis.rules import own_rules
from tests.unit.diagnosis.test_field_logs import fields, lines_of, told_by

RULES = own_rules()

LOGS: Final = Path(__file__).parents[2] / "field" / "failure-logs-2.tsv"
NOTHING_WRONG: Final = "-"
# of one nothing but XNNPACK is told, as of any run on the CPU
RIGHT_OR_NEAR, WRONG = 42, 0
BY_OTHERS, WRONG_BY_OTHERS = 16, 2
_BARE: Final = "(only the code"

# Whose words a log has: what one program says teaches nothing about another.
FAMILIES: Final = {
    "onnxruntime": ("onnxruntime", "clpeak"),
    "ExecuTorch": ("executorch", "DaKanji"),
    "LiteRT": ("LiteRT", "tensorflow", "flutter_gemma"),
    "llama.cpp": ("llama.cpp", "GenieX"),
    "Genie and QNN's tools": ("ai-hub", "appbuilder", "MNN", "mllm", "radxa"),
    "FastRPC and the kernel": ("fastrpc", "linux", "SecureMR"),
}


@dataclass(frozen=True)
class MoreField:
    """A reported failure, the causes that are right about it, and those that are near."""

    thread: str
    text: str
    settled: tuple[str, ...]
    near: tuple[str, ...]

    @property
    def family(self) -> str:
        """The family of programs whose words it has."""
        return family_of(self.thread)

    def judged(self, rules: tuple[Rule, ...] = RULES) -> str:
        """The worth of the table's answer."""
        ids = [cause.id for cause in explain(lines_of(self.text), rules).diagnoses]
        if self.settled == (NOTHING_WRONG,):
            return "wrong" if ids else "right"
        if not ids:
            return "none"
        if ids[0] in self.settled:
            return "right"
        if ids[0] in self.near or set(ids[:3]) & set(self.settled):
            return "near"
        return "wrong"


def family_of(thread: str) -> str:
    return next(name for name, marks in FAMILIES.items() if any(mark in thread for mark in marks))


def more_fields() -> list[MoreField]:
    with LOGS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        MoreField(
            row["thread"], _text(row), *(tuple(row[key].split()) for key in ("settled", "near"))
        )
        for row in rows
    ]


def _text(row: dict[str, str]) -> str:
    excerpt = row["excerpt"]
    return f"{row['api']} returned {row['code']} / {excerpt}" if _BARE in excerpt else excerpt


def score(rows: list[MoreField], rules: tuple[Rule, ...] = RULES) -> dict[str, int]:
    counted = Counter(row.judged(rules) for row in rows)
    return {verdict: counted[verdict] for verdict in ("right", "near", "none", "wrong")}


def test_the_figures() -> None:
    rows = more_fields()
    counts = score(rows)
    print(f"\n{len(rows)} reported failures: {counts}")
    for row in rows:
        if row.judged() != "right":
            print(f"  {row.judged()}: {row.thread}")
    assert len(rows) == 43
    assert counts["right"] + counts["near"] >= RIGHT_OR_NEAR
    assert counts["wrong"] <= WRONG


def test_a_family_of_programs_is_explained_by_what_others_teach() -> None:
    """Only the signs that reports of other families show, tried on one family's."""
    rows = more_fields()
    total: Counter[str] = Counter()
    for family in FAMILIES:
        others = [field.text for field in fields() if family_of(field.thread) != family]
        known = told_by([*others, *(row.text for row in rows if row.family != family)])
        counts = score([row for row in rows if row.family == family], known)
        print(f"\n{family}, by what the others teach: {counts}")
        total += Counter(counts)
    print(f"\nall: {dict(total)}")
    assert total["right"] + total["near"] >= BY_OTHERS
    assert total["wrong"] <= WRONG_BY_OTHERS
