"""The page of a cause of failures, and the list of all (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.answers.history.run_changes import CauseHeld
from harness.answers.report.document import Block, CodeBlock, Heading, Line, Paragraph, Span, Table
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
    blocks: list[Block] = [Heading("Causes", 1), Table("", _COLUMNS, rows[:_MOST], "plain long")]
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
