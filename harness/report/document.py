"""A report as values, and the Markdown, HTML and lines of a terminal that are made of them (pure).

A plain `str` is the harness's own words. What others said (names, messages, versions) is a `Span`:
in no form can it become a tag, a link or a mention.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from markupsafe import Markup, escape

from harness.core.outgoing_text import outgoing

if TYPE_CHECKING:
    from jinja2 import Template


Style = Literal["plain", "code", "strong", "dim", "bad"]
_TAGS: Final = {
    "plain": ("", ""),
    "code": ("<code>", "</code>"),
    "strong": ("<b>", "</b>"),
    "dim": ('<span class="dim">', "</span>"),
    "bad": ('<span class="bad">', "</span>"),
}


@dataclass(frozen=True)
class Span:
    """Words within a line. `mark` is the outcome whose sign stands before them, None for none.

    `title` is seen where the mouse rests, `link` is where a page leads to from there.
    """

    text: str
    mark: str | None = None
    title: str = ""
    link: str = ""
    style: Style = "plain"


Line = str | Span | Sequence[str | Span]


@dataclass(frozen=True)
class Heading:
    """A heading; the one of the whole document has level 1."""

    text: Line
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A line of prose; `style` is its class in a page."""

    line: Line
    style: str = ""


@dataclass(frozen=True)
class Item:
    """A line of a list, and what belongs to it, which a page folds away if `folded`."""

    line: Line
    below: Sequence[Line] = ()
    folded: bool = False


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[Item]


@dataclass(frozen=True)
class CodeBlock:
    """Lines that stand as they are."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table. A page can fold it away under its `title`, and does so if `folded`.

    `style` is its class in a page. In a `grid` marks are classes of their cells. If it is
    `stacked`, a phone shows the cells of a row below each other.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Line]]
    style: str = ""
    folded: bool = False


Block = Heading | Paragraph | Items | CodeBlock | Table


def code(text: str, most: int = 200) -> Span:
    """What somebody else called something, on one line and shortened."""
    return Span(shortened(" ".join(text.split()), most), style="code")


def joined(spans: Iterable[Span]) -> list[str | Span]:
    """Spans with commas between them."""
    return [one for span in spans for one in (", ", span)][1:]


def markdown(blocks: Iterable[Block], *, deeper: int = 0, most: int | None = None) -> str:
    """Blocks as GitHub reads them, with headings so many levels `deeper`.

    What goes beyond `most` characters is left out, and the number of these items is told.
    """
    pieces = [piece for block in blocks for piece in _pieces(block, deeper)]
    text = ""
    for at, piece in enumerate(pieces):
        if most is not None and len(text) + len(piece) > most:
            left = sum(one.startswith("- ") for one in pieces[at:])
            return f"{text}\n... and {left} more\n"
        text += piece
    return text


def lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Blocks as lines of a terminal."""
    for block in blocks:
        match block:
            case Heading(line) | Paragraph(line):
                yield as_text(line)
            case Items(items):
                yield from (f"- {as_text(item.line)}" for item in items)
            case CodeBlock(told):
                yield from told
            case Table(title, columns, rows):
                yield from (title,) if title else ()
                yield from aligned([columns, *([*map(as_text, row)] for row in rows)])


def html(blocks: Iterable[Block]) -> Markup:
    """Blocks as what stands in a page's body."""
    return Markup("\n").join(map(_html, blocks))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, their columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def as_code(text: str, most: int = 200) -> str:
    """Text as one line of code, in which nothing is a tag, a link, a mention or its end.

    Two backticks stand around one that has some, so that a command in it stays as it is.
    """
    plain = re.sub("`+", "`", " ".join(outgoing(text).split()))
    said = shortened(plain, most) or " "
    return f"`` {said} ``" if "`" in said else f"`{said}`"


