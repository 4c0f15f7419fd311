"""What a search found, on one axis or on a grid, and the grid as text (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from harness.answers.report.document import aligned
from harness.ground.errors.outgoing_text import counted
from harness.search.bisect.answers import GoodOrBad, Point
from harness.search.bisect.rates import Side
from harness.search.bisect.search import GridSpec

FindingKind = Literal["change", "range", "no-change", "undecided"]
Direction = Literal["regression", "fix"]


@dataclass(frozen=True)
class AxisChange:
    """Where answers change: `before` is the last of its kind, `after` the first of the other.

    `between` are the candidates of which it is not known.
    """

    direction: Direction
    before: str
    after: str
    between: tuple[str, ...] = ()

    @property
    def ends(self) -> dict[str, str]:
        """`before` and `after` in words, as in the last good one and the first bad one."""
        names = {"regression": ("last_good", "first_bad"), "fix": ("last_bad", "first_good")}
        return dict(zip(names[self.direction], (self.before, self.after), strict=True))

    @property
    def where(self) -> str:
        """The version that it came with, or between which it did."""
        return f"one of {', '.join((*self.between, self.after))}" if self.between else self.after

    def __str__(self) -> str:
        text = ", ".join(f"{name.replace('_', ' ')} {at}" for name, at in self.ends.items())
        if self.between:
            text += f" or one of the undecided before it: {', '.join(self.between)}"
        return text


@dataclass(frozen=True)
class AxisFinding:
    """The answer of a search, or what is known when it had to end.

    - `change`: `before` and `after` are neighbours; before is the last of its kind.
    - `range`: the change lies between `before` and `after`; `between` are the candidates of which
      it is not known, since they cannot be tested, or since the runs did not suffice to be sure.
    - `no-change`: all that could be tested are `verdict` (None: some runs of them fail, and of all
      alike); `between` are those that could not. `looked_at` is how many were run, if not all.
    - `undecided`: not enough could be learnt; `notes` say why.

    `only` is the one candidate, where there is no other. `older` and `newer` are further changes
    before this one and after it, oldest first; then `one_change` is False. It is that also if the
    answers do not fit one change.
    `confidence` holds at every rate of failures, and there is one only if rates were searched:
    else each answer was believed, and None is said. So do `failed` (how many runs of a version
    failed, of how many), `rates` (before and after the change, or throughout), `least` (the
    smallest change of the rate that was looked for) and `excluded` (the smallest that is excluded).
    """

    kind: FindingKind
    direction: Direction | None = None
    before: str | None = None
    after: str | None = None
    between: tuple[str, ...] = ()
    verdict: GoodOrBad | None = None
    confidence: float | None = None
    one_change: bool = True
    runs: int = 0
    unknown: int = 0
    notes: tuple[str, ...] = ()
    only: str | None = None
    older: tuple[AxisChange, ...] = ()
    newer: tuple[AxisChange, ...] = ()
    failed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rates: tuple[Side, ...] = ()
    least: float | None = None
    excluded: float | None = None
    looked_at: int | None = None

    @property
    def changes(self) -> tuple[AxisChange, ...]:
        """All that are known, oldest first."""
        if self.direction is None or self.before is None or self.after is None:
            return ()
        own = AxisChange(self.direction, self.before, self.after, self.between)
        return (*self.older, own, *self.newer)

    @property
    def ends(self) -> dict[str, str]:
        """`before` and `after` in words; nothing without a change."""
        return self.changes[len(self.older)].ends if self.changes else {}

    def __str__(self) -> str:
        if self.kind == "undecided":
            return "undecided: " + "; ".join(self.notes)
        if self.only is not None:
            return f"{self.only} is {self.verdict}"
        if self.kind == "no-change":
            text = f"all are {self.verdict}"
            if self.between:
                text = f"all that could be tested are {self.verdict}"
            if self.looked_at is not None:
                which = (
                    "both ends" if self.looked_at == 2 else f"all {self.looked_at} that were run"
                )
                text = f"{which} are {self.verdict}"
            if self.least is not None:
                failed, runs = map(sum, zip(*self.failed.values(), strict=True))
                text = (
                    f"{failed} of {runs} runs failed, and from the oldest to the newest the share "
                    f"that fails does not change by {points(self.least)} or more"
                )
            holes = f"; undecided: {', '.join(self.between)}" if self.between else ""
            return f"no change: {text}{holes}"
        found = self.changes[len(self.older)]
        others = (f"; before that {one}" for one in reversed(self.older))
        return f"{found}{''.join(others)}{''.join(f'; then {one}' for one in self.newer)}"


def points(rate: float) -> str:
    """A difference of two rates in words."""
    return f"{100 * rate:.0f} points"


GridKind = Literal["frontier", "no-change", "partial", "not-monotone", "undecided"]
How = Literal["run", "concluded", "untestable", "open"]


@dataclass(frozen=True)
class CellFinding:
    """A point of the grid: its verdict, and how it is known.

    An untestable point may have a verdict, concluded from others; an open one has none.
    """

    verdict: GoodOrBad | None
    how: How


@dataclass(frozen=True)
class GridFinding:
    """The answer of a search on two axes.

    - `frontier`: every point that can be tested is known.
    - `no-change`: all that can be tested are `verdict`, as far as was run.
    - `partial`: the runs did not suffice; what is not known is open.
    - `not-monotone`: `witnesses` are two answers that contradict the assumption that good grows to
      one side of each axis, whichever; nothing was concluded then.
    - `undecided`: nothing can be tested, or the limit came before the ends were known.

    `newer` says for each axis whether good grows towards newer candidates (where an axis made no
    difference it goes with the other). `edge_good` are the
    good points next to the bad ones (the minimal good pairs if both grow), `edge_bad` the bad ones
    next to the good ones. `unsure` are those of both edges that an untestable or open point might
    still push further. `mattered` says for each axis whether it made a difference anywhere; None
    if points that are not known could change that. `assumed` is what was told and not found out.
    """

    kind: GridKind
    axes: tuple[str, str]
    cells: Mapping[Point, CellFinding]
    newer: tuple[bool, bool] | None = None
    edge_good: tuple[Point, ...] = ()
    edge_bad: tuple[Point, ...] = ()
    unsure: frozenset[Point] = frozenset()
    mattered: tuple[bool | None, bool | None] = (None, None)
    verdict: GoodOrBad | None = None
    witnesses: tuple[Point, ...] = ()
    confidence: float | None = None
    runs: int = 0
    unknown: int = 0
    notes: tuple[str, ...] = ()
    assumed: str | None = None
    failed_though_good: int | None = None
    """How many runs failed of pairs that count as good; None where each answer was believed."""

    @property
    def first(self) -> tuple[Point, ...]:
        """The minimal pairs of what grows with newer versions: good ones, or bad ones.

        Where the axes go different ways, the good ones at the edge.
        """
        return self.edge_bad if self.newer == (False, False) else self.edge_good

    def axis_said(self) -> str:
        """Which axis mattered, in words."""
        row, column = self.axes
        told = {
            (True, True): f"both {row} and {column} matter",
            (True, False): f"only {row} matters",
            (False, True): f"only {column} matters",
            (False, False): f"neither {row} nor {column} matters",
        }
        first, second = self.mattered
        if first is not None and second is not None:
            return told[first, second]
        sure = [axis for axis, says in zip(self.axes, self.mattered, strict=True) if says]
        open_ones = [a for a, says in zip(self.axes, self.mattered, strict=True) if says is None]
        text = f"{sure[0]} matters; " if sure else ""
        return f"{text}whether {' or '.join(open_ones)} matters is not known"

    def _limits(self) -> str:
        """How much of the grid was run: what is only concluded could hide an exception."""
        hows = [cell.how for cell in self.cells.values()]
        text = f"{hows.count('run')} of {len(hows)} pairs were run"
        if "concluded" in hows:
            text += ", an exception among the others would not show"
        return f"{text}; assumed, as was told: {self.assumed}" if self.assumed else text

    def __str__(self) -> str:
        if self.kind == "no-change":
            hows = {cell.how for cell in self.cells.values()}
            which = "all that could be tested" if "untestable" in hows else "all"
            if "concluded" in hows:
                which = "all that were run"
            text = f"{which} are {self.verdict}"
            if self.failed_though_good is not None:
                text = f"{which} count as {self.verdict}"
            if self.failed_though_good:
                text += f", though {counted(self.failed_though_good, 'run')} of them failed"
            return f"no change: {text}; {self._limits()}"
        if self.kind in ("undecided", "not-monotone"):
            return f"{self.kind.replace('-', ' ')}: " + "; ".join(self.notes)
        what = "first bad" if self.newer == (False, False) else "first good"
        if self.newer is not None and self.newer[0] != self.newer[1]:
            what = "good beside the bad ones"  # up on one axis, down on the other
        pairs = (" with ".join(at) for at in self.first)
        start = "" if self.kind == "frontier" else "as far as known, "
        return f"{start}{what}: {', '.join(pairs) or 'none'}; {self.axis_said()}; {self._limits()}"


LEGEND: Final = (
    "* at the edge, ! contradicts, (...) concluded from others without a run, "
    "n/a cannot be tested, ? not known"
)


def draw(spec: GridSpec, finding: GridFinding) -> str:
    """The grid with its rows and columns named, a legend below; lines end without spaces."""
    marked = dict.fromkeys((*finding.edge_good, *finding.edge_bad), "*")
    marked |= dict.fromkeys(finding.witnesses, "!")
    lines = [[f"{spec.axes[0]} \\ {spec.axes[1]}", *spec.columns]]
    for row in spec.rows:
        points = [(row, column) for column in spec.columns]
        lines.append([row, *(_word(finding.cells[at]) + marked.get(at, "") for at in points)])
    return "\n".join([*aligned(lines), LEGEND])


def _word(cell: CellFinding) -> str:
    if cell.how == "untestable":
        return f"n/a ({cell.verdict})" if cell.verdict else "n/a"
    if cell.verdict is None:
        return "?"
    return cell.verdict if cell.how == "run" else f"({cell.verdict})"
