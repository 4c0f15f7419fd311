"""What a CI system shows of a run by itself: annotations, a step's summary, GitLab's findings.

What they say is pure; `tell_ci` writes it where GitHub Actions or GitLab runs, and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from harness.core.outgoing_text import Command, counted, outgoing
from harness.core.whole_file import write_whole
from harness.report.document import as_code, markdown, shortened
from harness.report.model_figures import figure_blocks
from harness.report.sections import RunData
from harness.report.summary import (
    cut_short,
    failure_groups,
    outputs_lines,
)
from harness.results.coverage import Coverage
from harness.results.journal import read_once
from harness.results.record import CaseRecord

CODE_QUALITY: Final = "gl-code-quality-report.json"
_SHOWN: Final = 10
"""GitHub shows so many annotations of a level for a step."""
_MESSAGE_CHARS: Final = 2000
_TITLE_CHARS: Final = 200
_FINDINGS: Final = 1000
_SUMMARY_BYTES: Final = 1 << 20
"""GitHub shows no summary that is longer."""
_OUR_SUMMARY_BYTES: Final = 256 << 10
_FIGURE_CHARS: Final = 64 << 10
_GROUPS: Final = 100
_CASES: Final = 5

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Annotation:
    """Failures of one kind at one place: `error` for the target, the input, and verdicts of which
    nobody knows, else `warning`. `file` is empty where no test is to blame."""

    level: Level
    file: str
    line: int | None
    title: str
    message: str
    signature: str


def annotated(cases: Iterable[CaseRecord], coverage: Coverage) -> list[Annotation]:
    """What nothing explains, the most important first, without expected failures (pure).

    Cases that left no record stand before all.
    """
    groups, strict = read_once(
        cases, failure_groups, lambda cases: [one for one in cases if one.breaks_strictness]
    )
    found = [_annotation(one.first, len(one.cases)) for one in groups if one.first.is_unexpected]
    found += [_annotation(one) for one in strict]
    if coverage.not_run or coverage.selected is None:
        words = coverage.headline
        found.insert(0, Annotation("error", "", None, "verdicts are missing", words, "not run"))
    return sorted(found, key=lambda one: one.level)


def github_lines(cases: Iterable[CaseRecord], coverage: Coverage) -> list[Command]:
    """The commands that make GitHub show annotations: as many of each level as it shows (pure)."""
    found, lines = annotated(cases, coverage), list[Command]()
    for level in ("error", "warning"):
        for one in [one for one in found if one.level == level][:_SHOWN]:
            where = {"file": one.file, "line": one.line, "title": one.title}
            told = ",".join(f"{k}={_property(str(v))}" for k, v in where.items() if v)
            lines.append(Command(f"::{level} {told}::{_data(one.message)}"))
    return lines


def code_quality(cases: Iterable[CaseRecord], coverage: Coverage) -> list[dict[str, Any]]:
    """Annotations as GitLab reads them: a report of code quality (pure)."""
    return [
        {
            "description": outgoing(f"{one.title}: {one.message}"),
            "check_name": f"qnn-harness {one.level}",
            "fingerprint": hashlib.sha256(
                f"{one.level} {one.file} {one.signature}".encode("utf-8", "replace")
            ).hexdigest()[:32],
            "severity": "major" if one.level == "error" else "minor",
            # GitLab takes no finding without a place
            "location": {"path": outgoing(one.file or "."), "lines": {"begin": one.line or 1}},
        }
        for one in annotated(cases, coverage)[:_FINDINGS]
    ]


def step_summary(
    cases: Iterable[CaseRecord],
    coverage: Coverage,
    run: str,
    became: Mapping[str, str] | None = None,
    cut: str | None = None,
) -> str:
    """A run in Markdown, in which every name and message is code, of at most 256 KiB (pure).

    `became` says what became of each case since an earlier run, `cut` why it was cut short.
    """
    lines = [f"### Devices: {coverage.sentence()}", "", f"Run {as_code(run)}.", ""]
    lines += [f"**Cut short**: {as_code(cut, 300)}", ""] if cut else []
    groups, behind, figures = read_once(cases, failure_groups, outputs_lines, figure_blocks)
    lines += [f"{line}." for line in behind]
    groups = [one for one in groups if one.first.is_bad]
    for group in groups[:_GROUPS]:
        first = group.first
        issue = first.known_issue if first.standing == "known" else None
        new = sum((became or {}).get(case) == "new" for case in group.cases)
        what = f"expected ({as_code(issue)})" if issue else first.outcome
        fresh = f", **{new} new**" if new else ""
        lines.append(f"- **{counted(len(group.cases), 'case')}** {what}{fresh}: ")
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
    """A run's folder as seen from where the CI system that runs this looks for attachments.

    Empty where none does, or looks elsewhere: attachments are then named from the folder itself.
    """
    jenkins = environment.get("WORKSPACE") if environment.get("JENKINS_URL") else None
    root = environment.get("CI_PROJECT_DIR") or jenkins
    if not root or not folder.is_relative_to(Path(root).resolve()):
        return ""
    path = folder.relative_to(Path(root).resolve()).as_posix()
    return "" if path == "." else path


def tell_ci(run: RunData, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Tells the CI system that runs this about a run, in its own way; lines to print at once.

    What cannot be written is such a line, too: it changes nothing about the run.
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
        lines.append(f"warning: CI cannot be told: {error.filename}: {error.strerror}")
    return lines


def add_to_summary(environment: Mapping[str, str], text: str) -> None:
    """Adds to a summary that other commands of the step write, too, as long as there is room.

    Raises OSError.
    """
    if file := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(file).open("ab") as stream:
            if stream.tell() + len(text.encode()) <= _SUMMARY_BYTES:
                stream.write(text.encode())


def _annotation(record: CaseRecord, cases: int = 1) -> Annotation:
    error = record.error
    what: list[str] = [record.outcome]
    message, signature = "no explanation", str(record.outcome)
    if error is not None:
        what += [error.call] if error.call else []
        message, signature = error.message.strip(), f"{record.outcome} {error.signature}"
        if error.diagnosis is not None:
            message = f"{error.diagnosis.text()}\n{message}"
    elif record.fixed is not None:
        what = ["fixed?", *record.fixed.known_issues]
        message = f"it passed, and is a known issue: {', '.join(record.fixed.known_issues)}"
        signature = f"fixed {record.case}"
    more = f"{counted(cases, 'case')}, first {record.case}"
    lab = record.cause in ("infra", "harness")
    return Annotation(
        level="warning" if lab else "error",
        file=record.file,
        line=record.line,
        title=shortened(outgoing(" ".join(what)), _TITLE_CHARS),
        message=shortened(outgoing(f"{more}\n{message}"), _MESSAGE_CHARS),
        signature=signature,
    )


def _data(text: str) -> str:
    return outgoing(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    plain = re.sub(r"\s+", " ", shortened(text, 500))
    return _data(plain).replace(":", "%3A").replace(",", "%2C")
