"""Common parts of the site's pages: their frame, links, charts, and tables of causes.

Links to pages that the site does not have are removed. So the folder can be moved anywhere, and
keeps pages that are deleted from reports.

The pages beside journals are untrusted. So the page of a run, which has scripts, is made again from
its journal, and the others, which have none, are copied so that no script runs.

Shapes repeat colours: passed is low, failed is high, lost is a frame.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from itertools import groupby, islice
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, unquote

from markupsafe import Markup, escape
from sqlalchemy import select

from harness.core.errors import HarnessError
from harness.core.files import write_whole
from harness.core.outgoing_text import counted, printable, shortened
from harness.core.paths_inside import flat_name, open_below
from harness.diagnosis.error_record import FORETOLD, Diagnosis, signature_text
from harness.history.database import CauseSummary, Database, NightSummary, runs
from harness.history.previous_run import since_previous
from harness.history.run_changes import ChangeStore, DeviceRow, StoredCause
from harness.history.timeline import (
    MARKS,
    TITLES,
    Became,
    CauseFacts,
    NightChange,
    StoredRun,
    facts_line,
)
from harness.report.document import (
    Block,
    Heading,
    Line,
    Paragraph,
    Span,
    Style,
    Table,
    asset,
    fill_slot,
    joined,
    page,
    prose,
    template,
)
from harness.report.html import html_text
from harness.report.report_files import run_data
from harness.results.run_folder import JOURNAL, RunFolder, case_slug

FRONT: Final = "index.html"
_LISTS: Final = ("Nights", "Cases", "Devices", "Causes")
_NAVIGATION: Final = Markup(
    '<a class="skip" href="#main">Skip to content</a><nav aria-label="The lab">{}</nav>'
)
PageKind = Literal["night", "case", "device", "cause"]


def page_of(kind: PageKind, name: str) -> str:
    """Return the path in the site of the page of a run's id, a test's node id, a device's name, or
    a cause's id."""
    return f"{kind}/{case_slug(name)}.html"


def navigation(up: str, here: str = "") -> Markup:
    """Return the links to the front page and the lists; `here` is the list that the page is."""
    targets = {"Last night": FRONT} | {name: f"{name.lower()}.html" for name in _LISTS}
    return _NAVIGATION.format(
        Markup("").join(
            Markup('<a href="{}"{}>{}</a>').format(
                up + link, Markup(' aria-current="page"') if name == here else "", name
            )
            for name, link in targets.items()
        )
    )


@dataclass(frozen=True)
class Links:
    """Links from a page; `up` is the path from it to the front page's folder."""

    up: str = "../"

    def to(self, kind: PageKind, name: str, text: str = "", style: Style = "plain") -> Span:
        """Return a link to the page of something."""
        return Span(text or name, link=self.up + quote(page_of(kind, name)), style=style)

    def page(self, path: str, text: str) -> Span:
        """Return a link to a copied page; only its text if `path` is empty."""
        return Span(text, link=self.up + quote(path) if path else "")


_REPORTS: Final = "reports"
REPORT, COMPARISON = "report.html", "comparison.html"
_MAX_BYTES: Final = 64 << 20
# before the page's own text
_NO_SCRIPTS: Final = (
    '<!DOCTYPE html>\n<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
)
_LINK: Final = re.compile(r' href="(\.[^"#]*)')


def copied_page(out: Path, folder: str, name: str = REPORT) -> str:
    """Return the path in the site of the page of a run, bisection or night; empty without."""
    path = f"{_REPORTS}/{folder}/{name}"
    return path if folder and (out / path).is_file() else ""


