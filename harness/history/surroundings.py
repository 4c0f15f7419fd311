"""Differences in the surroundings of two runs: temperatures, clocks, files and devices (pure)."""

from __future__ import annotations

import posixpath
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from harness.core.outgoing_text import counted
from harness.results.record import is_figure

Surroundings = Sequence[Mapping[str, Any]]
# what differs by less is not worth a word; what was seen longer ago tells nothing
_DEGREES: Final = 5.0
_CLOCK: Final = 0.05
_PLACES: Final = 10
_FRESH_S: Final = 600.0
_MOST_CHARS: Final = 40
_NAMED: Final = 5
_NAME_CHARS: Final = 100


def differences(base: Surroundings, new: Surroundings) -> Iterator[str]:
    """In words, what in the `surroundings` of a case, or of many, may show in figures."""
    fresh = [
        [one for one in side if is_figure(seen := one.get("seen_s")) and seen <= _FRESH_S]
        for side in (base, new)
    ]
    was, now = (_middle(side, "hottest_c") for side in fresh)
    if abs(now - was) >= _DEGREES:
        yield f"{abs(now - was):.0f} C {'hotter' if now > was else 'cooler'}"
    was, now = (_middle(side, "clock_limit_khz") for side in fresh)
    if abs(now - was) > _CLOCK * abs(was):
        yield f"clocks up to {now / 1000:.0f} MHz (was {was / 1000:.0f})"
    for name, words in (("governor", "governor"), ("log_level", "log level")):
        of_base, of_new = (_usual(side, name) for side in (base, new))
        if of_base and of_new and of_base != of_new:
            yield f"{words} {of_new} (was {of_base})"
    was, now = (_middle(side, "rounds") for side in (base, new))
    if max(was, now) >= 4 * min(was, now):
        yield f"at most {counted(int(now), 'round')} of a graph (was {was:.0f})"
    was, now = (_middle(side, "cases_before") + 1 for side in (base, new))
    if len(new) == 1 and abs(now - was) >= _PLACES and max(now, was) >= 2 * min(now, was):
        yield f"number {now:.0f} on its device (was {was:.0f})"


def files_changed(base: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The files of tests, models and inputs that are others in a run than before, or are there in
    one alone, by run.json of each; none where one does not say."""
    was, now = ((info or {}).get("code") for info in (base, new))
    if not was or not now:
        return ()
    return tuple(name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name))


def devices_gone(base: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the devices that a run does not use any more, by run.json of each."""
    was, now = ((info or {}).get("devices") for info in (base, new))
    return () if was is None or now is None else tuple(one for one in was if one not in now)


def files_used(
    files: Iterable[str], cases: Collection[str], others: Collection[str]
) -> tuple[str, ...]:
    """Those of the files that cases may use: their test modules, modules above and below these,
    models and inputs. What only the names of `others` have is theirs, and so are the modules that
    lie below their test modules.

    Files are called as from the folder that all test modules have in common.
    """
    own, theirs = (
        {PurePosixPath(one.partition("::")[0]) for one in names} for names in (cases, others)
    )
    base = posixpath.commonpath([str(one.parent) for one in own | theirs])

    def may_be_used(name: str) -> bool:
        path = PurePosixPath(posixpath.normpath(posixpath.join(base, name)))
        if path in own | theirs:
            return path in own
        if path.suffix != ".py":
            called = [any(path.name in one for one in names) for names in (cases, others)]
            return called[0] or not called[1]
        if ".." in path.parts or any(path.parent in one.parents for one in own):
            return True
        folders = [one.parent for one in own | theirs if one.parent in path.parents]
        nearest = max(folders, key=lambda one: len(one.parts), default=None)
        return nearest in {one.parent for one in own}

    return tuple(filter(may_be_used, files))


def named_files(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(name[:_NAME_CHARS] for name in names[:_NAMED])}{more}"


def _middle(side: Surroundings, name: str) -> float:
    """The median; nan, which differs from nothing, if there are no values."""
    values = [value for one in side if is_figure(value := one.get(name))]
    return statistics.median(values) if values else float("nan")


def _usual(side: Surroundings, name: str) -> str:
    values = [value for one in side if isinstance(value := one.get(name), str)]
    return statistics.mode(values or [""])[:_MOST_CHARS]
