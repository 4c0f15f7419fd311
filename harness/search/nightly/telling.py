"""What a night found, as people are told of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from harness.answers.report.document import as_code
from harness.answers.telling.news import News, NewsItem
from harness.answers.telling.told import TELL_S, keep_news, tell, told_lines
from harness.device.lab.inventory import load_lab
from harness.device.lab.notify import NewsKind
from harness.ground.errors import HarnessError
from harness.search.nightly.issue_text import bisected, came_with, issue_text, title, where
from harness.search.nightly.issues import Issue
from harness.search.nightly.night import Night

_LEAST_S: Final = 30.0
_NOT_OVER: Final = "not over"
_VANISHED: Final = "vanished"
_NAMED: Final = 5


def tell_people(
    night: Night, earlier: Iterable[Night], folder: Path, left_s: float, not_over: str = ""
) -> Iterable[str]:
    """Tells what a night found, whatever is left of its time; who could not be told, and why.

    `earlier` are the nights before it, the newest first; `not_over` is what ended it. Raises
    OSError for a disk that fails.
    """
    before = next((one.issues for one in earlier if night.follows(one)), ())
    try:
        lab = load_lab(Path(night.lab), places=None)
        seconds = min(max(left_s, _LEAST_S), TELL_S)
        keep_news(folder, news_of(night, before, night.named(folder.parent), not_over))
        told = tell(folder, [one.name for one in lab.notify], Path(night.lab), seconds)
    except HarnessError as error:
        return [f"nobody was told: {error}"]
    return told_lines(told)


def news_of(
    night: Night, before: Iterable[Issue], reports: str = "reports", not_over: str = ""
) -> News:
    """Its news (pure); `before` are the issues of the night before it, by which they are news.

    What is new comes first, and what was closed in earlier nights not at all. A night that is
    `not_over` is news of its own: once it is gone on with, people are told anew.
    """
    known = {one.id: one for one in before}
    items = [
        NewsItem(
            id=one.id,
            kind=_kind(one, known.get(one.id)),
            title=title(one),
            cases=one.count,
            facts=tuple(filter(None, (where(one), came_with(one), _searched(one)))),
            issue=issue_text(one, reports).partition("\n")[2].strip(),
            is_open=one.state == "open",
        )
        for one in night.issues_told
    ]
    items.sort(key=lambda one: one.kind == "still")
    verdict, lab, name = night.verdict or "", night.lab_lines, night.night
    if night.vanished:
        items.insert(
            0,
            NewsItem(
                id=_VANISHED,
                kind="lost",
                title="vanished: a verdict before, and not run now",
                cases=len(night.vanished),
                facts=tuple(as_code(one, 300) for one in night.vanished[:_NAMED]),
            ),
        )
    if not_over:
        count = night.coverage.not_run if night.coverage else 0
        items.insert(0, NewsItem(id=_NOT_OVER, kind="lost", title=as_code(not_over), cases=count))
        name += f", {_NOT_OVER}"
    return News(id=name, verdict=verdict, lab=lab, items=tuple(items))


def _searched(issue: Issue) -> str:
    return "" if issue.fault else as_code(bisected(issue), 500)


def _kind(issue: Issue, before: Issue | None) -> NewsKind | Literal["still"]:
    if issue.state == "closed":
        return "still" if issue.known_issues else "fixed"
    fresh = before is None or before.state == "closed"
    if issue.flaky:
        return "flaky" if fresh or not (before and before.flaky) else "still"
    return "still" if not fresh else "lost" if issue.fault else "new"
