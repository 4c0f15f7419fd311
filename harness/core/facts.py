"""What is told of a run while it goes on: how far it is, and what each device is at (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

from harness.core.outgoing_text import counted, one_line

Fact = str | int | float
Facts = dict[str, Fact]

THIS_COMPUTER: Final = "this computer"
MAX_CHARS: Final = 200
_MAX_DEVICES: Final = 300
_MOST: Final = 1 << 60
_TEXTS: Final = frozenset({"name", "case", "verb", "doing", "unit"})
_NUMBERS: Final = frozenset({"step", "steps", "loaded", "contexts", "done", "total", "degrees"})
FACTS: Final = _TEXTS | _NUMBERS
PLAIN_EVERY_S: Final = 30.0


def cleaned(facts: Mapping[str, object]) -> dict[str, Fact | None]:
    """The facts that are known, bounded, since each may come from a device."""
    found: dict[str, Fact | None] = {}
    for name, value in facts.items():
        if name in FACTS and value is None:
            found[name] = None
        elif name in _TEXTS and isinstance(value, str):
            found[name] = one_line(value, MAX_CHARS)
        elif name in _NUMBERS and isinstance(value, int | float) and abs(value) < _MOST:
            found[name] = value
    return found


class Lines:
    """The facts of each device, put together."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._lines: dict[str, Facts] = {}

    def merge(self, device: str, facts: Mapping[str, object]) -> tuple[str, Facts] | None:
        """Takes what was told of a device by any of its names; its name and all of its facts.

        None if there are more devices than any lab has.
        """
        device = one_line(str(device), MAX_CHARS) or THIS_COMPUTER
        new = cleaned(facts)
        if isinstance(name := new.pop("name", None), str) and len(self._names) < _MAX_DEVICES:
            self._names[device] = name
        device = self._names.get(device, device)
        if device not in self._lines and len(self._lines) >= _MAX_DEVICES:
            return None
        before: Mapping[str, Fact | None] = self._lines.get(device, {})
        if "case" in new:
            before = {name: fact for name, fact in before.items() if name == "degrees"}
        line = {name: fact for name, fact in {**before, **new}.items() if fact is not None}
        self._lines[device] = line
        return device, line


def number(facts: Facts, name: str) -> float:
    """A fact that is a number; 0 if it was not told."""
    fact = facts.get(name, 0)
    return 0.0 if isinstance(fact, str) else fact


def details(facts: Facts) -> str:
    """The facts of a device in words, without what is done of `doing`."""
    parts = [str(facts.get("doing", ""))]
    if not parts[0] and (contexts := number(facts, "contexts")):
        parts.append(f"{number(facts, 'loaded'):.0f}/{contexts:.0f} contexts")
    if heat := number(facts, "degrees"):
        parts.append(f"{heat:.0f} C")
    if verb := facts.get("verb"):
        parts.append(f"{number(facts, 'step'):.0f}/{number(facts, 'steps'):.0f} {verb}")
    case = str(facts.get("case", ""))
    return "  ".join(filter(None, [*parts, case.partition("::")[2] or case]))


class RunCounts:
    """How far a run is. Each of its cases is over once."""

    def __init__(self, cases: Collection[str]) -> None:
        self._left = set(cases)
        self.total = len(self._left)
        self.done = self.failed = self.lab_errors = 0

    def ended(self, case: str, *, failed: bool = False, lab: bool = False) -> None:
        """Counts a case that is over: whether it failed unexpectedly, or the lab failed it."""
        if case in self._left:
            self._left.remove(case)
            self.done += 1
            self.failed += failed
            self.lab_errors += lab and not failed

    def bad(self) -> str:
        """The cases that are to be looked at, in words."""
        counts = {"failed unexpectedly": self.failed, "without a verdict": self.lab_errors}
        return ", ".join(f"{count} {words}" for words, count in counts.items() if count)

    def plain_line(self, seconds: float) -> str:
        """How far a run is after so many seconds, for a log."""
        parts = [f"{self.done} of {counted(self.total, 'case')}", self.bad()]
        if self.done:
            parts.append(f"about {clock(seconds / self.done * len(self._left))} left")
        return f"qnn-harness: {', '.join(filter(None, parts))}"


def plain_is_due(done: int, total: int, since_s: float, done_since: int) -> bool:
    """Whether a plain line is due for a log: after 30 s and a tenth of all cases."""
    return since_s >= PLAIN_EVERY_S and done_since * 10 >= total and done < total


def clock(seconds: float) -> str:
    """As in 0:07, 12:30 and 1:02:03."""
    if seconds >= 360_000:
        return "100 h+"
    whole = math.ceil(max(0.0, seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
