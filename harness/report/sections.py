"""The sections of report.html with lists and tables (pure)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

import pluggy
from markupsafe import Markup

from harness.core import hooks
from harness.core.error_codes import DOCUMENTED
from harness.core.errors import raised_text
from harness.core.notices import ONCE
from harness.core.outgoing_text import counted
from harness.core.socs import claim_of, limits_of_simulation
from harness.lab.health import DeviceEvent
from harness.report.document import Block, Heading, Line, Paragraph, Span, Table, clip, html
from harness.report.model_tables import figure_blocks, ops_tables
from harness.report.summary import event_lines, part_of
from harness.results.coverage import Coverage
from harness.results.journal import Contents, Records
from harness.results.output_drift import Output, drift
from harness.results.record import CaseRecord, is_figure
from harness.results.run_folder import RunFolder
from harness.runtimes.runtime import version_key

_MOST_RETRIES: Final = 500
_MAX_SHOWN_CHARS: Final = 4000
_SHORT_CHARS: Final = 160


def remarks(drifting: int, simulated: int) -> list[str]:
    """Return sentences for the head of the page for which no case fails.

    `drifting` outputs are not the same everywhere, `simulated` cases passed with contexts that no
    device takes.
    """
    lines = []
    if drifting:
        lines.append(
            f"{counted(drifting, 'output is', 'outputs are')} not the same everywhere; see Drift."
        )
    if simulated:
        words = "passed with contexts that a simulator accepts, but no device with this HTP."
        lines.append(f"{simulated} {words}")
    return lines


def simulated_limits(cases: Iterable[CaseRecord]) -> list[Block]:
    """Return what a run leaves open on memory, if only simulated devices have measured it."""
    by_target: dict[str | None, list[str]] = {}
    for record in cases:
        code = record.error.code if record.error is not None else None
        if claim_of(code) == "capacity":
            if record.device is None or not record.device.simulated or record.placement is None:
                return []
            by_target.setdefault(record.device.target, []).append(record.placement.qnn)
    limits = (limits_of_simulation("capacity", *of_target) for of_target in by_target.items())
    return [Paragraph([f"Of memory: {words}."]) for words in limits]


def earlier_attempts(records: Iterable[CaseRecord]) -> list[Block]:
    """Return a table of the attempts that were not the last ones."""
    rows: list[list[Line]] = [
        [
            Span(record.outcome, mark=record.state),
            record.case,
            str(record.attempt),
            clip(record.error.message, _SHORT_CHARS) if record.error else "",
        ]
        for record in islice(records, _MOST_RETRIES)
    ]
    return [Table("", ("Outcome", "Case", "Attempt", "Why"), rows)] if rows else []


def device_lines(events: Iterable[DeviceEvent]) -> list[Block]:
    """Return a line for each device that was not well."""
    return [Paragraph(Span(line)) for line in event_lines(events, width=_MAX_SHOWN_CHARS)]


def settings(info: Mapping[str, Any]) -> list[Block]:
    """Return run.json as a table."""
    rows = [[str(name), shown(value)] for name, value in info.items()]
    title = "Versions, devices and settings"
    return [Table(title, ("Name", "Value"), rows, folded=True)] if rows else []


def shown(value: object) -> str:
    """Format a value of run.json, which can be anything."""
    return f"{value:,}" if is_figure(value) else clip(value, _MAX_SHOWN_CHARS)


_MOST_TABLES: Final = 40
_MOST_ROWS: Final = 200
_OPEN: Final = 2
_MARKS: Final = {"held": "passed", "broken": "failed"}


NamedSpan = tuple[str, Span]
"""The name of a column, and a cell."""


def pairings(cases: Iterable[CaseRecord]) -> list[Table]:
    """Return the documented table of memory types, with measured values."""
    documented = {
        f"{prepare} -> {execute}": entry for (prepare, execute), entry in DOCUMENTED.items()
    }

    def name(case: CaseRecord) -> str:
        return f"{case.axes.get('prepare')} -> {case.axes.get('execute')}"

    def row(case: CaseRecord) -> Iterator[NamedSpan]:
        entry, measured = documented[name(case)], case.measurements
        yield "Prepared -> executed", Span(name(case))
        yield "Outcome", _outcome(case)
        at_first = "at the first inference" if entry.at_first_inference else "never"
        yield "I/O allocated, as documented", Span("at load" if entry.at_load else at_first)
        yield "At load", _growth(case, "io_allocated_at_load", "before", "loaded")
        grown = _growth(case, "io_allocated_at_first_inference", "bound", "first")
        yield "At the first inference", grown
        yield "Copied, as documented", Span("yes" if entry.copied else "no")
        copies = measured.get("copies_shown")
        copied = _checked(case, "copies_per_inference", f"{copies}" if is_figure(copies) else "")
        yield "Copies seen", copied
        yield "First inference", Span(_time(measured.get("first_inference_us")))
        steady = _checked(case, "steady_latency_same", _time(measured.get("steady_p50_us")))
        yield "Then, p50", steady

    ours = [case for case in cases if name(case) in documented]
    return _tables(ours, ("prepare", "execute"), row)


def sharings(cases: Iterable[CaseRecord]) -> list[Table]:
    """Return tables of the memory that sharing spill-fill buffers should save, and did."""

    def row(case: CaseRecord) -> Iterator[NamedSpan]:
        measured = case.measurements
        yield "Strategy", Span(str(case.axes.get("strategy", "")))
        yield "Outcome", _outcome(case)
        yield "Spill-fill expected", Span(_bytes(measured.get("expected_spill_fill_bytes")))
        shared = _grown(measured, "before", "executed")
        alone = _grown(part_of(case, "reference"), "before", "executed")
        yield "Shared buffers", _growth(case, "memory_given_back", "before", "executed")
        yield "Without sharing", Span(_bytes(alone))
        yield "To be saved", Span(_bytes(measured.get("expected_saving_bytes")))
        saved = alone - shared if alone is not None and shared is not None else None
        yield "Saved", _judged(_checked(case, "memory_saved", _bytes(saved)))
        yield "Given back", _checked(case, "memory_given_back", "")
        yield "Outputs", _checked(case, "outputs_equal", "")

    ours = [case for case in cases if "expected_saving_bytes" in case.measurements]
    return _tables(ours, ("strategy",), row)


def drift_tables(outputs: Sequence[Output]) -> list[Table]:
    """Return a row for each output that is not the same everywhere, device and backend."""
    drifting = [output for output in outputs if output.drifts]
    if not drifting:
        return []
    versions = sorted(
        {point.qnn for output in drifting for point in output.points}, key=version_key
    )
    rows = []
    for output in drifting:
        rows_of: dict[tuple[str, str], dict[str, Span]] = {}
        for point in output.points:
            variants = point.variants
            mark = "error" if len(variants) > 1 else "failed" if variants[0] else "passed"
            cells = rows_of.setdefault((point.device, point.backend), {})
            cells[point.qnn] = Span(output.describe(point), mark)
        for place, cells in rows_of.items():
            titles = [Span(f"{output.context}, {output.output}"), Span(" ".join(place))]
            rows.append([*titles, *(cells.get(version, Span("")) for version in versions)])
    rows = rows[:_MOST_ROWS]
    head = ("Output", "Where", *(f"QNN {version}" for version in versions))
    return [Table("", head, rows, "measured")]


def _tables(
    ours: Sequence[CaseRecord],
    axes: Sequence[str],
    row: Callable[[CaseRecord], Iterator[NamedSpan]],
) -> list[Table]:
    """Return a table for each set of cases that differ in these axes only, if one was judged."""
    names = dict.fromkeys(name for case in ours for name in case.axes if name not in axes)
    apart = [name for name in names if len({_text(case.axes.get(name)) for case in ours}) > 1]
    groups: dict[str, list[CaseRecord]] = {}
    for case in ours:
        named = [f"{name} {_text(case.axes.get(name))}" for name in apart]
        place = ", ".join([case.device.name if case.device else "?", *named])
        groups.setdefault(place, []).append(case)
    judged = {place: sum(bool(case.checks) for case in cases) for place, cases in groups.items()}
    places = [place for place in sorted(groups, key=lambda place: -judged[place]) if judged[place]]
    return [
        Table(
            place,
            [name for name, _ in row(groups[place][0])],
            [
                [replace(first, link=f"#case={quote(case.case)}"), *others]
                for case in groups[place][:_MOST_ROWS]
                for first, *others in [[cell for _, cell in row(case)]]
            ],
            "measured",
            folded=number >= _OPEN,
        )
        for number, place in enumerate(places[:_MOST_TABLES])
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _outcome(record: CaseRecord) -> Span:
    return Span(record.state, record.state, record.error.message if record.error else "")


def _checked(record: CaseRecord, name: str, text: str) -> Span:
    """Return a figure with the verdict of its check; the worst one of several."""
    checks = [check for check in record.checks if check.name.partition("[")[0] == name]
    verdicts = [check.verdict for check in checks]
    worst = next((verdict for verdict in ("broken", "unseen", "held") if verdict in verdicts), None)
    if worst is None:
        return Span(text)
    reason = next(check.reason for check in checks if check.verdict == worst)
    return Span(text or worst, _MARKS.get(worst, "skipped"), reason)


def _growth(record: CaseRecord, check: str, start: str, end: str) -> Span:
    return _judged(_checked(record, check, _bytes(_grown(record.measurements, start, end))))


def _judged(cell: Span) -> Span:
    if cell.mark in _MARKS.values():
        return cell
    return replace(cell, text="unseen" if cell.mark else "")


def _grown(measured: Mapping[str, Any], start: str, end: str) -> int | None:
    samples = measured.get("shared_buffer_bytes")
    known = samples if isinstance(samples, dict) else {}
    before, after = known.get(start), known.get(end)
    return after - before if type(after) is int and type(before) is int else None


def _bytes(value: object) -> str:
    return f"{value / 1e6:,.2f} MB" if is_figure(value) else ""


def _time(value: object) -> str:
    if not is_figure(value):
        return ""
    return f"{value:,.0f} µs" if value < 1000 else f"{value / 1000:,.2f} ms"


@dataclass(frozen=True)
class Since:
    """The changes of cases since an earlier run, `base`.

    `became` has the category of each case of either run (`Category` of history). `not_run` are the
    cases that were not run this time, `titles` the words for the categories that are listed.
    """

    base: str
    became: Mapping[str, str]
    not_run: tuple[str, ...]
    titles: Mapping[str, str]


@dataclass(frozen=True)
class RunData:
    """A run's journal and run.json, and further data for its reports.

    `folder` has its logs and outputs; without it these are left out. `since` are the changes since
    an earlier run, None if there is none. `summary` are lines for a terminal.
    """

    run: str
    contents: Contents
    info: Mapping[str, Any] = field(default_factory=dict)
    folder: RunFolder | None = None
    since: Since | None = None
    summary: Sequence[str] = ()

    @cached_property
    def cases(self) -> Records:
        return self.contents.cases

    @cached_property
    def coverage(self) -> Coverage:
        return self.contents.tally.coverage(self.info)


_log = logging.getLogger(__name__)
_HOOK: Final = "qnn_report_sections"


@dataclass(frozen=True)
class Section:
    """A section of report.html, which is left out if it is empty.

    `make` returns its content, given the records of the run's cases, the last attempt at each: a
    text, blocks such as `Table` (`harness.report.document`), or both. A text is escaped, unless it
    is `markupsafe.Markup`. With `above_cases` it stands before the table of all cases.
    """

    title: str
    make: Callable[[Iterable[CaseRecord]], str | Block | Iterable[str | Block]]
    above_cases: bool = False
    plugin: str = field(default="", kw_only=True)

    def html(self, cases: Iterable[CaseRecord]) -> Markup:
        """Return it with its heading. If that fails, log the plug-in and the error, and say so."""
        try:
            content = self.make(cases)
            blocks = [content] if isinstance(content, str | Block) else [*content]
            body = html(
                Paragraph(Span(block))
                if isinstance(block, str) and not isinstance(block, Markup)
                else block
                for block in blocks
            )
        except Exception as error:
            where = f"plug-in {self.plugin}: section {self.title!r} of report.html"
            text = raised_text(where, error)
            _log.warning("%s", text, extra=ONCE)
            body = html([Paragraph(Span(f"This section could not be made: {text}", style="bad"))])
        return html([Heading(Span(self.title))]) + body if body else body


def sections_of(run: RunData) -> Iterator[Section]:
    """Yield the sections of a run's page: the harness's own, then those of plug-ins.

    A plug-in that fails has a section that says so.
    """
    hooks.add(sys.modules[__name__], __name__)
    calls = sorted(hooks.calls(_HOOK, run=run), key=lambda pair: pair[0] != __name__)
    for plugin, call in calls:
        try:
            for section in call() or ():
                if not isinstance(section, Section):
                    raise TypeError(f"{section!r:.80} is not a Section of {__name__}")
                yield replace(section, plugin=plugin)
        except Exception as error:
            yield Section(plugin, partial(_raise, error), plugin=plugin)


def _raise(error: Exception, _: Iterable[CaseRecord]) -> str:
    raise error


@pluggy.HookimplMarker("pytest")
def qnn_report_sections(run: RunData) -> list[Section]:
    """Return the harness's own sections."""
    return [
        Section("Accuracy and speed", partial(figure_blocks, page=True), above_cases=True),
        Section("Slowest ops", partial(ops_tables, page=True)),
        Section("Memory types", pairings),
        Section("Sharing", sharings),
        Section(
            "Drift: outputs that are not the same everywhere",
            lambda cases: drift_tables(outputs_in(run, cases)),
        ),
        Section("Earlier attempts", lambda _: earlier_attempts(run.contents.earlier)),
        Section("Devices", lambda _: device_lines(run.contents.events)),
        Section("Limits of simulation", simulated_limits),
        Section("Run", lambda _: settings(run.info)),
    ]


def outputs_in(run: RunData, cases: Iterable[CaseRecord]) -> list[Output]:
    """Return the outputs that cases kept, compared with each other."""
    return drift(cases, run.folder.kept_output) if run.folder else []
