"""The pages of the site: nights, cases, causes and devices, written where their words changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

from markupsafe import Markup

from harness import __version__
from harness.core.bounded_json import parse_model
from harness.core.errors import InfraError
from harness.core.files import read_bounded, write_whole
from harness.core.json_record import Part, Schema1
from harness.core.outgoing_text import counted
from harness.history.attempts import FIGURES
from harness.history.case_states import format_versions, versions_of
from harness.history.comparison_text import reasons_text
from harness.history.database import Database, DeviceSummary, NightSummary, load_nights
from harness.history.importing import list_runs
from harness.history.run_changes import (
    WINDOW,
    ChangeStore,
    DeviceRow,
    StandingCounts,
    StoredCause,
    device_rows,
    earlier_runs,
    list_causes,
)
from harness.history.timeline import MARKS, CaseLine, NightChange, StoredRun, mark_of
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
    day_and_minute,
    joined,
    prose,
)
from harness.results.coverage import Coverage
from harness.results.journal import without_gc
from harness.site.pages import (
    COMPARISON,
    FRONT,
    STRIP_LEGEND,
    Links,
    SiteData,
    by_cause,
    changes_table,
    copied_page,
    copy_pages,
    curve,
    page_of,
    render_page,
    short_name,
    strip,
    title_of,
)

_MOST: Final = 2000
_CAUSE_COLUMNS: Final = ("What", "Test", "Cases", "Runs", "First seen", "Last seen")


def cause_blocks(site: SiteData, cause: StoredCause) -> Iterator[Block]:
    """Yield the page of a cause."""
    links, error = Links(), cause.record
    yield Heading([Span("", mark=cause.outcome), Span(title_of(cause), style="code")], 1)
    if now := cause.cases.get(site.last, 0):
        yield Paragraph(f"{counted(now, 'case')} in the last run.", "verdict bad")
    else:
        yield Paragraph(f"Gone; last seen {site.day(cause.last)}.", "verdict")
    first, last = (
        links.to("night", site.runs[i].run, site.day(i)) for i in (cause.first, cause.last)
    )
    runs = counted(len(cause.cases), "run")
    yield Paragraph([f"In {runs}: first ", first, ", last ", last, "."])
    if cause.diagnosis is not None:
        yield Paragraph(["Its diagnosis: ", Span(cause.diagnosis, style="code")])
    if error is not None and error.diagnosis is not None:
        yield Paragraph([Span(error.diagnosis.words, style="strong")])
        if error.diagnosis.fix:
            yield Paragraph(["What helps: ", *prose(error.diagnosis.fix)])
    if error is not None:
        yield CodeBlock([error.message])
    changes = site.store.changes("cause", cause.cause)
    last_changes = [
        change for change in changes if change.run_index == site.last and change.became != "fixed"
    ]
    yield from by_cause(site, last_changes, links)
    if changes:
        yield Heading("What happened lately")
        yield changes_table(site, changes, links)


def causes_page(site: SiteData) -> str:
    """Return the list of causes by diagnosis, the last seen first."""
    links, rows = Links(""), list[list[Line]]()
    newest = {cause.diagnosis: cause.last for cause in reversed(site.causes)}
    for cause in sorted(
        site.causes, key=lambda cause: (-newest[cause.diagnosis], cause.diagnosis or "~")
    ):
        known = site.diagnoses.get(cause.cause)
        title: Line = [
            Span("", mark=cause.outcome),
            links.to("cause", cause.cause, known.words if known else title_of(cause)),
            " ",
            Span(cause.diagnosis or "", style="dim"),
        ]
        test = Span(short_name(cause.test.partition("[")[0]), style="code")
        cases, runs = str(cause.cases[cause.last]), str(len(cause.cases))
        rows.append([title, test, cases, runs, site.day(cause.first), site.day(cause.last)])
    table = Table("", _CAUSE_COLUMNS, rows[:_MOST], "plain long dated")
    return render_page("Causes", [Heading("Causes", 1), table], here="Causes", up="")


_GB: Final = 1e9
_SHOWN: Final = 30
_DEVICE_COLUMNS: Final = (
    *("Night", "State", "Finding", "Passed", "Failed", "No verdict", "Busy", "Hottest", "Battery"),
    *("Storage free", "Link faults", "Recoveries", "Quarantined"),
)
_LISTED: Final = ("Device", "SoC", "Host", "Nights, the newest to the right", "State")
_FIGURES: Final[dict[str, Callable[[DeviceRow], float | None]]] = {
    "hottest, °C": lambda row: row.hottest_c,
    "battery, %": lambda row: row.battery_percent,
    "storage free, GB": lambda row: row.free_storage_bytes and row.free_storage_bytes / _GB,
    "busy, %": lambda row: 100 * row.busy_s / row.span_s if row.span_s else None,
}


def device_blocks(site: SiteData, device: str) -> Iterator[Block]:
    """Yield the page of a device."""
    links, places = Links(), _places(site, device)
    last = places[-1]
    changes = [change for change in site.store.of_night(last) if change.device == device]
    row, state = site.devices.get((device, last)), state_of_device(site, device)
    bad = [change for change in changes if change.became in ("new", "still", "flaky")]
    expected = sum(change.became == "known" for change in changes)
    yield Heading(["Device ", Span(device, style="code")], 1)
    lost = site.store.by_device.get((device, last), StandingCounts()).lost
    results = [counted(len(bad), "failure")] if bad else []
    results += [counted(expected, "expected failure")] if expected else []
    results = results or ["no failure"]
    results += [f"{lost} without a verdict"] if lost else []
    result = f"{', '.join(results)} on {site.day(last)}"
    well = f"{state.state} since {state.since[:10]}" if state.since else state.state
    ill = bool(bad or state.state != "good")
    yield Paragraph(f"{well[:1].upper()}{well[1:]}; {result}.", "verdict bad" if ill else "verdict")
    if state.why:
        yield Paragraph(Span(state.why))
    if row is not None:
        yield Paragraph(
            Span(f"{row.soc or 'SoC unknown'}, on {row.host or 'this computer'}"), "dim"
        )
    yield from by_cause(site, changes, links)
    yield Heading("Night by night")
    rows = [_night(site, device, i, links) for i in reversed(places)]
    yield Table("", _DEVICE_COLUMNS, rows, "cross found")


def _places(site: SiteData, device: str) -> list[int]:
    least = site.last - WINDOW
    runs = {i for name, i in (*site.store.by_device, *site.devices) if name == device}
    return sorted(i for i in runs if i > least) or sorted(runs)[-1:]


def _night(site: SiteData, device: str, index: int, links: Links) -> list[Line]:
    counts = site.store.by_device.get((device, index), StandingCounts())
    failed = counts["failed"] + counts["known"]
    run, row = site.runs[index], site.devices.get((device, index))
    words: list[Line] = [row.state or "", Span(row.finding or "")] if row else ["", ""]
    cells: list[Line] = [links.to("night", run.run, run.started[:10]), *words]
    cells.append(str(counts["passed"]))
    cells += [Span(str(count), style="bad" if count else "dim") for count in (failed, counts.lost)]
    if row is None:
        return cells + [""] * (len(_DEVICE_COLUMNS) - len(cells))
    *others, busy = _FIGURES.items()
    for title, figure in (busy, *others):
        value, unit = figure(row), title.rpartition(" ")[2]
        cells.append("" if value is None else f"{value:,.0f} {unit}")
    marks = (row.link_faults, row.recoveries, row.quarantines)
    cells += [Span(str(count), style="bad" if count else "dim") for count in marks]
    return cells


def state_of_device(site: SiteData, device: str) -> DeviceSummary:
    """Return the state of a device by the last night, or else by its own last event."""
    for i in range(site.last, max(-1, site.last - WINDOW), -1):
        night = site.nights.get(site.runs[i].run)
        if night is not None and device in night.devices:
            return night.devices[device]
        row = site.devices.get((device, i))
        if row is not None and row.state:
            why = "" if row.state == "good" else row.finding or ""
            return DeviceSummary(state=row.state, since=site.runs[i].started, why=why)
    return DeviceSummary(state="state unknown", since="")


def unwell_devices(site: SiteData, index: int) -> list[tuple[str, str]]:
    """Return the devices that were not well in a night, and their states."""
    night = site.nights.get(site.runs[index].run)
    devices = dict(night.devices) if night is not None else {}
    if night is None and index == site.last_night:
        devices = {name: state_of_device(site, name) for name in site.device_names()}
    return [(name, device.summary) for name, device in devices.items() if device.state != "good"]


def devices_page(site: SiteData) -> str:
    """Return the list of devices: their hosts, results and states."""
    links, rows = Links(""), list[list[Line]]()
    for device in site.device_names():
        state, places = state_of_device(site, device), _places(site, device)
        row = site.devices.get((device, places[-1])) if places else None
        shown = range(max(0, site.last + 1 - _SHOWN), site.last + 1)
        cells: list[Line] = [[links.to("device", device)]]
        cells += [(row and row.soc) or "", (row and row.host) or ""]
        cells.append(strip([_mark(site, device, i) for i in shown]))
        word = Span(state.state, style="plain" if state.state == "good" else "bad")
        rows.append([*cells, [word, " ", Span(state.why)]])
    table = Table("", _LISTED, rows, "stacked long")
    heading = Heading("Devices", 1)
    return render_page("Devices", [heading, STRIP_LEGEND, table], here="Devices", up="")


def _mark(site: SiteData, device: str, index: int) -> str:
    counts = site.store.by_device.get((device, index))
    if not counts:
        return " "
    return "F" if counts["failed"] else "?" if counts.lost else "x" if counts["known"] else "."


_GRID_NIGHTS: Final = 14
_OUTCOMES: Final = {"F": "failed", "?": "error", "x": "expected", ".": "passed"}


def _night_grid(site: SiteData) -> Iterator[Block]:
    """Yield a grid of devices and their last nights, whose cells lead to the nights."""
    recent = range(max(0, site.last_night + 1 - MARKS), site.last_night + 1)
    nights = [i for i in recent if site.is_night(i)][-_GRID_NIGHTS:]
    rows: list[list[Line]] = []
    for device in site.device_names() if len(nights) > 1 else ():
        row: list[Line] = [Links("").to("device", device)]
        for i in nights:
            counts = site.store.by_device.get((device, i), StandingCounts())
            size = counts["failed"] or counts.lost or counts["known"] or counts["passed"]
            link = Links("").to("night", site.runs[i].run, str(size))
            row.append(replace(link, mark=_OUTCOMES.get(_mark(site, device, i))) if counts else "")
        rows.append(row)
    if rows:
        yield Heading("Last nights")
        yield Table("", ("Device", *(site.day(i)[5:] for i in nights)), rows, "heat")
        yield Paragraph("In a cell: how many failed, else got no verdict, or passed.", "dim")


_ALL_NIGHTS: Final = 5000


def front_page(site: SiteData) -> str:
    """Return the front page: the last night."""
    if not site.runs:
        return render_page(
            "qnn-harness", [Heading("There are no runs yet", 1)], here="Last night", up=""
        )
    index, links = site.last_night, Links("")
    changes = site.store.of_night(index)
    blocks: list[Block] = [*night_blocks(site, index, changes, links)]
    night = site.nights.get(site.runs[index].run)
    if night is not None and night.warnings:
        blocks += [Heading("What went wrong besides")]
        blocks.append(Items([Item(Span(problem)) for problem in night.warnings]))
    blocks += _night_grid(site)
    return render_page(sentence(site, index, changes), blocks, here="Last night", up="")


def nights_page(site: SiteData, sentences: Mapping[str, str]) -> str:
    """Return the list of nights, the newest first; `sentences` has that of each by its run."""
    rows: list[list[Line]] = []
    for run in reversed(site.runs[-_ALL_NIGHTS:]):
        night = Links("").to("night", run.run, day_and_minute(run.started))
        rows.append([night, sentences.get(run.run, ""), Span(run.run, style="code")])
    table = Table("", ("Started", "Result", "Run"), rows, "plain long")
    return render_page("Nights", [Heading("Nights", 1), table], here="Nights", up="")


def sentence(site: SiteData, index: int, changes: Sequence[NightChange]) -> str:
    """Return the verdict of a night, or else the result of a run with these changes."""
    night = site.nights.get(site.runs[index].run)
    new = len({change.case for change in changes if change.became == "new"})
    text = (night.verdict if night else "") or _coverage(site, index).headline(new)
    return f"{text[:1].upper()}{text[1:]}."


def _coverage(site: SiteData, index: int) -> Coverage:
    return site.store.by_run[index].coverage(site.runs[index].not_run)


def night_blocks(
    site: SiteData, i: int, changes: Sequence[NightChange], links: Links
) -> Iterator[Block]:
    """Yield the page of a run with these changes."""
    run = site.runs[i]
    coverage, night = _coverage(site, i), site.nights.get(run.run)
    bad = any(change.became == "new" for change in changes) or bool(coverage.flaky)
    bad = bool(night.exit_code) if night else bad or not coverage.is_whole
    kind = "Night" if site.is_night(i) else "Run"
    yield Heading([f"{kind} of {day_and_minute(run.started)} ", Span(run.run, style="code")], 1)
    yield Paragraph(sentence(site, i, changes), "verdict bad" if bad else "verdict")
    if night is not None and night.failed_on:
        yield Paragraph(f"Fails because of: {reasons_text(night.failed_on)}.")
    if devices := unwell_devices(site, i):
        yield Items([Item([Span(name, style="code"), f": {state}"]) for name, state in devices])
    if night is not None and night.vanished:
        yield Heading("Vanished: cases that had a verdict before")
        yield Items([Item(Span(case, style="code")) for case in night.vanished])
    pages = [(site.copy(run.run), "report of this run, with each case")]
    comparison = site.copy(night.night if night else "", COMPARISON)
    pages.append((comparison, "comparison with the run before, with speed and memory"))
    if targets := [links.page(path, text) for path, text in pages if path]:
        yield Paragraph(["See the ", *joined(targets)])
    yield from by_cause(site, changes, links)


_MOST_LINES: Final = 300
_MOST_CURVES: Final = 24
_MOST_TESTS: Final = 20_000
_WORST: Final = " -.?x~F"


class ListedTest(NamedTuple):
    """A test in the list of tests."""

    test: str
    strip: Markup
    state: str
    fails: bool


def case_blocks(site: SiteData, test: str, lines: Sequence[CaseLine]) -> Iterator[Block]:
    """Yield the page of a test, made of its cases."""
    first, links = max(0, site.last + 1 - WINDOW), Links()
    yield Heading(Span(test, style="code"), 1)
    bad = [line for line in lines if line.fails]
    yield Paragraph(test_state(site, lines), "verdict bad" if bad else "verdict")
    rows: list[list[Line]] = []
    by_device = sorted(lines, key=lambda line: f"{line.last.device or ''} {line.last.case}")
    for line in by_device[:_MOST_LINES]:
        place, device = line.last.placement, line.last.device
        name = device or (place.device if place else "")
        where: list[Line] = [links.to("device", name) if device else name]
        where += [place.backend if place else "", line_strip(site, line, first)]
        now = Span(_ends(site, line), style="bad" if line.fails else "plain")
        rows.append([*where, now, format_versions(versions_of(line.last))])
    yield Heading(f"Its cases in the last {counted(site.last + 1 - first, 'run')}")
    columns = ("Device", "Backend", "Runs, the newest to the right", "Now", "Versions")
    yield Table("", columns, rows, "stacked")
    yield STRIP_LEGEND
    changes = site.store.changes("test", test)
    if changes:
        yield Heading("What happened")
        yield changes_table(site, changes, links)
    drawn = (graph for line in lines for graph in _curves(site, line, first))
    curves = list(islice(drawn, _MOST_CURVES))  # more are not even read
    if curves:
        yield Heading("Times and memory")
        yield Paragraph(Markup('<div class="curves">{}</div>').format(Markup("").join(curves)))


def test_state(site: SiteData, lines: Sequence[CaseLine]) -> str:
    """Return the state of a test, over all its cases."""
    failing = {line.last.device for line in lines if _fails(line) and line.last.device}
    flaky = sum(bool(line.case_state and line.case_state.is_flaky) for line in lines)
    devices = {line.last.device for line in lines if line.last.device}
    lost = {line.last.device for line in lines if line.last.fault and line.last.device}
    missing = f"; no verdict now on {counted(len(lost), 'device')}" if lost else ""
    also = f"; flaky: {flaky} of {counted(len(lines), 'case')}" if flaky else ""
    if failing:
        since = min(line.turned for line in lines if _fails(line))
        period = f"since {site.day(since)}" if since >= 0 else "in all stored runs"
        verb = "Fails" if failing - lost else "Failed until now"
        place = f"{verb} on {len(failing)} of {counted(len(devices), 'device')}"
        return f"{place}, {period}{also}{missing}."
    if flaky:
        return f"Flaky{also[7:]}{missing}."
    if all(not line.since for line in lines):
        return "Never had a verdict."
    if not (passing := devices - lost):
        return f"Passed until now{missing}."
    return f"Passes on {counted(len(passing), 'device')}{missing}."


def _fails(line: CaseLine) -> bool:
    return line.fails and not (line.case_state and line.case_state.is_flaky)


def _ends(site: SiteData, line: CaseLine) -> str:
    if not line.since:
        return "no verdict"
    state = line.case_state
    if state is not None and state.is_flaky:
        return f"flaky: {state.summary}"
    last = line.runs[-1].run_index
    last_run = "" if last == site.last else f", last run {site.day(last)}"
    lost = ", no verdict now" if line.last.fault else ""
    if line.turned < 0:
        always = "fails in all stored runs" if line.fails else "passes in all these runs"
        return f"{always}{lost}{last_run}"
    return f"{'fails' if line.fails else 'passes'} since {site.day(line.turned)}{lost}{last_run}"


def line_strip(site: SiteData, line: CaseLine, first: int) -> Markup:
    """Return the runs of a case as bars, from run index `first` on."""
    marks, texts = [" "] * (site.last + 1 - first), [""] * (site.last + 1 - first)
    for run in line.runs:
        if (i := run.run_index - first) >= 0:
            why = f" ({run.last.signature})" if run.last.is_bad else ""
            text = f"{run.last.outcome}{why}; {format_versions(versions_of(run.last))}"
            marks[i], texts[i] = mark_of(run), text
    return strip(marks, texts, [site.day(i) for i in range(first, site.last + 1)])


def _curves(site: SiteData, line: CaseLine, first: int) -> Iterator[Markup]:
    runs = [run for run in line.runs if run.run_index >= first]
    for figure in FIGURES:
        values = [run.last.figures.get(figure) for run in runs]
        if any(values):
            per, unit = (1e3, "ms") if figure.endswith("_us") else (1e6, "MB")
            placement = line.last.placement
            name = f"{placement.device} {placement.backend}" if placement else "no device"
            days = [site.day(run.run_index) for run in runs]
            text = partial("{1:,.2f} {0}".format, unit)
            figures = [None if value is None else value / per for value in values]
            versions = format_versions(versions_of(line.last))
            if drawn := curve(figures, days, text, f"{figure}, {name}", versions):
                yield drawn


def cases_page(rows: Sequence[ListedTest]) -> str:
    """Return the list of tests of the last runs, failing ones first."""
    cells: list[list[Line]] = [
        [Links("").to("case", test.test, test.test, "code"), test.strip, test.state]
        for test in sorted(rows, key=lambda test: (not test.fails, test.test))[:_MOST_TESTS]
    ]
    table = Table("", ("Test", "Runs, the newest to the right", "Now"), cells, "plain long")
    heading = Heading("Cases", 1)
    return render_page("Cases", [heading, STRIP_LEGEND, table], here="Cases", up="")


def case_row(site: SiteData, test: str, lines: Sequence[CaseLine]) -> ListedTest:
    """Return a test for the list, with the worst result of its cases in each run."""
    first = max(0, site.last + 1 - MARKS)
    marks = [" "] * (site.last + 1 - first)
    for run in (run for line in lines for run in line.runs if run.run_index >= first):
        i = run.run_index - first
        marks[i] = max(marks[i], mark_of(run), key=_WORST.index)
    fails = any(line.fails for line in lines)
    return ListedTest(test, strip(marks), test_state(site, lines), fails)


NOTE: Final = "site.json"
_MAX_BYTES: Final = 256 << 20


@dataclass
class SiteWriter:
    """Writes pages into a folder, and counts those that were written and those unchanged."""

    out: Path
    written: int = 0
    unchanged: int = 0
    seconds: float = 0.0

    def write(self, name: str, page: str) -> None:
        """Write a page, unless it is there already."""
        path, data = self.out / name, page.encode("utf-8", "replace")
        if path.is_file() and path.read_bytes() == data:
            self.unchanged += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        self.written += 1


class NightWritten(Part):
    """A night with a page: the digest of the page's data, and its sentence."""

    digest: str
    sentence: str


