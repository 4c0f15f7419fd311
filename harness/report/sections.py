"""The sections of report.html that are lists and tables, each made of what it is about (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from harness.core.codes import DOCUMENTED
from harness.core.outgoing_text import counted
from harness.core.socs import claim_of, limits_of_simulation
from harness.core.whole_file import read_json
from harness.report.document import Block, Heading, Line, Paragraph, Span, Table, clip, link
from harness.report.summary import part_of
from harness.results.coverage import Coverage
from harness.results.drift import Output
from harness.results.journal import Contents, Records
from harness.results.record import CaseRecord, is_figure
from harness.results.run_folder import RunFolder, ordered
from harness.runtimes.runtime import version_key

_MOST_RETRIES: Final = 500
_MAX_SHOWN_CHARS: Final = 4000
_SHORT_CHARS: Final = 160


def sections_of(sections: Mapping[str, Iterable[Block]]) -> Iterator[Block]:
    """Those that have anything to tell, each below its heading."""
    for heading, section in sections.items():
        if blocks := list(section):
            yield Heading(heading)
            yield from blocks


def remarks(drifting: int, simulated: int) -> list[str]:
    """What the head of the page says although no case fails for it, a sentence each.

    `drifting` outputs are not the same everywhere, `simulated` cases passed with contexts that no
    device takes.
    """
    said = []
    if drifting:
        said.append(
            f"{counted(drifting, 'output is', 'outputs are')} not the same everywhere: see Drift."
        )
    if simulated:
        words = "passed with contexts that a simulator takes, and no device with this HTP."
        said.append(f"{simulated} {words}")
    return said


def simulated_limits(cases: Iterable[CaseRecord]) -> list[Block]:
    """What a run leaves open of memory, where simulated devices alone tell it."""
    told: dict[str | None, list[str]] = {}
    for record in cases:
        code = record.error.code if record.error is not None else None
        if claim_of(code) == "capacity":
            if record.device is None or not record.device.simulated or record.placement is None:
                return []
            told.setdefault(record.device.target, []).append(record.placement.qnn)
    limits = (limits_of_simulation("capacity", *of_target) for of_target in told.items())
    return [Paragraph([f"Of memory: {words}."]) for words in limits]


def earlier_attempts(records: Iterable[CaseRecord]) -> list[Block]:
    """The attempts at cases that were not the last ones."""
    rows: list[list[Line]] = [
        [
            Span(one.outcome, mark=one.state),
            one.case,
            str(one.attempt),
            clip(one.error.message, _SHORT_CHARS) if one.error else "",
        ]
        for one in islice(records, _MOST_RETRIES)
    ]
    return [Table("", ("Outcome", "Case", "Attempt", "Why"), rows)] if rows else []


def settings(info: Mapping[str, Any]) -> list[Block]:
    """All that run.json says."""
    rows = [[str(name), shown(value)] for name, value in info.items()]
    title = "Versions, devices and settings"
    return [Table(title, ("Name", "Value"), rows, folded=True)] if rows else []


def shown(value: object) -> str:
    """A value of run.json, which could hold anything."""
    return f"{value:,}" if is_figure(value) else clip(value, _MAX_SHOWN_CHARS)


_MOST_TABLES: Final = 40
_MOST_ROWS: Final = 200
_OPEN: Final = 2
_MARKS: Final = {"held": "passed", "broken": "failed"}


NamedSpan = tuple[str, Span]
"""A cell, and what its column is called."""


def pairings(cases: Iterable[CaseRecord]) -> list[Table]:
    """The documented table of memory types, with what was measured in it."""
    documented = {
        f"{prepare} -> {execute}": told for (prepare, execute), told in DOCUMENTED.items()
    }

    def name(one: CaseRecord) -> str:
        return f"{one.axes.get('prepare')} -> {one.axes.get('execute')}"

    def row(one: CaseRecord) -> Iterator[NamedSpan]:
        told, seen = documented[name(one)], one.measurements
        yield "Prepared -> executed", Span(name(one))
        yield "Outcome", _outcome(one)
        at_first = "at the first inference" if told.at_first_inference else "never"
        yield "I/O allocated, as documented", Span("at load" if told.at_load else at_first)
        yield "At load", _growth(one, "io_allocated_at_load", "before", "loaded")
        grown = _growth(one, "io_allocated_at_first_inference", "bound", "first")
        yield "At the first inference", grown
        yield "Copied, as documented", Span("yes" if told.copied else "no")
        copies = seen.get("copies_shown")
        copied = _checked(one, "copies_per_inference", f"{copies}" if is_figure(copies) else "")
        yield "Copies seen", copied
        yield "First inference", Span(_time(seen.get("first_inference_us")))
        steady = _checked(one, "steady_latency_same", _time(seen.get("steady_median_us")))
        yield "Then, median", steady

    ours = [one for one in cases if name(one) in documented]
    return _tables(ours, ("prepare", "execute"), row)


def sharings(cases: Iterable[CaseRecord]) -> list[Table]:
    """What sharing spill-fill buffers was to save, and what it saved."""

    def row(one: CaseRecord) -> Iterator[NamedSpan]:
        seen = one.measurements
        yield "Strategy", Span(str(one.axes.get("strategy", "")))
        yield "Outcome", _outcome(one)
        yield "Spill-fill expected", Span(_bytes(seen.get("expected_spill_fill_bytes")))
        shared = _grown(seen, "before", "executed")
        own = _grown(part_of(one, "reference"), "before", "executed")
        yield "Shared buffers", _growth(one, "memory_given_back", "before", "executed")
        yield "Without sharing", Span(_bytes(own))
        yield "To be saved", Span(_bytes(seen.get("expected_saving_bytes")))
        saved = own - shared if own is not None and shared is not None else None
        yield "Saved", _told(_checked(one, "memory_saved", _bytes(saved)))
        yield "Given back", _checked(one, "memory_given_back", "")
        yield "Outputs", _checked(one, "outputs_equal", "")

    ours = [one for one in cases if "expected_saving_bytes" in one.measurements]
    return _tables(ours, ("strategy",), row)


def drift_tables(outputs: Sequence[Output]) -> list[Table]:
    """Outputs that are not the same everywhere: a row for each, device and backend."""
    drifting = [one for one in outputs if one.drifts]
    if not drifting:
        return []
    versions = sorted({point[2] for one in drifting for point in one.points}, key=version_key)
    rows = []
    for one in drifting:
        for place in dict.fromkeys(point[:2] for point in one.points):
            cells = [Span(f"{one.context}, {one.name}"), Span(" ".join(place))]
            for version in versions:
                seen = one.points.get((*place, version))
                if seen is None:
                    cells.append(Span(""))
                    continue
                mark = "error" if len(seen) > 1 else "failed" if seen[0] else "passed"
                cells.append(Span(one.said((*place, version)), mark))
            rows.append(cells)
    rows = rows[:_MOST_ROWS]
    head = ("Output", "Where", *(f"QNN {version}" for version in versions))
    return [Table("", head, rows, "measured")]


def _tables(
    ours: Sequence[CaseRecord],
    axes: Sequence[str],
    row: Callable[[CaseRecord], Iterator[NamedSpan]],
) -> list[Table]:
    """A table for all that differ in these axes only, if one of them could be judged."""
    names = dict.fromkeys(name for one in ours for name in one.axes if name not in axes)
    apart = [name for name in names if len({_text(one.axes.get(name)) for one in ours}) > 1]
    groups: dict[str, list[CaseRecord]] = {}
    for one in ours:
        named = [f"{name} {_text(one.axes.get(name))}" for name in apart]
        where = ", ".join([one.device.name if one.device else "?", *named])
        groups.setdefault(where, []).append(one)
    most_told = sorted(groups.items(), key=lambda one: -sum(bool(case.checks) for case in one[1]))
    told = [(where, found) for where, found in most_told if any(one.checks for one in found)]
    return [
        Table(
            where,
            [name for name, _ in row(found[0])],
            [_row_of(one, row) for one in found[:_MOST_ROWS]],
            "measured",
            folded=number >= _OPEN,
        )
        for number, (where, found) in enumerate(told[:_MOST_TABLES])
    ]


def _row_of(one: CaseRecord, row: Callable[[CaseRecord], Iterator[NamedSpan]]) -> list[Span]:
    first, *others = (cell for _, cell in row(one))
    return [replace(first, link=f"#case={quote(one.case)}"), *others]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _outcome(record: CaseRecord) -> Span:
    return Span(record.state, record.state, record.error.message if record.error else "")


def _checked(record: CaseRecord, name: str, text: str) -> Span:
    """A figure with what the check of it came to: the worst, where it was made several times."""
    found = [one for one in record.checks if one.name.partition("[")[0] == name]
    verdicts = [one.verdict for one in found]
    worst = next((one for one in ("broken", "unseen", "held") if one in verdicts), None)
    if worst is None:
        return Span(text)
    reason = next(one.reason for one in found if one.verdict == worst)
    return Span(text or worst, _MARKS.get(worst, "skipped"), reason)


def _growth(record: CaseRecord, check: str, start: str, end: str) -> Span:
    return _told(_checked(record, check, _bytes(_grown(record.measurements, start, end))))


def _told(cell: Span) -> Span:
    if cell.mark in _MARKS.values():
        return cell
    return replace(cell, text="unseen" if cell.mark else "")


def _grown(seen: Mapping[str, Any], start: str, end: str) -> int | None:
    samples = seen.get("shared_buffer_bytes")
    before, after = ((samples if isinstance(samples, dict) else {}).get(at) for at in (start, end))
    return after - before if type(after) is int and type(before) is int else None


def _bytes(value: object) -> str:
    return f"{value / 1e6:,.2f} MB" if is_figure(value) else ""


def _time(value: object) -> str:
    if not is_figure(value):
        return ""
    return f"{value:,.0f} µs" if value < 1000 else f"{value / 1000:,.2f} ms"


_RESULT = "result.json"
_RESULTS = f"*-bisect/{_RESULT}"
_MAX_BYTES = 64 << 20
_MOST = 200
_MAX_CHARS = 300


@dataclass(frozen=True)
class Listed:
    """A bisection as a list shows it; `link` is seen from the folder of reports."""

    name: str
    case: str
    axes: str
    answer: str
    runs: int
    link: str


def bisections_in(reports: Path) -> list[Listed]:
    """The bisections of a folder, the newest first, at most 200, without unreadable ones."""
    try:
        folders = ordered(file.parent for file in reports.glob(_RESULTS))[-_MOST:]
    except OSError:
        return []
    files = (one / _RESULT for one in reversed(folders))
    return [one for one in map(_read, files) if one is not None]


def of_cases(found: Iterable[Listed], cases: Iterable[str]) -> list[Listed]:
    """The bisections of these cases, with whatever parameters (pure)."""
    tests = {case.partition("[")[0] for case in cases}
    return [one for one in found if one.case.partition("[")[0] in tests]


def listed(found: Iterable[Listed], reports: str = "") -> Table:
    """Bisections as a table; `reports` leads from the page to the folder of reports (pure)."""
    rows: list[Sequence[Line]] = [
        (Span(one.name, link=reports + one.link), one.axes, one.answer, str(one.runs), one.case)
        for one in found
    ]
    return Table("", ("Bisection", "Axes", "Answer", "Runs", "Case"), rows, "stacked long")


def _read(file: Path) -> Listed | None:
    """What a result says, which anybody may have edited."""
    try:
        content = read_json(file, _MAX_BYTES)
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("kind") != "bisect":
        return None
    answer, axes, runs = (content.get(key) for key in ("answer", "axes", "runs"))
    return Listed(
        name=file.parent.name,
        case=_short(content.get("case")),
        axes=", ".join(map(_short, axes)) if isinstance(axes, list) else "",
        answer=_short(answer.get("text") if isinstance(answer, dict) else "not over"),
        runs=len(runs) if isinstance(runs, list) else 0,
        link=link(f"{file.parent.name}/report.html"),
    )


def _short(value: object) -> str:
    return clip(" ".join(str(value).split()), _MAX_CHARS)


@dataclass(frozen=True)
class Since:
    """What became of cases since an earlier run, which is called `base`.

    `became` has a word for each case of either run (`Category` of history). `gone` are the cases
    that were not run this time, `titles` what is said of each word worth a mention.
    """

    base: str
    became: Mapping[str, str]
    gone: tuple[str, ...]
    titles: Mapping[str, str]


@dataclass(frozen=True)
class RunData:
    """A run's journal and run.json, and what stands beside them.

    `folder` is where its logs and outputs are; without it nothing is told of these. `since` is what
    became of cases since a run before; None if there is none. `summary` are lines for a terminal.
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
