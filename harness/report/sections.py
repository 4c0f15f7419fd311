"""The sections of report.html with lists and tables (pure)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final, Literal

import pluggy
from markupsafe import Markup

from harness.core import hooks
from harness.core.errors import raised_text
from harness.core.notices import ONCE
from harness.core.socs import claim_of, limits_of_simulation
from harness.report.document import Block, Heading, Line, Paragraph, Span, Table, clip, html
from harness.report.model_tables import figure_blocks, ops_tables
from harness.report.summary import event_lines
from harness.results.coverage import Coverage
from harness.results.journal import Contents, Records
from harness.results.output_drift import Output, drift
from harness.results.record import CaseRecord, is_figure
from harness.results.run_folder import RunFolder
from harness.runtimes.runtime import version_key

_MOST_RETRIES: Final = 500
_MAX_SHOWN_CHARS: Final = 4000
_SHORT_CHARS: Final = 160
_MOST_ROWS: Final = 200


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
    return [Paragraph(f"{words[:1].upper()}{words[1:]}.") for words in limits if words]


def earlier_attempts(records: Iterable[CaseRecord]) -> list[Block]:
    """Return a table of the attempts that were not the last ones."""
    rows: list[list[Line]] = []
    for record in islice(records, _MOST_RETRIES):
        outcome = Span(record.outcome, mark=record.state)
        why = clip(record.error.message, _SHORT_CHARS) if record.error else ""
        rows.append([outcome, record.case, str(record.attempt), why])
    return [Table("", ("Outcome", "Case", "Attempt", "Why"), rows)] if rows else []


def settings(info: Mapping[str, Any]) -> list[Block]:
    """Return run.json as a table."""
    rows = [[str(name), shown(value)] for name, value in info.items()]
    title = "Versions, devices and settings"
    return [Table(title, ("Name", "Value"), rows, folded=True)] if rows else []


def shown(value: object) -> str:
    """Format a value of run.json, which can be anything."""
    return f"{value:,}" if is_figure(value) else clip(value, _MAX_SHOWN_CHARS)


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


@dataclass(frozen=True)
class Since:
    """The changes of cases since an earlier run, `base`.

    `became` has the category of each case of the run (`Category` of history), or `otherwise` if it
    fails as only another version did then. `not_run` are the cases that are not in the run,
    `titles` the words for the categories that are listed, and `began` the times since which cases
    fail, where earlier runs tell.
    """

    base: str
    became: Mapping[str, str]
    not_run: tuple[str, ...]
    titles: Mapping[str, str]
    began: Mapping[str, str] = field(default_factory=dict)


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
    is `markupsafe.Markup`. It stands before the failures (`top`) or around the table of all cases.
    """

    title: str
    make: Callable[[Iterable[CaseRecord]], str | Block | Iterable[str | Block]]
    place: Literal["top", "above_cases", "below_cases"] = "below_cases"
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
    """Yield the harness's own sections, then those of plug-ins, or an error in place of one."""
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
    devices = event_lines(run.contents.events, width=_MAX_SHOWN_CHARS)
    return [
        Section("Accuracy and speed", partial(figure_blocks, page=True), "above_cases"),
        Section("Slowest ops", partial(ops_tables, page=True)),
        Section(
            "Drift: outputs that are not the same everywhere",
            lambda cases: drift_tables(outputs_in(run, cases)),
        ),
        Section("Earlier attempts", lambda _: earlier_attempts(run.contents.earlier)),
        Section("Devices", lambda _: [Paragraph(Span(line)) for line in devices]),
        Section("Limits of simulation", simulated_limits),
        Section("Run", lambda _: settings(run.info)),
    ]


def outputs_in(run: RunData, cases: Iterable[CaseRecord]) -> list[Output]:
    """Return the outputs that cases kept, compared with each other."""
    return drift(cases, run.folder.kept_output) if run.folder else []
