"""The progress of a run and of each of its devices (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

from harness.core.outgoing_text import one_line

Fact = str | int | float
Facts = dict[str, Fact]

THIS_COMPUTER: Final = "this computer"
MAX_CHARS: Final = 200
_MAX_DEVICES: Final = 300
_MOST: Final = 1 << 60
_TEXTS: Final = frozenset({"name", "case", "verb", "doing", "unit"})
_NUMBERS: Final = frozenset({"step", "steps", "loaded", "contexts", "done", "total", "degrees"})
FACTS: Final = _TEXTS | _NUMBERS


def cleaned(facts: Mapping[str, object]) -> dict[str, Fact | None]:
    """Return the facts with known names, with bounds, since each may come from a device."""
    known: dict[str, Fact | None] = {}
    for name, value in facts.items():
        if name in FACTS and value is None:
            known[name] = None
        elif name in _TEXTS and isinstance(value, str):
            known[name] = one_line(value, MAX_CHARS)
        elif name in _NUMBERS and isinstance(value, int | float) and abs(value) < _MOST:
            known[name] = value
    return known


class Lines:
    """The current facts of each device."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._lines: dict[str, Facts] = {}

    def merge(self, device: str, facts: Mapping[str, object]) -> tuple[str, Facts] | None:
        """Merge facts of a device, by any of its names; return its name and all of its facts.

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
    """Return a fact that is a number; 0 if it is unknown."""
    fact = facts.get(name, 0)
    return 0.0 if isinstance(fact, str) else fact


def details(facts: Facts) -> str:
    """Describe the facts of a device, without the progress of `doing`."""
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
    """The progress of a run. Each of its cases is counted once."""

    def __init__(self, cases: Collection[str]) -> None:
        self._pending = set(cases)
        self.total = len(self._pending)
        self.finished = self.failed = self.lab_errors = 0

    def ended(self, case: str, *, failed: bool = False, lab: bool = False) -> None:
        """Count a finished case: `failed` unexpectedly, or for a reason of the `lab`."""
        if case in self._pending:
            self._pending.remove(case)
            self.finished += 1
            self.failed += failed
            self.lab_errors += lab and not failed

    def bad(self) -> str:
        """Describe the cases that need attention."""
        counts = {"failed unexpectedly": self.failed, "without a verdict": self.lab_errors}
        return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


def clock(seconds: float) -> str:
    """Format a duration, as in 0:07, 12:30 and 1:02:03."""
    if seconds >= 360_000:
        return "100 h+"
    whole = math.ceil(max(0.0, seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
