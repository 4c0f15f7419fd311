"""The pages of a cause of failures and of a diagnosis, and the list of all (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from harness.answers.report.document import Block, CodeBlock, Heading, Line, Paragraph, Span, Table
from harness.answers.site.gathered import CauseHeld
from harness.answers.site.links import Links
from harness.answers.site.pages import Known, by_cause, framed, happened, title_of
from harness.ground.errors.outgoing_text import counted
from harness.verdict.failure.error import ErrorRecord

_MOST: Final = 2000
_COLUMNS: Final = ("Diagnosis", "What", "Cases", "Runs", "First seen", "Last seen")


def cause_page(known: Known, cause: CauseHeld) -> str:
    """The page of a cause."""
    return framed(title_of(cause), _of_cause(known, cause))


def _of_cause(known: Known, cause: CauseHeld) -> Iterator[Block]:
    links, error = Links(), cause.record
    yield Heading([Span("", mark=cause.outcome), Span(title_of(cause), style="code")], 1)
    yield _now(known, [cause])
    first, last = (
        links.to("night", known.runs[at].run, known.day(at)) for at in (cause.first, cause.last)
    )
    runs = counted(len(cause.cases), "run")
    yield Paragraph([f"In {runs}: first ", first, ", last ", last, "."])
    if cause.diagnosis is not None:
        yield Paragraph(["Its diagnosis: ", links.to("diagnosis", cause.diagnosis)])
    yield from _words(error)
    if error is not None:
        yield CodeBlock([error.message])
    changes = known.gathered.changes("cause = ?", cause.cause)
    now = [one for one in changes if one.at == known.last and one.became != "fixed"]
    yield from by_cause(known, now, links)
    if changes:
        yield Heading("What happened lately")
        yield happened(known, changes, links)


def diagnosis_page(known: Known, diagnosis: str) -> str:
    """The page of a diagnosis, which some cause has: all its causes."""
    return framed(diagnosis, _of_diagnosis(known, diagnosis))


def _of_diagnosis(known: Known, diagnosis: str) -> Iterator[Block]:
    causes = [one for one in known.causes if one.diagnosis == diagnosis]
    yield Heading(["Diagnosis ", Span(diagnosis, style="code")], 1)
    yield _now(known, causes)
    yield from _words(causes[0].record)
    yield Heading(counted(len(causes), "cause"))
    yield _table(known, causes, Links(), "stacked")


def causes_page(known: Known) -> str:
    """All causes below their diagnoses, the last seen first."""
    blocks: list[Block] = [
        Heading("Causes", 1),
        _table(known, known.causes, Links(""), "plain long"),
    ]
    return framed("Causes", blocks, here="Causes", up="")


def _table(known: Known, causes: Sequence[CauseHeld], links: Links, style: str) -> Table:
    rows: list[list[Line]] = []
    newest = {one.diagnosis: one.last for one in reversed(causes)}
    order = sorted(causes, key=lambda one: (-newest[one.diagnosis], one.diagnosis or "~"))
    for diagnosis, group in groupby(order, key=lambda one: one.diagnosis):
        name: Line = [links.to("diagnosis", diagnosis)] if diagnosis else Span("none", style="dim")
        for one in group:
            what = [Span("", mark=one.outcome), links.to("cause", one.cause, title_of(one))]
            cases, runs = str(one.cases[one.last]), str(len(one.cases))
            rows.append([name, what, cases, runs, known.day(one.first), known.day(one.last)])
    return Table("", _COLUMNS, rows[:_MOST], style)


def _now(known: Known, causes: Sequence[CauseHeld]) -> Paragraph:
    """How many cases have one of these causes now."""
    now, last = (sum(one.cases.get(known.last, 0) for one in causes), max(c.last for c in causes))
    said = (
        f"{counted(now, 'case')} in the last run." if now else f"Gone; last seen {known.day(last)}."
    )
    return Paragraph(said, "verdict bad" if now else "verdict")


def _words(error: ErrorRecord | None) -> Iterator[Block]:
    """What a diagnosis says, and what helps."""
    if error is not None and error.diagnosis is not None:
        yield Paragraph([Span(error.diagnosis.words, style="strong")])
        if error.diagnosis.fix:
            yield Paragraph(["What helps: ", Span(error.diagnosis.fix)])
