"""The content of a report.html: its text as it stands, and the data that its script draws from."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

from markupsafe import Markup


class Page(HTMLParser):
    """Tags, attributes and texts of a page as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.whole = text
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


_PACKED = re.compile(r'<script type="text/plain" id="(rows|blocks)">([^<]*)</script>')

_CODE = re.compile(r"(?<!`)(`{1,2})(?!`).*?(?<!`)\1(?!`)")


def without_code(line: str) -> str:
    """A line of Markdown without the words that are code in it."""
    return _CODE.sub("", line)


def unpacked(text: str) -> Any:
    """Unpack the data of `harness.report.html.packed`."""
    return json.loads(gzip.decompress(base64.b64decode(text, validate=True)))


def rows_of(page: str) -> dict[str, Any]:
    """Return the rows of the page's table and charts."""
    rows: dict[str, Any] = unpacked(dict(_PACKED.findall(page))["rows"])
    return rows


def details_of(page: str) -> list[dict[str, Any]]:
    """Return the details of the views of cases, in the order of the cases."""
    blocks = dict(_PACKED.findall(page))["blocks"].split()
    return [detail for block in blocks for detail in unpacked(block)]


def words_of(page: str) -> str:
    """All that a reader can come to see, in some order."""
    still = Markup(_PACKED.sub("", page)).unescape()
    drawn = json.dumps([rows_of(page), details_of(page)], ensure_ascii=False)
    return f"{still} {drawn}"
