"""Where each page of the site is: by what it is about, never by its place in a list (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote

from markupsafe import Markup

from harness.answers.report.document import Span, Style
from harness.verdict.results.run_folder import case_slug

FRONT: Final = "index.html"
_LISTS: Final = ("Nights", "Cases", "Devices", "Causes", "Bisections")
_WAYS: Final = Markup(
    '<a class="skip" href="#main">To what this page says</a><nav aria-label="The lab">{}</nav>'
)
PageKind = Literal["night", "case", "device", "cause"]


def page_of(kind: PageKind, name: str) -> str:
    """The path of a page within the site: of a run's id, a test's node id, the name of a device,
    or the id of a cause."""
    return f"{kind}/{case_slug(name)}.html"


def ways(up: str, here: str = "") -> Markup:
    """What leads from a page to the front page and the lists; `here` is the one that it is."""
    told = {"Last night": FRONT} | {name: f"{name.lower()}.html" for name in _LISTS}
    return _WAYS.format(
        Markup("").join(
            Markup('<a href="{}"{}>{}</a>').format(
                up + link, Markup(' aria-current="page"') if name == here else "", name
            )
            for name, link in told.items()
        )
    )


@dataclass(frozen=True)
class Links:
    """Links from a page; `up` leads from there to the front page's folder."""

    up: str = "../"

    def to(self, kind: PageKind, name: str, text: str = "", style: Style = "plain") -> Span:
        """A link to the page of something."""
        return Span(text or name, link=self.up + quote(page_of(kind, name)), style=style)

    def kept(self, path: str, text: str) -> Span:
        """A link to a page that is kept; only its text where there is none."""
        return Span(text, link=self.up + quote(path) if path else "")
