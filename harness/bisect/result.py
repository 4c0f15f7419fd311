"""What a bisection came to, as data: the answer, every run, both sides, what tells them apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

from harness.bisect.drawing import draw
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.log import Answered, Log
from harness.bisect.sides import Recorded, edges_of, side_as_json, sides_of
from harness.bisect.specs import GridSpec
from harness.bisect.task import Task
from harness.results.record import CaseRecord
from harness.runtimes.difference import Difference

SCHEMA: Final = 1
_BUILD_DATE: Final = re.compile(r"\d+(?:\.\d+){1,2}\.(\d{2})(\d{2})(\d{2})(?:\d{6})?", re.ASCII)
_LISTED = 200


def result_of(
    name: str,
    log: Log,
    task: Task,
    finding: Finding | GridFinding | None,
    records: Recorded,
    *,
    differences: Mapping[str, Difference] | None = None,
    builds: Mapping[str, Mapping[str, str | None]] | None = None,
) -> dict[str, Any]:
    """Everything as JSON has it (pure).

    `finding` is None for a bisection that is not over. `differences` are those of the libraries on
    the axes that differ at an edge, `builds` the build ids of versions by axis, as far
    as the records do not tell them.
    """
    answers = [entry for entry in log.entries if isinstance(entry, Answered)]
    before, after = sides_of(finding, answers)
    known = build_ids(task, answers, records, builds or {})
    bound = log.spec.bound()
    return {
        "schema": SCHEMA,
        "kind": "bisect",
        "bisect": name,
        "case": task.case,
        "axes": list(task.axes),
        "candidates": candidates_by_axis(log),
        "held": dict(task.held),
        "paths": {axis: dict(paths) for axis, paths in task.paths.items()},
        "match": task.match,
        "repeat": log.spec.repeat,
        "bound": {"runs": bound.runs, "alike": bound.alike, "text": str(bound)},
        "devices": list(task.devices),
        "target": task.target,
        "backend": task.backend,
        "finished": finding is not None,
        "answer": _answer(finding),
        "versions": known,
        "runs": [_run(number, entry, records.get(number)) for number, entry in enumerate(answers)],
        "before": side_as_json(before, answers, records),
        "after": side_as_json(after, answers, records),
        "preflight": _preflight(_record_at(before, records), _record_at(after, records)),
        "edges": [_edge(pair, answers, records, task) for pair in edges_of(finding, answers)],
        "libraries": {axis: difference_as_json(one) for axis, one in (differences or {}).items()},
        "grid": draw(log.spec, finding)
        if isinstance(log.spec, GridSpec) and isinstance(finding, GridFinding)
        else None,
        "cells": _cells(finding),
    }


def build_date(build_id: str | None) -> str | None:
    """The day that a build id names: 2026-09-29 for 2.51.0.260929181845 (pure)."""
    found = _BUILD_DATE.match(build_id or "")
    if found is None:
        return None
    year, month, day = (int(part) for part in found.groups())
    try:
        return date(2000 + year, month, day).isoformat()
    except ValueError:
        return None


def build_ids(
    task: Task,
    answers: Sequence[Answered],
    records: Recorded,
    builds: Mapping[str, Mapping[str, str | None]],
) -> dict[str, dict[str, dict[str, str | None]]]:
    """{axis: {version: {build_id, date}}} of every version that was met (pure)."""
    known: dict[str, dict[str, str | None]] = {axis: dict(found) for axis, found in builds.items()}
    for number, entry in enumerate(answers):
        record = records.get(number)
        versions = task.versions(entry.at)
        for axis, version in versions.items():
            known.setdefault(axis, {}).setdefault(version, None)
        if record is not None and record.runtime is not None and "qnn" in versions:
            known["qnn"][versions["qnn"]] = record.runtime.build_id
    return {
        axis: {
            version: {"build_id": build, "date": build_date(build)}
            for version, build in found.items()
        }
        for axis, found in known.items()
    }


def candidates_by_axis(log: Log) -> dict[str, list[str]]:
    """The candidates of each axis, oldest first."""
    if isinstance(log.spec, GridSpec):
        row, column = log.spec.axes
        return {row: list(log.spec.rows), column: list(log.spec.columns)}
    return {log.spec.axis: list(log.spec.candidates)}


def _answer(finding: Finding | GridFinding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    told: dict[str, Any] = {
        "kind": finding.kind,
        "text": str(finding),
        "confidence": finding.confidence,
        "runs": finding.runs,
        "unknown": finding.unknown,
        "notes": list(finding.notes),
    }
    if isinstance(finding, Finding):
        return told | {
            "direction": finding.direction,
            "last_good": finding.last_good,
            "first_bad": finding.first_bad,
            "last_bad": finding.last_bad,
            "first_good": finding.first_good,
            "between": list(finding.between),
            "verdict": finding.verdict,
            "one_change": finding.one_change,
        }
    decided = finding.kind in ("frontier", "partial")
    return told | {
        "first": [list(at) for at in finding.first],
        "first_are": "bad" if finding.newer == (False, False) else "good",
        "edge_good": [list(at) for at in finding.edge_good],
        "edge_bad": [list(at) for at in finding.edge_bad],
        "unsure": [list(at) for at in sorted(finding.unsure)],
        "newer_is_better": dict(zip(finding.axes, finding.newer, strict=True))
        if finding.newer is not None
        else None,
        "mattered": dict(zip(finding.axes, finding.mattered, strict=True)),
        "axis_said": finding.axis_said() if decided else None,
        "assumed": finding.assumed,
        "verdict": finding.verdict,
        "witnesses": [list(at) for at in finding.witnesses],
    }


def _cells(finding: Finding | GridFinding | None) -> list[dict[str, Any]] | None:
    if not isinstance(finding, GridFinding):
        return None
    edges = {*finding.edge_good, *finding.edge_bad}
    return [
        {
            "at": list(at),
            "verdict": cell.verdict,
            "how": cell.how,
            "edge": at in edges,
            "unsure": at in finding.unsure,
            "contradicts": at in finding.witnesses,
        }
        for at, cell in finding.cells.items()
    ]


def _edge(
    pair: tuple[int, int], answers: Sequence[Answered], records: Recorded, task: Task
) -> dict[str, Any]:
    """Two unlike runs next to each other, and the axes on which they differ."""
    before, after = (answers[number].at for number in pair)
    return {
        "axes": [
            axis for axis, old, new in zip(task.axes, before, after, strict=True) if old != new
        ],
        "before": side_as_json(pair[0], answers, records),
        "after": side_as_json(pair[1], answers, records),
        "preflight": _preflight(records.get(pair[0]), records.get(pair[1])),
    }


def _run(number: int, entry: Answered, record: CaseRecord | None) -> dict[str, Any]:
    return {
        "number": number + 1,
        "at": list(entry.at),
        "answer": entry.answer,
        "why": entry.detail.get("why"),
        "seconds": entry.detail.get("seconds"),
        "device": entry.detail.get("device"),
        "run": entry.run,
        "case": entry.case,
        "outcome": record.outcome if record else None,
        "signature": record.error.signature if record and record.error else None,
        "record": record.model_dump(mode="json") if record else None,
    }


def _record_at(number: int | None, records: Recorded) -> CaseRecord | None:
    return None if number is None else records.get(number)


def _preflight(before: CaseRecord | None, after: CaseRecord | None) -> dict[str, Any] | None:
    if before is None or after is None:
        return None
    old = {(one.code, one.files): one for one in before.preflight}
    new = {(one.code, one.files): one for one in after.preflight}

    def shown(keys: Iterable[tuple[str, tuple[str, ...]]], of: Mapping[Any, Any]) -> list[Any]:
        return [of[key].model_dump(mode="json") for key in keys]

    return {
        "gone": shown((key for key in old if key not in new), old),
        "new": shown((key for key in new if key not in old), new),
        "both": shown((key for key in old if key in new), new),
    }


def difference_as_json(found: Difference) -> dict[str, Any]:
    """What changed between two sets of libraries, long lists cut, with their true lengths."""

    def cut(names: Sequence[str]) -> dict[str, Any]:
        return {"count": len(names), "names": list(names[:_LISTED])}

    return {
        "gone": dict(found.gone),
        "new": dict(found.new),
        "same": list(found.same),
        "changed": [
            {
                "name": one.name,
                "size_before": one.size_before,
                "size_after": one.size_after,
                "symbols_gone": cut(one.symbols_gone),
                "symbols_new": cut(one.symbols_new),
                "needs_gone": cut(one.needs_gone),
                "needs_new": cut(one.needs_new),
                "problem": one.problem,
            }
            for one in found.changed
        ],
    }
