"""What a search on a grid found (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.bisect.answers import Place, Tally, Verdict

GridKind = Literal["frontier", "no-change", "partial", "not-monotone", "undecided"]
How = Literal["run", "concluded", "untestable", "open"]


@dataclass(frozen=True)
class Cell:
    """A place of the grid: its verdict, and how it is known.

    An untestable place may have a verdict, concluded from others; an open one has none.
    """

    verdict: Verdict | None
    how: How


@dataclass(frozen=True)
class GridFinding:
    """The answer of a search on two axes.

    - `frontier`: every place that can be tested is known.
    - `no-change`: all that can be tested are `verdict`, as far as was run.
    - `partial`: the runs did not suffice; what is not known is open.
    - `not-monotone`: `witnesses` are two answers that contradict the assumption that good grows to
      one side of each axis, whichever; nothing was concluded then.
    - `undecided`: nothing can be tested, or the limit came before the ends were known.

    `newer` says for each axis whether good grows towards newer candidates (where an axis made no
    difference it goes with the other). `edge_good` are the
    good places next to the bad ones (the minimal good pairs if both grow), `edge_bad` the bad ones
    next to the good ones. `unsure` are those of both edges that an untestable or open place might
    still push further. `mattered` says for each axis whether it made a difference anywhere; None
    if places that are not known could change that. `assumed` is what was told and not found out.
    """

    kind: GridKind
    axes: tuple[str, str]
    cells: Mapping[Place, Cell]
    newer: tuple[bool, bool] | None = None
    edge_good: tuple[Place, ...] = ()
    edge_bad: tuple[Place, ...] = ()
    unsure: frozenset[Place] = frozenset()
    mattered: tuple[bool | None, bool | None] = (None, None)
    verdict: Verdict | None = None
    witnesses: tuple[Place, ...] = ()
    confidence: float | None = None
    runs: int = 0
    unknown: int = 0
    tallies: Mapping[Place, Tally] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    assumed: str | None = None

    @property
    def first(self) -> tuple[Place, ...]:
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

    def run_said(self) -> str:
        """How much of the grid was run: what is concluded from it could hide an exception."""
        hows = [cell.how for cell in self.cells.values()]
        run, concluded = hows.count("run"), hows.count("concluded")
        text = f"{run} of {len(hows)} pairs were run"
        return f"{text}, an exception among the others would not show" if concluded else text

    def _limits(self) -> str:
        return self.run_said() + (f"; assumed, as was told: {self.assumed}" if self.assumed else "")

    def __str__(self) -> str:
        if self.kind == "no-change":
            holes = any(cell.how == "untestable" for cell in self.cells.values())
            which = "all that could be tested are" if holes else "all are"
            return f"no change: {which} {self.verdict}; {self._limits()}"
        if self.kind in ("undecided", "not-monotone"):
            return f"{self.kind.replace('-', ' ')}: " + "; ".join(self.notes)
        what = "first bad" if self.newer == (False, False) else "first good"
        if self.newer is not None and self.newer[0] != self.newer[1]:
            what = "good beside the bad ones"  # up on one axis, down on the other
        pairs = (" with ".join(at) for at in self.first)
        start = "" if self.kind == "frontier" else "as far as known, "
        return f"{start}{what}: {', '.join(pairs) or 'none'}; {self.axis_said()}; {self._limits()}"
