"""Differences in the surroundings of two runs: temperatures, clocks, files and devices (pure)."""

from __future__ import annotations

import posixpath
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from harness.core.outgoing_text import counted, first_names
from harness.results.record import is_figure

Surroundings = Sequence[Mapping[str, Any]]
# smaller differences are not reported; older measurements are not compared
_DEGREES: Final = 5.0
_CLOCK: Final = 0.05
_PLACES: Final = 10
_FRESH_S: Final = 600.0
_MOST_CHARS: Final = 40
_NAMED: Final = 5
_NAME_CHARS: Final = 100
_SETTINGS: Final = {"governor": "governor", "log_level": "log level", "power": "power profile"}


def differences(base: Surroundings, new: Surroundings) -> Iterator[str]:
    """Yield differences in the surroundings of cases that may affect figures, in words."""
    fresh = [
        [entry for entry in side if is_figure(age := entry.get("seen_s")) and age <= _FRESH_S]
        for side in (base, new)
    ]
    was, now = (_middle(side, "hottest_c") for side in fresh)
    if abs(now - was) >= _DEGREES:
        yield f"{abs(now - was):.0f} C {'hotter' if now > was else 'cooler'}"
    was, now = (_middle(side, "clock_limit_khz") for side in fresh)
    if abs(now - was) > _CLOCK * abs(was):
        yield f"clocks up to {now / 1000:.0f} MHz (was {was / 1000:.0f})"
    for name, words in _SETTINGS.items():
        of_base, of_new = (_usual(side, name) for side in (base, new))
        if of_base and of_new and of_base != of_new:
            yield f"{words} {of_new} (was {of_base})"
    of_base, of_new = (_usual(side, "profile_run") or "usual" for side in (base, new))
    if of_base != of_new:
        yield f"profile run {of_new} (was {of_base})"
    was, now = (_middle(side, "rounds") for side in (base, new))
    if max(was, now) >= 4 * min(was, now):
        yield f"at most {counted(int(now), 'round')} of a graph (was {was:.0f})"
    was, now = (_middle(side, "cases_before") + 1 for side in (base, new))
    if len(new) == 1 and abs(now - was) >= _PLACES and max(now, was) >= 2 * min(now, was):
        yield f"number {now:.0f} on its device (was {was:.0f})"


def files_changed(base: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the files of tests, models and inputs that differ between runs, by their run.json;
    empty if one does not list them."""
    was, now = ((info or {}).get("code") for info in (base, new))
    if not was or not now:
        return ()
    return tuple(name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name))


def devices_gone(base: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the devices that a run does not use any more, by run.json of each."""
    was, now = ((info or {}).get("devices") for info in (base, new))
    return () if was is None or now is None else tuple(name for name in was if name not in now)


def files_used(
    files: Iterable[str], cases: Collection[str], others: Collection[str]
) -> tuple[str, ...]:
    """Return the files that cases may use: test modules, modules above and below, models, inputs.

    A file that only names of `others` contain belongs to these, as do modules below their test
    modules. Files are relative to the folder that all test modules have in common.
    """
    used, unused = (
        {PurePosixPath(name.partition("::")[0]) for name in names} for names in (cases, others)
    )
    base = posixpath.commonpath([str(path.parent) for path in used | unused])

    def may_be_used(name: str) -> bool:
        path = PurePosixPath(posixpath.normpath(posixpath.join(base, name)))
        if path in used | unused:
            return path in used
        if path.suffix != ".py":
            called = [any(path.name in name for name in names) for names in (cases, others)]
            return called[0] or not called[1]
        if ".." in path.parts or any(path.parent in module.parents for module in used):
            return True
        folders = [module.parent for module in used | unused if module.parent in path.parents]
        nearest = max(folders, key=lambda folder: len(folder.parts), default=None)
        return nearest in {module.parent for module in used}

    return tuple(filter(may_be_used, files))


def named_files(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return first_names((name[:_NAME_CHARS] for name in names), _NAMED)


def _middle(side: Surroundings, name: str) -> float:
    """Return the median; nan, which never counts as a difference, without values."""
    values = [value for entry in side if is_figure(value := entry.get(name))]
    return statistics.median(values) if values else float("nan")


def _usual(side: Surroundings, name: str) -> str:
    values = [value for entry in side if isinstance(value := entry.get(name), str)]
    return statistics.mode(values or [""])[:_MOST_CHARS]
