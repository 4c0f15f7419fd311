"""What became of a case from run to run, so far as it is worth a line on a page (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from harness.answers.history.attempts import Attempt, EarlierAttempts, same_failure
from harness.answers.history.causes import cause_id
from harness.answers.history.states import said_versions, state_of, versions_of
from harness.answers.history.timeline import MARKS, CaseLine, kind_of, mark_of

Became = Literal["new", "still", "flaky", "lost", "known", "fixed"]
TITLES: Final[dict[Became, str]] = {
    "new": "New",
    "still": "Still failing",
    "flaky": "Flaky",
    "lost": "Without a verdict",
    "known": "As a known issue says",
    "fixed": "Fixed",
}
"""What a page tells of a night, in this order."""


class NightChange(NamedTuple):
    """What a run, that at the place `at`, said of a case.

    `cause` is the id of what went wrong, of what is fixed that of before, and `kind` its diagnosis
    or signature. `since` is the place of the run with which it began; `changed` are the versions
    that changed then, None if no run before it has the case.
    """

    at: int
    became: Became
    cause: str
    kind: str
    outcome: str
    test: str
    case: str
    device: str
    since: int
    changed: str | None
    versions: str


def changes_of(
    line: CaseLine, first: int, earlier: Sequence[EarlierAttempts] = ()
) -> Iterator[NightChange]:
    """What runs from the place `first` on said of a case; nothing of one that passes as before.

    Of what was before the line, the last turn is enough: the run before it, and that which was it.
    """
    if set(map(mark_of, line.seen)) == {"."}:
        return
    judged: Attempt | None = None
    since, changed, lost, verdicts = -1, None, -1, -sum(one.last.has_verdict for one in earlier)
    for one in (*earlier, *line.seen):
        last = one.last
        if last.fault is not None:
            lost = one.at if lost < 0 else lost
            if one.at >= first:
                yield _change(one.at, "lost", last, last, lost, "")
        if not last.has_verdict:
            continue
        lost, verdicts = -1, verdicts + 1
        turned = judged is not None and judged.is_bad != last.is_bad
        if judged is None:
            since = one.at
        elif turned or (last.is_bad and not same_failure(judged, last)):
            since, changed = one.at, versions_changed(judged, last)
        if one.at >= first and (turned or one.failed):
            recent = line.seen_judged[max(0, verdicts - MARKS) : verdicts]
            became = _became(recent, one, new=turned or judged is None)
            before = judged if judged is not None and judged.is_bad else last
            told = one.bad or (last if last.is_bad else before)
            yield _change(one.at, became, last, told, since, changed)
        judged = last


def _became(recent: Sequence[EarlierAttempts], now: EarlierAttempts, *, new: bool) -> Became:
    state = state_of(recent)
    if state is not None and state.is_flaky:
        return "flaky"
    if not now.last.is_bad:
        return "fixed"
    return "known" if now.last.known_issue else "new" if new else "still"


def _change(
    at: int, became: Became, now: Attempt, told: Attempt, since: int, changed: str | None
) -> NightChange:
    device = now.device or ""
    names = (cause_id(told), kind_of(told), told.outcome, now.test, now.case, device)
    return NightChange(at, became, *names, since, changed, said_versions(versions_of(now)))


def versions_changed(before: Attempt, after: Attempt) -> str:
    """Which versions are others than before, in words; empty if none is."""
    was = dict(versions_of(before))
    told = ((name, was.get(name), said) for name, said in versions_of(after))
    return ", ".join(
        f"{name} {old or 'none'} to {new or 'none'}" for name, old, new in told if old != new
    )
