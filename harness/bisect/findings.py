"""What a search on one axis found (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.bisect.answers import Place, Tally, Verdict

Kind = Literal["change", "range", "no-change", "undecided"]
Direction = Literal["regression", "fix"]


@dataclass(frozen=True)
class Finding:
    """The answer of a search, or what is known when it had to end.

    - `change`: `before` and `after` are neighbours; before is the last of its kind.
    - `range`: the change lies between `before` and `after`; `between` are the candidates of which
      it is not known, since they cannot be tested, or since the runs did not suffice to be sure.
    - `no-change`: all that could be tested are `verdict`; `between` are those that could not.
    - `undecided`: not enough could be learnt; `notes` say why.

    `confidence` holds at every rate of flakiness that `noise` allows for, and there is one only if
    answers were repeated until sure: else each was believed, and None is said. It is None also if
    the answers do not fit one change (`one_change` False); the newest change is then the one given.
    """

    kind: Kind
    direction: Direction | None = None
    before: str | None = None
    after: str | None = None
    between: tuple[str, ...] = ()
    verdict: Verdict | None = None
    confidence: float | None = None
    one_change: bool = True
    runs: int = 0
    unknown: int = 0
    tallies: Mapping[Place, Tally] | None = None
    notes: tuple[str, ...] = ()

    @property
    def last_good(self) -> str | None:
        """The last good candidate before a regression."""
        return self.before if self.direction == "regression" else None

    @property
    def first_bad(self) -> str | None:
        """The first bad candidate of a regression."""
        return self.after if self.direction == "regression" else None

    @property
    def last_bad(self) -> str | None:
        """The last bad candidate before a fix."""
        return self.before if self.direction == "fix" else None

    @property
    def first_good(self) -> str | None:
        """The first good candidate of a fix."""
        return self.after if self.direction == "fix" else None

    def __str__(self) -> str:
        if self.kind == "undecided":
            return "undecided: " + "; ".join(self.notes)
        if self.kind == "no-change":
            if not self.between:
                return f"no change: all are {self.verdict}"
            undecided = ", ".join(self.between)
            return f"no change: all that could be tested are {self.verdict}; undecided: {undecided}"
        names = ("last good", "first bad")
        if self.direction == "fix":
            names = ("last bad", "first good")
        text = f"{names[0]} {self.before}, {names[1]} {self.after}"
        if self.between:
            text += f" or one of the undecided before it: {', '.join(self.between)}"
        return text
