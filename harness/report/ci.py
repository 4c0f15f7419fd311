"""The export of a run to GitHub Actions: the summary of the step.

The module is a plug-in, which writes it at the end of a run if GitHub Actions runs this.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from harness.core.outgoing_text import counted
from harness.report.document import as_code, markdown
from harness.report.model_figures import figure_blocks
from harness.report.sections import RunData
from harness.report.summary import cut_short, failure_groups, outputs_lines
from harness.results.coverage import Coverage
from harness.results.journal import read_once
from harness.results.record import CaseRecord

_SUMMARY_BYTES: Final = 1 << 20
"""The size of the longest summary that GitHub shows."""
_OUR_SUMMARY_BYTES: Final = 256 << 10
_FIGURE_CHARS: Final = 64 << 10
_GROUPS: Final = 100
_CASES: Final = 5


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
        call = first.error.call if first.error is not None else ""
        lines[-1] += as_code(f"{first.outcome} {call or ''}".rstrip(), 300)
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

    If the summary cannot be written, a line says so: it changes nothing about the run.
    """
    if environment.get("GITHUB_ACTIONS") != "true":
        return []
    became, cut = run.since.became if run.since else None, cut_short(run.info)
    try:
        add_to_summary(environment, step_summary(run.cases, run.coverage, run.run, became, cut))
    except OSError as error:
        return [f"warning: cannot report to CI: {error.filename}: {error.strerror}"]
    return []


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
