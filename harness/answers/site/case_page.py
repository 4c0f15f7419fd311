"""The page of a test: all its cases over devices and versions, run by run (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from harness.answers.history.attempts import FIGURES, Attempt
from harness.answers.history.run_changes import WINDOW
from harness.answers.history.states import said_versions, versions_of
from harness.answers.history.timeline import MARKS, CaseLine, mark_of
from harness.answers.report.bisections import listed, of_cases
from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table
from harness.answers.site.drawings import beside, curve, strip
from harness.answers.site.links import Links
from harness.answers.site.pages import Known, framed, happened, short_name
from harness.ground.errors.outgoing_text import counted

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
        yield listed(bisections, f"{links.up}reports/")
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
