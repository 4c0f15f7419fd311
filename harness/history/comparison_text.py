"""A comparison as terminal lines, as JSON, as a comment of a pull request, and as a page."""

from __future__ import annotations

import dataclasses
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from harness.core.errors import NEGATIVE, HarnessError
from harness.core.json_record import Part, Schema1
from harness.core.outgoing_text import counted, outgoing
from harness.diagnosis.error_record import Outcome
from harness.history.attempts import COMPARED, Attempt, limits_of, read_attempts, skip_seen_runs
from harness.history.case_states import format_versions, versions_of
from harness.history.comparison import (
    BISECTED,
    TITLES,
    Bisectable,
    Category,
    Comparison,
    Drifted,
    FailOn,
    Pair,
    compare,
)
from harness.history.environment_differences import named_files
from harness.history.op_changes import OpChange, OpsCompared, Remade, judge_ops
from harness.history.previous_run import runs_around
from harness.history.speed_changes import (
    EFFECT,
    SpeedCompared,
    SpeedRow,
    alike,
    interval,
    judge_speed,
)
from harness.report import document
from harness.report.document import Block, Heading, Item, Items, Line, Paragraph, Span, code
from harness.report.summary import cut_short
from harness.results.coverage import LOST_TO, Coverage
from harness.results.output_drift import drift_lines
from harness.results.run_folder import JOURNAL, RunFolder

_MOST: Final = 20


def op_counts(ops: OpsCompared) -> list[str]:
    """Return the numbers of ops that changed, in words."""
    kinds = [change.kind for change in ops.remade]
    counts = {"slower": len(ops.slower), "faster": len(ops.faster)}
    counts |= {"appeared": kinds.count("appeared"), "vanished": kinds.count("vanished")}
    return [f"{counted(n, 'op')} {word}" for word, n in counts.items() if n]


def op_lines(ops: OpsCompared) -> Iterator[str]:
    """Yield a line for each change, the largest first, and one for all the other ops."""
    for case, ratio in ops.together.items():
        yield f"most ops together x {ratio:.3g}  [{case}]"
    for word, changes in (("slower", ops.slower), ("faster", ops.faster)):
        yield from _listed([f"op {word}: {_op_change(change)}" for change in changes])
    for change in ops.suspects[:_MOST]:
        word = "slower" if change.judged > 1 else "faster"
        yield f"perhaps op {word}: {_op_change(change)}; more runs are needed"
    yield from _listed([*map(_remade, ops.remade)])
    yield from _rest("op", ops.same, ops.unsure, ops.effect)


def _rest(noun: str, same: int, unsure: int, effect: float) -> Iterator[str]:
    parts = [f"{counted(same, noun)} unchanged within {100 * effect:g} %"] if same else []
    parts += [f"{counted(unsure, noun)} undecided, more runs are needed"] if unsure else []
    if parts:
        yield "; ".join(parts)


def _listed(lines: Sequence[str], rest: str = "such ops", most: int = _MOST) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"... and {len(lines) - most} more {rest}"


def _op_change(change: OpChange) -> str:
    runs = f"{change.base_runs} + {counted(change.new_runs, 'run')}"
    apart = f"executions {100 * change.base_spread:,.0f} and {100 * change.new_spread:,.0f} % apart"
    fused = f" with {_names(change.also)}" if change.also else ""
    times = f"{change.base:,.0f} to {change.new:,.0f} {change.unit}"
    ratio, judged = f"x {change.ratio:.3g}", f"x {change.judged:.3g}"
    relative = f"; {judged} over all runs, relative to most ops" if judged != ratio else ""
    return f"{change.op}{fused} {ratio} ({times}{relative}; {runs}, {apart})  [{change.case}]"


def _remade(change: Remade) -> str:
    if change.kind in ("appeared", "vanished"):
        share = f"{100 * change.share:.3g} % of all ops"
        return f"op {change.kind}: {change.reported_as}, {share}  [{change.case}]"
    verb = "are one op now" if change.kind == "fused" else "were one op"
    return f"{_names(change.ops)} {verb}, reported as {change.reported_as}  [{change.case}]"


def _names(names: tuple[str, ...]) -> str:
    listed = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def speed_counts(speed: SpeedCompared) -> list[str]:
    """Return the numbers of figures that changed, in words."""
    counts = {"slower": len(speed.slower), "faster": len(speed.faster)}
    return [f"{counted(n, 'figure')} {word}" for word, n in counts.items() if n]


