"""What is shown of a run while it goes on: how far it is, and what each device is at (pure)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from harness.ground.errors.outgoing_text import outgoing

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
_TRUSTED_S: Final = 1.0
"""In seconds: the rate over a shorter time says nothing."""


def one_line(text: object) -> str:
    """A text of anybody's as one line that steers no terminal, of bounded length."""
    return " ".join(outgoing(str(text)[:MAX_CHARS]).split())[:MAX_CHARS]


def cleaned(facts: Mapping[str, object]) -> dict[str, Fact | None]:
    """The facts that are known, bounded, since each may come from a device."""
    found: dict[str, Fact | None] = {}
    for name, value in facts.items():
        if name in FACTS and value is None:
            found[name] = None
        elif name in _TEXTS and isinstance(value, str):
            found[name] = one_line(value)
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
        device = one_line(device) or THIS_COMPUTER
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


@dataclass
class DeviceState:
    """What one device is at: since when at its case, since when and from where at `doing`."""

    facts: Facts = field(default_factory=dict)
    case_since: float = 0.0
    begun: tuple[float, float] = (0.0, 0.0)

    def number(self, name: str) -> float:
        """A fact that is a number; 0 if it was not told."""
        fact = self.facts.get(name, 0)
        return 0.0 if isinstance(fact, str) else fact

    def rate(self, now: float) -> float | None:
        """How much of `doing` gets done in a second; None as long as that is not known."""
        since, at_first = self.begun
        done = self.number("done") - at_first
        return done / (now - since) if now - since >= _TRUSTED_S and done > 0 else None


class RunState:
    """How far a run is. Times are seconds of one clock, which the caller reads."""

    def __init__(
        self,
        cases: Mapping[str, str],
        now: float,
        *,
        side_by_side: int = 1,
        sharing: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`cases` has the device of each case, of which `side_by_side` run at the same time.

        A name in `sharing` stands for as many devices that share its cases.
        """
        self._sharing = sharing
        self.total = len(cases)
        self.done = self.failed = self.lab_errors = 0
        self.began = now
        self.devices: dict[str, DeviceState] = {
            name: DeviceState() for name in dict.fromkeys(cases.values())
        }
        self._side_by_side = max(1, side_by_side)
        self._left = dict(cases)
        self._spent_s = 0.0
        self._expected: Mapping[str, float] = {}
        self._of_test: dict[str, float] = {}
        self.waiting = Counter(cases.values())
        """How many cases each device has still to run, as it was planned."""
        self._known_s: dict[str, float] = {}
        self._unknown: Counter[str] = Counter()
        self.expect({})

    def expect(self, durations: Mapping[str, float]) -> None:
        """How long each case took the last time: by its name, or by its test's if it is new."""
        self._expected = durations
        of_test: dict[str, list[float]] = {}
        for case, seconds in durations.items():
            of_test.setdefault(_test(case), []).append(seconds)
        self._of_test = {test: sum(all_) / len(all_) for test, all_ in of_test.items()}
        self._known_s, self._unknown = dict.fromkeys(self.waiting, 0.0), Counter()
        for case, device in self._left.items():
            self._count(case, device, 1)

    def take(self, device: str, facts: Facts, now: float) -> None:
        """All that is known of a device by now."""
        if device not in self.devices and len(self.devices) >= _MAX_DEVICES:
            return
        state = self.devices.setdefault(device, DeviceState())
        before, state.facts = state.facts, facts
        if facts.get("case") != before.get("case"):
            state.case_since = now
        if facts.get("doing") != before.get("doing"):
            state.begun = now, state.number("done")

    def ended(self, case: str, seconds: float, *, failed: bool = False, lab: bool = False) -> bool:
        """Takes note that a case is over: whether it failed unexpectedly, or the lab failed it.

        Whether it counts, which each case does once.
        """
        device = self._left.pop(case, None)
        if device is None:
            return False
        self._count(case, device, -1)
        self.waiting[device] -= 1
        self.done += 1
        self.failed += failed
        self.lab_errors += lab and not failed
        self._spent_s += max(0.0, seconds)
        return True

    def left_s(self, now: float) -> float | None:
        """Seconds until the last case is over; None if nothing tells yet."""
        usual = self._usual_s()
        if usual is None:
            return None
        by_device = {
            device: known + self._unknown[device] * usual for device, known in self._known_s.items()
        }
        passed = []
        for state in self.devices.values():
            case = state.facts.get("case")
            if isinstance(case, str) and case in self._left:
                expected = self._seconds(case)
                at_most = usual if expected is None else expected
                passed.append(min(now - state.case_since, at_most))
        longest = max(
            (
                seconds / min(self._sharing.get(name, 1), self._side_by_side)
                for name, seconds in by_device.items()
            ),
            default=0.0,
        )
        left = max(longest, sum(by_device.values()) / self._side_by_side)
        return max(0.0, left - (sum(passed) / len(passed) if passed else 0.0))

    def _usual_s(self) -> float | None:
        if self.done:
            return self._spent_s / self.done
        known = self._expected.values()
        return sum(known) / len(known) if known else None

    def _seconds(self, case: str) -> float | None:
        return self._expected.get(case, self._of_test.get(_test(case)))

    def _count(self, case: str, device: str, sign: int) -> None:
        seconds = self._seconds(case)
        if seconds is None:
            self._unknown[device] += sign
        else:
            self._known_s[device] += sign * seconds


def _test(case: str) -> str:
    return case.partition("[")[0]


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