class SiteNote(Part):
    """The nights with pages in a site, by the ids of their runs."""

    schema_number: Schema1 = 1
    kind: Literal["site"] = "site"
    nights: Mapping[str, NightWritten] = {}

    @classmethod
    def read(cls, out: Path) -> SiteNote:
        """Read the note of a folder; return an empty one if that fails."""
        try:
            return parse_model(cls, read_bounded(out / NOTE, _MAX_BYTES))
        except (OSError, ValueError):
            return cls()


@without_gc()
def build(database: Database, out: Path) -> SiteWriter:
    """Update the site of a history. Raises InfraError."""
    start, writer = time.monotonic(), SiteWriter(out)
    runs, nights, note = list_runs(database), load_nights(database), SiteNote.read(out)
    try:
        copy_pages(database, nights, out)
        digests = dict(_digests(runs, nights, out))
        outdated = [
            i
            for i, run in enumerate(runs)
            if run.run not in note.nights or note.nights[run.run].digest != digests[run.run]
        ]
        first_index = min([max(0, len(runs) - MARKS), *outdated])
        new = {i: nights[run.run].new for i, run in enumerate(runs) if run.run in nights}
        store = ChangeStore(database, runs, max(0, len(runs) - MARKS), new)
        site = SiteData(
            runs,
            store,
            device_rows(database, runs, max(0, len(runs) - WINDOW)),
            nights,
            list_causes(database, runs),
            out,
        )
        _write_case_pages(writer, database, site, first_index)
        _write_other_pages(writer, site, first_index)
        written = {run: night for run, night in note.nights.items() if run in digests}
        for i in outdated:
            run, changes = runs[i].run, store.of_night(i)
            page = render_page(f"Night {run}", night_blocks(site, i, changes, Links()))
            writer.write(page_of("night", run), page)
            written[run] = NightWritten(digest=digests[run], sentence=sentence(site, i, changes))
        sentences = {run: night.sentence for run, night in written.items()}
        writer.write("nights.html", nights_page(site, sentences))
        writer.write(FRONT, front_page(site))
        note = SiteNote(nights=written)
        write_whole(out / NOTE, note.model_dump_json(by_alias=True).encode())
    except OSError as error:
        raise InfraError(f"the site cannot be written: {error}") from error
    writer.seconds = time.monotonic() - start
    return writer


