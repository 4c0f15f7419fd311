"""The export of a run to GitHub Actions: the summary of the step.

The module is a plug-in, which writes it at the end of a run if GitHub Actions runs this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from harness.report.document import Block, CodeBlock, Heading, Paragraph, code, markdown
from harness.report.sections import RunData
from harness.report.summary import gaps, summary_lines

_SUMMARY_BYTES: Final = 1 << 20
"""The size of the longest summary that GitHub shows."""
_MOST_LINES: Final = 500


def step_summary(run: RunData) -> str:
    """Return what a terminal says of a run as Markdown, with the number of new failures (pure)."""
    blocks: list[Block] = [Heading(f"Devices: {run.coverage.headline()}", level=3)]
    blocks.append(Paragraph(["Run ", code(run.run), "."]))
    blocks += [Paragraph([code(gap, 300)]) for gap in gaps(run.info)]
    if run.since is not None:
        new = sum(became == "new" for became in run.since.became.values())
        blocks.append(Paragraph([f"{new} new since ", code(run.since.base), "."]))
    lines = summary_lines(run.cases, run.coverage, run.run)
    return markdown([*blocks, CodeBlock(lines[:_MOST_LINES])])


@pytest.hookimpl
def qnn_run_finished(run: RunData) -> list[str]:
    """Write the summary if GitHub Actions runs this; return a line if it cannot be written."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        try:
            add_to_summary(os.environ, step_summary(run))
        except OSError as error:
            return [f"warning: cannot report to CI: {error.filename}: {error.strerror}"]
    return []


def add_to_summary(environment: Mapping[str, str], text: str) -> None:
    """Append to the summary of the step, if there is room. Raises OSError."""
    if file := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(file).open("ab") as stream:
            if stream.tell() + len(text.encode()) <= _SUMMARY_BYTES:
                stream.write(text.encode())
