"""Changes of speed and memory in words (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from harness.answers.history.performance import Change
from harness.answers.history.speed import Speed
from harness.ground.errors.outgoing_text import counted

_MOST: Final = 20


def speed_counts(speed: Speed) -> list[tuple[str, int]]:
    """How many figures became what, as far as there are any that changed."""
    found = [(word, len(speed.told(word))) for word in ("slower", "faster")]
    return [(f"{'figure' if n == 1 else 'figures'} {w}", n) for w, n in found if n]


def noise_lines(speed: Speed) -> Iterator[str]:
    """A line for each figure of a device whose noise hides changes as large as asked for.

    Of several cases, the ratio is that of the one in the middle.
    """
    by_figure: dict[tuple[str, str], list[Change]] = {}
    for one in speed.hidden:
        by_figure.setdefault((one.name.device, one.name.figure), []).append(one)
    for (device, figure), hidden in by_figure.items():
        first = hidden[0]
        which = first.name.case or "all cases"
        more = f" and {counted(len(hidden) - 1, 'other case')}" if len(hidden) > 1 else ""
        where = device or "this computer"
        yield (
            f"{where} is {_too_noisy(hidden)} of {figure}: "
            f"{which} x {first.ratio:.3g} ({first.interval}){more}"
        )


def noise_said(speed: Speed) -> str | None:
    """What noise hides, in a few words; None if nothing."""
    hidden = speed.hidden
    if not hidden:
        return None
    return f"{_too_noisy(hidden)} of {counted(len(hidden), 'figure')}"


def _too_noisy(hidden: Sequence[Change]) -> str:
    tells = statistics.median_high(one.tells for one in hidden if one.tells)
    return f"too noisy to tell less than x {tells:.3g}"


def speed_lines(speed: Speed, most: int = _MOST) -> Iterator[str]:
    """What noise hides, a line for each change, the furthest first, and one for what is unknown."""
    yield from noise_lines(speed)
    for verdict in ("slower", "faster"):
        found = speed.told(verdict)
        yield from (f"{_word(one)}: {_said(one)}{_also(speed, one)}" for one in found[:most])
        if len(found) > most:
            yield f"... and {len(found) - most} more {verdict}"
    suspects = speed.suspects
    for one in suspects[:most]:
        yield f"perhaps {_word(one)}: {_said(one)}; {_more(one)} would tell{_also(speed, one)}"
    if len(suspects) > most:
        yield f"... and {len(suspects) - most} more that may have changed"
    unsure = speed.told("unsure")
    unknown = sum(one.more_new is None for one in unsure)
    same = len(speed.told("same"))
    told = f"speed and memory: {counted(same, 'figure')} the same within {100 * speed.effect:g} %"
    if unsure:
        told += f", {len(unsure)} not to be told yet"
    if unknown and speed.base_runs + speed.new_runs < 5:
        told += (
            f" ({counted(speed.base_runs, 'run')} before, {speed.new_runs} new: their noise shows "
            "in earlier runs of the same cases)"
        )
    if speed.judged.changes:
        yield told


def _word(change: Change) -> str:
    memory = "_bytes" in change.name.figure
    return ("more" if memory else "slower") if change.ratio > 1 else "less" if memory else "faster"


def _said(change: Change) -> str:
    return f"{change.name} x {change.ratio:.3g} ({change.interval})"


def _also(speed: Speed, change: Change) -> str:
    return f"; also {', '.join(differ)}" if (differ := speed.around.get(change.name)) else ""


def _more(change: Change) -> str:
    parts = [(change.more_new, "more run"), (change.more_base, "more of the base")]
    said = [counted(n, word) if word == "more run" else f"{n} {word}" for n, word in parts if n]
    return " and ".join(said)
