"""What the history holds of a night, for the lab's pages (pure)."""

from __future__ import annotations

from harness.answers.history.nights import CauseTold, DeviceTold, NightTold
from harness.search.nightly.issues import Issue, bisected
from harness.search.nightly.night import Night


def night_told(night: Night) -> NightTold | None:
    """A night's devices as they were last seen, and its open causes; None of one without a run."""
    if night.run is None:
        return None
    seen = {one.device: one for one in (*night.lab_before, *night.lab_after)}
    return NightTold(
        night=night.night,
        run=night.run,
        started=night.started,
        devices={
            name: DeviceTold(state=one.state, since=one.since, why=one.why, hands=one.hands)
            for name, one in seen.items()
        },
        causes={one.id: _cause(one) for one in night.issues if one.state == "open"},
        besides=night.told,
    )


def _cause(issue: Issue) -> CauseTold:
    return CauseTold(known=bisected(issue), command=issue.search.command if issue.search else ())
