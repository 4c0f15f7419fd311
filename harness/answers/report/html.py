"""report.html: one page without network or assets, made from the journal's records.

What must be seen at once is in the page as it is. Its script draws table, charts and the view of a
case from data that lies packed in it (page_data.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from harness.answers.report.document import Block, Heading, Line, Span, Table, html
from harness.answers.report.grid import asked_grids
from harness.answers.report.page_data import blocks, packed, rows
from harness.answers.report.pages import asset, clip, outcome_bar, template
from harness.answers.report.run_data import RunData, Since
from harness.answers.report.sections import ABOVE_CASES, BELOW_CASES, remarks, sections_of, shown
from harness.answers.report.summary import (
    SECTIONS,
    FailureGroup,
    cut_short,
    failure_groups,
    outputs_lines,
    section,
    shared_diagnosis,
    totals,
)
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.axes import VERSIONS
from harness.ground.files.names_inside import open_inside
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.journal import picked
from harness.verdict.results.record import CaseRecord

_SHORT_CHARS: Final = 160
_EVIDENCE_BYTES: Final = 16 << 10
_MOST_EVIDENCE_BYTES: Final = 1 << 20
_NEW: Final = ("new", "changed", "added")
_BREAK: Final = Markup("<br>")
_NEW_MARK: Final = Markup("<mark>{}</mark> ")
_TEXTS: Final = (".txt", ".log", ".jsonl")


@dataclass(frozen=True)
class Reason:
    """Failures of one kind: a diagnosis, or where there is none, a signature.

    `groups` are the places of its groups among all groups, `new` how many cases did not fail so
    before.
    """

    groups: tuple[int, ...]
    cases: tuple[CaseRecord, ...]
    new: int = 0

    @property
    def first(self) -> CaseRecord:
        return self.cases[0]

    @property
    def devices(self) -> list[str]:
        return list(dict.fromkeys(one.device.name for one in self.cases if one.device))

    @property
    def versions(self) -> list[str]:
        """The versions that it touches, of the axes that name versions."""
        named = (
            f"{axis} {one.axes[axis]}"
            for axis in VERSIONS
            for one in self.cases
            if one.axes.get(axis) is not None
        )
        return list(dict.fromkeys(named))


def html_text(run: RunData) -> str:
    """The whole page (pure but for loading the template).

    What stands on its first screen is in the template, the rest are sections (`sections.py`).
    """
    cases, info, since, counts = run.cases, run.info, run.since, totals(run.cases)
    groups, cut, coverage = failure_groups(cases), cut_short(info), run.coverage
    reasons = _reasons(groups, since)
    issues = _issue_links(info)
    more = {
        "evidence": dict(run.evidence),
        "issues": issues,
        "grids": asked_grids(cases),
        "versions": VERSIONS,
    }
    new = _new_failures(cases, since)
    said = verdict(coverage, new=new, cut=cut is not None, besides=remarks(run))
    return template("report.html.j2").render(
        title=f"{said} qnn-harness {run.run}",
        run=run.run,
        info=info,
        verdict=said,
        cut=cut,
        since=since,
        coverage=coverage,
        became=_became(since),
        totals=counts,
        bar=outcome_bar(counts),
        behind=outputs_lines(cases),
        duration=_seconds(sum(record.duration_s for record in cases)),
        cases=counted(len(cases), "case"),
        above_cases=html([*_told(reasons, issues), *sections_of(run, ABOVE_CASES)]),
        below_cases=html(sections_of(run, BELOW_CASES)),
        shown=shown,
        short=partial(clip, most=_SHORT_CHARS),
        issues=issues,
        damage=run.contents.damage,
        rows=Markup(packed(chain(rows(cases, run.contents.events, groups, since), more.items()))),
        blocks=Markup(" ".join(blocks(cases, _lab_words(info)))),
        scripts=[asset(name) for name in ("report_parts.js", "report_charts.js", "report.js")],
    )


def verdict(
    coverage: Coverage, *, new: int | None = None, cut: bool = False, besides: Sequence[str] = ()
) -> str:
    """Return what a run comes to: it was `cut` short, its sentence with the failures that are
    `new`, and what is to be said `besides`, although no case fails for it."""
    sentence = coverage.sentence(new)
    said = ["Cut short."] if cut else []
    return " ".join([*said, f"{sentence[:1].upper()}{sentence[1:]}.", *besides])


def _new_failures(cases: Iterable[CaseRecord], since: Since | None) -> int | None:
    if since is None:
        return None
    failing = [record.case for record in cases if record.standing == "failed"]
    return sum(since.became.get(case) in _NEW for case in failing)


def _became(since: Since | None) -> dict[str, int]:
    if since is None:
        return {}
    counts = Counter(since.became.values())
    return {word: counts[word] for word in since.titles if counts[word]}


def _reasons(groups: Sequence[FailureGroup], since: Since | None) -> list[Reason]:
    """Groups of one diagnosis together, in the order of the first of each."""
    found: dict[tuple[object, ...], list[int]] = {}
    for number, group in enumerate(groups):
        first = group[0]
        known = first.error.diagnosis if first.error else None
        key = (known.id,) if known else (number, "no diagnosis")
        found.setdefault((section(first), first.known_issue, *key), []).append(number)
    made = []
    for numbers in found.values():
        cases = tuple(case for number in numbers for case in groups[number])
        new = sum(since.became.get(one.case) in _NEW for one in cases) if since else 0
        made.append(Reason(tuple(numbers), cases, new))
    return made


def _told(reasons: Sequence[Reason], issues: Mapping[str, str]) -> Iterator[Block]:
    """The parts of a page that have reasons, a row for each; what was unsupported is folded."""
    for name, group in groupby(reasons, lambda reason: section(reason.first)):
        found, title = list(group), ""
        if name == "unsupported":
            title = f"{SECTIONS[name]}: {counted(sum(len(one.cases) for one in found), 'case')}"
        else:
            yield Heading(SECTIONS[name])
        rows = [_row(one, issues) for one in found]
        columns = ("Cases", "What", "Call and code", "Where", "")
        yield Table(title, columns, rows, "stacked reasons", folded=True)


def _row(reason: Reason, issues: Mapping[str, str]) -> list[Line]:
    first, error = reason.first, reason.first.error
    what: list[str | Span] = [Span(first.outcome, mark=first.state), " "]
    if reason.new:
        all_new = reason.new == len(reason.cases)
        what.append(_NEW_MARK.format("new" if all_new else f"{reason.new} new"))
    if error is not None and (known := shared_diagnosis(reason.cases)) is not None:
        sure = f"{known.id}, {known.confidence}"
        what += [Span(known.words, style="strong"), " ", Span(sure, style="dim")]
        what += [_BREAK, f"What helps: {known.fix}"] if known.fix else []
        if known.thread and known.thread.startswith("https://"):
            what += [_BREAK, Span(known.thread, link=known.thread)]
    elif error is not None:
        what.append(Span(clip(error.began, _SHORT_CHARS), style="strong"))
    if issue := first.known_issue:
        what += [_BREAK, "known issue ", Span(issue, link=issues.get(issue, ""))]
    call: list[str | Span] = [Span((error and error.api) or "", style="code")]
    if error is not None and error.code is not None:
        call += [_BREAK, Span(f"{error.code} ({error.hex}) {error.symbol or ''}", style="code")]
    where: list[str | Span] = [
        _first(reason.devices, 3),
        _BREAK,
        Span(_first(reason.versions, 4), style="dim"),
    ]
    groups = ",".join(map(str, reason.groups))
    return [str(len(reason.cases)), what, call, where, Span("show", link=f"#group={groups}")]


def _first(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def evidence_of(cases: Sequence[CaseRecord], folder: Path) -> dict[str, str]:
    """The ends of the logs of what went wrong, as long as they make the page no heavier than 1 MB.

    A log that is no file of this folder, or that cannot be read, is left out.
    """
    found: dict[str, str] = {}
    left = _MOST_EVIDENCE_BYTES
    bad = [at for at, record in enumerate(cases) if record.is_bad]
    unexpected = [
        at for at, record in zip(bad, picked(cases, bad), strict=True) if record.is_unexpected
    ]
    for record in picked(cases, dict.fromkeys((*unexpected, *bad))):
        for name in record.logs:
            if left <= 0:
                return found
            if name in found or not name.endswith(_TEXTS):
                continue
            data = _tail(folder, name)
            if data:
                found[name] = data.decode("utf-8", "replace")
                left -= len(data)
    return found


def _tail(folder: Path, name: str) -> bytes:
    """The end of a log; nothing of what is no plain file of this folder, or cannot be read."""
    try:
        with open_inside(folder, name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _EVIDENCE_BYTES))
            return file.read(_EVIDENCE_BYTES)
    except OSError:
        return b""


def _lab_words(info: Mapping[str, Any]) -> list[str]:
    words: list[str] = info.get("command", [])
    for at, word in enumerate(words):
        if word.partition("=")[0] in ("--lab", "--qnn-lab"):
            return words[at : at + 1 + ("=" not in word)]
    return []


def _seconds(duration: float) -> str:
    if duration < 60:
        return f"{duration:.2f} s"
    minutes, seconds = divmod(round(duration), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _issue_links(info: Mapping[str, Any]) -> dict[str, str]:
    links: Mapping[str, str | None] = info.get("known_issues", {})
    return {name: link for name, link in links.items() if link and link.startswith("https://")}
