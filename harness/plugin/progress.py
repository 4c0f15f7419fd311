"""The progress of a run and of each of its devices (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from harness.core.outgoing_text import clock, counted

MAX_CHARS: Final = 200


def details(facts: Mapping[str, Any]) -> str:
    """Describe the facts of a device."""
    parts = [facts.get("doing")]
    if parts[0] and facts.get("total"):
        scale, unit, digits = (1e6, " MB", 1) if facts.get("unit") == "MB" else (1, "", 0)
        part, whole = (f"{facts.get(x, 0) / scale:.{digits}f}" for x in ("done", "total"))
        parts.append(f"{part}/{whole}{unit}")
    elif not parts[0] and facts.get("contexts"):
        parts.append(f"{facts.get('loaded', 0)}/{facts['contexts']} contexts")
    if verb := facts.get("verb"):
        parts.append(f"{facts.get('step', 0)}/{facts.get('steps', 0)} {verb}")
    case = facts.get("case", "")
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

    def plain_line(self, seconds: float) -> str:
        bad = {"failed": self.failed, "without a result": self.lab_errors}
        parts = [f"{self.finished} of {counted(self.total, 'case')}"]
        parts += [f"{count} {words}" for words, count in bad.items() if count]
        if self.finished:
            parts.append(f"about {clock(seconds / self.finished * len(self._pending))} left")
        return f"qnn-harness: {', '.join(parts)}"
