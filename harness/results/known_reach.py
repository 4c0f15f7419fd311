"""Known issues that no case can ever meet: a misspelt suite, axis, value or device (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.qnn.backends import BACKENDS
from harness.qnn.platforms import TARGETS
from harness.qnn.socs import HTP_ARCHS, SOCS
from harness.qnn.versions import QnnVersion, VersionRange
from harness.results.known_issues import Conditions, KnownIssue, is_relative, one_holds

# In every record, whatever the parameters of a test.
_ALWAYS: Final = ("backend", "qnn", "ort", "compiler")
_MOST_SHOWN: Final = 8


@dataclass
class Offered:
    """What tests there are, whether or not they were chosen for this run.

    `tests` has for each (suite, test) the values of its axes, by their texts; `suites` names those
    that are there although nothing was collected of them; `devices` and `socs` are those of the
    lab.
    """

    tests: dict[tuple[str, str], dict[str, dict[str, object]]] = field(default_factory=dict)
    suites: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    socs: frozenset[str] = frozenset()

    def add(self, suite: str, test: str, axes: Mapping[str, object]) -> None:
        """Takes note of one case."""
        known = self.tests.setdefault((suite, test), {})
        for name, value in axes.items():
            known.setdefault(name, {}).setdefault(repr(value), value)


def never_matches(issue: KnownIssue, offered: Offered) -> str | None:
    """Why no case can meet an entry's conditions, whatever is chosen; None if one can.

    Versions count only where they contradict each other: which there are depends on the lab.
    """
    return next(_reasons(issue.conditions, offered), None)


def _reasons(conditions: Conditions, offered: Offered) -> Iterator[str]:
    known: dict[str, Iterable[object]] = {
        "backend": BACKENDS,
        "target": TARGETS,
        "htp_arch": HTP_ARCHS,
        "soc": {*SOCS, *offered.socs},
        "device": offered.devices,
    }
    for name, values in known.items():
        wanted = getattr(conditions, name)
        if wanted is not None and values and not _any_holds(values, wanted):
            yield f"no {name} is {_shown(wanted)}"
    for name in ("qnn", "compiler", "ort"):
        wanted = getattr(conditions, name)
        if wanted is not None and not is_relative(wanted) and _contradicts_itself(wanted):
            yield f"no version of {name} is {wanted}"
    yield from _unmet_tests(conditions, offered)


def _unmet_tests(conditions: Conditions, offered: Offered) -> Iterator[str]:
    suite = conditions.suite
    here = {
        names: axes
        for names, axes in offered.tests.items()
        if suite is None or one_holds(names[0], suite)
    }
    if not here:
        if suite is not None and not _any_holds(offered.suites, suite):
            yield f"no suite is called {_shown(suite)}"
        return
    whose = "its suite" if suite is not None else "any suite"
    if conditions.test is not None:
        here = {names: axes for names, axes in here.items() if one_holds(names[1], conditions.test)}
        if not here:
            yield f"no test of {whose} is called {_shown(conditions.test)}"
            return
        whose = "its test"
    missing = [
        name
        for name in conditions.axes
        if name not in _ALWAYS and all(name not in axes for axes in here.values())
    ]
    if missing:
        yield f"no case of {whose} has the axis {', '.join(missing)}"
        return
    for name, wanted in conditions.axes.items():
        values = [value for axes in here.values() for value in axes.get(name, {}).values()]
        if name not in _ALWAYS and not _any_holds(values, wanted):
            shown = _shown(dict.fromkeys(map(str, values)))
            yield f"in no case of {whose} {name} is {_shown(wanted)} (there are: {shown})"


def _any_holds(values: Iterable[object], wanted: Sequence[object]) -> bool:
    return any(one_holds(value, wanted) for value in values)


def _contradicts_itself(text: str) -> bool:
    """Whether nothing is within a range: neither a bound, nor what stands right beside one."""
    wanted = VersionRange.parse(text)
    near = [_around(bound) for _, bound in wanted.clauses]
    return not any(version in wanted for version in itertools.chain.from_iterable(near))


def _around(bound: QnnVersion) -> list[QnnVersion]:
    # one part longer, so that it is compared with every bound to its last part
    parts = (*bound.parts, *[0] * 4)
    before, after = list(parts), list(parts)
    last = len(bound.parts) - 1
    after[last] += 1
    while last >= 0 and before[last] == 0:
        last -= 1
    if last >= 0:
        before[last] -= 1
        before[last + 1 :] = [10**9] * (len(before) - last - 1)
    just_behind = [*parts[:-1], 1]
    return [QnnVersion(tuple(one)) for one in (parts, before, after, just_behind)]


def _shown(values: Iterable[object]) -> str:
    listed = [str(value) for value in values]
    more = len(listed) - _MOST_SHOWN
    return ", ".join(listed[:_MOST_SHOWN]) + (f", and {more} more" if more > 0 else "")
