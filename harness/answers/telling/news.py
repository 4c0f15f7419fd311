"""What a night or a comparison found that people are told of, and the words for it (pure)."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

from jinja2 import PackageLoader, StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from harness.answers.report.document import as_code
from harness.device.lab.notify import NEWS_KINDS, NewsChannel, NewsKind
from harness.ground.errors import ConfigError
from harness.ground.errors.outgoing_text import outgoing
from harness.ground.yaml_lines.models import SchemaOne
from harness.verdict.failure.error import Part

if TYPE_CHECKING:
    from harness.answers.history.comparison_text import ToldComparison

_MOST_CHARS: Final = 60_000  # of an issue GitHub takes 65,536
_TITLE_CHARS: Final = 240
_SHOWN: Final = 20
_BECAME: Final[dict[str, NewsKind]] = {
    **dict.fromkeys(("new", "changed"), "new"),
    **dict.fromkeys(("vanished", "lab"), "lost"),
    "flaky": "flaky",
    "fixed": "fixed",
}
# what chats make calls to everybody of, also within code
_CALLS: Final = re.compile(r"<(?=[!@#])|@(?=(?:all|channel|everyone|here|room)\b)", re.IGNORECASE)


class NewsItem(Part):
    """Cases that became something for one cause, whose `id` stays. `still` is no news.

    `title` and `facts` are Markdown, in which what others said is code. `issue` is the text that a
    tracker has of it, as long as it `is_open`; without one it is no matter for trackers.
    """

    id: str
    kind: NewsKind | Literal["still"]
    title: str
    cases: int
    facts: tuple[str, ...] = ()
    issue: str = ""
    is_open: bool = True


class News(Part):
    """What one night or comparison found. `lab` is how the devices were, in Markdown."""

    schema_number: SchemaOne = 1
    kind: Literal["news"] = "news"
    id: str
    verdict: str
    lab: tuple[str, ...] = ()
    items: tuple[NewsItem, ...] = ()

    @property
    def counts(self) -> str:
        """How many of each kind, as in `2 new, 1 fixed`; empty where nothing is new."""
        kinds = Counter(one.kind for one in self.items)
        return ", ".join(f"{kinds[kind]} {kind}" for kind in NEWS_KINDS if kinds[kind])

    def for_channel(self, channel: NewsChannel) -> News:
        """What of it a channel is told."""
        wanted = tuple(one for one in self.items if one.kind in (*channel.news, "still"))
        return self.model_copy(update={"items": wanted})


def news_of_comparison(found: ToldComparison) -> News:
    """What a comparison says: a group of cases that ended alike is an item."""
    items = [
        NewsItem(
            id=_BECAME[name],
            kind=_BECAME[name],
            title=as_code(one.said if name not in ("fixed", "vanished") else one.was or name),
            cases=len(one.pairs),
            facts=tuple(
                filter(
                    None,
                    (as_code(one.pairs[0].shown.case), one.advice and as_code(one.advice, 500)),
                )
            ),
        )
        for name, groups in found.groups.items()
        if name in _BECAME
        for one in groups
    ]
    return News(id=found.name, verdict=found.verdict, items=tuple(items))


def message(news: News, template: str | None = None) -> tuple[str, str]:
    """The title and the body that a chat gets, in Markdown: the first line and the others."""
    values = {"news": news, "kinds": NEWS_KINDS, "shown": _SHOWN}
    title, _, body = rendered("message.md.j2", template, **values).strip().partition("\n")
    return title.strip()[:_TITLE_CHARS], body.strip()


def issue(news: News, item: NewsItem, template: str | None = None) -> tuple[str, str]:
    """The title of a tracker's issue, which ends in the cause's id, and its text."""
    text = rendered("issue.md.j2", template, news=news, item=item)
    return f"{_harmless(item.title)[:_TITLE_CHARS]} [{item.id}]", text.strip()


def rendered(ours: str, own: str | None, **values: Any) -> str:
    """A template filled in; `own` is that of a user, which reaches nothing but the values.

    Calls to everybody are broken, whoever said them. Raises ConfigError for a wrong template.
    """
    environment = ImmutableSandboxedEnvironment(
        loader=PackageLoader("harness.answers.telling", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        template = environment.from_string(own) if own else environment.get_template(ours)
        text = template.render(values)
    except TemplateError as error:
        line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
        raise ConfigError(f"template{line}: {error.message}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"template: {error}") from error
    return _harmless(text)[:_MOST_CHARS]


def _harmless(text: str) -> str:
    return _CALLS.sub(lambda found: {"<": "‹", "@": "＠"}[found[0]], outgoing(text))
