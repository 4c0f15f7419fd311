"""A comparison for people: lines, a comment of a pull request, a page (pure but for templates)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from harness.answers.history.attempts import limits_of
from harness.answers.history.comparison import (
    BISECTED,
    TITLES,
    Bisectable,
    Category,
    Comparison,
    Pair,
    groups,
)
from harness.answers.history.ops_text import op_counts, op_lines
from harness.answers.history.speed_text import noise_said, speed_counts, speed_lines
from harness.answers.history.surroundings import named_files
from harness.answers.report import document, pages
from harness.answers.report.document import (
    Block,
    Heading,
    Item,
    Items,
    Line,
    Paragraph,
    Span,
    code,
    shortened,
)
from harness.ground.errors.outgoing_text import counted, outgoing
from harness.verdict.results.coverage import LOST_TO
from harness.verdict.results.drift import drift_lines

# GitHub takes comments of 65,536 characters
_COMMENT_CHARS: Final = 60_000
_WIDTH: Final = 200
_PAGE_CASES: Final = 500
_COMMENT_CASES: Final = 20
_DRIFTS: Final = 20
_PAGE_CHARS: Final = 1000
_ADVICE_CHARS: Final = 1000
_NEGATIVE: Final = 1
_MEANS: Final[Mapping[str, str]] = {
    "added": "added (what was not judged before fails)",
    "vanished": "vanished (what was judged before was not)",
}


@dataclass(frozen=True)
class Alike:
    """Cases that ended alike, and what is to be done about them."""

    pairs: Sequence[Pair]
    advice: str | None
    state: str | None = None
    """How flaky they are, where that is known."""

    @property
    def fails(self) -> bool:
        """Whether they do now."""
        return self.pairs[0].after is not None and self.pairs[0].after.is_bad

    @property
    def said(self) -> str:
        """How they ended, in one line."""
        one = self.pairs[0].after
        if one is None:
            return "not run"
        known = f"{one.known_issue}: " if one.known_issue else ""
        named = f" ({one.diagnosis})" if one.diagnosis else ""
        told = f"{known}{one.outcome}{named}: {one.signature}" if one.is_bad else one.outcome
        return " ".join(f"{told}; {self.state}".split() if self.state else told.split())

    @property
    def until_now(self) -> str:
        """The known issues that earlier expected these failures, and expect them no more."""
        earlier = [one.before for one in self.pairs if one.after and one.after.is_unexplained]
        issues = sorted({one.known_issue for one in earlier if one and one.known_issue})
        return f"expected until now by {', '.join(issues)}" if issues else ""


def was_of(pair: Pair) -> str:
    """How a case ended before; empty if it passed, or ended as it does now."""
    one, now = pair.before, pair.after
    if one is None:
        return "not run"
    if one.fault is not None:
        return LOST_TO[one.fault]
    if one.outcome == "passed" or (
        now and (one.outcome, one.signature) == (now.outcome, now.signature)
    ):
        return ""
    return " ".join((one.signature if one.is_bad else one.outcome).split())


@dataclass(frozen=True, kw_only=True)
class ToldComparison(Comparison):
    """A comparison as it is told: groups by what became of their cases, and what it fails on.
    `base` is None where there was no run to compare with."""

    base: str | None
    run: str
    groups: Mapping[Category, Sequence[Alike]]
    failed_on: tuple[str, ...]

    @property
    def name(self) -> str:
        """Which runs it is of."""
        return f"{self.run} beside {self.base}" if self.base is not None else self.run

    @property
    def ran_with(self) -> str:
        """The versions of both runs, in words."""
        new, base = map(named_files, (self.versions, self.base_versions))
        before = f"; {self.base}: {base or 'no version'}" if self.base is not None else ""
        return f"{self.run}: {new or 'no version'}{before}"

    @property
    def limits(self) -> str | None:
        """What changes between versions leave open where only simulated devices tell them."""
        pairs = [pair for name in (*BISECTED, "fixed") for pair in self[name]]
        return limits_of(side for pair in pairs for side in (pair.before, pair.after) if side)

    @property
    def changed_around(self) -> str:
        """What around the cases is another than before: files, and devices that are gone."""
        gone = [f"{one} is not used any more" for one in self.devices_gone]
        files = self.files_changed
        otherwise = self.asked_otherwise
        asked = [f"what is asked of {named_files(otherwise)}"] if otherwise else []
        return ", ".join([*([named_files(files)] if files else []), *asked, *gone])

    @property
    def exit_code(self) -> int:
        """1 if there are reasons to fail; else the code for verdicts that the new run lacks."""
        return _NEGATIVE if self.failed_on else self.coverage.lost_code

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against the new run, and no verdict is missing."""
        run = self.coverage
        return not self.failed_on and run.is_whole and bool(run.judged)

    @property
    def mark(self) -> str:
        """What it comes to, in a word or two: what CI shows as its headline."""
        run = self.coverage
        said = ["failed"] if self.failed_on else []
        said += [] if run.is_whole else ["verdicts are missing"]
        said += [] if run.judged or said else ["nothing was tested"]
        passes = run.is_green and not self["flaky"]
        return ", ".join(said) or ("passed" if passes else "nothing new fails")

    @property
    def verdict(self) -> str:
        """All in one sentence: first what the run came to by itself."""
        run, base = self.coverage, self.base_coverage
        told = [run.sentence()]
        if self.base is not None and not base.is_whole:
            told.append(f"in the base, {base.headline}")
        return "; ".join(
            [*told, self._differences if self.base else "the first run of these cases"]
        )

    def _failing_among(self, name: Category) -> str:
        """Of what had no verdict before nobody knows how it ended, unless that is said."""
        if name != "added":
            return ""
        bad = sum(one.shown.is_unexplained for one in self[name])
        return f" ({bad} of them {'fails' if bad == 1 else 'fail'})" if bad else ""

    @property
    def _differences(self) -> str:
        pairs = [one for found in self.pairs.values() for one in found]
        counts = [] if any(one.before for one in pairs) else ["the base has no cases"]
        counts += [
            f"{len(self[name])} {title}{self._failing_among(name)}"
            for name, title in TITLES.items()
            if self[name] and name != "failing"
        ]
        if self.drifted:
            counts.append(f"{counted(len(self.drifted), 'case')} with other outputs")
        if self.speed is not None:
            counts += speed_counts(self.speed)
            noise = noise_said(self.speed)
            counts = [noise, *counts] if noise is not None else counts
        if self.ops is not None:
            counts += op_counts(self.ops)
        failing, passing = self["failing"], self["passing"]
        known = sum(bool(one.after and one.after.known_issue) for one in failing)
        as_known = f" ({known} as known)" if known else ""
        rest = f"{len(failing)} still failing{as_known}, {len(passing)} still passing"
        none = "no difference" if self.coverage.is_whole else "no other difference"
        return f"{', '.join(counts) or none}; {rest}"