def copy_pages(database: Database, nights: Mapping[str, NightSummary], out: Path) -> None:
    """Copy new pages of runs, nights and their bisections into the site.

    Raises InfraError, or OSError if one cannot be written.
    """
    with database.transaction(writes=False) as connection:
        query = select(runs.c.run, runs.c.folder).where(runs.c.folder != "")
        rows = connection.execute(query.order_by(runs.c.started))
        # the second of two runs of one id is stored under another one, and has no page
        folders = {run: Path(folder) for run, folder in rows if Path(folder).name == run}
    bisections = set[tuple[Path, str]]()
    for run, folder in folders.items():
        night = nights.get(run)
        base = folders.get(night.base or "") if night else None
        _copy_page(out, folder.parent, run, REPORT, JOURNAL, RunFolder(base) if base else None)
        if night is not None:
            _copy_page(out, folder.parent, night.night, COMPARISON)
            names = (cause.folder for cause in night.causes.values() if cause.folder)
            bisections |= {(folder.parent, name) for name in names}
    for reports, name in bisections:
        _copy_page(out, reports, name, REPORT)


def _copy_page(
    out: Path,
    reports: Path,
    folder: str,
    name: str,
    made_of: str = "",
    base: RunFolder | None = None,
) -> None:
    """Copy a page without its scripts, or make it of the journal `made_of`, unless unchanged.

    Its time tells whether it changed. An unreadable page is left out. A page that is made compares
    the run with `base`, if given.
    """
    try:
        path = out / _REPORTS / flat_name(folder) / name
        with open_below(reports / folder, made_of or name) as file:
            modified = os.fstat(file.fileno()).st_mtime_ns
            if path.is_file() and path.stat().st_mtime_ns == modified:
                return
            text = "" if made_of else _NO_SCRIPTS + file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return
    if made_of:
        run = RunFolder(reports / folder)
        with contextlib.suppress(HarnessError, OSError):
            text = printable(html_text(run_data(run, since_previous(run, base))))
        if not text:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    page = fill_slot("".join(_linked(text, path.parent)), "navigation", navigation("../../"))
    write_whole(path, page.encode("utf-8", "replace"))
    os.utime(path, ns=(modified, modified))


def _linked(page: str, folder: Path) -> Iterator[str]:
    """Yield a page in parts, without links to missing pages."""
    end = 0
    for link in _LINK.finditer(page):
        leads = (folder / unquote(unescape(link[1]))).is_file()
        yield page[end : link.start()] + (link[0] if leads else ' data-gone="')
        end = link.end()
    yield page[end:]


_MOST_CAUSES: Final = 100
_MOST_NAMED: Final = 5
_MOST_CHANGES: Final = 300
_BREAK: Final = Markup("<br>")
_FOLDED: Final = Markup("<details><summary>command</summary><code>{}</code></details>")
_LEGEND: Final = (
    "Devices count if they ran the same tests in that run. Attempts are all runs of a case on one "
    "device with the same versions, with those that were repeated within a run."
)
_COLUMNS: Final = ("What", "Where, since when, what changed", "What helps")


@dataclass(frozen=True)
class SiteData:
    """The data of the whole site."""

    runs: Sequence[StoredRun]
    store: ChangeStore
    devices: Mapping[tuple[str, int], DeviceRow]
    nights: Mapping[str, NightSummary]
    causes: Sequence[StoredCause]
    """All causes, the last seen first."""
    out: Path

    def cause(self, index: int, cause: str) -> CauseSummary:
        """Return the summary of a cause by the night of a run, or the last one before with one."""
        nights = (self.nights.get(self.runs[i].run) for i in range(index, -1, -1))
        known = (night.causes.get(cause) for night in nights if night is not None)
        return next(filter(None, known), CauseSummary())

    @cached_property
    def diagnoses(self) -> Mapping[str, Diagnosis]:
        """The diagnoses of causes by the ids of the causes, in words that fit other cases, too."""
        records = ((cause.cause, cause.record) for cause in self.causes)
        known = {id_: record.diagnosis for id_, record in records if record and record.diagnosis}
        plain = {each.id: each for each in known.values() if FORETOLD not in each.words}
        return {cause: plain.get(each.id, each) for cause, each in known.items()}

    @cached_property
    def socs(self) -> Mapping[str, str | None]:
        return {device: row.soc for (device, _), row in self.devices.items()}

    def facts(self, index: int, cause: str, *, fixed: bool) -> CauseFacts:
        """Return the facts of a cause by its changes in a run; `fixed` ones, or all others."""
        facts = self.store.facts(index, cause, self.socs, fixed=fixed)
        files = () if fixed else self.cause(index, cause).files_changed
        return facts.model_copy(update={"files_changed": files})

    def copy(self, folder: str, name: str = REPORT) -> str:
        """Return the path in the site of a copied page; empty if there is none."""
        return copied_page(self.out, folder, name)

    def device_names(self) -> list[str]:
        """Return the names of all devices that cases ran on."""
        return sorted({name for name, _ in (*self.store.by_device, *self.devices)})

    @property
    def last(self) -> int:
        return len(self.runs) - 1

    def is_night(self, index: int) -> bool:
        """Return whether a run is that of a night; all are, if `nightly` is never used."""
        return not self.nights or self.runs[index].run in self.nights

    @property
    def last_night(self) -> int:
        last = range(self.last, max(-1, self.last - MARKS), -1)
        return next(filter(self.is_night, last), self.last)

    def day(self, index: int) -> str:
        """Return the day on which a run started."""
        return self.runs[index].started[:10]