def speed_lines(speed: SpeedCompared, most: int = _MOST) -> Iterator[str]:
    """Yield lines for each change, the largest first, and for the rest."""
    for verdict, rows in (("slower", speed.slower), ("faster", speed.faster)):
        yield from _listed([_change_text(row) for row in rows], verdict, most)
    suspects = [f"perhaps {_change_text(row)}; more runs are needed" for row in speed.suspects]
    yield from _listed(suspects, "that may have changed", most)
    yield from _rest("figure", speed.same, speed.unsure, speed.effect)


def _change_text(row: SpeedRow) -> str:
    memory = "_bytes" in row.figure
    word = ("more" if memory else "slower") if row.ratio > 1 else "less" if memory else "faster"
    of = row.case or f"all cases on {row.device}"
    also = f"; also {', '.join(row.surroundings)}" if row.surroundings else ""
    return f"{word}: {row.figure} of {of} x {row.ratio:.3g} ({interval(row)}){also}"


# GitHub takes comments of 65,536 characters
_COMMENT_CHARS: Final = 60_000
_PAGE_CASES: Final = 500
_COMMENT_CASES: Final = 20
_DRIFTS: Final = 20
_PAGE_CHARS: Final = 1000
_ADVICE_CHARS: Final = 1000
_MEANS: Final[Mapping[str, str]] = {
    "added": "added (cases without an earlier verdict fail)",
    "vanished": "vanished (cases with an earlier verdict have none)",
}


def reasons_text(failed_on: Iterable[str]) -> str:
    """Return the reasons for which a comparison or a night ends with 1."""
    return ", ".join(_MEANS.get(reason, reason) for reason in failed_on)


@dataclass(frozen=True)
class Alike:
    """Cases that ended alike, and advice for them."""

    pairs: list[Pair]
    advice: str | None
    state: str | None = None
    """The flakiness of these cases, where it is known."""

    @property
    def fails(self) -> bool:
        return self.pairs[0].after is not None and self.pairs[0].after.is_bad

    @property
    def summary(self) -> str:
        now = self.pairs[0].after
        if now is None:
            return "not run"
        known = f"{now.known_issue}: " if now.known_issue else ""
        named = f" ({now.diagnosis})" if now.diagnosis else ""
        why = f": {now.message}" if now.message else ""
        ending = f"{known}{now.outcome}{named}{why}" if now.is_bad else now.outcome
        return " ".join(f"{ending}; {self.state}".split() if self.state else ending.split())

    @property
    def until_now(self) -> str:
        """The known issues that expected these failures in the base, but not in the new run."""
        earlier = [pair.before for pair in self.pairs if pair.after and pair.after.is_unexpected]
        issues = sorted({before.known_issue for before in earlier if before and before.known_issue})
        return f"expected until now by {', '.join(issues)}" if issues else ""


def earlier_outcome(pair: Pair) -> str:
    """Return how a case ended in the base; empty if it passed, or ended as it does now."""
    before, now = pair.before, pair.after
    if before is None:
        return "not run"
    if before.fault is not None:
        return LOST_TO[before.fault]
    if before.outcome == "passed" or (
        now and (before.outcome, before.signature) == (now.outcome, now.signature)
    ):
        return ""
    return (before.message if before.is_bad else "") or before.outcome


