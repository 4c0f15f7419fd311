"""What all pages of the site have in common: their frame, and failures told by their causes.

Each keeps its place among the others, and with it what leads from one to another. A link to what
the site has not got is none there. So the folder may go anywhere, and keeps what reports lose.

Anybody may have written the pages that stand beside journals. So the page of a run, which has
scripts, is made of its journal here, and the others, which have none, are kept so that none runs.

A shape says what a colour says: what passed is low, what failed is high, what is lost is a frame.
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
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from markupsafe import Markup, escape
from sqlalchemy import select

from harness.core.errors import HarnessError
from harness.core.names_inside import flat_name, open_below
from harness.core.outgoing_text import counted, printable
from harness.core.whole_file import write_whole
from harness.diagnosis.error import signature_text
from harness.history.database import CauseTold, Database, NightTold, runs
from harness.history.performance import SMALLEST_SCALE, median, scales
from harness.history.previous import since_previous
from harness.history.run_changes import CauseHeld, DeviceRow, Harvest
from harness.history.timeline import MARKS, TITLES, Became, NightChange, RunHeld
from harness.history.timeline_text import CauseFacts, facts_line
from harness.report.document import (
    Block,
    Heading,
    Line,
    Paragraph,
    Span,
    Style,
    Table,
    asset,
    filled,
    joined,
    page,
    shortened,
)
from harness.report.html import html_text
from harness.report.projections import run_data
from harness.report.sections import Listed, bisections_in
from harness.results.run_folder import JOURNAL, RunFolder, case_slug

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
        night = nights.get(run)
        base = folders.get(night.base or "") if night else None
        _keep(out, folder.parent, run, _RUN, JOURNAL, RunFolder(base) if base else None)
        if night is not None:
            _keep(out, folder.parent, night.night, _COMPARISON)
    return KeptPages(out, tuple(found))


def _keep(
    out: Path,
    reports: Path,
    folder: str,
    name: str,
    made_of: str = "",
    base: RunFolder | None = None,
) -> None:
    """Keep a page, unless it is that of the same time; what cannot be read is not there.

    It is made of the journal `made_of` where that is named, beside the run `base`, else copied
    without its scripts.
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
            text = printable(html_text(run_data(run, since_previous(run, base))))
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


_MOST_CAUSES: Final = 100
_MOST_NAMED: Final = 5
_MOST_CHANGES: Final = 300
_FOLDED: Final = Markup("<details><summary>command</summary><code>{}</code></details>")
_LEGEND: Final = (
    "Where: of the devices that tested the same in that run. Attempts: each time that a case ran "
    "on one device with the same versions, again in the same run, too."
)
_COLUMNS: Final = ("What", "Where, since when, what changed", "What is known")


@dataclass(frozen=True)
class Known:
    """What pages know beside their own subject."""

    runs: Sequence[RunHeld]
    gathered: Harvest
    devices: Mapping[tuple[str, int], DeviceRow]
    nights: Mapping[str, NightTold]
    causes: Sequence[CauseHeld]
    """All that is held, the last seen first."""
    kept: KeptPages

    def cause(self, at: int, cause: str) -> CauseTold:
        """What the night at a place, or else the last one that did, said of a cause."""
        nights = (self.nights.get(self.runs[place].run) for place in range(at, -1, -1))
        found = (one.causes[cause] for one in nights if one is not None and cause in one.causes)
        return next(found, CauseTold())

    @cached_property
    def socs(self) -> Mapping[str, str | None]:
        return {device: row.soc for (device, _), row in self.devices.items()}

    def facts(self, at: int, cause: str, *, fixed: bool) -> CauseFacts:
        """The facts of a cause that the run at a place has a change of, or one that is `fixed`."""
        facts = self.gathered.facts(at, cause, self.runs, self.socs, fixed=fixed)
        files = () if fixed else self.cause(at, cause).files_changed
        return facts.model_copy(update={"files_changed": files})

    def device_names(self) -> list[str]:
        """All devices that cases ran on."""
        return sorted({name for name, _ in (*self.gathered.by_device, *self.devices)})

    @property
    def last(self) -> int:
        return len(self.runs) - 1

    def is_night(self, at: int) -> bool:
        """Whether the run at a place is that of a night; any is, where nobody uses `nightly`."""
        return not self.nights or self.runs[at].run in self.nights

    @property
    def last_night(self) -> int:
        last = range(self.last, max(-1, self.last - MARKS), -1)
        return next(filter(self.is_night, last), self.last)

    def day(self, at: int) -> str:
        """When the run at a place was begun."""
        return self.runs[at].started[:10]