def render_page(title: str, blocks: Iterable[Block], *, here: str = "", up: str = "../") -> str:
    """Return a whole page; `here` is the name of the list that it is, if any."""
    scripts = [asset("site.js", __package__)]
    return page(title, blocks, navigation=navigation(up, here), scripts=scripts)


def by_cause(site: SiteData, changes: Sequence[NightChange], links: Links) -> Iterator[Block]:
    """Yield changes of cases, each kind below its heading, with a row for each cause."""
    for became, title in TITLES.items():
        if not (listed := [change for change in changes if change.became == became]):
            continue
        causes = [list(group) for _, group in groupby(listed, key=lambda change: change.cause)]
        causes.sort(key=len, reverse=True)
        yield Heading(f"{title}: {counted(len(listed), 'case')}")
        rows = [_row(site, became, of_cause, links) for of_cause in causes[:_MOST_CAUSES]]
        yield Table("", _COLUMNS, rows, "stacked causes")
        if len(causes) > _MOST_CAUSES:
            yield Paragraph(f"and {counted(len(causes) - _MOST_CAUSES, 'more cause')}", "dim")
    if changes:
        yield Paragraph(_LEGEND, "dim")


def _row(site: SiteData, kind: Became, changes: Sequence[NightChange], links: Links) -> list[Line]:
    first = changes[0]
    mark = "passed" if kind == "fixed" else "expected" if kind == "known" else first.outcome
    diagnosis = site.diagnoses.get(first.cause)
    title = shortened(diagnosis.words, 200) if diagnosis else title_of(first)
    cells: list[str | Span] = [
        Span("", mark=mark),
        links.to("cause", first.cause, title, "strong"),
        ": ",
    ]
    named = list({change.test: change for change in changes}.values())
    tests = [links.to("case", change.test, short_name(change.test), "code") for change in named]
    shown = len(tests) if len(tests) <= _MOST_NAMED + 1 else _MOST_NAMED
    cells += joined(tests[:shown])
    cells += [f" and {len(tests) - shown} more"] if shown < len(tests) else []
    summary = site.cause(first.run_index, first.cause)
    known: list[str | Span] = [links.page(site.copy(summary.folder), summary.known)]
    if diagnosis and diagnosis.fix and kind != "fixed":
        known = [*prose(diagnosis.fix), *((_BREAK, *known) if summary.known else ())]
    if kind == "known":
        issues = dict.fromkeys(change.known_issue for change in changes if change.known_issue)
        known = ["known issue ", *joined([Span(issue, style="code") for issue in issues])]
    elif summary.command:
        known += [" ", _FOLDED.format(f"qnn-harness {shlex.join(summary.command)}")]
    facts = site.facts(first.run_index, first.cause, fixed=kind == "fixed")
    return [cells, facts_line(facts, links.to), known]


