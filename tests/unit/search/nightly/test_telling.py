"""What of a night is news: by what the night before it knew."""

from __future__ import annotations

from typing import Any

import pytest

from harness.answers.telling.news import message
from harness.search.nightly.issues import CauseSearch, Issue
from harness.search.nightly.telling import news_of
from harness.verdict.results.coverage import Coverage
from tests.unit.search.nightly.nights import a_night


def an_issue(**changed: Any) -> Issue:
    values: dict[str, Any] = {"id": "a" * 12, "outcome": "failed", "signature": "-|-|it broke"}
    values |= {"diagnosis": None, "message": "it broke", "first_seen": "s", "first_run": "r"}
    return Issue(
        **values | {"last_seen": "s", "last_run": "r", "count": 1, "cases": ("c",)} | changed
    )


GONE = {"state": "closed", "closed": "s"}
FLAKY = {"flaky": "2 of 9 failed"}
LOST = {"fault": "lab", "outcome": "error"}


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        (None, {}, "new"),
        ({"state": "closed"}, {}, "new"),
        ({}, {}, "still"),
        (None, LOST, "lost"),
        (LOST, LOST, "still"),
        (None, FLAKY, "flaky"),
        ({}, FLAKY, "flaky"),
        (FLAKY, FLAKY, "still"),
        ({**FLAKY, "state": "closed"}, FLAKY, "flaky"),
        ({}, GONE, "fixed"),
        (FLAKY, {**FLAKY, **GONE}, "fixed"),
        ({}, {**GONE, "closed": "earlier"}, None),
        ({}, {**GONE, "known_issues": ("mine",)}, "still"),
    ],
)
def test_what_an_issue_is(before: Any, now: Any, kind: str | None) -> None:
    known = [an_issue(**before)] if before is not None else []
    news = news_of(a_night(issues=(an_issue(**now),)), known)
    assert [one.kind for one in news.items] == ([kind] if kind else [])
    assert all(one.is_open == ("state" not in now) for one in news.items)


def test_cases_that_vanished_are_told_by_their_names() -> None:
    (item,) = news_of(a_night(vanished=("test_a[p]", "test_b[p]")), ()).items
    assert (item.kind, item.cases, item.facts) == ("lost", 2, ("`test_a[p]`", "`test_b[p]`"))
    assert item.title.startswith("vanished")


def test_what_is_new_comes_first_and_says_where_and_since_when() -> None:
    search = CauseSearch(
        command=("bisect",), case="c", cost_s=1, since="n", exit_code=0, first_bad="2.50.40"
    )
    found = search.model_copy(update={"answer": "last good 2.49.40, first bad 2.50.40"})
    issues = (
        an_issue(id="b" * 12),
        an_issue(search=found),
        an_issue(id="c" * 12, **LOST),
    )
    news = news_of(a_night(issues=issues, verdict="1 of 1"), [an_issue(id="b" * 12)])
    assert [one.kind for one in news.items] == ["new", "lost", "still"]
    assert [one.facts for one in news.items[:2]] == [
        (
            "since `2.50.40`",
            "`last good 2.49.40, first bad 2.50.40`",
        ),
        (),
    ]
    text = news.items[0].issue
    assert text.startswith("State: open\n"), "its title is told beside it"
    assert "- where: since `2.50.40`" in text


def test_a_night_that_is_not_over_is_news_of_its_own() -> None:
    """It is told as lost, and what it finds once it is gone on with is told anew."""
    begun = a_night().not_over("it broke", "r", Coverage(selected=23, passed=2, not_run=21))
    news = news_of(begun, (), not_over="it broke")
    said = "not over: 2 of 23 cases have a verdict, 21 not run"
    assert (news.verdict, news.counts) == (said, "1 lost")
    assert [(one.title, one.cases, one.issue) for one in news.items] == [("`it broke`", 21, "")]
    assert news.id != news_of(begun, ()).id
    assert "- `it broke` (21 cases)" in message(news)[1]
    none = a_night().not_over("it broke", None, None)
    assert none.verdict == "not over: no case was run"
    assert "- `it broke`\n" in message(news_of(none, (), not_over="it broke"))[1] + "\n"
    found = a_night(verdict="1 new", coverage=Coverage(selected=1)).not_over("it broke", "r", None)
    assert found.verdict == "not over: 1 new"