def told(
    comparison: Comparison,
    failed_on: Iterable[str],
    *,
    base: str | None,
    run: str,
    bisectable: Callable[[Category, Pair], Bisectable] = lambda *_: Bisectable(),
) -> ToldComparison:
    """Groups what a comparison found; what is `bisectable` of the first of each group is told.

    Cases of a group were alike before, too, and a bisection of one would tell of the others.
    """

    def state(pair: Pair) -> str | None:
        known = comparison.states.get(pair.shown.case)
        return known.said if known is not None else None

    def alike(name: Category) -> Iterator[Alike]:
        def apart(pair: Pair) -> tuple[object, ...]:
            how = bisectable(name, pair)
            return was_of(pair), how.changed, how.hindrance, state(pair)

        for group in groups(comparison[name], apart):
            how = bisectable(name, group[0])
            advice = how.hindrance if how.bisect is None else shlex.join(how.bisect)
            yield Alike(group, advice, state(group[0]))

    found = {name: list(alike(name)) for name in TITLES}
    if base is None:  # beside nothing every case is, and what fails is worth telling
        found["added"] = [one for one in found["added"] if one.fails]
    return ToldComparison(
        **vars(comparison), base=base, run=run, groups=found, failed_on=tuple(failed_on)
    )


def lines(found: ToldComparison) -> Iterator[str]:
    """For a terminal: a line for each group, and one for what to do about it."""
    for name, title in TITLES.items():
        for group in found.groups[name]:
            said = "" if name == "fixed" else f": {shortened(group.said, _WIDTH)}"
            if (
                name in ("added", "fixed")
                and (was := was_of(group.pairs[0]))
                and found.base is not None
            ):
                said += f"; before: {shortened(was, _WIDTH)}"
            said += f"; {shortened(group.until_now, _WIDTH)}" if group.until_now else ""
            yield f"{len(group.pairs):4} x {title}{said}  [first: {group.pairs[0].shown.case}]"
            if group.advice:
                yield f"       {group.advice}"
    for one in found.drifted[:_DRIFTS]:
        yield f"other outputs: {one.pair.shown.case}"
        yield from (f"  {line}" for line in drift_lines(one.outputs))
    if len(found.drifted) > _DRIFTS:
        yield f"... and {len(found.drifted) - _DRIFTS} more cases with other outputs"
    if found.speed is not None:
        yield from speed_lines(found.speed)
    if found.ops is not None:
        yield from op_lines(found.ops)
    if found.changed_around:
        yield f"changed since then: {found.changed_around}"
    yield found.ran_with
    yield from filter(None, [found.limits])
    yield found.verdict
    if found.failed_on:
        yield f"ends with 1: {', '.join(found.failed_on)}"
    elif found.exit_code:
        yield f"ends with {found.exit_code}: verdicts are missing"


