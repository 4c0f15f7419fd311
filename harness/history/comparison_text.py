"""A comparison for people: lines, a comment of a pull request, a page (pure but for templates)."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from harness.core.errors import HarnessError
from harness.core.outgoing_text import counted, outgoing
from harness.diagnosis.error import signature_text
from harness.history.attempts import COMPARED, Attempt, limits_of, once, read_attempts
from harness.history.comparison import (
    BISECTED,
    TITLES,
    Bisectable,
    Category,
    Comparison,
    FailOn,
    Pair,
    compare,
    groups,
)
from harness.history.ops import OpChange, OpsCompared, Remade, judge_ops
from harness.history.performance import (
    EFFECT,
    SpeedCompared,
    SpeedRow,
    interval,
    judge_speed,
)
from harness.history.previous import runs_around
from harness.history.surroundings import named_files
from harness.report import document
from harness.report.document import (
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
from harness.report.summary import cut_short
from harness.results.coverage import LOST_TO
from harness.results.drift import drift_lines
from harness.results.run_folder import JOURNAL, RunFolder

_MOST: Final = 20


def op_counts(ops: OpsCompared) -> list[str]:
    """How many ops became what, as far as there are any that changed."""
    kinds = [one.kind for one in ops.remade]
    found = {"slower": len(ops.slower), "faster": len(ops.faster)}
    found |= {"appeared": kinds.count("appeared"), "vanished": kinds.count("vanished")}
    return [f"{counted(n, 'op')} {word}" for word, n in found.items() if n]


def op_lines(ops: OpsCompared, most: int = _MOST) -> Iterator[str]:
    """A line for each change, the furthest first, and one for all the others."""
    for case, ratio in ops.together.items():
        yield f"most ops together x {ratio:.3g}  [{case}]"
    yield from _listed((f"op slower: {_op_change(one)}" for one in ops.slower), most)
    yield from _listed((f"op faster: {_op_change(one)}" for one in ops.faster), most)
    for one in ops.suspects[:most]:
        word = "slower" if one.judged > 1 else "faster"
        yield f"perhaps op {word}: {_op_change(one)}; more runs would tell"
    yield from _listed(map(_remade, ops.remade), most)
    told = f"ops: {ops.same} the same within {100 * ops.effect:g} %, {ops.unsure} not to be told"
    yield f"{told} yet; executions of the op in the middle lie {100 * ops.spread:.3g} % apart"


def _listed(lines: Iterable[str], most: int) -> Iterator[str]:
    left = iter(lines)
    yield from islice(left, most)
    if more := sum(1 for _ in left):
        yield f"... and {more} more such ops"


def _op_change(one: OpChange) -> str:
    runs = f"{one.base_runs} + {counted(one.new_runs, 'run')}"
    apart = f"executions {100 * one.base_spread:,.0f} and {100 * one.new_spread:,.0f} % apart"
    fused = f" with {_names(one.also)}" if one.also else ""
    took = f"{one.base:,.0f} to {one.new:,.0f} {one.unit}"
    ratio, judged = f"x {one.ratio:.3g}", f"x {one.judged:.3g}"
    beside = f"; {judged} by all runs, beside most ops" if judged != ratio else ""
    return f"{one.op}{fused} {ratio} ({took}{beside}; {runs}, {apart})  [{one.case}]"


def _remade(one: Remade) -> str:
    if one.kind in ("appeared", "vanished"):
        return f"op {one.kind}: {one.told_as}, {100 * one.share:.3g} % of all ops  [{one.case}]"
    when = "are one op now" if one.kind == "fused" else "were one op"
    return f"{_names(one.ops)} {when}, told as {one.told_as}  [{one.case}]"


def _names(names: tuple[str, ...]) -> str:
    listed = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def speed_counts(speed: SpeedCompared) -> list[str]:
    """How many figures became what, as far as there are any that changed."""
    found = {"slower": len(speed.slower), "faster": len(speed.faster)}
    return [f"{counted(n, 'figure')} {word}" for word, n in found.items() if n]


def noise_lines(speed: SpeedCompared) -> Iterator[str]:
    """A line for each figure of a device whose noise hides changes as large as asked for.

    Of several cases, the ratio is that of the one in the middle.
    """
    by_figure: dict[tuple[str, str], list[SpeedRow]] = {}
    for row in speed.hidden:
        by_figure.setdefault((row.device, row.figure), []).append(row)
    for (device, figure), hidden in by_figure.items():
        first = hidden[0]
        more = f" and {counted(len(hidden) - 1, 'other case')}" if len(hidden) > 1 else ""
        yield (
            f"{device or 'this computer'} is {_too_noisy(hidden)} of {figure}: "
            f"{first.case or 'all cases'} x {first.ratio:.3g} ({interval(first)}){more}"
        )


def noise_said(speed: SpeedCompared) -> str | None:
    """What noise hides, in a few words; None if nothing."""
    hidden = speed.hidden
    return f"{_too_noisy(hidden)} of {counted(len(hidden), 'figure')}" if hidden else None


def _too_noisy(hidden: Sequence[SpeedRow]) -> str:
    tells = statistics.median_high(row.tells for row in hidden if row.tells)
    return f"too noisy to tell less than x {tells:.3g}"


def speed_lines(speed: SpeedCompared, most: int = _MOST) -> Iterator[str]:
    """What noise hides, a line for each change, the furthest first, and one for what is unknown."""
    yield from noise_lines(speed)
    for verdict, rows in (("slower", speed.slower), ("faster", speed.faster)):
        yield from (f"{_word(row)}: {_said(row)}{_also(row)}" for row in rows[:most])
        if len(rows) > most:
            yield f"... and {len(rows) - most} more {verdict}"
    for row in speed.suspects[:most]:
        yield f"perhaps {_word(row)}: {_said(row)}; {_more(row)} would tell{_also(row)}"
    if len(speed.suspects) > most:
        yield f"... and {len(speed.suspects) - most} more that may have changed"
    told = f"speed and memory: {counted(speed.same, 'figure')} the same within "
    told += f"{100 * speed.effect:g} %"
    if speed.unsure:
        told += f", {speed.unsure} not to be told yet"
    if speed.unknown and speed.base_runs + speed.new_runs < 5:
        told += (
            f" ({counted(speed.base_runs, 'run')} before, {speed.new_runs} new: their noise shows "
            "in earlier runs of the same cases)"
        )
    if speed.same or speed.unsure or speed.slower or speed.faster:
        yield told


def _word(row: SpeedRow) -> str:
    memory = "_bytes" in row.figure
    return ("more" if memory else "slower") if row.ratio > 1 else "less" if memory else "faster"


def _said(row: SpeedRow) -> str:
    of = row.case or f"all cases on {row.device}"
    return f"{row.figure} of {of} x {row.ratio:.3g} ({interval(row)})"


def _also(row: SpeedRow) -> str:
    return f"; also {', '.join(row.surroundings)}" if row.surroundings else ""


def _more(row: SpeedRow) -> str:
    parts = [(row.more_new, "more run"), (row.more_base, "more of the base")]
    said = [counted(n, word) if word == "more run" else f"{n} {word}" for n, word in parts if n]
    return " and ".join(said)


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


def fails_because(failed_on: Iterable[str]) -> str:
    """Return the sentence that says for what a comparison or a night ends with 1."""
    return f"Fails because of: {', '.join(_MEANS.get(one, one) for one in failed_on)}."


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
        told = (
            f"{known}{one.outcome}{named}: {signature_text(one.signature)}"
            if one.is_bad
            else one.outcome
        )
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
    return " ".join((signature_text(one.signature) if one.is_bad else one.outcome).split())


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
        return f" ({counted(bad, 'of them fails', 'of them fail')})" if bad else ""

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
            counts += filter(None, [noise_said(self.speed)])
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
        yield f"... and {counted(len(found.drifted) - _DRIFTS, 'more case')} with other outputs"
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
    return document.page(
        title, _blocks(found, _PAGE_CASES, _DRIFTS, partial(code, most=_PAGE_CHARS))
    )


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
        yield Paragraph(fails_because(found.failed_on))
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


_log = logging.getLogger(__name__)


def compared(base: RunFolder | None, new: RunFolder, asked: FailOn, *, late: bool) -> Comparison:
    """What became of each case since BASE, if there is one, and of its speed and memory.

    Raises ConfigError for what cannot be read.
    """
    if base is None:
        return compare([], _read(new), infos=(None, new.info()))
    before = _read(base)
    found = compare(
        before,
        _read(new),
        lambda name: base.kept_output(name) or new.kept_output(name),
        infos=(base.info(), new.info()),
    )
    if base.path.samefile(new.path):
        return found
    if base.run_id == new.run_id:
        _log.warning("%s and %s are two runs of one id", base.path, new.path)
    earlier, between = runs_around(base, new)
    old = [one.before for one in found["passing"] if one.before]
    now = [one.after for one in found["passing"] if one.after]

    def noise() -> tuple[Iterator[list[Attempt]], Iterator[list[Attempt]]]:
        met = {attempt.run for attempt in (*old, *now)}
        return _readable(earlier, met), _readable(between, met)

    speed = judge_speed(old, now, *noise(), effect=asked.slower or EFFECT, late=late)
    ops = judge_ops(old, now, *noise())
    return dataclasses.replace(found, speed=speed, ops=ops)


def _read(folder: RunFolder) -> list[Attempt]:
    file = folder.path / JOURNAL
    if why := cut_short(folder.info()):
        _log.warning("%s was cut short: %s", folder.run_id, why)
    found, left_out = read_attempts(file, COMPARED)
    for text in left_out.told(file):
        _log.warning("%s", text)
    return found


def _readable(runs: Sequence[RunFolder], met: set[str]) -> Iterator[list[Attempt]]:
    """The runs that can be read, each attempt once, of runs not `met`; the others are logged."""
    for run in runs:
        try:
            yield once(_read(run), met)
        except HarnessError as error:
            _log.warning("%s tells nothing of noise: %s", run.run_id, error)
