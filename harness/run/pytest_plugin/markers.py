"""The markers of the plug-in, and tests that have others than they were meant to have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import pytest

from harness.ground.errors import ConfigError

MARKERS: Final = (
    "device(backend, qnn, engine, compilers, htp_arch, soc, target, simulated, tags): runs on "
    "devices of the lab that satisfy every keyword given; with ONNX Runtime if engine is ort, "
    "with contexts of all compilers if compilers is all",
    "timed: waits until its device is cool and idle (`gate` in devices.yaml)",
    "takes_contexts(parameter): with --contexts, that parameter is the contexts of a file",
)
"""What tests may be marked with, and what that means."""

MISTAKE = pytest.StashKey[ConfigError]()
"""What is wrong with how a test is marked."""

_DEVICE: Final = "device"
_BENCH: Final = "bench"
_LATE: Final = (
    "is marked `device` by a parameter or a hook, which is too late: mark the function, its class "
    "or its module"
)
_OWN: Final = "(one of your own has to be in pytest's setting `markers`)"


def takes_bench(fixtures: Collection[str]) -> bool:
    """Whether a test takes our fixture: somebody may have one of their own of either name."""
    return _BENCH in fixtures and "placement" in fixtures


def _names(lines: Iterable[str]) -> list[str]:
    return [line.partition(":")[0].partition("(")[0].strip() for line in lines]


def note_mistakes(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Takes note of each test that is no device test and was to be one, or has a wrong requirement.

    It is an error of that test, which `-m device` takes. pytest only warns of a marker that nobody
    knows: the test would run without a device, or on each. A registered marker is somebody's own.
    """
    known = frozenset(_names(config.getini("markers")))
    for item in items:
        names = dict.fromkeys(mark.name for mark in item.iter_markers())
        unknown, marked = [name for name in names if name not in known], _DEVICE in names
        problem = mistake(unknown, marked=marked, fixtures=getattr(item, "fixturenames", ()))
        if problem is None and marked and _is_marked_late(item):
            problem = _LATE
        wrong = getattr(getattr(item, "callspec", None), "params", {}).get("placement")
        if problem is not None:
            file, line, _ = item.location
            name = getattr(item, "originalname", item.name)
            wrong = ConfigError(f"{name} {problem}", file=file, line=(line or 0) + 1)
        if isinstance(wrong, ConfigError):
            item.stash[MISTAKE] = wrong
            item.add_marker(_DEVICE)


def _is_marked_late(item: pytest.Item) -> bool:
    mark, test = item.get_closest_marker(_DEVICE), getattr(item, "obj", None)
    of_parents = item.parent.iter_markers(_DEVICE) if item.parent is not None else ()
    return None not in (mark, test) and mark not in [*getattr(test, "pytestmark", ()), *of_parents]


def mistake(unknown: Collection[str], *, marked: bool, fixtures: Collection[str]) -> str | None:
    """What is wrong with the markers of a test, of which some are `unknown` (pure)."""
    asks = takes_bench(fixtures)
    ours = _names(MARKERS) if asks else [_DEVICE]
    for name in unknown:
        meant = next((one for one in ours if _is_slip_of(one, name.casefold())), "")
        guess = f", did you mean {meant!r}?" if meant else ""
        if asks and not marked:
            from harness.ground.yaml_lines.models import did_you_mean

            guess = guess or did_you_mean(name, [_DEVICE])
        if guess:
            return f"has the unknown marker {name!r}{guess} {_OWN}"
    if asks and not marked:
        return "takes the fixture `bench`: mark it with @pytest.mark.device"
    if marked and not asks:
        slip = next((f", not {one!r}" for one in fixtures if _is_slip_of(_BENCH, one)), "")
        return f"is marked `device` and must take the fixture `bench`{slip}"
    return None


def _is_slip_of(meant: str, word: str) -> bool:
    ours, theirs = _less_a_letter(meant), _less_a_letter(word)
    wrong = any(one == other for one, other in zip(ours, theirs, strict=False))
    return sorted(word) == sorted(meant) or word in ours or meant in theirs or wrong


def _less_a_letter(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at in range(len(word))]
