"""What people are told: the words, whose template, and what no device can say to them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.answers.history.comparison import compare
from harness.answers.history.comparison_text import told as told_comparison
from harness.answers.telling.news import News, NewsItem, issue, message, news_of_comparison
from harness.device.lab.notify import NEWS_KINDS, NewsChannel
from harness.ground.errors import ConfigError
from tests.unit.answers.history.runs import briefs

ITEM = NewsItem(id="a" * 12, kind="new", title="`t`", cases=1, facts=("on 1 of 1 `K`",))


def news(*kinds: str, **changed: object) -> News:
    items = tuple(ITEM.model_copy(update={"kind": kind, **changed}) for kind in kinds)
    return News(id="night", verdict="2 of 2 cases have a verdict", items=items)


def test_a_message_says_each_kind_under_its_name() -> None:
    title, body = message(news("still", "new", "lost", "new", "fixed", cases=2))
    assert title == "Causes: 2 new, 1 fixed, 1 lost: night"
    lines = [line for line in body.splitlines() if line]
    item = ["- `t` (2 cases)", "    - on 1 of 1 `K`"]
    assert lines == [
        "2 of 2 cases have a verdict.",
        *("**new**", *item, *item, "**fixed**", *item, "**lost**", *item),
    ]


def test_it_is_short_whatever_happened() -> None:
    _, body = message(news(*["new"] * 500, *["fixed"] * 21))
    assert body.count("- `t` (1 case)") == 40
    assert ("- and 480 more" in body, "- and 1 more" in body) == (True, True)
    title, body = message(news("new", title="x" * 100_000))
    assert len(title) + len(body) < 61_000


@given(st.sets(st.sampled_from(NEWS_KINDS)), st.lists(st.sampled_from((*NEWS_KINDS, "still"))))
def test_a_channel_gets_what_it_asked_for(wanted: set[str], kinds: list[str]) -> None:
    channel = NewsChannel(name="c", url="json://x", news=tuple(sorted(wanted)))
    said = [one.kind for one in news(*kinds).for_channel(channel).items]
    assert said == [kind for kind in kinds if kind in wanted or kind == "still"]
    assert bool(news(*kinds).for_channel(channel).counts) == bool(wanted & set(kinds))


@pytest.mark.parametrize("said", ["<!channel>", "<@U1>", "@here", "@Everyone", "@room x"])
def test_nobody_is_called_by_what_a_device_said(said: str) -> None:
    told = news("new", title=f"`{said}`", issue=said)
    for title, text in (message(told), issue(told, told.items[0])):
        assert said not in title + text
    assert "me@example.com < 3" in message(news("new", title="`me@example.com < 3`"))[1]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ nothing }}", "'nothing' is undefined"),
        ("a\n{% for %}", "line 2: Expected"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ news.model_copy.__globals__ }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "/etc/passwd"),
        ("{% set _ = news.items.append(1) %}", "append"),
        ("{{ 1 // 0 }}", "zero"),
        ("{{ range(10 ** 9) | list }}", "Range too big"),
    ],
)
def test_a_template_reaches_nothing_but_the_news(template: str, told: str) -> None:
    with pytest.raises(ConfigError, match=r"^template") as error:
        message(news("new"), template)
    assert told in str(error.value)


def test_the_first_line_of_a_template_is_the_title() -> None:
    template = (
        "\n{{ news.id }} is over \n\n{% for one in news.items %}{{ one.title }}{% endfor %}\n"
    )
    assert message(news("new", "lost"), template) == ("night is over", "`t``t`")


def test_a_comparison_is_told_by_groups() -> None:
    before = briefs("a passed;b passed;c failed message=x;d passed;e failed message=y")
    after = briefs("a failed message=z;b failed message=z;c passed;e failed message=y")
    ids = {"base": "base", "run": "new", "advice": lambda *_: None, "apart": lambda _: None}
    told = news_of_comparison(told_comparison(compare(before, after), [], **ids))
    assert told.id == "new beside base"
    assert [(one.kind, one.cases, one.issue) for one in told.items] == [
        ("new", 2, ""),
        ("lost", 1, ""),
        ("fixed", 1, ""),
    ]
    title, body = message(told)
    assert title == "Causes: 1 new, 1 fixed, 1 lost: new beside base"
    assert "- `failed: call|1002|z` (2 cases)" in body
    assert "- `call|1002|x` (1 case)" in body