@dataclass(frozen=True, kw_only=True)
class ComparisonView(Comparison):
    """A comparison prepared for people: groups of cases by category, and what it fails on.

    `base` is None where there was no run to compare with.
    """

    base: str | None
    run: str
    groups: Mapping[Category, Sequence[Alike]]
    failed_on: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.run} compared with {self.base}" if self.base is not None else self.run

    @property
    def limits(self) -> str | None:
        """The limits of changes between versions that only simulated devices have shown."""
        pairs = [pair for name in (*BISECTED, "fixed") for pair in self[name]]
        return limits_of(side for pair in pairs for side in (pair.before, pair.after) if side)

    @property
    def changed_around(self) -> str:
        """Changes around the cases, in words: files, options and devices that are gone."""
        unused = [f"{device} is no longer used" for device in self.devices_gone]
        files = self.files_changed
        otherwise = self.asked_otherwise
        options = [f"options for {named_files(otherwise)}"] if otherwise else []
        return ", ".join([*([named_files(files)] if files else []), *options, *unused])

    @property
    def exit_code(self) -> int:
        """1 if there are reasons to fail; else the code for verdicts that the new run lacks."""
        return NEGATIVE if self.failed_on else self.coverage.lost_code

    @property
    def is_good(self) -> bool:
        """True if nothing speaks against the new run, and no verdict is missing."""
        run = self.coverage
        return not self.failed_on and run.is_whole and bool(run.judged)

    @property
    def mark(self) -> str:
        """The result in a word or two, which CI shows as its headline."""
        run = self.coverage
        parts = ["failed"] if self.failed_on else []
        parts += [] if run.is_whole else ["verdicts are missing"]
        parts += [] if run.judged or parts else ["nothing was tested"]
        passes = run.is_green and not self["flaky"]
        return ", ".join(parts) or ("passed" if passes else "nothing new fails")

    @property
    def verdict(self) -> str:
        """The result in one sentence, which begins with the new run by itself."""
        run, base = self.coverage, self.base_coverage
        parts = [run.headline()]
        if self.base is not None and not base.is_whole:
            text = base.headline()
            parts.append("the same in the base" if text in parts else f"in the base, {text}")
        return "; ".join(
            [*parts, self._differences if self.base else "the first run of these cases"]
        )

    @property
    def _differences(self) -> str:
        pairs = [pair for listed in self.pairs.values() for pair in listed]
        counts = [] if any(pair.before for pair in pairs) else ["the base has no cases"]
        bad = sum(pair.shown.is_unexpected for pair in self["added"])
        failing_added = f" ({counted(bad, 'of them fails', 'of them fail')})" if bad else ""
        counts += [
            f"{len(self[name])} {title}{failing_added if name == 'added' else ''}"
            for name, title in TITLES.items()
            if self[name] and name != "failing"
        ]
        if self.drifted:
            counts.append(f"{counted(len(self.drifted), 'case')} with other outputs")
        if self.speed is not None:
            counts += speed_counts(self.speed)
            if self.speed.hidden:
                counts.append(f"{counted(self.speed.hidden, 'figure')} too noisy to tell")
        if self.ops is not None:
            counts += op_counts(self.ops)
        failing, passing = self["failing"], self["passing"]
        known = sum(bool(pair.after and pair.after.known_issue) for pair in failing)
        as_known = f" ({known} as known)" if known else ""
        others = "" if self.coverage.is_whole else " in the other cases"
        counts = counts or [f"no difference{others}"]
        counts += [f"{len(failing)} still failing{as_known}"] if failing else []
        counts += [f"{len(passing)} still passing"] if passing else []
        return ", ".join(counts)


def view_of(
    comparison: Comparison,
    failed_on: Iterable[str],
    *,
    base: str | None,
    run: str,
    bisectable: Callable[[Category, Pair], Bisectable] = lambda *_: Bisectable(),
) -> ComparisonView:
    """Group the cases of a comparison, with the bisection for the first case of each group.

    Cases of a group were alike in the base, too, so that bisecting one is enough.
    """

    grouped: dict[Category, list[Alike]] = {}
    for name in TITLES:
        by_ending: dict[tuple[object, ...], Alike] = {}
        for pair in comparison[name]:
            now, how = pair.shown, bisectable(name, pair)
            known = comparison.states.get(now.case)
            state = known.summary if known is not None else None
            ending = now.outcome, now.signature, now.diagnosis, now.known_issue
            was = earlier_outcome(pair) and pair.before
            before = was and (was.fault or (was.outcome, was.signature))
            key = *ending, before, how.changed, how.hindrance, state
            advice = how.hindrance if how.bisect is None else shlex.join(how.bisect)
            by_ending.setdefault(key, Alike([], advice, state)).pairs.append(pair)
        grouped[name] = sorted(by_ending.values(), key=lambda group: -len(group.pairs))
    if base is None:  # without a base all cases are added: list those that fail
        grouped["added"] = [group for group in grouped["added"] if group.fails]
    return ComparisonView(
        **vars(comparison), base=base, run=run, groups=grouped, failed_on=tuple(failed_on)
    )


def lines(view: ComparisonView) -> Iterator[str]:
    """Yield lines for a terminal, with the first case of each group."""
    return document.lines(_blocks(view, 1, _DRIFTS, partial(code, most=_PAGE_CHARS)))


