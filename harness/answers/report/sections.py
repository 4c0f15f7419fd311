"""The sections of report.html that are lists and tables, each a function of the run (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from harness.answers.report.bisections import listed, of_cases
from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table
from harness.answers.report.model_figures import figure_blocks
from harness.answers.report.ops_table import ops_tables
from harness.answers.report.pages import clip
from harness.answers.report.run_data import RunData
from harness.answers.report.summary import only_simulated
from harness.answers.report.tables import drift_tables, pairings, sharings
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.simulators import claim_of, limits_of_simulation
from harness.verdict.results.record import is_figure

_MOST_RETRIES: Final = 500
_MAX_SHOWN_CHARS: Final = 4000
_SHORT_CHARS: Final = 160

PageSection = Callable[[RunData], Iterable[Block]]
"""What stands below a heading; nothing if a run has nothing for it."""


def sections_of(run: RunData, sections: Mapping[str, PageSection]) -> Iterator[Block]:
    """Those that have anything to tell, each below its heading."""
    for heading, section in sections.items():
        if blocks := list(section(run)):
            yield Heading(heading)
            yield from blocks


def remarks(run: RunData) -> list[str]:
    """What the head of the page says although no case fails for it, a sentence each."""
    drifting = sum(one.drifts for one in run.outputs)
    same = (
        f"{counted(drifting, 'output')} {'is' if drifting == 1 else 'are'} not the same everywhere"
    )
    said = [f"{same}: see Drift."] if drifting else []
    if foreign := sum(map(only_simulated, run.cases)):
        said.append(
            f"{foreign} passed with contexts that a simulator takes, and no device with this HTP."
        )
    return said


def _simulated_limits(run: RunData) -> Iterator[Block]:
    """What a run leaves open of memory, where simulated devices alone tell it."""
    told: dict[str | None, list[str]] = {}
    for record in run.cases:
        code = record.error.code if record.error is not None else None
        if claim_of(code) == "capacity":
            if record.device is None or not record.device.simulated or record.placement is None:
                return
            told.setdefault(record.device.target, []).append(record.placement.qnn)
    for target, versions in told.items():
        limits = limits_of_simulation("capacity", target, versions)
        yield Paragraph([f"Of memory: {limits}."])


def _bisections(run: RunData) -> Iterator[Block]:
    cases = (record.case for record in run.cases)
    if run.bisections and (found := of_cases(run.bisections, cases)):
        yield listed(found, reports="../")


def _retries(run: RunData) -> Iterator[Block]:
    if len(run.cases) == len(run.contents.records):
        return
    last = {(record.case, record.attempt, record.started) for record in run.cases}
    found = (
        record
        for record in run.contents.records
        if (record.case, record.attempt, record.started) not in last
    )
    rows: list[list[Line]] = [
        [
            Span(one.outcome, mark=one.state),
            one.case,
            str(one.attempt),
            clip(one.error.message, _SHORT_CHARS) if one.error else "",
        ]
        for one in islice(found, _MOST_RETRIES)
    ]
    if rows:
        yield Table("", ("Outcome", "Case", "Attempt", "Why"), rows)


def _settings(run: RunData) -> Iterator[Block]:
    rows = [[str(name), shown(value)] for name, value in run.info.items()]
    if rows:
        yield Table("Versions, devices and settings", ("Name", "Value"), rows, folded=True)


def shown(value: object) -> str:
    """A value of run.json, which could hold anything."""
    return f"{value:,}" if is_figure(value) else clip(value, _MAX_SHOWN_CHARS)


ABOVE_CASES: Final[Mapping[str, PageSection]] = {
    "How well": lambda run: figure_blocks(run.cases, page=True),
    "Bisections": _bisections,
}
BELOW_CASES: Final[Mapping[str, PageSection]] = {
    "Which op is slow": lambda run: ops_tables(run.cases, page=True),
    "Memory types": lambda run: pairings(run.cases),
    "Sharing": lambda run: sharings(run.cases),
    "Drift: outputs that are not the same everywhere": lambda run: drift_tables(run.outputs),
    "Earlier attempts": _retries,
    "What simulators leave open": _simulated_limits,
    "Run": _settings,
}
"""The headings of the page's sections, in their order, and what makes each."""