def framed(title: str, blocks: Iterable[Block], *, here: str = "", up: str = "../") -> str:
    """A whole page; `here` is the name of the list that it is, if it is one."""
    return page(title, blocks, ways=ways(up, here), scripts=[asset("site.js", __package__)])


def by_cause(known: Known, changes: Sequence[NightChange], links: Links) -> Iterator[Block]:
    """What became of cases, each kind below its heading, a row for each cause."""
    for became, title in TITLES.items():
        if not (found := [one for one in changes if one.became == became]):
            continue
        causes = [list(group) for _, group in groupby(found, key=lambda one: one.cause)]
        causes.sort(key=len, reverse=True)
        yield Heading(f"{title}: {counted(len(found), 'case')}")
        rows = [_row(known, became, of_cause, links) for of_cause in causes[:_MOST_CAUSES]]
        yield Table("", _COLUMNS, rows, "stacked causes")
        if len(causes) > _MOST_CAUSES:
            yield Paragraph(f"and {counted(len(causes) - _MOST_CAUSES, 'more cause')}", "dim")
    if changes:
        yield Paragraph(_LEGEND, "dim")


def _row(known: Known, became: Became, found: Sequence[NightChange], links: Links) -> list[Line]:
    first = found[0]
    mark = "passed" if became == "fixed" else "expected" if became == "known" else first.outcome
    what: list[str | Span] = [
        Span("", mark=mark),
        links.to("cause", first.cause, title_of(first), "strong"),
        ": ",
    ]
    named = list({one.test: one for one in found}.values())
    tests = [links.to("case", one.test, short_name(one.test), "code") for one in named]
    what += _first_of(tests)
    told = known.cause(first.at, first.cause)
    said: list[str | Span] = [links.kept(known.kept.run(told.folder), told.known)]
    if became == "known":
        issues = dict.fromkeys(one.known_issue for one in found if one.known_issue)
        said = ["known issue ", *joined([Span(one, style="code") for one in issues])]
    elif told.command:
        said += [" ", _FOLDED.format(f"qnn-harness {shlex.join(told.command)}")]
    facts = known.facts(first.at, first.cause, fixed=became == "fixed")
    return [what, facts_line(facts, links.to), said]


def _first_of(named: Sequence[Span]) -> list[str | Span]:
    if len(named) <= _MOST_NAMED + 1:
        return [*joined(named)]
    return [*joined(named[:_MOST_NAMED]), f" and {len(named) - _MOST_NAMED} more"]


def happened(known: Known, changes: Sequence[NightChange], links: Links) -> Table:
    """Changes, night by night."""
    rows: list[list[Line]] = []
    for one in changes[:_MOST_CHANGES]:
        run = known.runs[one.at]
        changed = f" ({one.changed})" if one.changed and one.since == one.at else ""
        rows.append(
            [
                links.to("night", run.run, run.started[:10]),
                TITLES[one.became].lower(),
                [links.to("case", one.test, short_name(one.test), "code")],
                [links.to("device", one.device)] if one.device else "",
                links.to("cause", one.cause, title_of(one)),
                one.versions + changed,
            ]
        )
    return Table("", ("Night", "What", "Case", "Device", "Why", "With"), rows, "stacked")


def title_of(of: NightChange | CauseHeld) -> str:
    """What went wrong, in a few words."""
    named = signature_text(of.kind)
    return shortened(named if named.startswith(of.outcome) else f"{of.outcome}: {named}", 120)


def short_name(test: str) -> str:
    """A test without its file."""
    return shortened(test.rpartition("::")[2] or test, 80)


_BANDS: Final = 3
_CELL: Final = 10
_HIGH: Final = 18
_TALL: Final = 120
_SHAPES: Final[Mapping[str, tuple[str, int, int]]] = {
    ".": ("passed", 11, 5),
    "F": ("failed", 1, 15),
    "x": ("expected", 6, 10),
    "~": ("hung", 1, 15),
    "?": ("lost", 4, 12),
    "-": ("skipped", 14, 2),
}
_WORDS: Final = {
    "passed": "passed",
    "failed": "failed",
    "known": "failed as known",
    "lost": "without a verdict",
    "unsupported": "unsupported",
    "skipped": "skipped",
}
_CLASSES: Final = {"known": "expected", "lost": "error"}


