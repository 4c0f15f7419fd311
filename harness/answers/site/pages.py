"""What all pages of the site have in common: their frame, and failures told by their causes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from markupsafe import Markup

from harness.answers.history.changes import TITLES, Became, NightChange
from harness.answers.history.facts import CauseFacts, facts_line
from harness.answers.history.nights import CauseTold, NightTold
from harness.answers.history.run_changes import CauseHeld, DeviceRow, Harvest
from harness.answers.history.timeline import MARKS, RunHeld
from harness.answers.report.document import (
    Block,
    Heading,
    Line,
    Paragraph,
    Span,
    Table,
    joined,
    shortened,
)
from harness.answers.report.pages import asset, page
from harness.answers.site.kept_pages import KeptPages
from harness.answers.site.links import Links, ways
from harness.ground.errors.outgoing_text import counted

_MOST_CAUSES: Final = 100
_MOST_NAMED: Final = 5
_MOST_CHANGES: Final = 300
_FOLDED: Final = Markup("<details><summary>command</summary><code>{}</code></details>")
_LEGEND: Final = (
    "Where: of the devices that tested the same in that run. Attempts: each time that a case ran "
    "on one device with the same versions, again in the same run, too."
)
_COLUMNS: Final = ("What", "Where, since when, what changed", "What is known")


@dataclass(frozen=True)
class Known:
    """What pages know beside their own subject."""

    runs: Sequence[RunHeld]
    gathered: Harvest
    devices: Mapping[tuple[str, int], DeviceRow]
    nights: Mapping[str, NightTold]
    causes: Sequence[CauseHeld]
    """All that is held, the last seen first."""
    kept: KeptPages

    def cause(self, at: int, cause: str) -> CauseTold:
        """What the night at a place, or else the last one that did, said of a cause."""
        nights = (self.nights.get(self.runs[place].run) for place in range(at, -1, -1))
        found = (one.causes[cause] for one in nights if one is not None and cause in one.causes)
        return next(found, CauseTold())

    @cached_property
    def socs(self) -> Mapping[str, str | None]:
        return {device: row.soc for (device, _), row in self.devices.items()}

    def facts(self, at: int, cause: str, *, fixed: bool) -> CauseFacts:
        """The facts of a cause that the run at a place has a change of, or one that is `fixed`."""
        facts = self.gathered.facts(at, cause, self.runs, self.socs, fixed=fixed)
        files = () if fixed else self.cause(at, cause).files_changed
        return facts.model_copy(update={"files_changed": files})

    def device_names(self) -> list[str]:
        """All devices that cases ran on."""
        return sorted({name for name, _ in (*self.gathered.by_device, *self.devices)})

    @property
    def last(self) -> int:
        return len(self.runs) - 1

    def is_night(self, at: int) -> bool:
        """Whether the run at a place is that of a night; any is, where nobody uses `nightly`."""
        return not self.nights or self.runs[at].run in self.nights

    @property
    def last_night(self) -> int:
        last = range(self.last, max(-1, self.last - MARKS), -1)
        return next(filter(self.is_night, last), self.last)

    def day(self, at: int) -> str:
        """When the run at a place was begun."""
        return self.runs[at].started[:10]


def framed(title: str, blocks: Iterable[Block], *, here: str = "", up: str = "../") -> str:
    """A whole page; `here` is the name of the list that it is, if it is one."""
    return page(title, blocks, ways=ways(up, here), scripts=[asset("site.js", __package__)])


def by_cause(known: Known, changes: Sequence[NightChange], links: Links) -> Iterator[Block]:
    """What became of cases, each kind below its heading, a row for each cause."""
    for became, title in TITLES.items():
        if not (found := [one for one in changes if one.became == became]):
            continue
        causes = [list(group) for _, group in groupby(found, key=lambda one: one.cause)]
        causes.sort(key=len, reverse=True)
        yield Heading(f"{title}: {counted(len(found), 'case')}")
        rows = [_row(known, became, of_cause, links) for of_cause in causes[:_MOST_CAUSES]]
        yield Table("", _COLUMNS, rows, "stacked causes")
        if len(causes) > _MOST_CAUSES:
            yield Paragraph(f"and {counted(len(causes) - _MOST_CAUSES, 'more cause')}", "dim")
    if changes:
        yield Paragraph(_LEGEND, "dim")


def _row(known: Known, became: Became, found: Sequence[NightChange], links: Links) -> list[Line]:
    first = found[0]
    mark = "passed" if became == "fixed" else "expected" if became == "known" else first.outcome
    what: list[str | Span] = [
        Span("", mark=mark),
        links.to("cause", first.cause, title_of(first), "strong"),
        ": ",
    ]
    named = list({one.test: one for one in found}.values())
    tests = [links.to("case", one.test, short_name(one.test), "code") for one in named]
    what += _first_of(tests)
    told = known.cause(first.at, first.cause)
    said: list[str | Span] = [links.kept(known.kept.run(told.folder), told.known)]
    if told.command:
        said += [" ", _FOLDED.format(f"qnn-harness {shlex.join(told.command)}")]
    facts = known.facts(first.at, first.cause, fixed=became == "fixed")
    return [what, facts_line(facts, links.to), said]


def _first_of(named: Sequence[Span]) -> list[str | Span]:
    if len(named) <= _MOST_NAMED + 1:
        return [*joined(named)]
    return [*joined(named[:_MOST_NAMED]), f" and {len(named) - _MOST_NAMED} more"]


def happened(known: Known, changes: Sequence[NightChange], links: Links) -> Table:
    """Changes, night by night."""
    rows: list[list[Line]] = []
    for one in changes[:_MOST_CHANGES]:
        run = known.runs[one.at]
        changed = f" ({one.changed})" if one.changed and one.since == one.at else ""
        rows.append(
            [
                links.to("night", run.run, run.started[:10]),
                TITLES[one.became].lower(),
                [links.to("case", one.test, short_name(one.test), "code")],
                [links.to("device", one.device)] if one.device else "",
                links.to("cause", one.cause, title_of(one)),
                one.versions + changed,
            ]
        )
    return Table("", ("Night", "What", "Case", "Device", "Why", "With"), rows, "stacked")


def title_of(of: NightChange | CauseHeld) -> str:
    """What went wrong, in a few words."""
    named = " ".join(part for part in of.kind.split("|") if part != "-")
    return shortened(named if named.startswith(of.outcome) else f"{of.outcome}: {named}", 120)


def short_name(test: str) -> str:
    """A test without its file."""
    return shortened(test.rpartition("::")[2] or test, 80)
