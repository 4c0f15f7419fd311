"""A comparison for people: lines, a comment of a pull request, a page (pure but for templates)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors.outgoing_text import counted, outgoing
from harness.history.comparison import BISECTED, TITLES, Category, Comparison, Pair, groups
from harness.history.speed_text import speed_counts, speed_lines
from harness.report.pages import template
from harness.report.summary import as_code, shortened
from harness.results.drift import drift_lines

# GitHub takes comments of 65,536 characters
_COMMENT_CHARS: Final = 60_000
_WIDTH: Final = 200
_PAGE_CASES: Final = 500
_COMMENT_CASES: Final = 20
_DRIFTS: Final = 20


@dataclass(frozen=True)
class Group:
    """Cases that ended alike, and what is to be done about them."""

    pairs: Sequence[Pair]
    advice: str | None

    @property
    def said(self) -> str:
        """How they ended, in one line."""
        one = self.pairs[0].after
        if one is None:
            return "not run"
        known = f"{one.known_issue}: " if one.known_issue else ""
        named = f" ({one.diagnosis})" if one.diagnosis else ""
        told = f"{known}{one.outcome}{named}: {one.signature}" if one.is_bad else one.outcome
        return " ".join(told.split())

    @property
    def until_now(self) -> str:
        """The known issues that earlier expected these failures, and expect them no more."""
        earlier = [one.before for one in self.pairs if one.after and one.after.is_unexplained]
        issues = sorted({one.known_issue for one in earlier if one and one.known_issue})
        return f"expected until now by {', '.join(issues)}" if issues else ""

    @property
    def was(self) -> str:
        """How the first of them ended before; empty if it passed, or ended as it does now."""
        one, now = self.pairs[0].before, self.pairs[0].after
        if one is None:
            return "not run"
        if one.outcome == "passed" or (
            now and (one.outcome, one.signature) == (now.outcome, now.signature)
        ):
            return ""
        return " ".join((one.signature if one.is_bad else one.outcome).split())


@dataclass(frozen=True)
class Told:
    """A comparison as it is told: groups by what became of their cases."""

    base: str
    run: str
    comparison: Comparison
    groups: Mapping[Category, Sequence[Group]]
    reasons: Sequence[str]

    @property
    def verdict(self) -> str:
        """All in one sentence."""
        pairs = [one for found in self.comparison.pairs.values() for one in found]
        counts = [] if any(one.before for one in pairs) else ["the base has no cases"]
        counts += [] if any(one.after for one in pairs) else ["the new run has no cases"]
        counts += [
            f"{len(self.comparison[name])} {title}"
            for name, title in TITLES.items()
            if self.comparison[name] and name != "failing"
        ]
        if self.comparison.drifted:
            counts.append(f"{counted(len(self.comparison.drifted), 'case')} with other outputs")
        if self.comparison.speed is not None:
            counts += [f"{n} {word}" for word, n in speed_counts(self.comparison.speed)]
        failing, passing = self.comparison["failing"], self.comparison["passing"]
        known = sum(bool(one.after and one.after.known_issue) for one in failing)
        as_known = f" ({known} as known)" if known else ""
        rest = f"{len(failing)} still failing{as_known}, {len(passing)} still passing"
        return f"{', '.join(counts) or 'no difference'}; {rest}"


def told(
    comparison: Comparison,
    reasons: Sequence[str],
    *,
    base: str,
    run: str,
    advice: Callable[[Category, Pair], str | None],
    apart: Callable[[Pair], object],
) -> Told:
    """Groups what a comparison found; `advice` is given on the first of each group.

    What can be bisected is kept `apart`, too, where a bisection of one would not tell of another.
    """
    found = {
        name: [
            Group(pairs, advice(name, pairs[0]))
            for pairs in groups(comparison[name], *([apart] if name in BISECTED else []))
        ]
        for name in TITLES
    }
    return Told(base, run, comparison, found, reasons)


def lines(found: Told) -> Iterator[str]:
    """For a terminal: a line for each group, and one for what to do about it."""
    for name, title in TITLES.items():
        for group in found.groups[name]:
            said = "" if name in ("vanished", "fixed") else f": {shortened(group.said, _WIDTH)}"
            said += f"; {shortened(group.until_now, _WIDTH)}" if group.until_now else ""
            yield f"{len(group.pairs):4} x {title}{said}  [first: {group.pairs[0].shown.case}]"
            if group.advice:
                yield f"       {group.advice}"
    for one in found.comparison.drifted[:_DRIFTS]:
        yield f"other outputs: {one.pair.shown.case}"
        yield from (f"  {line}" for line in drift_lines(one.outputs))
    if len(found.comparison.drifted) > _DRIFTS:
        yield f"... and {len(found.comparison.drifted) - _DRIFTS} more cases with other outputs"
    if found.comparison.speed is not None:
        yield from speed_lines(found.comparison.speed)
    yield found.verdict
    if found.reasons:
        yield f"ends with 1: {', '.join(found.reasons)}"


def markdown(found: Told) -> str:
    """For a comment of a pull request: never longer than one may be."""
    mark = "failed" if found.reasons else "passed"
    head = [
        f"### Devices: {mark}",
        "",
        outgoing(found.verdict) + ".",
        "",
        f"Run {as_code(found.run)} beside {as_code(found.base)}.",
    ]
    if found.reasons:
        head.append(f"Fails because of: {', '.join(found.reasons)}.")
    blocks = ["\n".join(head)]
    for name, title in TITLES.items():
        for at, group in enumerate(found.groups[name]):
            blocks.append(_block(group, f"\n#### {title.capitalize()}\n" if not at else ""))
    drifted = found.comparison.drifted
    for at, one in enumerate(drifted):
        told_lines = [f"- {as_code(one.pair.shown.case)}", *map(_item, drift_lines(one.outputs))]
        blocks.append("\n".join(["\n#### Other outputs\n", *told_lines] if not at else told_lines))
    if found.comparison.speed is not None:
        told_lines = [_item(line)[2:] for line in speed_lines(found.comparison.speed)]
        blocks.append("\n".join(["\n#### Speed and memory\n", *told_lines]))
    elif found.comparison.unjudged:
        blocks.append(f"\nNot compared: {as_code(found.comparison.unjudged)}.")
    text, left = "", len(blocks)
    for block in blocks:
        if len(text) + len(block) > _COMMENT_CHARS:
            return f"{text}\n... and {counted(left, 'group')} more\n"
        text, left = f"{text}{block}\n", left - 1
    return text


def page(found: Told) -> str:
    """One page without network or assets."""
    return template("harness.history", "comparison.html.j2").render(
        found=found,
        titles=TITLES,
        drift_lines=drift_lines,
        speed_lines=speed_lines,
        most=_PAGE_CASES,
        drifts=_DRIFTS,
    )


def _block(group: Group, head: str) -> str:
    was = f", was {as_code(group.was)}" if group.was else ""
    made = [head] if head else []
    was += f", {as_code(group.until_now)}" if group.until_now else ""
    made.append(f"- **{counted(len(group.pairs), 'case')}**: {as_code(group.said)}{was}")
    if group.advice:
        made.append(f"  - {as_code(group.advice, 1000)}")
    shown = group.pairs[:_COMMENT_CASES]
    made += [f"  - {as_code(pair.shown.case)}" for pair in shown]
    if len(group.pairs) > len(shown):
        made.append(f"  - and {len(group.pairs) - len(shown)} more")
    return "\n".join(made)


def _item(text: str) -> str:
    return f"  - {as_code(text)}"
