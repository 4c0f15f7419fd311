"""Failures with the diagnosis that each must get, and how sure it is: of cases, and in logs.

`failure-rows.tsv` has what devices showed as cases failed, `log-rows.tsv` excerpts of logs as
people paste them, most of them from public threads. An expected `-`: nothing tells a cause, or what
is told is no failure. ␤ divides lines.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.diagnosis.diagnosis import Foreseen, diagnosed
from harness.diagnosis.error_record import ErrorRecord, Outcome
from harness.diagnosis.explain_log import explain
from harness.diagnosis.log_reader import LogText, read_log
from harness.diagnosis.rule import Rule
from harness.diagnosis.rule_sources import own_rules
from harness.diagnosis.verdict import judge
from harness.probe.plan_runner import ProbeRun
from harness.runtimes.preflight_findings import CODES, Finding
from tests.unit.diagnosis.probe_runs import DONE, START, begin, end, log, run

RULES = own_rules()

NO_PD = "Failed to find available PD for contextId 56 on deviceId 0 coreId 0"
RESTARTED = "remoteproc remoteproc1: crash detected in 3300000.remoteproc-cdsp: type fatal error"
_VERBS = {
    "CreateSession": "ort-session",
    "Run": "ort-run",
    "Session_GetEpGraphAssignmentInfo": "ort-placement",
}
_ENDINGS: Final[dict[str, dict[str, Any]]] = {
    "killed": {"signal": 9, "exit_code": None},
    "crashed": {"signal": 11, "exit_code": None},
    "late": {"timed_out": True, "exit_code": None},
}


@dataclass(frozen=True)
class Row:
    """A step that returned `code`, with the errors logged in it and what the device's log held.

    `ending`: how the process ended; empty if it carried out its plan. `message` is the probe's own,
    with `error` the kind of its own refusal, `status` the text of a call of ONNX Runtime's.
    `foreseen` are the codes of findings of preflight.
    """

    expected: str | None
    api: str
    code: int | None
    lines: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    ending: str = ""
    error: str = ""
    message: str = ""
    status: str = ""
    foreseen: tuple[str, ...] = ()

    @property
    def preflight(self) -> Foreseen:
        """The findings of preflight, in the words of the table of codes."""
        findings = (
            Finding(code=code, severity="error", explanation=CODES[code].meaning, fix="")
            for code in self.foreseen
        )
        return Foreseen(tuple(findings))

    def probe_run(self) -> ProbeRun:
        """The process that shows it."""
        verb = _VERBS.get(self.api, "context-load")
        events = [START, begin(api=self.api, verb=verb), *map(log, self.lines)]
        if self.ending:
            return run(*events, **_ENDINGS[self.ending])
        data = {"status_text": self.status} if self.status else None
        ended = {"code": self.code, "error": self.error, "message": self.message, "data": data}
        ended = {key: value for key, value in ended.items() if value not in (None, "")}
        return run(*events, end(**ended), DONE, exit_code=1)

    @cached_property
    def undiagnosed(self) -> tuple[Outcome, ErrorRecord]:
        """The outcome and the error record of the process's events, without a diagnosis."""
        verdict = judge(self.probe_run())
        return verdict.outcome, verdict.error.model_copy(update={"diagnosis": None})

    def diagnosis(self, rules: tuple[Rule, ...] = RULES) -> str | None:
        """Return the diagnosis by these rules."""
        diagnosis = diagnosed(*self.undiagnosed, self.evidence, rules, self.preflight).diagnosis
        return f"{diagnosis.id} {diagnosis.confidence}" if diagnosis else None


def lines_of(text: str) -> tuple[LogText, ...]:
    """Return the lines of a log."""
    return read_log(io.BytesIO(text.encode())).lines


def answer_to(text: str) -> str | None:
    """Id and confidence of the answer to a log."""
    causes = explain(lines_of(text)).diagnoses
    return f"{causes[0].id} {causes[0].confidence}" if causes else None


def _table(name: str) -> Iterator[dict[str, str]]:
    """Rows of a table without its comments, and None where nothing is expected."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    rows = (line for line in lines if not line.startswith("# "))
    return csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")


def _expected(row: dict[str, str]) -> str | None:
    return None if row["expected"] == "-" else row["expected"]


def _row(row: dict[str, str]) -> Row:
    lines, evidence = (
        tuple(row[column].split(" ␤ ")) if row[column] else () for column in ("lines", "evidence")
    )
    return Row(
        _expected(row),
        row["api"],
        int(row["code"], 0) if row["code"] else None,
        lines,
        evidence,
        *(row[column] for column in ("ending", "error", "message", "status")),
        foreseen=tuple(CODES) if row["foreseen"] == "all" else tuple(row["foreseen"].split()),
    )


ROWS: Final = tuple(map(_row, _table("failure-rows.tsv")))
LOG_ROWS: Final = tuple(
    (_expected(row), row["excerpt"].replace(" ␤ ", "\n")) for row in _table("log-rows.tsv")
)
