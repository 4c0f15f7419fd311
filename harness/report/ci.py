"""Exports of a run to GitHub Actions: annotations and the summary of the step.

Their texts are pure; `export_to_ci` writes them if GitHub Actions runs this. The module is a
plug-in, which does so at the end of a run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pytest

from harness.core.outgoing_text import Command, counted, outgoing
from harness.report.document import as_code, markdown, shortened
from harness.report.model_figures import figure_blocks
from harness.report.sections import RunData
from harness.report.summary import cut_short, failure_groups, outputs_lines
from harness.results.coverage import Coverage
from harness.results.journal import read_once
from harness.results.record import CaseRecord

_SHOWN: Final = 10
"""The number of annotations of a level that GitHub shows for a step."""
_MESSAGE_CHARS: Final = 2000
_TITLE_CHARS: Final = 200
_SUMMARY_BYTES: Final = 1 << 20
"""The size of the longest summary that GitHub shows."""
_OUR_SUMMARY_BYTES: Final = 256 << 10
_FIGURE_CHARS: Final = 64 << 10
_GROUPS: Final = 100
_CASES: Final = 5

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Annotation:
    """Failures of one kind at one place: `error` for the target, wrong input and lost records,
    else `warning`. `file` is empty if no test is to blame."""

    level: Level
    file: str
    line: int | None
    title: str
    message: str


def github_lines(cases: Iterable[CaseRecord], coverage: Coverage) -> list[Command]:
    """Return GitHub's commands for annotations of all unexpected failures (pure).

    There are as many of each level as GitHub shows, the most important first. One for cases that
    left no record comes before all.
    """
    groups, strict = read_once(
        cases, failure_groups, lambda cases: [case for case in cases if case.breaks_strictness]
    )
    groups = [group for group in groups if group.first.is_unexpected]
    notes = [_annotation(group.first, len(group.cases)) for group in groups]
    notes += [_annotation(case) for case in strict]
    if coverage.not_run or coverage.selected is None:
        notes.insert(0, Annotation("error", "", None, "verdicts are missing", coverage.headline))
    lines = list[Command]()
    for level in ("error", "warning"):
        for note in [note for note in notes if note.level == level][:_SHOWN]:
            fields = {"file": note.file, "line": note.line, "title": note.title}
            properties = ",".join(f"{k}={_property(str(v))}" for k, v in fields.items() if v)
            lines.append(Command(f"::{level} {properties}::{_data(note.message)}"))
    return lines


def step_summary(
    cases: Iterable[CaseRecord],
    coverage: Coverage,
    run: str,
    became: Mapping[str, str] | None = None,
    cut: str | None = None,
) -> str:
    """Return a run as Markdown of at most 256 KiB, with all names and messages as code (pure).

    `became` is the change of each case since an earlier run, `cut` why the run was cut short.
    """
    lines = [f"### Devices: {coverage.sentence()}", "", f"Run {as_code(run)}.", ""]
    lines += [f"**Cut short**: {as_code(cut, 300)}", ""] if cut else []
    groups, behind, figures = read_once(cases, failure_groups, outputs_lines, figure_blocks)
    lines += [f"{line}." for line in behind]
    groups = [group for group in groups if group.first.is_bad]
    for group in groups[:_GROUPS]:
        first = group.first
        issue = first.known_issue if first.standing == "known" else None
        new = sum((became or {}).get(case) == "new" for case in group.cases)
        words = f"expected ({as_code(issue)})" if issue else first.outcome
        fresh = f", **{new} new**" if new else ""
        lines.append(f"- **{counted(len(group.cases), 'case')}** {words}{fresh}: ")
        lines[-1] += as_code(_annotation(first).title, 300)
        known = group.diagnosis
        lines += [f"  - {as_code(known.text(), 1000)}"] if known else []
        lines += [f"  - {as_code(case)}" for case in group.cases[:_CASES]]
        if (more := len(group.cases) - _CASES) > 0:
            lines.append(f"  - and {more} more")
    if len(groups) > _GROUPS:
        lines.append(f"- and {counted(len(groups) - _GROUPS, 'more kind')} of failures")
    if figures:
        lines += ["", *markdown(figures, most=_FIGURE_CHARS).splitlines()]
    text = "\n".join(lines) + "\n\n"
    while len(text.encode()) > _OUR_SUMMARY_BYTES:
        lines = lines[: len(lines) // 2]
        text = "\n".join([*lines, "- ... and more"]) + "\n\n"
    return text


def export_to_ci(run: RunData, environment: Mapping[str, str]) -> list[str]:
    """Export a run to the CI system that runs this, and return lines to print.

    If a file cannot be written, a line says so: it changes nothing about the run.
    """
    if environment.get("GITHUB_ACTIONS") != "true":
        return []
    lines: list[str] = [*github_lines(run.cases, run.coverage)]
    became, cut = run.since.became if run.since else None, cut_short(run.info)
    try:
        add_to_summary(environment, step_summary(run.cases, run.coverage, run.run, became, cut))
    except OSError as error:
        lines.append(f"warning: cannot report to CI: {error.filename}: {error.strerror}")
    return lines


@pytest.hookimpl
def qnn_run_finished(run: RunData, folder: Path) -> list[str]:
    """Export the run to the CI system of this process, if it has one."""
    return export_to_ci(run, os.environ)


def add_to_summary(environment: Mapping[str, str], text: str) -> None:
    """Append to the summary of the step, if there is room. Raises OSError."""
    if file := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(file).open("ab") as stream:
            if stream.tell() + len(text.encode()) <= _SUMMARY_BYTES:
                stream.write(text.encode())


def _annotation(record: CaseRecord, cases: int = 1) -> Annotation:
    error = record.error
    words: list[str] = [record.outcome]
    message = "no explanation"
    if error is not None:
        words += [error.call] if error.call else []
        message = error.message.strip()
        if error.diagnosis is not None:
            message = f"{error.diagnosis.text()}\n{message}"
    elif record.fixed is not None:
        words = ["fixed?", *record.fixed.known_issues]
        message = f"it passed, and is a known issue: {', '.join(record.fixed.known_issues)}"
    more = f"{counted(cases, 'case')}, first {record.case}"
    lab = record.cause in ("infra", "harness")
    return Annotation(
        level="warning" if lab else "error",
        file=record.file,
        line=record.line,
        title=shortened(outgoing(" ".join(words)), _TITLE_CHARS),
        message=shortened(outgoing(f"{more}\n{message}"), _MESSAGE_CHARS),
    )


def _data(text: str) -> str:
    return outgoing(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    plain = re.sub(r"\s+", " ", shortened(text, 500))
    return _data(plain).replace(":", "%3A").replace(",", "%2C")
