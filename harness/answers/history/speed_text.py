"""Changes of speed and memory in words (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from harness.answers.history.performance import interval
from harness.answers.history.speed import SpeedCompared, SpeedRow
from harness.ground.errors.outgoing_text import counted

_MOST: Final = 20


def speed_counts(speed: SpeedCompared) -> list[str]:
    """How many figures became what, as far as there are any that changed."""
    found = {"slower": len(speed.slower), "faster": len(speed.faster)}
    return [f"{counted(n, 'figure')} {word}" for word, n in found.items() if n]


def noise_lines(speed: SpeedCompared) -> Iterator[str]:
    """A line for each figure of a device whose noise hides changes as large as asked for.

    Of several cases, the ratio is that of the one in the middle.
    """
    by_figure: dict[tuple[str, str], list[SpeedRow]] = {}
    for row in speed.hidden:
        by_figure.setdefault((row.device, row.figure), []).append(row)
    for (device, figure), hidden in by_figure.items():
        first = hidden[0]
        more = f" and {counted(len(hidden) - 1, 'other case')}" if len(hidden) > 1 else ""
        yield (
            f"{device or 'this computer'} is {_too_noisy(hidden)} of {figure}: "
            f"{first.case or 'all cases'} x {first.ratio:.3g} ({interval(first)}){more}"
        )


def noise_said(speed: SpeedCompared) -> str | None:
    """What noise hides, in a few words; None if nothing."""
    hidden = speed.hidden
    return f"{_too_noisy(hidden)} of {counted(len(hidden), 'figure')}" if hidden else None


def _too_noisy(hidden: Sequence[SpeedRow]) -> str:
    tells = statistics.median_high(row.tells for row in hidden if row.tells)
    return f"too noisy to tell less than x {tells:.3g}"


def speed_lines(speed: SpeedCompared, most: int = _MOST) -> Iterator[str]:
    """What noise hides, a line for each change, the furthest first, and one for what is unknown."""
    yield from noise_lines(speed)
    for verdict, rows in (("slower", speed.slower), ("faster", speed.faster)):
        yield from (f"{_word(row)}: {_said(row)}{_also(row)}" for row in rows[:most])
        if len(rows) > most:
            yield f"... and {len(rows) - most} more {verdict}"
    for row in speed.suspects[:most]:
        yield f"perhaps {_word(row)}: {_said(row)}; {_more(row)} would tell{_also(row)}"
    if len(speed.suspects) > most:
        yield f"... and {len(speed.suspects) - most} more that may have changed"
    told = f"speed and memory: {counted(speed.same, 'figure')} the same within "
    told += f"{100 * speed.effect:g} %"
    if speed.unsure:
        told += f", {speed.unsure} not to be told yet"
    if speed.unknown and speed.base_runs + speed.new_runs < 5:
        told += (
            f" ({counted(speed.base_runs, 'run')} before, {speed.new_runs} new: their noise shows "
            "in earlier runs of the same cases)"
        )
    if speed.same or speed.unsure or speed.slower or speed.faster:
        yield told


def _word(row: SpeedRow) -> str:
    memory = "_bytes" in row.figure
    return ("more" if memory else "slower") if row.ratio > 1 else "less" if memory else "faster"


def _said(row: SpeedRow) -> str:
    of = row.case or f"all cases on {row.device}"
    return f"{row.figure} of {of} x {row.ratio:.3g} ({interval(row)})"


def _also(row: SpeedRow) -> str:
    return f"; also {', '.join(row.surroundings)}" if row.surroundings else ""


def _more(row: SpeedRow) -> str:
    parts = [(row.more_new, "more run"), (row.more_base, "more of the base")]
    said = [counted(n, word) if word == "more run" else f"{n} {word}" for n, word in parts if n]
    return " and ".join(said)