def markdown(view: ComparisonView) -> str:
    """Return a comment for a pull request, no longer than GitHub takes."""
    blocks = _blocks(view, _COMMENT_CASES, len(view.drifted), code)
    return document.markdown(blocks, deeper=2, most=_COMMENT_CHARS)


def page(view: ComparisonView) -> str:
    """Return one HTML page without external assets."""
    title = f"{view.mark.capitalize()}: {view.name}"
    return document.page(
        title, _blocks(view, _PAGE_CASES, _DRIFTS, partial(code, most=_PAGE_CHARS))
    )


def _blocks(
    view: ComparisonView, cases: int, drifts: int, shorten: Callable[[str], Span]
) -> Iterator[Block]:
    """Yield blocks with at most `cases` of each group; `shorten` shortens texts of records."""
    yield Heading(f"Devices: {view.mark}", level=1)
    yield Paragraph(f"{outgoing(view.verdict)}.", f"verdict {'good' if view.is_good else 'bad'}")
    sides = ("Run", view.run, view.versions), ("Base", view.base, view.base_versions)
    for name, run, versions in sides:
        if run is not None:
            with_versions = shorten(named_files(versions) or "no version")
            yield Paragraph([f"{name}: ", shorten(run), " with ", with_versions])
    if view.limits:
        yield Paragraph(f"{view.limits}.")
    if view.changed_around:
        yield Paragraph(["Changed since the base: ", shorten(view.changed_around)])
    if view.other_power:
        others = counted(len(view.other_power), "case")
        yield Paragraph(
            f"{others} had another power profile or other refused votes in the base: their times "
            "are not compared."
        )
    if view.failed_on:
        yield Paragraph(f"Fails because of: {reasons_text(view.failed_on)}.")
    known = view.base is not None
    for name, title in TITLES.items():
        if listed := view.groups[name]:
            yield Heading(title.capitalize() if known else "Failures")
            unfolded = name in ("new", "changed", "vanished")
            yield Items(
                [
                    _item(group, cases, shorten, folded=not unfolded or number > 0, known=known)
                    for number, group in enumerate(listed)
                ]
            )
    if drifted := view.drifted[:drifts]:
        yield Heading("Other outputs")
        yield Items(
            [
                Item(shorten(entry.case), [*map(shorten, drift_lines(entry.outputs))])
                for entry in drifted
            ]
        )
    speed = view.speed
    if speed is not None and (changes := list(speed_lines(speed))):
        yield Heading("Speed and memory")
        yield Paragraph("Times are medians (p50); p90 and p99 are not compared.")
        yield Items([Item(shorten(line)) for line in changes])
    if (ops := view.ops) is not None:
        yield Heading("Ops")
        yield Items([Item(shorten(line)) for line in op_lines(ops)])


def _item(
    group: Alike, cases: int, shorten: Callable[[str], Span], *, folded: bool, known: bool
) -> Item:
    """Return the item of a group, with the earlier outcome if that is `known`."""
    line: list[str | Span] = [Span(counted(len(group.pairs), "case"), style="strong"), ": "]
    line.append(shorten(group.summary))
    if known and (was := earlier_outcome(group.pairs[0])):
        line += ["; before: ", shorten(was)]
    line += [", ", shorten(group.until_now)] if group.until_now else []
    below: list[Line] = [code(group.advice, _ADVICE_CHARS)] if group.advice else []
    below += [shorten(pair.shown.case) for pair in group.pairs[:cases]]
    if len(group.pairs) > cases:
        below.append(f"and {len(group.pairs) - cases} more")
    return Item(line, below, folded)


_log = logging.getLogger(__name__)


def compare_folders(
    base: RunFolder | None, new: RunFolder, fail_on: FailOn, *, late: bool
) -> Comparison:
    """Compare two runs' cases, speed and memory; without a base, all cases are added.

    Raises ConfigError for a run that cannot be read.
    """
    if base is None:
        return compare([], _read(new), infos=(None, new.info()))
    before = _read(base)
    comparison = compare(
        before,
        _read(new),
        lambda name: base.kept_output(name) or new.kept_output(name),
        infos=(base.info(), new.info()),
    )
    if base.path.samefile(new.path):
        return comparison
    if base.run_id == new.run_id:
        _log.warning("%s and %s are two runs with the same id", base.path, new.path)
    earlier, between = runs_around(base, new)
    both = ((pair.before, pair.after) for pair in comparison["passing"])
    alike = [(was, now) for was, now in both if was and now and was.power == now.power]
    old, now = [was for was, _ in alike], [now for _, now in alike]

    def noise() -> tuple[Iterator[list[Attempt]], Iterator[list[Attempt]]]:
        seen_runs = {attempt.run for attempt in (*old, *now)}
        return _readable(earlier, seen_runs), _readable(between, seen_runs)

    speed = judge_speed(old, now, *noise(), effect=fail_on.slower or EFFECT, late=late)
    return dataclasses.replace(comparison, speed=speed, ops=judge_ops(old, now, *noise()))


