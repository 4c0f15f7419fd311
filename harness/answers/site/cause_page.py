"""The page of a cause of failures, and the list of all (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harness.answers.report.document import Block, CodeBlock, Heading, Line, Paragraph, Span, Table
from harness.answers.site.changes import NightChange
from harness.answers.site.links import Links
from harness.answers.site.pages import Known, by_cause, framed, happened, title_of
from harness.ground import counted
from harness.verdict import ErrorRecord

_MOST: Final = 2000


def cause_page(known: Known, cause: str, error: ErrorRecord | None) -> str:
    """The page of a cause; `error` is one of its failures."""
    changes = known.gathered.changes("cause = ?", cause)
    return framed(title_of(changes[0]), _blocks(known, changes, error))


def _blocks(
    known: Known, changes: Sequence[NightChange], error: ErrorRecord | None
) -> Iterator[Block]:
    links, newest = Links(), changes[0]
    yield Heading([Span("", mark=newest.outcome), Span(title_of(newest), style="code")], 1)
    now = [one for one in changes if one.at == known.last and one.became != "fixed"]
    last = known.day(newest.at)
    said = f"{counted(len(now), 'case')} in the last run." if now else f"Gone; last seen {last}."
    yield Paragraph(said, "verdict bad" if now else "verdict")
    if error is not None:
        if error.diagnosis is not None:
            yield Paragraph([Span(error.diagnosis.words, style="strong")])
        if error.diagnosis is not None and error.diagnosis.fix:
            yield Paragraph(["What helps: ", Span(error.diagnosis.fix)])
        yield CodeBlock([error.message])
    yield from by_cause(known, now, links)
    yield Heading("What happened")
    yield happened(known, changes, links)


def causes_page(known: Known) -> str:
    """All causes, the last seen first."""
    rows: list[list[Line]] = []
    for one, cases, first in known.gathered.causes()[:_MOST]:
        name = Links("").to("cause", one.cause, title_of(one))
        told = [Span("", mark=one.outcome), name]
        rows.append([told, str(cases), known.day(first), known.day(one.at)])
    columns = ("What", "Cases", "First seen", "Last seen")
    blocks: list[Block] = [Heading("Causes", 1), Table("", columns, rows, "plain long")]
    return framed("Causes", blocks, here="Causes", up="")