def strip(marks: Sequence[str], said: Sequence[str] = (), days: Sequence[str] = ()) -> Markup:
    """Runs as bars, the newest to the right; ` ` where there was none. What is `said` of each is
    told once of those beside each other that it fits, with their days."""
    bars, at = "", 0
    for (mark, words), alike in groupby(zip(marks, said or marks, strict=True)):
        first, at = at, at + len(list(alike))
        if mark in _SHAPES:
            name, top, tall = _SHAPES[mark]
            bar = "zm10 0".join([f"h8v{tall}h-8"] * (at - first))
            bars += f'<path class="o-{name}" d="M{first * _CELL + 1} {top}{bar}z">'
            if said:
                day = " to ".join(dict.fromkeys((days[first], days[at - 1])))
                bars += f"<title>{escape(day)}: {escape(words)}</title>"
            bars += "</path>"
    return Markup(
        '<svg class="strip" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" '
        'aria-label="last runs: {2}">{3}</svg>'
    ).format(max(1, len(marks)) * _CELL, _HIGH, "".join(marks).strip(), Markup(bars))


class Bar(NamedTuple):
    """A night of the trend: what came of how many cases, and where its page is."""

    name: str
    link: str
    counts: Mapping[str, int]


def trend(bars: Sequence[Bar]) -> Markup:
    """Nights beside each other, the newest to the right; each leads to its page."""
    most = max((sum(one.counts.values()) for one in bars), default=0) or 1
    drawn = []
    for at, bar in enumerate(bars):
        parts, top = Markup(""), float(_TALL)
        said = ", ".join(f"{count} {_WORDS[name]}" for name, count in bar.counts.items() if count)
        talls = {name: count * _TALL / most for name, count in bar.counts.items()}
        for name, count in bar.counts.items():
            # what went wrong is never too thin to be seen, at the cost of what is most
            thin = max(0.0, 3 - talls[name]) if count and name in ("failed", "lost") else 0.0
            talls[name] += thin
            talls[max(talls, key=lambda one: talls[one])] -= thin
        for name, tall in talls.items():
            top -= tall
            parts += Markup(
                '<rect class="o-{}" x="{}" y="{:.1f}" width="16" height="{:.1f}"/>'
            ).format(_CLASSES.get(name, name), at * 20 + 2, top, tall)
        drawn.append(
            Markup('<a href="{0}" aria-label="{1}: {2}"><title>{1}: {2}</title>{3}</a>').format(
                bar.link, bar.name, said, parts
            )
        )
    return Markup(
        '<svg class="chart trend" viewBox="0 -8 {0} {1}" preserveAspectRatio="xMinYMid" '
        'role="group" aria-label="nights">{2}</svg>'
    ).format(max(1, len(bars)) * 20, _TALL + 10, Markup("").join(drawn))


def curve(
    values: Sequence[float | None], said: Callable[[int], str], title: str, *, band: bool = True
) -> Markup:
    """A figure over runs, `said` tells each in words; with the band in which noise alone keeps
    it."""
    known = [(at, value) for at, value in enumerate(values) if value is not None and value > 0]
    if len(known) < 2:
        return Markup("")
    numbers = [value for _, value in known]
    low, high = _band(numbers) if band else (min(numbers), max(numbers))
    least, most = min(low, *(v for _, v in known)), max(high, *(v for _, v in known))
    wide, tall, span = 480, 70, (most - least) or 1.0

    def place(at: int, value: float) -> tuple[float, float]:
        return 4 + at * (wide - 8) / max(1, len(values) - 1), 66 - (value - least) / span * 62

    points = " ".join("{:.1f},{:.1f}".format(*place(*one)) for one in known)
    dots = ""
    for at, value in known:
        if not low <= value <= high or at == known[-1][0]:
            (x, y), style = place(at, value), "" if low <= value <= high else "out"
            dots += f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            dots += f"<title>{escape(said(at))}</title></circle>"
    top = place(0, high)[1]
    return Markup(
        '<figure><figcaption>{0}: {1}</figcaption><svg class="curve" viewBox="0 0 {2} {3}" '
        'role="img" aria-label="{0}"><rect class="{8}" x="0" '
        'y="{4:.1f}" width="{2}" height="{5:.1f}"/>'
        '<polyline points="{6}"/>{7}</svg></figure>'
    ).format(
        title,
        said(known[-1][0]),
        wide,
        tall,
        top,
        place(0, low)[1] - top,
        points,
        Markup(dots),
        "band" if band else "none",
    )


def beside(curves: Sequence[Markup]) -> Markup:
    """Curves beside each other, as many as there is room for."""
    return Markup('<div class="curves">{}</div>').format(Markup("").join(curves))


def _band(values: Sequence[float]) -> tuple[float, float]:
    """Between which values noise keeps a figure, as far as its own runs tell."""
    logs = np.log(np.array([values]))
    none = np.zeros(1, dtype=np.int64)
    scale, _ = scales(logs[:, :-1], logs[:, -1:], none, np.full(1, SMALLEST_SCALE))
    middle, width = float(median(logs)[0]), _BANDS * float(scale[0])
    return float(np.exp(middle - width)), float(np.exp(middle + width))