def markdown(found: ToldComparison) -> str:
    """For a comment of a pull request: never longer than one may be."""
    blocks = _blocks(found, _COMMENT_CASES, len(found.drifted), code)
    return document.markdown(blocks, deeper=2, most=_COMMENT_CHARS)


def page(found: ToldComparison) -> str:
    """One page without network or assets."""
    title = f"{found.mark.capitalize()}: {found.name}"
    return pages.page(title, _blocks(found, _PAGE_CASES, _DRIFTS, partial(code, most=_PAGE_CHARS)))


def _blocks(
    found: ToldComparison, cases: int, drifts: int, said: Callable[[str], Span]
) -> Iterator[Block]:
    """So many cases of each group, and with other outputs; `said` shortens what others said."""
    yield Heading(f"Devices: {found.mark}", level=1)
    yield Paragraph(f"{outgoing(found.verdict)}.", f"verdict {'good' if found.is_good else 'bad'}")
    beside: list[str | Span] = [] if found.base is None else [" beside ", said(found.base)]
    yield Paragraph(["Run ", said(found.run), *beside, "."])
    yield Paragraph(["With ", said(found.ran_with), "."])
    if found.limits:
        yield Paragraph(f"{found.limits}.")
    if found.changed_around:
        yield Paragraph(["Changed since then: ", said(found.changed_around)])
    if found.failed_on:
        reasons = (_MEANS.get(one, one) for one in found.failed_on)
        yield Paragraph(f"Fails because of: {', '.join(reasons)}.")
    known = found.base is not None
    for name, title in TITLES.items():
        if listed := found.groups[name]:
            yield Heading(title.capitalize() if known else "What fails")
            wanted = name in ("new", "changed", "vanished")
            yield Items(
                [
                    _item(one, cases, said, folded=not wanted or number > 0, known=known)
                    for number, one in enumerate(listed)
                ]
            )
    if drifted := found.drifted[:drifts]:
        yield Heading("Other outputs")
        items = ((one.pair.shown.case, drift_lines(one.outputs)) for one in drifted)
        yield Items([Item(said(case), [*map(said, differs)]) for case, differs in items])
    speed = found.speed
    if speed is not None and (told_lines := list(speed_lines(speed))):
        yield Heading("Speed and memory")
        yield Items([Item(said(line)) for line in told_lines])
    if (ops := found.ops) is not None:
        yield Heading("Ops")
        yield Items([Item(said(line)) for line in op_lines(ops)])


def _item(
    group: Alike, cases: int, said: Callable[[str], Span], *, folded: bool, known: bool
) -> Item:
    """A group of cases; what they were is told if that is `known`."""
    line: list[str | Span] = [Span(counted(len(group.pairs), "case"), style="strong"), ": "]
    line.append(said(group.said))
    line += ["; before: ", said(was)] if known and (was := was_of(group.pairs[0])) else []
    line += [", ", said(group.until_now)] if group.until_now else []
    below: list[Line] = [code(group.advice, _ADVICE_CHARS)] if group.advice else []
    below += [said(pair.shown.case) for pair in group.pairs[:cases]]
    if len(group.pairs) > cases:
        below.append(f"and {len(group.pairs) - cases} more")
    return Item(line, below, folded)
