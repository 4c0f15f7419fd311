"""The page of a night, and the front page, which is that of the last one (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harness.answers.history.changes import NightChange
from harness.answers.report.document import (
    Block,
    Heading,
    Item,
    Items,
    Line,
    Paragraph,
    Span,
    Table,
    joined,
)
from harness.answers.site.device_page import unwell
from harness.answers.site.drawings import Bar, trend
from harness.answers.site.links import Links, page_of
from harness.answers.site.pages import Known, by_cause, framed
from harness.ground.errors.outgoing_text import counted
from harness.verdict.results.coverage import Coverage

_TREND: Final = 30
_TREND_SAID: Final = "From below: passed, failed as known, failed, without a verdict."
_MOST_LOST: Final = 5
_ALL_NIGHTS: Final = 5000


def night_page(known: Known, at: int, changes: Sequence[NightChange]) -> str:
    """The page of the run at a place, which said this."""
    run, links = known.runs[at], Links()
    return framed(
        f"Night {run.run}", [*_head(known, at, changes, links), *by_cause(known, changes, links)]
    )


def front_page(known: Known) -> str:
    """What must be known in the morning."""
    if not known.runs:
        return framed("qnn-harness", [Heading("Nothing is held yet", 1)], here="Last night", up="")
    at, links = known.last_night, Links("")
    changes = known.gathered.of_night(at)
    blocks: list[Block] = [*_head(known, at, changes, links), *by_cause(known, changes, links)]
    night = known.nights.get(known.runs[at].run)
    if night is not None and night.besides:
        blocks += [Heading("What went wrong besides")]
        blocks.append(Items([Item(Span(one)) for one in night.besides]))
    first = max(0, known.last + 1 - _TREND)
    days = f"{known.day(first)} to {known.day(at)}. {_TREND_SAID}"
    last = [place for place in range(first, at + 1) if known.is_night(place)]
    blocks += [Heading("The last nights"), Paragraph(_trend(known, last)), Paragraph(days, "dim")]
    lost = [place for place in last if place < at and _lost(known, place)][-_MOST_LOST:]
    if lost:
        blocks.append(Items([Item(_lost_line(known, place, links)) for place in reversed(lost)]))
    return framed(sentence(known, at, changes), blocks, here="Last night", up="")


def nights_page(known: Known, said: Mapping[str, str]) -> str:
    """All nights, the newest first; `said` is the sentence of each, by its run."""
    rows: list[list[Line]] = [
        [
            Links("").to("night", run.run, run.started[:16].replace("T", " ")),
            said.get(run.run, ""),
            Span(run.run, style="code"),
        ]
        for run in reversed(known.runs[-_ALL_NIGHTS:])
    ]
    blocks: list[Block] = [Heading("Nights", 1)]
    blocks.append(Table("", ("Begun", "What it came to", "Run"), rows, "plain long"))
    return framed("Nights", blocks, here="Nights", up="")


def sentence(known: Known, at: int, changes: Sequence[NightChange]) -> str:
    """Return what the night at a place comes to, which said this."""
    new = len({change.case for change in changes if change.became == "new"})
    said = _coverage(known, at).sentence(new)
    vanished = " Cases have vanished." if _tests_less(known, at) else ""
    return f"{said[:1].upper()}{said[1:]}.{vanished}"


def _coverage(known: Known, at: int) -> Coverage:
    return known.gathered.by_run[at].coverage(known.runs[at].not_run)


def _head(known: Known, at: int, changes: Sequence[NightChange], links: Links) -> Iterator[Block]:
    run = known.runs[at]
    coverage, night = _coverage(known, at), known.nights.get(run.run)
    bad = any(one.became == "new" for one in changes) or bool(coverage.flaky)
    bad = bool(night.exit_code) if night else bad or not coverage.is_whole
    yield Heading(
        [
            "Night of " if known.is_night(at) else "Run of ",
            run.started[:16].replace("T", " "),
            " ",
            Span(run.run, style="code"),
        ],
        1,
    )
    yield Paragraph(sentence(known, at, changes), "verdict bad" if bad else "verdict")
    if devices := unwell(known, at):
        yield Items([Item([Span(name, style="code"), f": {said}"]) for name, said in devices])
    if night is not None and night.vanished:
        yield Heading("Vanished: they had a verdict before")
        yield Items([Item(Span(one, style="code")) for one in night.vanished])
    report, beside = known.kept.run(run.run), known.kept.comparison(night.night if night else "")
    leads = [links.kept(report, "each case, with logs and times")] if report else []
    leads += [links.kept(beside, "beside the run before, with speed and memory")] if beside else []
    if leads:
        yield Paragraph(["Its pages: ", *joined(leads)])


def _tests_less(known: Known, at: int) -> bool:
    night = known.nights.get(known.runs[at].run)
    return night is not None and "vanished" in night.failed_on


def _trend(known: Known, places: Sequence[int]) -> Line:
    bars = []
    for at in places:
        told, run = known.gathered.by_run[at], known.runs[at]
        counts = {name: told[name] for name in ("passed", "known", "failed")}
        counts["lost"] = _lost(known, at)
        bars.append(Bar(run.started[:10], page_of("night", run.run), counts))
    return trend(bars)


def _lost(known: Known, at: int) -> int:
    return known.gathered.by_run[at].lost + (known.runs[at].not_run or 0)


def _lost_line(known: Known, at: int, links: Links) -> Line:
    night = links.to("night", known.runs[at].run, known.day(at))
    return [night, f": {counted(_lost(known, at), 'case')} without a verdict"]