def shortened(text: str, most: int) -> str:
    """At most so many characters; of both ends, since names end in what tells them apart."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def _spans(line: Line) -> Sequence[str | Span]:
    return [line] if isinstance(line, str | Span) else line


def _pieces(block: Block, deeper: int) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield f"{'#' * (level + deeper)} {as_markdown(text)}\n\n"
        case Paragraph(line):
            yield f"{as_markdown(line)}\n\n"
        case Items(items):
            for item in items:
                below = (f"  - {as_markdown(line)}\n" for line in item.below)
                yield f"- {as_markdown(item.line)}\n{''.join(below)}"
            yield "\n"
        case CodeBlock(lines):
            said = "\n".join(lines).replace("```", "'''")
            yield f"```\n{said}\n```\n\n"
        case Table(title, columns, rows):
            head = f"{title}\n\n" if title else ""
            told = [columns, ["---"] * len(columns), *([*map(_cell, row)] for row in rows)]
            yield head + "".join(f"| {' | '.join(row)} |\n" for row in told) + "\n"


def as_markdown(line: Line) -> str:
    """Return a line as Markdown, in which what others said is no tag and no link."""
    return "".join(one if isinstance(one, str) else _said(one) for one in _spans(line))


def as_text(line: Line) -> str:
    """Return a line as a terminal shows it."""
    return "".join(one if isinstance(one, str) else one.text for one in _spans(line))


def _said(span: Span) -> str:
    if span.style == "code":
        return as_code(span.text, sys.maxsize)
    text = " ".join(outgoing(span.text).split()).replace("<", "&lt;")
    return f"**{text}**" if span.style == "strong" else text


def _cell(line: Line) -> str:
    return as_markdown(line).replace("|", "\\|") or " "


def _html(block: Block) -> Markup:
    match block:
        case Heading(text, level):
            return Markup("<h{0}>{1}</h{0}>").format(level, _inline(text))
        case Paragraph(line, style):
            return Markup('<p class="{}">{}</p>').format(style, _inline(line))
        case Items(items):
            return Markup("<ul>\n{}\n</ul>").format(Markup("\n").join(map(_item, items)))
        case CodeBlock(lines):
            return Markup("<pre>{}</pre>").format("\n".join(lines))
        case Table():
            return _table(block)


def _item(item: Item) -> Markup:
    line = _inline(item.line)
    if not item.below:
        return Markup("<li>{}</li>").format(line)
    below = Markup("").join(Markup("<li>{}</li>").format(_inline(one)) for one in item.below)
    told = Markup("<li><details{}><summary>{}</summary><ul>{}</ul></details></li>")
    return told.format("" if item.folded else " open", line, below)


def _table(table: Table) -> Markup:
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(one) for one in table.columns)
    rows = Markup(
        "\n".join(
            f"<tr>{''.join(map(_td, row, table.columns, repeat(table.style)))}</tr>"
            for row in table.rows
        )
    )
    made = Markup(
        '<div class="scroll"><table class="{}"><thead><tr>{}</tr></thead><tbody>\n{}\n'
        "</tbody></table></div>"
    ).format(table.style, head, rows)
    if not table.title:
        return made
    return Markup("<details{}><summary>{}</summary>{}</details>").format(
        "" if table.folded else " open", table.title, made
    )


def _td(line: Line, column: str, style: str) -> str:
    titles = [one.title for one in _spans(line) if isinstance(one, Span) and one.title]
    title = f' title="{escape(titles[0])}"' if titles else ""
    label = f' data-label="{escape(column)}"' if "stacked" in style else ""
    return f"<td{label}{title}>{_inline(line)}</td>"


def _inline(line: Line) -> Markup:
    return Markup("".join(map(_shown, _spans(line))))


def _shown(one: str | Span) -> str:
    if isinstance(one, str):
        return escape(one)
    before, after = _TAGS[one.style]
    text = f"{before}{escape(one.text)}{after}"
    if one.mark:
        text = f'<span class="o o-{escape(one.mark)}">{text}</span>'
    return f'<a href="{escape(one.link)}">{text}</a>' if one.link else text


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