def changes_table(site: SiteData, changes: Sequence[NightChange], links: Links) -> Table:
    """Return a table of changes, night by night, without those that are as the night before."""
    rows: list[list[Line]] = []
    starts = ((change, change.since == change.run_index) for change in changes)
    listed = (entry for entry in starts if entry[1] or entry[0].became not in ("still", "known"))
    for change, is_start in islice(listed, _MOST_CHANGES):
        run = site.runs[change.run_index]
        changed = f" ({change.changed})" if is_start and change.changed else ""
        night = links.to("night", run.run, run.started[:10])
        case = links.to("case", change.test, short_name(change.test), "code")
        device = links.to("device", change.device) if change.device else ""
        cause = links.to("cause", change.cause, title_of(change))
        became, versions = TITLES[change.became].lower(), change.versions + changed
        rows.append([night, became, case, device, cause, versions])
    return Table("", ("Night", "What", "Case", "Device", "Why", "With"), rows, "stacked")


def title_of(of: NightChange | StoredCause) -> str:
    """Return the title of a cause: its diagnosis or signature, shortened."""
    named = signature_text(of.kind).replace("<n>", "N")
    return shortened(named if named.startswith(of.outcome) else f"{of.outcome}: {named}", 120)


def short_name(test: str) -> str:
    """Return the name of a test without the folder of its file."""
    file, divider, name = test.partition("::")
    return shortened(f"{file.rpartition('/')[2]}{divider}{name}", 100)


_CELL: Final = 10
_HIGH: Final = 18
_SHAPES: Final[Mapping[str, tuple[str, int, int]]] = {
    ".": ("passed", 11, 5),
    "F": ("failed", 1, 15),
    "x": ("expected", 6, 10),
    "~": ("hung", 1, 15),
    "?": ("lost", 4, 12),
    "-": ("skipped", 14, 2),
}


def strip(marks: Sequence[str], texts: Sequence[str] = (), days: Sequence[str] = ()) -> Markup:
    """Return runs as bars, the newest to the right, with a gap for a mark ` `.

    Neighbours with the same mark and text share one tooltip, with their days.
    """
    bars, end = "", 0
    for (mark, words), alike in groupby(zip(marks, texts or marks, strict=True)):
        first, end = end, end + len(list(alike))
        if mark in _SHAPES:
            name, top, tall = _SHAPES[mark]
            bar = "zm10 0".join([f"h8v{tall}h-8"] * (end - first))
            bars += f'<path class="o-{name}" d="M{first * _CELL + 1} {top}{bar}z">'
            if texts:
                day = " to ".join(dict.fromkeys((days[first], days[end - 1])))
                bars += f"<title>{escape(day)}: {escape(words)}</title>"
            bars += "</path>"
    return Markup(
        '<svg class="strip" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" '
        'aria-label="last runs: {2}">{3}</svg>'
    ).format(max(1, len(marks)) * _CELL, _HIGH, "".join(marks).strip(), Markup(bars))


_STRIPS: Final = "passed", "failed", "expected failure", "flaky", "no verdict", "skipped"
_LEGENDS: Final = ((strip(mark), f" {text} ") for mark, text in zip(_SHAPES, _STRIPS, strict=True))
STRIP_LEGEND: Final = Paragraph([part for parts in _LEGENDS for part in parts], "dim")


def curve(
    values: Sequence[float | None],
    days: Sequence[str],
    text: Callable[[float], str],
    title: str,
    versions: str,
) -> Markup:
    """Return a chart of a figure over the days of runs; `versions` are those of the last one."""
    known = [(i, value) for i, value in enumerate(values) if value is not None and value > 0]
    if len(known) < 2:
        return Markup("")
    least, most = (of(value for _, value in known) for of in (min, max))
    across, span = 250 / (len(values) - 1), (most - least) or 1.0
    points = [(76 + i * across, 66 - (value - least) / span * 58) for i, value in known]
    last, value = known[-1]
    labels = [(76, 84, "start", days[0]), (326, 84, "end", days[last])]
    labels += [(70, 12, "end", text(most)), (70, 70, "end", text(least))][most == least :]
    facts = {"title": title, "value": text(value), "versions": versions, "points": points}
    return Markup(template("curve.html.j2", __package__).render(facts, labels=labels))
