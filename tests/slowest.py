"""The slowest tests of a run that writes junit.xml, beside how long they took in runs before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs

from harness.ground.files.whole_file import write_whole

SHOWN = 10
RUNS_KEPT = 4
LEAST_S = 1.0
"""Quicker tests are not kept: they come into no list."""

Times = Mapping[str, Sequence[float]]


def kept_in() -> Path:
    """In the user's cache, as a checkout of CI has no earlier reports."""
    return platformdirs.user_cache_path("qnn-harness-tests", appauthor=False) / "slowest.json"


def read(file: Path) -> Times:
    """What `written` has written there; nothing where it is not."""
    try:
        found = json.loads(file.read_text())
        return {str(test): [float(one) for one in times] for test, times in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def told(took: Mapping[str, float], before: Times) -> list[str]:
    """Lines about the slowest: seconds, those of earlier runs (the last first), and the test."""
    slowest = sorted(took, key=lambda test: -took[test])[:SHOWN]
    rows = []
    for test in slowest:
        earlier = ", ".join(f"{one:.1f}" for one in reversed(before.get(test, ())))
        rows.append(
            f"{took[test]:7.1f} s  {f'(before: {earlier})' if earlier else '(new)':30} {test}"
        )
    return rows


def later(took: Mapping[str, float], before: Times) -> Times:
    """What is kept for the next run; of a test that was not run, what was known of it."""
    now = {
        test: [*before.get(test, ()), round(seconds, 1)][-RUNS_KEPT:]
        for test, seconds in took.items()
        if seconds >= LEAST_S
    }
    return {test: times for test, times in before.items() if test not in took} | now


def write(file: Path, times: Times) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(times, indent=1).encode())