def _read(folder: RunFolder) -> list[Attempt]:
    file = folder.path / JOURNAL
    if why := cut_short(folder.info()):
        _log.warning("%s was cut short: %s", folder.run_id, why)
    attempts, left_out = read_attempts(file, COMPARED)
    for text in left_out.messages(file):
        _log.warning("%s", text)
    return attempts


def _readable(runs: Sequence[RunFolder], seen_runs: set[str]) -> Iterator[list[Attempt]]:
    """Yield the new attempts of the runs that can be read; log the other runs."""
    for run in runs:
        try:
            yield skip_seen_runs(_read(run), seen_runs)
        except HarnessError as error:
            _log.warning("%s is not used to judge noise: %s", run.run_id, error)


class CaseSide(Part):
    """A case in a run: its name there, its outcome, what its failure is known by, and the versions
    that it ran with, in words."""

    case: str
    outcome: Outcome
    signature: str | None
    diagnosis: str | None
    known_issue: str | None
    attempts: int
    engine: str | None = None
    versions: str = ""

    @classmethod
    def of(cls, attempt: Attempt | None) -> CaseSide | None:
        if attempt is None:
            return None
        signature = attempt.signature if attempt.is_bad else None
        fields = {"signature": signature, "attempts": attempt.attempt}
        return cls(**alike(cls, attempt) | fields, versions=format_versions(versions_of(attempt)))


class Row(Bisectable):
    """A case in the base and in the new run; null where a run does not have it."""

    case: str
    before: CaseSide | None
    after: CaseSide | None


class ComparisonReport(Part):
    """Two runs compared: the cases of each category, and the `versions` of each run.

    `coverage` is how many cases of the new run have a verdict, `base_coverage` of the base.
    `passing` and `untested` are numbers, `speed` is null where it was not judged, `ops` where no
    case was profiled in both. `files_changed` are files of tests, models and inputs.
    `asked_otherwise` are cases of user's files with other options, which makes them other cases of
    the same name. `other_power` are cases of which the base has another power profile or other
    refused votes, so that their times are not compared. `failed_on` has the conditions of
    `--fail-on` that hold: the comparison ends with 1 exactly if there are any, else with 2 or 3 if
    verdicts are missing in the new run.
    """

    schema_number: Schema1 = 1
    kind: Literal["comparison"] = "comparison"
    base: str
    run: str
    base_versions: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    verdict: str
    coverage: Coverage
    base_coverage: Coverage
    failed_on: tuple[str, ...]
    files_changed: tuple[str, ...] = ()
    asked_otherwise: tuple[str, ...] = ()
    other_power: tuple[str, ...] = ()
    exit_code: int
    new: tuple[Row, ...] = ()
    changed: tuple[Row, ...] = ()
    flaky: tuple[Row, ...] = ()
    vanished: tuple[Row, ...] = ()
    lab: tuple[Row, ...] = ()
    added: tuple[Row, ...] = ()
    known: tuple[Row, ...] = ()
    fixed: tuple[Row, ...] = ()
    failing: tuple[Row, ...] = ()
    drifted: tuple[Drifted, ...]
    speed: SpeedCompared | None
    ops: OpsCompared | None = None
    passing: int
    untested: int


def report_of(
    view: ComparisonView, bisectable: Callable[[Category, Pair], Bisectable]
) -> ComparisonReport:
    """Return the report of a comparison, with the bisection of each case."""

    def row(category: Category, pair: Pair) -> Row:
        before, after = CaseSide.of(pair.before), CaseSide.of(pair.after)
        more = dict(bisectable(category, pair))
        return Row(case=pair.shown.case, before=before, after=after, **more)

    rows: dict[str, Any] = {name: tuple(row(name, pair) for pair in view[name]) for name in TITLES}
    counts = {name: len(view[name]) for name in ("passing", "untested")}
    return ComparisonReport(**alike(ComparisonReport, view) | counts, **rows)
