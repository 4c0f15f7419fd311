"""What the history holds of a night, and the lab's pages, written at its end."""

from __future__ import annotations

from pathlib import Path

from harness.answers.history.database import open_database
from harness.answers.history.nights import CauseTold, NightTold, keep_night
from harness.answers.site.build import build
from harness.search.nightly.issue_text import bisected
from harness.search.nightly.issues import Issue
from harness.search.nightly.night import Night


def night_told(night: Night) -> NightTold | None:
    """A night's devices as they were last seen, and its open causes; None of one without a run."""
    if night.run is None:
        return None
    seen = {one.device: one for one in (*night.lab_before, *night.lab_after)}
    return NightTold(
        night=night.night,
        run=night.run,
        exit_code=night.exit_code,
        devices=seen,
        causes={one.id: _cause(one) for one in night.issues if one.state == "open"},
        besides=night.told,
        failed_on=night.failed_on,
        vanished=night.vanished,
    )


def tell_site(night: Night, database: str) -> None:
    """Holds what a night said, and writes the pages that it was to keep. Raises HarnessError."""
    held, told = open_database(database), night_told(night)
    if told is not None:
        keep_night(held, told)
    if night.site is not None:
        build(held, Path(night.site))


def _cause(issue: Issue) -> CauseTold:
    return CauseTold(
        known=bisected(issue),
        folder=(issue.search and issue.search.folder) or "",
        command=issue.search.command if issue.search else (),
        files_changed=issue.files_changed,
    )
