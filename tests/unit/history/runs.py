"""Hand-made attempts at cases, as short as a table wants them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.diagnosis.error_record import Diagnosis, ErrorRecord
from harness.history.attempts import Attempt
from harness.history.comparison import Comparison
from harness.history.database import Database
from harness.history.importing import list_runs, stored_attempts
from harness.history.speed_changes import judge_speed
from harness.history.timeline import Filter
from harness.plugin.collection import selection
from harness.report.report_files import finish
from harness.results.coverage import NO_CAUSE
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder
from tests.unit.results.records import record

ERRORS = {"failed": 1002, "crashed": None, "hung": None, "error": None}


def attempt(
    words: str,
    *,
    qnn: str = "2.51.0",
    device: str = "sim",
    file: str = "suites/test_a.py",
    **changed: Any,
) -> CaseRecord:
    """Of `name outcome`; message=, id=, known=, cause=, n= (the attempt) and engine= may
    stand behind that.

    The name may hold its version: `a@2.50.40`.
    """
    name, outcome, *more = words.split()
    name, _, version = name.partition("@")
    qnn = version or qnn
    fields = dict(word.split("=", 1) for word in more)
    bad = outcome not in NO_CAUSE
    error = None
    if bad:
        message = fields.get("message", "it broke").replace("_", " ")
        error = ErrorRecord.of(api="call", code=ERRORS[outcome], message=message)
        if "id" in fields:
            error = error.model_copy(
                update={"diagnosis": Diagnosis(id=fields["id"], confidence="known", words="so")}
            )
    cause = fields.get("cause", "infra" if outcome == "error" else "target") if bad else None
    known = fields.get("known")
    values: dict[str, Any] = {
        "case": f"{file}::test_b[{device}-htp-{qnn}-{name}]",
        "axes": {"backend": "htp", "qnn": qnn, "ort": None, "which": name},
        "device": {
            "name": device,
            "serial": None,
            "soc": None,
            "target": "linux-x64",
            "simulated": True,
        },
        "outcome": outcome,
        "cause": cause,
        "error": error,
        "expected": {"known_issue": known} if known else None,
        "attempt": int(fields.get("n", 1)),
        "measurements": {},
        "engine": fields.get("engine", "qnn"),
    }
    return record(**(values | changed))


def briefs(words: str) -> list[Attempt]:
    """Attempts divided by semicolons."""
    return [Attempt.of(attempt(word)) for word in words.split(";") if word.strip()]


def run_folder(
    reports: Path,
    *records: CaseRecord,
    command: tuple[str, ...] = ("pytest", "-m", "device"),
    problem: str | None = None,
    run_id: str | None = None,
) -> Path:
    """A finished run with these records."""
    more = {"selection": list(selection(command))}
    folder = RunFolder.create(
        reports, command=command, lab={}, devices=[], more=more, run_id=run_id
    )
    for case_record in records:
        folder.journal.append(case_record.model_copy(update={"run": folder.run_id}))
    finish(folder, exit_code=0, problem=problem)
    return folder.path


def stored_runs(database: Database, criteria: Filter) -> list[tuple[str, list[Attempt]]]:
    """Return the stored attempts that match, by run in the order of their starts."""
    by_run: dict[str, list[Attempt]] = {}
    for _, run, brief in stored_attempts(database, criteria):
        by_run.setdefault(run, []).append(brief)
    return [(run.run, by_run[run.run]) for run in list_runs(database) if run.run in by_run]


def with_speed(
    comparison: Comparison,
    earlier: Sequence[Sequence[Attempt]] = (),
    between: Sequence[Sequence[Attempt]] = (),
    **options: Any,
) -> Comparison:
    """The comparison with what became of speed and memory, as `compare` judges it."""
    sides = [
        [getattr(pair, side) for pair in comparison["passing"]] for side in ("before", "after")
    ]
    return replace(comparison, speed=judge_speed(*sides, earlier, between, **options))
