"""Where each page of the site is: by what it is about, never by its place in a list (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote

from harness.answers.report.document import Span, Style
from harness.verdict.results.run_folder import case_slug

FRONT: Final = "index.html"
PageKind = Literal["night", "case", "device", "cause", "version"]


def page_of(kind: PageKind, name: str) -> str:
    """The path of a page within the site: of a run's id, a test's node id, the name of a device,
    the id of a cause, or a version as in `qnn 2.51.0`."""
    return f"{kind}/{case_slug(name)}.html"


@dataclass(frozen=True)
class Links:
    """Links from a page; `up` leads from there to the front page's folder."""

    up: str = "../"

    def to(self, kind: PageKind, name: str, text: str = "", style: Style = "plain") -> Span:
        """A link to the page of something."""
        return Span(text or name, link=self.up + quote(page_of(kind, name)), style=style)
