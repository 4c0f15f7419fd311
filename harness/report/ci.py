"""Exports of a run to CI systems: GitHub's annotations and summary, GitLab's findings.

Their texts are pure; `export_to_ci` writes them if GitHub Actions or GitLab runs this. The module
is a plug-in, which does so at the end of a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from harness.core.outgoing_text import Command, counted, outgoing
from harness.core.whole_file import write_whole
from harness.report.document import as_code, markdown, shortened
from harness.report.model_figures import figure_blocks
from harness.report.sections import RunData
from harness.report.summary import cut_short, failure_groups, outputs_lines
from harness.results.coverage import Coverage
from harness.results.journal import read_once
from harness.results.record import CaseRecord

CODE_QUALITY: Final = "gl-code-quality-report.json"
_SHOWN: Final = 10
"""The number of annotations of a level that GitHub shows for a step."""
_MESSAGE_CHARS: Final = 2000
_TITLE_CHARS: Final = 200
_FINDINGS: Final = 1000
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
    signature: str


def list_annotations(cases: Iterable[CaseRecord], coverage: Coverage) -> list[Annotation]:
    """Return annotations for all unexpected failures, the most important first (pure).

    One for cases that left no record comes before all.
    """
    groups, strict = read_once(
        cases, failure_groups, lambda cases: [case for case in cases if case.breaks_strictness]
    )
    groups = [group for group in groups if group.first.is_unexpected]
    notes = [_annotation(group.first, len(group.cases)) for group in groups]
    notes += [_annotation(case) for case in strict]
    if coverage.not_run or coverage.selected is None:
        words = coverage.headline
        notes.insert(0, Annotation("error", "", None, "verdicts are missing", words, "not run"))
    return sorted(notes, key=lambda note: note.level)


def github_lines(cases: Iterable[CaseRecord], coverage: Coverage) -> list[Command]:
    """Return GitHub's commands for annotations, as many of each level as it shows (pure)."""
    annotations, lines = list_annotations(cases, coverage), list[Command]()
    for level in ("error", "warning"):
        for note in [note for note in annotations if note.level == level][:_SHOWN]:
            fields = {"file": note.file, "line": note.line, "title": note.title}
            properties = ",".join(f"{k}={_property(str(v))}" for k, v in fields.items() if v)
            lines.append(Command(f"::{level} {properties}::{_data(note.message)}"))
    return lines


def code_quality(cases: Iterable[CaseRecord], coverage: Coverage) -> list[dict[str, Any]]:
    """Return the annotations as a GitLab report of code quality (pure)."""
    return [
        {
            "description": outgoing(f"{note.title}: {note.message}"),
            "check_name": f"qnn-harness {note.level}",
            "fingerprint": hashlib.sha256(
                f"{note.level} {note.file} {note.signature}".encode("utf-8", "replace")
            ).hexdigest()[:32],
            "severity": "major" if note.level == "error" else "minor",
            # GitLab takes no finding without a location
            "location": {"path": outgoing(note.file or "."), "lines": {"begin": note.line or 1}},
        }
        for note in list_annotations(cases, coverage)[:_FINDINGS]
    ]


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


def path_for_attachments(folder: Path, environment: Mapping[str, str]) -> str:
    """Return a run's folder relative to where the CI system that runs this finds attachments.

    Empty if there is none, or it looks elsewhere: attachments are then relative to the folder.
    """
    jenkins = environment.get("WORKSPACE") if environment.get("JENKINS_URL") else None
    root = environment.get("CI_PROJECT_DIR") or jenkins
    if not root or not folder.is_relative_to(Path(root).resolve()):
        return ""
    path = folder.relative_to(Path(root).resolve()).as_posix()
    return "" if path == "." else path


def export_to_ci(run: RunData, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Export a run to the CI system that runs this, and return lines to print.

    If a file cannot be written, a line says so: it changes nothing about the run.
    """
    lines: list[str] = []
    became, cut = run.since.became if run.since else None, cut_short(run.info)
    try:
        if environment.get("GITHUB_ACTIONS") == "true":
            lines += github_lines(run.cases, run.coverage)
            text = step_summary(run.cases, run.coverage, run.run, became, cut)
            add_to_summary(environment, text)
        if environment.get("GITLAB_CI") == "true":
            text = json.dumps(code_quality(run.cases, run.coverage), indent=1)
            write_whole(folder / CODE_QUALITY, text.encode())
    except OSError as error:
        lines.append(f"warning: cannot report to CI: {error.filename}: {error.strerror}")
    return lines


@pytest.hookimpl
def qnn_run_finished(run: RunData, folder: Path) -> list[str]:
    """Export the run to the CI system of this process, if it has one."""
    return export_to_ci(run, folder, os.environ)


def add_to_summary(environment: Mapping[str, str], text: str) -> None:
    """Append to the summary of the step, if there is room. Raises OSError."""
    if file := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(file).open("ab") as stream:
            if stream.tell() + len(text.encode()) <= _SUMMARY_BYTES:
                stream.write(text.encode())


def _annotation(record: CaseRecord, cases: int = 1) -> Annotation:
    error = record.error
    words: list[str] = [record.outcome]
    message, signature = "no explanation", str(record.outcome)
    if error is not None:
        words += [error.call] if error.call else []
        message, signature = error.message.strip(), f"{record.outcome} {error.signature}"
        if error.diagnosis is not None:
            message = f"{error.diagnosis.text()}\n{message}"
    elif record.fixed is not None:
        words = ["fixed?", *record.fixed.known_issues]
        message = f"it passed, and is a known issue: {', '.join(record.fixed.known_issues)}"
        signature = f"fixed {record.case}"
    more = f"{counted(cases, 'case')}, first {record.case}"
    lab = record.cause in ("infra", "harness")
    return Annotation(
        level="warning" if lab else "error",
        file=record.file,
        line=record.line,
        title=shortened(outgoing(" ".join(words)), _TITLE_CHARS),
        message=shortened(outgoing(f"{more}\n{message}"), _MESSAGE_CHARS),
        signature=signature,
    )


def _data(text: str) -> str:
    return outgoing(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    plain = re.sub(r"\s+", " ", shortened(text, 500))
    return _data(plain).replace(":", "%3A").replace(",", "%2C")
