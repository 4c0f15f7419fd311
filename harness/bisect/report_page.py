"""A result as a page without network or assets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from harness.bisect.report_text import commands, preflight_silence, summary, title

_MAX_SHOWN: Final = 4000


def page_of(result: Mapping[str, Any]) -> str:
    """The whole page (pure but for loading the template)."""
    cells = {tuple(one["at"]): one for one in result["cells"] or ()}
    rows, columns = [result["candidates"][axis] for axis in result["axes"]] if cells else ([], [])
    return _template().render(
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


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("harness.bisect", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _shown(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} ..."


def _link(path: str) -> str:
    # Relative, and never a scheme: a log can be edited by hand.
    return "./" + quote(path)
