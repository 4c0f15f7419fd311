"""A result as a page without network or assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from harness.bisect.report_text import commands, preflight_silence, summary, title
from harness.results.templates import template

_MAX_SHOWN: Final = 4000


def page_of(result: Mapping[str, Any]) -> str:
    """The whole page (pure but for loading the template)."""
    cells = {tuple(one["at"]): one for one in result["cells"] or ()}
    rows, columns = [result["candidates"][axis] for axis in result["axes"]] if cells else ([], [])
    return template("harness.bisect", "report.html.j2").render(
        result=result,
        title=title(result),
        summary=summary(result),
        commands=commands(result),
        rows=rows,
        columns=columns,
        cells=cells,
        silence=preflight_silence,
        shown=_shown,
        link=_link,
    )


def _shown(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} ..."


def _link(path: str) -> str:
    # Relative, and never a scheme: a log can be edited by hand.
    return "./" + quote(path)
