"""The pages of the site: nights, cases, causes and devices, written where their words changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from markupsafe import Markup

from harness import __version__
from harness.core.bounded_json import parse_model
from harness.core.errors import InfraError
from harness.core.outgoing_text import counted
from harness.core.schema_field import Schema1
from harness.core.whole_file import read_bounded, write_whole
from harness.diagnosis.error import ErrorRecord, Part
from harness.history.attempts import FIGURES, Attempt
from harness.history.comparison_text import fails_because
from harness.history.database import Database, DeviceTold, NightTold, nights_held
from harness.history.importing import runs_held
from harness.history.run_changes import (
    WINDOW,
    CauseHeld,
    DeviceRow,
    Harvest,
    StandingCounts,
    causes_held,
    device_rows,
    earlier_runs,
    lines_by_test,
)
from harness.history.states import said_versions, versions_of
from harness.history.timeline import MARKS, CaseLine, NightChange, RunHeld, mark_of
from harness.report.document import (
    Block,
    CodeBlock,
    Heading,
    Item,
    Items,
    Line,
    Paragraph,
    Span,
    Table,
    joined,
)
from harness.report.sections import listed as bisection_table, of_cases
from harness.results.coverage import Coverage
from harness.results.journal import uncollected
from harness.site.pages import (
    FRONT,
    Bar,
    KeptPages,
    Known,
    Links,
    beside,
    by_cause,
    curve,
    framed,
    happened,
    keep_pages,
    page_of,
    short_name,
    strip,
    title_of,
    trend,
)

_MOST: Final = 2000
_CAUSE_COLUMNS: Final = ("Diagnosis", "What", "Cases", "Runs", "First seen", "Last seen")


def cause_page(known: Known, cause: CauseHeld) -> str:
    """The page of a cause."""
    return framed(title_of(cause), _of_cause(known, cause))


def _of_cause(known: Known, cause: CauseHeld) -> Iterator[Block]:
    links, error = Links(), cause.record
    yield Heading([Span("", mark=cause.outcome), Span(title_of(cause), style="code")], 1)
    yield _now(known, cause)
    first, last = (
        links.to("night", known.runs[at].run, known.day(at)) for at in (cause.first, cause.last)
    )
    runs = counted(len(cause.cases), "run")
    yield Paragraph([f"In {runs}: first ", first, ", last ", last, "."])
    if cause.diagnosis is not None:
        yield Paragraph(["Its diagnosis: ", Span(cause.diagnosis, style="code")])
    yield from _words(error)
    if error is not None:
        yield CodeBlock([error.message])
    changes = known.gathered.changes("cause = ?", cause.cause)
    now = [one for one in changes if one.at == known.last and one.became != "fixed"]
    yield from by_cause(known, now, links)
    if changes:
        yield Heading("What happened lately")
        yield happened(known, changes, links)


def causes_page(known: Known) -> str:
    """All causes below their diagnoses, the last seen first."""
    links, rows = Links(""), list[list[Line]]()
    newest = {cause.diagnosis: cause.last for cause in reversed(known.causes)}
    for cause in sorted(
        known.causes, key=lambda cause: (-newest[cause.diagnosis], cause.diagnosis or "~")
    ):
        name = Span(cause.diagnosis) if cause.diagnosis else Span("none", style="dim")
        title: Line = [
            Span("", mark=cause.outcome),
            links.to("cause", cause.cause, title_of(cause)),
        ]
        cases, runs = str(cause.cases[cause.last]), str(len(cause.cases))
        rows.append([name, title, cases, runs, known.day(cause.first), known.day(cause.last)])
    blocks: list[Block] = [
        Heading("Causes", 1),
        Table("", _CAUSE_COLUMNS, rows[:_MOST], "plain long"),
    ]
    return framed("Causes", blocks, here="Causes", up="")


def _now(known: Known, cause: CauseHeld) -> Paragraph:
    """How many cases have a cause now."""
    now = cause.cases.get(known.last, 0)
    said = (
        f"{counted(now, 'case')} in the last run."
        if now
        else f"Gone; last seen {known.day(cause.last)}."
    )
    return Paragraph(said, "verdict bad" if now else "verdict")


def _words(error: ErrorRecord | None) -> Iterator[Block]:
    if error is not None and error.diagnosis is not None:
        yield Paragraph([Span(error.diagnosis.words, style="strong")])
        if error.diagnosis.fix:
            yield Paragraph(["What helps: ", Span(error.diagnosis.fix)])


_GB: Final = 1e9
_SHOWN: Final = 30
_DEVICE_COLUMNS: Final = (
    *("Night", "State", "Found", "Passed", "Failed", "Lost", "Busy", "Hottest", "Battery"),
    *("Storage free", "Link faults", "Recoveries", "Quarantined"),
)
_LISTED: Final = (
    "Device",
    "SoC",
    "Host",
    "Nights, the newest to the right",
    "State",
)
_CURVES: Final[dict[str, Callable[[DeviceRow], float | None]]] = {
    "hottest, °C": lambda row: row.hottest_c,
    "battery, %": lambda row: row.battery_percent,
    "storage free, GB": lambda row: row.free_storage_bytes and row.free_storage_bytes / _GB,
    "busy, %": lambda row: 100 * row.busy_s / row.span_s if row.span_s else None,
}


def device_page(known: Known, device: str) -> str:
    """The page of a device."""
    return framed(device, _device_blocks(known, device))


def _device_blocks(known: Known, device: str) -> Iterator[Block]:
    links, places = Links(), _places(known, device)
    last = places[-1]
    changes = known.gathered.changes("device = ? AND at = ?", device, last)
    row, state = known.devices.get((device, last)), state_of_device(known, device)
    bad = [one for one in changes if one.became in ("new", "still", "flaky")]
    expected = sum(one.became == "known" for one in changes)
    yield Heading(["Device ", Span(device, style="code")], 1)
    lost = known.gathered.by_device.get((device, last), StandingCounts()).lost
    failed = [f"{counted(len(bad), 'case')} failed there"] if bad else []
    failed += [f"{counted(expected, 'case')} failed there as known"] if expected else []
    said = ", ".join(failed or ["nothing failed there"])
    said += f", {lost} without a verdict" if lost else ""
    said += f" on {known.day(last)}"
    well = f"{state.state} since {state.since[:10]}" if state.since else state.state
    ill = bool(bad or state.state != "good")
    yield Paragraph(f"{well[:1].upper()}{well[1:]}; {said}.", "verdict bad" if ill else "verdict")
    for text in (state.why, state.hands and f"Needs hands: {state.hands}"):
        if text:
            yield Paragraph(Span(text))
    if row is not None:
        yield Paragraph(
            Span(f"{row.soc or 'SoC unknown'}, on {row.host or 'this computer'}"), "dim"
        )
    yield from by_cause(known, changes, links)
    rows = [(at, known.devices[device, at]) for at in places if (device, at) in known.devices]
    drawn = []
    for title, figure in _CURVES.items():
        values = [figure(one) for _, one in rows]
        told = [
            f"{value or 0:,.0f} on {known.day(at)}"
            for value, (at, _) in zip(values, rows, strict=True)
        ]
        drawn.append(curve(values, told.__getitem__, title, band=False))
    if any(drawn):
        yield Heading("How it is")
        yield Paragraph(beside(drawn))
    yield Heading("Night by night")
    yield Table(
        "",
        _DEVICE_COLUMNS,
        [_night(known, device, at, links) for at in reversed(places)],
        "cross found",
    )


def _places(known: Known, device: str) -> list[int]:
    least = known.last - WINDOW
    found = {at for name, at in (*known.gathered.by_device, *known.devices) if name == device}
    return sorted(at for at in found if at > least) or sorted(found)[-1:]


def _night(known: Known, device: str, at: int, links: Links) -> list[Line]:
    told = known.gathered.by_device.get((device, at), StandingCounts())
    failed = told["failed"] + told["known"]
    run, row = known.runs[at], known.devices.get((device, at))
    words: list[Line] = [row.state or "", Span(row.finding or "")] if row else ["", ""]
    cells: list[Line] = [links.to("night", run.run, run.started[:10]), *words, str(told["passed"])]
    cells += [Span(str(one), style="bad" if one else "dim") for one in (failed, told.lost)]
    if row is None:
        return cells + [""] * (len(_DEVICE_COLUMNS) - len(cells))
    marks = (row.link_faults, row.recoveries, row.quarantines)
    cells += [
        _device_sentence(figure(row), title.rpartition(" ")[2]) for title, figure in _of_a_night()
    ]
    cells += [Span(str(one), style="bad" if one else "dim") for one in marks]
    return cells


def _of_a_night() -> list[tuple[str, Callable[[DeviceRow], float | None]]]:
    *before, busy = _CURVES.items()
    return [busy, *before]


def _device_sentence(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.0f} {unit}"


def state_of_device(known: Known, device: str) -> DeviceTold:
    """What the last night, or else its own last event, said of a device."""
    for at in range(known.last, max(-1, known.last - WINDOW), -1):
        night = known.nights.get(known.runs[at].run)
        if night is not None and device in night.devices:
            return night.devices[device]
        row = known.devices.get((device, at))
        if row is not None and row.state:
            why = "" if row.state == "good" else row.finding or ""
            return DeviceTold(state=row.state, since=known.runs[at].started, why=why)
    return DeviceTold(state="not heard of", since="")


def unwell(known: Known, at: int) -> list[tuple[str, str]]:
    """The devices that were not well in the night at a place, and how they were."""
    night = known.nights.get(known.runs[at].run)
    devices = dict(night.devices) if night is not None else {}
    if night is None and at == known.last_night:
        devices = {name: state_of_device(known, name) for name in known.device_names()}
    return [(name, device.said) for name, device in devices.items() if device.state != "good"]


def devices_page(known: Known) -> str:
    """All devices that cases ran on: where they are, how they did, how they are."""
    links, rows = Links(""), list[list[Line]]()
    for device in known.device_names():
        state, places = state_of_device(known, device), _places(known, device)
        row = known.devices.get((device, places[-1])) if places else None
        marks = [
            _mark(known, device, at)
            for at in range(max(0, known.last + 1 - _SHOWN), known.last + 1)
        ]
        rows.append(
            [
                [links.to("device", device)],
                (row and row.soc) or "",
                (row and row.host) or "",
                strip(marks),
                [
                    Span(state.state, style="plain" if state.state == "good" else "bad"),
                    " ",
                    Span(state.why),
                ],
            ]
        )
    blocks: list[Block] = [Heading("Devices", 1), Table("", _LISTED, rows, "stacked long")]
    return framed("Devices", blocks, here="Devices", up="")


def _mark(known: Known, device: str, at: int) -> str:
    told = known.gathered.by_device.get((device, at))
    if not told:
        return " "
    return "F" if told["failed"] else "?" if told.lost else "x" if told["known"] else "."


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
    """Return what the night at a place came to by its own words, or else what a run did that said
    this."""
    night = known.nights.get(known.runs[at].run)
    new = len({change.case for change in changes if change.became == "new"})
    said = (night.verdict if night else "") or _coverage(known, at).sentence(new)
    return f"{said[:1].upper()}{said[1:]}."


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
    if night is not None and night.failed_on:
        yield Paragraph(fails_because(night.failed_on))
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


_MOST_LINES: Final = 300
_MOST_CURVES: Final = 24
_MOST_TESTS: Final = 20_000
_WORST: Final = " -.?x~F"
_MIB: Final = 1 << 20


class ListedTest(NamedTuple):
    """A test in the list of all."""

    test: str
    strip: Markup
    said: str
    fails: bool


def case_page(known: Known, test: str, lines: Sequence[CaseLine]) -> str:
    """The page of a test, made of its cases."""
    return framed(short_name(test), _blocks(known, test, lines))


def _blocks(known: Known, test: str, lines: Sequence[CaseLine]) -> Iterator[Block]:
    first, links = max(0, known.last + 1 - WINDOW), Links()
    yield Heading(Span(test, style="code"), 1)
    bad = [one for one in lines if one.fails]
    yield Paragraph(state_said(known, lines), "verdict bad" if bad else "verdict")
    rows: list[list[Line]] = []
    for line in sorted(lines, key=_where)[:_MOST_LINES]:
        place, device = line.last.placement, line.last.device
        name = device or (place.device if place else "")
        rows.append(
            [
                [links.to("device", name)] if device else name,
                place.backend if place else "",
                line_strip(known, line, first),
                Span(_ends(known, line), style="bad" if line.fails else "plain"),
                said_versions(versions_of(line.last)),
            ]
        )
    yield Heading(f"Its cases in the last {counted(known.last + 1 - first, 'run')}")
    yield Table(
        "",
        ("Device", "Backend", "Runs, the newest to the right", "Now", "Versions"),
        rows,
        "stacked",
    )
    changes = known.gathered.changes("test = ?", test)
    if changes:
        yield Heading("What happened")
        yield happened(known, changes, links)
    if bisections := of_cases(known.kept.bisections, [test]):
        yield Heading("Bisections")
        yield bisection_table(bisections, f"{links.up}reports/")
    drawn = (one for line in lines for one in _curves(known, line, first))
    curves = list(islice(drawn, _MOST_CURVES))  # what is beyond is not even read
    if curves:
        yield Heading("Times and memory")
        yield Paragraph(
            "The band is where noise alone keeps a figure; a dot outside of it is not noise.", "dim"
        )
        yield Paragraph(beside(curves))


def state_said(known: Known, lines: Sequence[CaseLine]) -> str:
    """What a test is at, over all its cases."""
    failing = {one.last.device for one in lines if _fails(one) and one.last.device}
    flaky = sum(bool(one.case_state and one.case_state.is_flaky) for one in lines)
    devices = {one.last.device for one in lines if one.last.device}
    lost = {line.last.device for line in lines if line.last.fault and line.last.device}
    missing = f"; no verdict now on {counted(len(lost), 'device')}" if lost else ""
    also = f"; flaky: {flaky} of {counted(len(lines), 'case')}" if flaky else ""
    if failing:
        since = min(one.turned for one in lines if _fails(one))
        when = f"since {known.day(since)}" if since >= 0 else "in all that is held"
        verb = "Fails" if failing - lost else "Failed until now"
        where = f"{verb} on {len(failing)} of {counted(len(devices), 'device')}"
        return f"{where}, {when}{also}{missing}."
    if flaky:
        return f"Flaky{also[7:]}{missing}."
    if all(not one.since for one in lines):
        return "Never had a verdict."
    if not (passing := devices - lost):
        return f"Passed until now{missing}."
    return f"Passes on {counted(len(passing), 'device')}{missing}."


def _fails(line: CaseLine) -> bool:
    return line.fails and not (line.case_state and line.case_state.is_flaky)


def _ends(known: Known, line: CaseLine) -> str:
    if not line.since:
        return "no verdict"
    state = line.case_state
    if state is not None and state.is_flaky:
        return f"flaky: {state.said}"
    gone = "" if line.seen[-1].at == known.last else f", last run {known.day(line.seen[-1].at)}"
    lost = ", no verdict now" if line.last.fault else ""
    if line.turned < 0:
        always = "fails in all that is held" if line.fails else "passes in all these runs"
        return f"{always}{lost}{gone}"
    return f"{'fails' if line.fails else 'passes'} since {known.day(line.turned)}{lost}{gone}"


def _where(line: CaseLine) -> str:
    return f"{line.last.device or ''} {line.last.case}"


def line_strip(known: Known, line: CaseLine, first: int) -> Markup:
    """The runs of a case, each in its place."""
    marks, said = [" "] * (known.last + 1 - first), [""] * (known.last + 1 - first)
    for one in line.seen:
        if one.at >= first:
            marks[one.at - first], said[one.at - first] = mark_of(one), _said(one.last)
    return strip(marks, said, [known.day(at) for at in range(first, known.last + 1)])


def _said(attempt: Attempt) -> str:
    why = f" ({attempt.signature})" if attempt.is_bad else ""
    return f"{attempt.outcome}{why}; {said_versions(versions_of(attempt))}"


def _curves(known: Known, line: CaseLine, first: int) -> Iterator[Markup]:
    runs = [one for one in line.seen if one.at >= first]
    for figure in FIGURES:
        values = [one.last.figures.get(figure) for one in runs]
        if any(values):

            def said(place: int, figure: str = figure, values: Sequence[Any] = values) -> str:
                one = runs[place]
                versions = said_versions(versions_of(one.last))
                return f"{_figure(values[place], figure)} on {known.day(one.at)}, {versions}"

            drawn = curve(values, said, f"{figure}, {_on(line.last)}")
            if drawn:
                yield drawn


def _on(attempt: Attempt) -> str:
    place = attempt.placement
    return f"{place.device} {place.backend}" if place else "no device"


def _figure(value: float | None, figure: str) -> str:
    if value is None:
        return "not measured"
    return f"{value / 1000:,.2f} ms" if figure.endswith("_us") else f"{value / _MIB:,.1f} MiB"


def cases_page(rows: Sequence[ListedTest]) -> str:
    """All tests of the last runs, those that fail before others."""
    told: list[list[Line]] = [
        [Links("").to("case", one.test, one.test, "code"), one.strip, one.said]
        for one in sorted(rows, key=lambda one: (not one.fails, one.test))[:_MOST_TESTS]
    ]
    table = Table("", ("Test", "Runs, the newest to the right", "Now"), told, "plain long")
    return framed("Cases", [Heading("Cases", 1), table], here="Cases", up="")


def case_row(known: Known, test: str, lines: Sequence[CaseLine]) -> ListedTest:
    """A test in the list: of each run the worst that one of its cases came to."""
    first = max(0, known.last + 1 - MARKS)
    marks = [" "] * (known.last + 1 - first)
    for one in (one for line in lines for one in line.seen if one.at >= first):
        marks[one.at - first] = max(marks[one.at - first], mark_of(one), key=_WORST.index)
    return ListedTest(test, strip(marks), state_said(known, lines), any(one.fails for one in lines))


NOTE: Final = "site.json"
_MAX_BYTES: Final = 256 << 20


@dataclass
class Built:
    """How many pages of the site in a folder were written, and how many were as they ought to be
    already."""

    out: Path
    written: int = 0
    kept: int = 0
    seconds: float = 0.0

    def write(self, name: str, page: str) -> None:
        """Write a page, unless it is there."""
        path, data = self.out / name, page.encode("utf-8", "replace")
        if path.is_file() and path.read_bytes() == data:
            self.kept += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        self.written += 1


class NightWritten(Part):
    """A night whose page is written: the digest of all that it is made of, and its sentence."""

    digest: str
    said: str


class SiteNote(Part):
    """What a site remembers of the nights that it has pages of, by the ids of their runs."""

    schema_number: Schema1 = 1
    kind: Literal["site"] = "site"
    nights: Mapping[str, NightWritten] = {}

    @classmethod
    def read(cls, out: Path) -> SiteNote:
        """That of a folder; an empty one where there is none that can be read."""
        try:
            return parse_model(cls, read_bounded(out / NOTE, _MAX_BYTES))
        except (OSError, ValueError):
            return cls()


@uncollected()
def build(database: Database, out: Path) -> Built:
    """Makes the site say what the history says. Raises InfraError."""
    began, site = time.monotonic(), Built(out)
    runs, nights, note = runs_held(database), nights_held(database), SiteNote.read(out)
    try:
        kept = keep_pages(database, nights, out)
        digests = dict(_digests(runs, nights, kept))
        anew = [
            at
            for at, one in enumerate(runs)
            if one.run not in note.nights or note.nights[one.run].digest != digests[one.run]
        ]
        told = min([max(0, len(runs) - MARKS), *anew])
        new = {at: nights[one.run].new for at, one in enumerate(runs) if one.run in nights}
        with Harvest(max(0, len(runs) - MARKS), new) as gathered:
            known = Known(
                runs,
                gathered,
                device_rows(database, runs, max(0, len(runs) - WINDOW)),
                nights,
                causes_held(database, runs),
                kept,
            )
            _of_cases(site, database, known, told)
            _of_the_rest(site, known, told)
            said = {run: one for run, one in note.nights.items() if run in digests}
            for at in anew:
                run, changes = runs[at].run, gathered.of_night(at)
                site.write(page_of("night", run), night_page(known, at, changes))
                said[run] = NightWritten(digest=digests[run], said=sentence(known, at, changes))
            site.write(
                "nights.html", nights_page(known, {run: one.said for run, one in said.items()})
            )
            site.write(FRONT, front_page(known))
            write_whole(out / NOTE, SiteNote(nights=said).model_dump_json(by_alias=True).encode())
    except OSError as error:
        raise InfraError(f"the site cannot be written: {error}") from error
    site.seconds = time.monotonic() - began
    return site


def _digests(
    runs: Sequence[RunHeld], nights: Mapping[str, NightTold], kept: KeptPages
) -> Iterator[tuple[str, str]]:
    """What tells whether the page of a run would be another one: its own cases, what was before it,
    what its night said, and how pages look."""
    look = hashlib.sha256((__version__ + framed("", ())).encode()).hexdigest()
    before = look
    for one in runs:
        night = nights.get(one.run)
        parts = (
            before,
            one.run,
            one.digest,
            str(one.not_run),
            night.model_dump_json() if night else "",
            kept.run(one.run) + kept.comparison(night.night if night else ""),
        )
        yield one.run, hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()
        before = look + one.run


def _of_cases(site: Built, database: Database, known: Known, told: int) -> None:
    """Gathers what became of cases, and writes their pages on the way: none is held for longer."""
    first, listed = max(0, min(told - MARKS, len(known.runs) - WINDOW)), list[ListedTest]()
    for test, kins in lines_by_test(database, known.runs, first):
        known.gathered.take(kins, told, database, known.runs[:first])
        for kin in kins:
            for line in kin.drawn:
                if line.turned == line.seen[0].at:  # it may have been so before what is drawn
                    runs = known.runs[: line.turned] if line.fails else ()
                    through = CaseLine.of([*earlier_runs(database, runs, kin, line), *line.seen])
                    line.turned = through.turned if through.good else -1
        if lines := [line for kin in kins for line in kin.drawn]:
            site.write(page_of("case", test), case_page(known, test, lines))
            listed.append(case_row(known, test, lines))
    known.gathered.index()
    site.write("cases.html", cases_page(listed))


def _of_the_rest(site: Built, known: Known, told: int) -> None:
    for one in known.causes:
        # of one that was gone before its page was last written, nothing has changed
        if one.last >= told - 1 or not (site.out / page_of("cause", one.cause)).is_file():
            site.write(page_of("cause", one.cause), cause_page(known, one))
    site.write("causes.html", causes_page(known))
    for device in known.device_names():
        site.write(page_of("device", device), device_page(known, device))
    site.write("devices.html", devices_page(known))
    blocks = Heading("Bisections", 1), bisection_table(known.kept.bisections, "reports/")
    site.write("bisections.html", framed("Bisections", blocks, here="Bisections", up=""))
