"""Pages of runs, nights' comparisons and bisections, kept in the site.

Each keeps its place among the others, and with it what leads from one to another. A link to what
the site has not got is none there. So the folder may go anywhere, and keeps what reports lose.

Anybody may have written the pages that stand beside journals. So the page of a run, which has
scripts, is made of its journal here, and the others, which have none, are kept so that none runs.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sqlalchemy import select

from harness.answers.history.database import Database
from harness.answers.history.nights import NightTold
from harness.answers.history.previous import since_previous
from harness.answers.history.tables import runs
from harness.answers.report.bisections import Listed, bisections_in
from harness.answers.report.html import html_text
from harness.answers.report.pages import filled
from harness.answers.report.projections import run_data
from harness.answers.site.links import ways
from harness.ground.errors import HarnessError
from harness.ground.errors.outgoing_text import printable
from harness.ground.files.names_inside import flat_name, open_below
from harness.ground.files.whole_file import write_whole
from harness.verdict.results.run_folder import JOURNAL, RunFolder

_REPORTS: Final = "reports"
_RUN, _COMPARISON = "report.html", "comparison.html"
_MAX_BYTES: Final = 64 << 20
# before all that the page says
_NO_SCRIPTS: Final = (
    '<!DOCTYPE html>\n<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
)
_LINK: Final = re.compile(r' href="(\.[^"#]*)')


@dataclass(frozen=True)
class KeptPages:
    """Which of these pages the site in a folder has, and the bisections that its reports have."""

    out: Path
    bisections: tuple[Listed, ...] = ()

    def run(self, run: str) -> str:
        """The path of a run's or a bisection's page within the site; empty if it has none."""
        return self._path(run, _RUN)

    def comparison(self, night: str) -> str:
        """That of the page that says how a night's run differs from the one before."""
        return self._path(night, _COMPARISON)

    def _path(self, folder: str, name: str) -> str:
        path = f"{_REPORTS}/{folder}/{name}"
        return path if folder and (self.out / path).is_file() else ""


def keep_pages(database: Database, nights: Mapping[str, NightTold], out: Path) -> KeptPages:
    """Takes what is new of them into the site. Raises InfraError, OSError for one not written."""
    with database.transaction(writes=False) as connection:
        query = select(runs.c.run, runs.c.folder).where(runs.c.folder != "")
        rows = connection.execute(query.order_by(runs.c.started))
        # of two runs of one id the second is held by another, and has no page of its own
        folders = {run: Path(folder) for run, folder in rows if Path(folder).name == run}
    beside = dict.fromkeys(folder.parent for folder in folders.values())
    found = [one for reports in beside for one in bisections_in(reports)]
    for reports in beside:
        for one in found:
            _keep(out, reports, one.name, _RUN)
    for run, folder in folders.items():
        _keep(out, folder.parent, run, _RUN, JOURNAL)
        if (night := nights.get(run)) is not None:
            _keep(out, folder.parent, night.night, _COMPARISON)
    return KeptPages(out, tuple(found))


def _keep(out: Path, reports: Path, folder: str, name: str, made_of: str = "") -> None:
    """Keep a page, unless it is that of the same time; what cannot be read is not there.

    It is made of the journal `made_of` where that is named, else copied without its scripts.
    """
    try:
        path = out / _REPORTS / flat_name(folder) / name
        with open_below(reports / folder, made_of or name) as file:
            made = os.fstat(file.fileno()).st_mtime_ns
            if path.is_file() and path.stat().st_mtime_ns == made:
                return
            text = "" if made_of else _NO_SCRIPTS + file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return
    if made_of:
        run = RunFolder(reports / folder)
        with contextlib.suppress(HarnessError, OSError):
            text = printable(html_text(run_data(run, since_previous(run))))
        if not text:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    page = filled("".join(_linked(text, path.parent)), "ways", ways("../../"))
    write_whole(path, page.encode("utf-8", "replace"))
    os.utime(path, ns=(made, made))


def _linked(page: str, folder: Path) -> Iterator[str]:
    """A page with those links that lead to another one."""
    end = 0
    for link in _LINK.finditer(page):
        leads = (folder / unquote(unescape(link[1]))).is_file()
        yield page[end : link.start()] + (link[0] if leads else ' data-gone="')
        end = link.end()
    yield page[end:]
