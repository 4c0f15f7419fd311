"""The sections of report.html that are lists and tables, each made of what it is about (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table
from harness.answers.report.pages import clip
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.simulators import claim_of, limits_of_simulation
from harness.verdict.results.record import CaseRecord, is_figure

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
    verb = "is" if drifting == 1 else "are"
    said = []
    if drifting:
        said.append(f"{counted(drifting, 'output')} {verb} not the same everywhere: see Drift.")
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