def _digests(
    runs: Sequence[StoredRun], nights: Mapping[str, NightSummary], out: Path
) -> Iterator[tuple[str, str]]:
    """Yield a digest for the page of each run: of its cases, the run before it, its night's
    summary, and the look of pages."""
    look = hashlib.sha256((__version__ + render_page("", ())).encode()).hexdigest()
    before = look
    for run in runs:
        night = nights.get(run.run)
        parts = (
            before,
            run.run,
            run.digest,
            str(run.not_run),
            night.model_dump_json() if night else "",
            copied_page(out, run.run) + copied_page(out, night.night if night else "", COMPARISON),
        )
        yield run.run, hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()
        before = look + run.run


def _write_case_pages(writer: SiteWriter, database: Database, site: SiteData, start: int) -> None:
    """Store the changes of cases from run index `start` on, and write the pages of cases."""
    first, listed = max(0, min(start - MARKS, len(site.runs) - WINDOW)), list[ListedTest]()
    for test, groups in site.store.read(first, start):
        for group in groups:
            for line in group.drawn:
                # it may have ended so before the runs that are drawn
                if line.turned == line.runs[0].run_index:
                    runs = site.runs[: line.turned] if line.fails else ()
                    through = CaseLine.of([*earlier_runs(database, runs, group, line), *line.runs])
                    line.turned = through.turned if through.good else -1
        if lines := [line for group in groups for line in group.drawn]:
            page = render_page(short_name(test), case_blocks(site, test, lines))
            writer.write(page_of("case", test), page)
            listed.append(case_row(site, test, lines))
    writer.write("cases.html", cases_page(listed))


def _write_other_pages(writer: SiteWriter, site: SiteData, start: int) -> None:
    for cause in site.causes:
        # the page of a cause that was gone when it was last written has not changed
        page = page_of("cause", cause.cause)
        if cause.last >= start - 1 or not (writer.out / page).is_file():
            writer.write(page, render_page(title_of(cause), cause_blocks(site, cause)))
    writer.write("causes.html", causes_page(site))
    for device in site.device_names():
        page = render_page(device, device_blocks(site, device))
        writer.write(page_of("device", device), page)
    writer.write("devices.html", devices_page(site))
