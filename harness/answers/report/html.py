"""report.html: one page without network or assets, made from the journal's records.

What must be seen at once is in the page as it is. Its script draws table, charts and the view of a
case from data that lies packed in it (page_data.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from harness.answers.report.bisections import Listed, bisections_in, listed, of_cases
from harness.answers.report.document import Block, Heading, Line, Span, Table, html
from harness.answers.report.grid import asked_grids
from harness.answers.report.model_figures import figure_blocks
from harness.answers.report.ops_table import ops_tables
from harness.answers.report.page_data import Rows, blocks, ladders
from harness.answers.report.pages import asset, clip, outcome_bar, template
from harness.answers.report.run_data import RunData, Since
from harness.answers.report.sections import (
    earlier_attempts,
    remarks,
    sections_of,
    settings,
    shown,
    simulated_limits,
)
from harness.answers.report.summary import (
    SECTIONS,
    FailureGroup,
    cut_short,
    failure_groups,
    only_simulated,
    outputs_lines,
    section,
    totals,
)
from harness.answers.report.tables import drift_tables, pairings, sharings
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.axes import VERSIONS
from harness.ground.files.names_inside import open_inside
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.drift import Output, drift
from harness.verdict.results.one_pass import Reader, read_once
from harness.verdict.results.record import CaseRecord

_SHORT_CHARS: Final = 160
_EVIDENCE_BYTES: Final = 16 << 10
_MOST_EVIDENCE_BYTES: Final = 1 << 20
_NEW: Final = ("new", "changed", "added")
_BREAK: Final = Markup("<br>")
_NEW_MARK: Final = Markup("<mark>{}</mark> ")
_TEXTS: Final = (".txt", ".log", ".jsonl")


def html_text(run: RunData, cases: Iterable[CaseRecord] | None = None) -> str:
    """The whole page; `cases` are those of the run, where others read them at the same time.

    What stands on its first screen is in the template, the rest are sections (`sections.py`).
    """
    info, since, coverage, cut = run.info, run.since, run.coverage, cut_short(run.info)
    folder = run.folder
    issues = _issue_links(info)

    def outputs_of(cases: Iterable[CaseRecord]) -> list[Output]:
        return drift(cases, folder.kept_output) if folder else []

    def bisections_of(cases: Iterable[CaseRecord]) -> list[Listed]:
        found = bisections_in(folder.path.parent) if folder else []
        return of_cases(found, (record.case for record in cases)) if found else []

    readers: dict[str, Reader] = {
        "totals": totals,
        "groups": failure_groups,
        "behind": outputs_lines,
        "grids": asked_grids,
        "ladders": ladders,
        "outputs": outputs_of,
        "bisections": bisections_of,
        "rows": lambda cases: Rows(cases, since),
        "blocks": lambda cases: blocks(cases, _lab_words(info)),
        "evidence": lambda cases: evidence_of(cases, folder.path) if folder else {},
        "simulated": lambda cases: sum(map(only_simulated, cases)),
        "seconds": lambda cases: sum(record.duration_s for record in cases),
        "figures": partial(figure_blocks, page=True),
        "ops": partial(ops_tables, page=True),
        "pairings": pairings,
        "sharings": sharings,
        "limits": simulated_limits,
    }
    made = read_once(run.cases if cases is None else cases, *readers.values())
    told = dict(zip(readers, made, strict=True))
    groups, outputs = told["groups"], told["outputs"]
    failing = chain(*(one.cases for one in groups if section(one.first) == "failing"))
    new = None if since is None else _new_among(failing, since)
    besides = remarks(sum(output.drifts for output in outputs), told["simulated"])
    said = verdict(coverage, new=new, cut=cut is not None, besides=besides)
    above = {
        "How well": told["figures"],
        "Bisections": [listed(told["bisections"], "../")] if told["bisections"] else [],
    }
    below = {
        "Which op is slow": told["ops"],
        "Memory types": told["pairings"],
        "Sharing": told["sharings"],
        "Drift: outputs that are not the same everywhere": drift_tables(outputs),
        "Earlier attempts": earlier_attempts(run.contents.earlier),
        "What simulators leave open": told["limits"],
        "Run": settings(info),
    }
    more = {"issues": issues, "versions": VERSIONS}
    more |= {name: told[name] for name in ("ladders", "evidence", "grids")}
    return template("report.html.j2").render(
        title=f"{said} qnn-harness {run.run}",
        run=run.run,
        info=info,
        verdict=said,
        cut=cut,
        since=since,
        coverage=coverage,
        became=_became(since),
        totals=told["totals"],
        bar=outcome_bar(told["totals"]),
        behind=told["behind"],
        duration=_seconds(told["seconds"]),
        cases=counted(sum(told["totals"].values()), "case"),
        above_cases=html([*_told(groups, since, issues), *sections_of(above)]),
        below_cases=html(sections_of(below)),
        shown=shown,
        short=partial(clip, most=_SHORT_CHARS),
        issues=issues,
        damage=run.contents.damage,
        rows=Markup(told["rows"].packed(run.contents.events, groups, more)),
        blocks=Markup(" ".join(told["blocks"])),
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


def _new_among(cases: Iterable[str], since: Since | None) -> int:
    """How many of failing cases did not fail so before."""
    return sum(since.became.get(case) in _NEW for case in cases) if since else 0


def _became(since: Since | None) -> dict[str, int]:
    if since is None:
        return {}
    counts = Counter(since.became.values())
    return {word: counts[word] for word in since.titles if counts[word]}


def _reasons(groups: Sequence[FailureGroup]) -> list[tuple[list[int], FailureGroup]]:
    """Groups of one diagnosis together, in the order of the first of each, with their places."""
    found: dict[tuple[object, ...], tuple[list[int], FailureGroup]] = {}
    for number, group in enumerate(groups):
        first = group.first
        known = first.error.diagnosis if first.error else None
        key = (known.id,) if known else (number, "no diagnosis")
        numbers, reason = found.setdefault(
            (section(first), first.known_issue, *key), ([], FailureGroup(first))
        )
        numbers.append(number)
        reason.include(group)
    return [*found.values()]


def _told(
    groups: Sequence[FailureGroup], since: Since | None, issues: Mapping[str, str]
) -> Iterator[Block]:
    """The parts of a page that have reasons, a row for each; what was unsupported is folded."""
    for name, reasons in groupby(_reasons(groups), lambda reason: section(reason[1].first)):
        found, title = list(reasons), ""
        if name == "unsupported":
            cases = sum(len(reason.cases) for _, reason in found)
            title = f"{SECTIONS[name]}: {counted(cases, 'case')}"
        else:
            yield Heading(SECTIONS[name])
        rows = [_row(*one, since, issues) for one in found]
        columns = ("Cases", "What", "Call and code", "Where", "")
        yield Table(title, columns, rows, "stacked reasons", folded=True)


def _row(
    numbers: Sequence[int], reason: FailureGroup, since: Since | None, issues: Mapping[str, str]
) -> list[Line]:
    first, error = reason.first, reason.first.error
    what: list[str | Span] = [Span(first.outcome, mark=first.state), " "]
    if new := _new_among(reason.cases, since):
        what.append(_NEW_MARK.format("new" if new == len(reason.cases) else f"{new} new"))
    if error is not None and (known := reason.diagnosis) is not None:
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
    versions = [f"{axis} {version}" for axis in VERSIONS for version in reason.versions[axis]]
    where: list[str | Span] = [
        _first([*reason.devices], 3),
        _BREAK,
        Span(_first(versions, 4), style="dim"),
    ]
    groups = ",".join(map(str, numbers))
    return [str(len(reason.cases)), what, call, where, Span("show", link=f"#group={groups}")]


def _first(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def evidence_of(cases: Iterable[CaseRecord], folder: Path) -> dict[str, str]:
    """The ends of the logs of what went wrong, as long as they make the page no heavier than 1 MB.

    A log that is no file of this folder, or that cannot be read, is left out.
    """
    names: tuple[list[str], list[str]] = [], []
    for record in cases:
        if record.is_bad:
            names[not record.is_unexpected].extend(record.logs)
    found: dict[str, str] = {}
    left = _MOST_EVIDENCE_BYTES
    for name in dict.fromkeys(chain(*names)):
        if left > 0 and name.endswith(_TEXTS) and (data := _tail(folder, name)):
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
