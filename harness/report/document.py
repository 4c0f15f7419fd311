"""Reports as values, and Markdown, HTML and terminal lines made of them (pure).

A plain `str` has the harness's own words. Text from elsewhere (names, messages, versions) is a
`Span`, which can never become a tag, a link or a mention.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from markupsafe import Markup

from harness.core.outgoing_text import one_line, shortened

if TYPE_CHECKING:
    from jinja2 import Template


Style = Literal["plain", "code", "strong", "dim", "bad"]
_TAGS: Final = {
    "plain": ("", ""),
    "code": (Markup("<code>"), Markup("</code>")),
    "strong": (Markup("<b>"), Markup("</b>")),
    "dim": (Markup('<span class="dim">'), Markup("</span>")),
    "bad": (Markup('<span class="bad">'), Markup("</span>")),
}


@dataclass(frozen=True)
class Span:
    """Text within a line. `mark` is the outcome whose sign precedes it, if any.

    `title` is the tooltip, `link` the target of a link.
    """

    text: str
    mark: str | None = None
    title: str = ""
    link: str = ""
    style: Style = "plain"


Line = str | Span | Sequence[str | Span]


@dataclass(frozen=True)
class Heading:
    """A heading; that of the whole document has level 1."""

    text: Line
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A line of prose; `style` is its class in a page."""

    line: Line
    style: str = ""


@dataclass(frozen=True)
class Item:
    """A line of a list, with lines below it, which a page folds away if `folded`."""

    line: Line
    below: Sequence[Line] = ()
    folded: bool = False


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[Item]


@dataclass(frozen=True)
class CodeBlock:
    """Preformatted lines."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table. A page can fold it away under its `title`, and does so if `folded`.

    `style` is its class in a page. A narrow screen shows the cells of a `stacked` row below each
    other; the marks of a `heat` colour their cells.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Line]]
    style: str = ""
    folded: bool = False


Block = Heading | Paragraph | Items | CodeBlock | Table


def code(text: str, most: int = 200) -> Span:
    """Return a text from elsewhere as code, on one line and shortened."""
    return Span(shortened(" ".join(text.split()), most), style="code")


def prose(text: str) -> list[str | Span]:
    """Return a text, in which commands stand between backticks, as spans."""
    parts = enumerate(text.split("`"))
    return [Span(part, style="code" if i % 2 else "plain") for i, part in parts if part]


def joined(spans: Iterable[Span]) -> list[str | Span]:
    """Return spans with commas between them."""
    return [part for span in spans for part in (", ", span)][1:]


def markdown(blocks: Iterable[Block], *, deeper: int = 0, most: int | None = None) -> str:
    """Return blocks as Markdown for GitHub, with headings so many levels `deeper`.

    What exceeds `most` characters is left out, with the number of items that are missing.
    """
    pieces = [piece for block in blocks for piece in _pieces(block, deeper)]
    text = ""
    for i, piece in enumerate(pieces):
        if most is not None and len(text) + len(piece) > most:
            left_out = sum(piece.startswith("- ") for piece in pieces[i:])
            return f"{text}\n... and {left_out} more\n"
        text += piece
    return text


def lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks as lines of a terminal."""
    for block in blocks:
        match block:
            case Heading(line) | Paragraph(line):
                yield as_text(line)
            case Items(items):
                for item in items:
                    yield f"- {as_text(item.line)}"
                    yield from (f"    {as_text(line)}" for line in item.below)
            case CodeBlock(texts):
                yield from texts
            case Table(title, columns, rows):
                yield from (title,) if title else ()
                yield from aligned([columns, *([*map(as_text, row)] for row in rows)])


def html(blocks: Iterable[Block | Markup]) -> Markup:
    """Return blocks as HTML for a page's body; markup stays as it is."""
    return Markup(
        template("blocks.html.j2").render(blocks=blocks, spans=_spans, as_html=as_html)
    ).strip()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table, its heading first, as aligned lines; empty columns are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:]) or not rows[1:]]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def as_code(text: str, most: int = 200) -> str:
    """Return a text as one line of Markdown code, which it cannot end.

    Two backticks are put on each side of a text with some, so that a command stays as it is.
    """
    plain = re.sub("`+", "`", one_line(text))
    line = shortened(plain, most) or " "
    return f"`` {line} ``" if "`" in line else f"`{line}`"


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
            body = "\n".join(lines).replace("```", "'''")
            yield f"```\n{body}\n```\n\n"
        case Table(title, columns, rows):
            head = f"{title}\n\n" if title else ""
            table_rows = [columns, ["---"] * len(columns), *([*map(_cell, row)] for row in rows)]
            yield head + "".join(f"| {' | '.join(row)} |\n" for row in table_rows) + "\n"


def as_markdown(line: Line) -> str:
    """Return a line as Markdown, in which text from elsewhere is no tag and no link."""
    text = ""
    for part in _spans(line):
        if isinstance(part, str):
            text += part
        elif part.style == "code":
            text += as_code(part.text, sys.maxsize)
        else:
            mark = "**" if part.style == "strong" else ""
            text += f"{mark}{one_line(part.text).replace('<', '&lt;')}{mark}"
    return text


def as_html(line: Line) -> Markup:
    """Return a line as HTML; markup in it stays as it is."""
    html = Markup()
    for part in _spans(line):
        if isinstance(part, str):
            html += part
            continue
        before, after = _TAGS[part.style]
        span = Markup(before) + part.text + Markup(after)
        span = (
            Markup('<span class="o o-{}">{}</span>').format(part.mark, span) if part.mark else span
        )
        html += Markup('<a href="{}">{}</a>').format(part.link, span) if part.link else span
    return html


def as_text(line: Line) -> str:
    """Return a line as a terminal shows it."""
    return "".join(part if isinstance(part, str) else part.text for part in _spans(line))


def _cell(line: Line) -> str:
    return as_markdown(line).replace("|", "\\|") or " "


@cache
def template(name: str, package: str = __package__) -> Template:
    """Return a template of a package, loaded once; values in HTML and SVG are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader(package, ""),
        autoescape=select_autoescape(("html.j2", "svg.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"style": asset("page.css"), "navigation": "", "scripts": ()}
    return environment.get_template(name)


def page(title: str, blocks: Iterable[Block], **more: object) -> str:
    """Return a page without external assets. `more` has its `navigation` and `scripts`."""
    return template("page.html.j2").render(title=title, body=html(blocks), **more)


def fill_slot(page: str, slot: str, content: str) -> str:
    """Replace the content of a slot of a page; escaped text never makes a slot.

    A page without the slot stays as it is.
    """
    begin, end = f"<!--{slot}-->", f"<!--/{slot}-->"
    before, has_slot, rest = page.partition(begin)
    return f"{before}{begin}{content}{end}{rest.partition(end)[2]}" if has_slot else page


@cache
def asset(name: str, room: str = __package__) -> Markup:
    """Return a file of this or another package, to be put into a page."""
    return Markup((files(room) / name).read_text("utf-8"))


def link(path: str) -> str:
    """Return a relative link to a file, never with a scheme."""
    return "./" + quote(path)


def day_and_minute(moment: object) -> str:
    """Return a time of a record (UTC) without its seconds."""
    return f"{str(moment)[:16].replace('T', ' ')} UTC"


def clip(value: object, most: int) -> str:
    """Return a text, or anything else as JSON, cut to so many characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def downsample(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: the largest of each of as many equal stretches."""
    if len(values) <= most:
        return [float(value) for value in values]
    edges = [index * len(values) // most for index in range(most + 1)]
    return [float(max(values[start:end])) for start, end in itertools.pairwise(edges)]
