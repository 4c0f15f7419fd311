"""What pages are made of: templates, and figures as inline SVG; all texts in them are escaped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from harness.answers.report.document import Block, html

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str) -> Template:
    """A template, loaded once; what is put into it is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"style": asset("page.css"), "ways": "", "scripts": ()}
    return environment.get_template(name)


def page(title: str, blocks: Iterable[Block], **more: object) -> str:
    """A page without network or assets. `more` are the `ways` that lead from it, and `scripts`."""
    return template("page.html.j2").render(title=title, body=html(blocks), **more)


def filled(page: str, slot: str, told: str) -> str:
    """A page with this in one of its slots, instead of what is there; no word of others makes one.

    A page without it stays as it is.
    """
    begin, end = f"<!--{slot}-->", f"<!--/{slot}-->"
    before, found, rest = page.partition(begin)
    return f"{before}{begin}{told}{end}{rest.partition(end)[2]}" if found else page


@cache
def asset(name: str, room: str = __package__) -> Markup:
    """A file of this or another room, to be put into a page."""
    return Markup((files(room) / name).read_text("utf-8"))


def link(path: str) -> str:
    """How a page refers to a file beside it: a relative link, never with a scheme."""
    return "./" + quote(path)


def clip(value: object, most: int) -> str:
    """A text, or anything else as JSON, of at most so many characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def outcome_bar(counts: Mapping[str, int], *, width: int = 640) -> Markup:
    """One bar, divided by outcome; the classes o-<outcome> give the colours."""
    total = sum(counts.values())
    parts, left = [], 0.0
    for name, count in counts.items():
        share = width * count / total if total else 0.0
        parts.append(
            Markup(
                '<rect class="o-{}" x="{:.2f}" y="0" width="{:.2f}" height="14">'
                "<title>{} {}</title></rect>"
            ).format(name, left, share, count, name)
        )
        left += share
    return Markup(
        '<svg class="bar" viewBox="0 0 {0} 14" role="img" aria-label="cases by outcome" '
        'preserveAspectRatio="none">{1}</svg>'
    ).format(width, Markup("").join(parts))


def thinned(values: Sequence[float], most: int) -> list[float]:
    """At most `most` values: the largest in each of so many stretches of equal length."""
    if len(values) <= most:
        return [float(value) for value in values]
    edges = [index * len(values) // most for index in range(most + 1)]
    return [float(max(values[start:end])) for start, end in itertools.pairwise(edges)]
