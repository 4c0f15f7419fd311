"""What the site draws: runs of a case as a strip, nights as bars, figures with their noise (pure).

A shape says what a colour says: what passed is low, what failed is high, what is lost is a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from harness.answers.history.noise import SMALLEST_SCALE, median, scales

_BANDS: Final = 3
_CELL: Final = 10
_HIGH: Final = 18
_TALL: Final = 120
_SHAPES: Final[Mapping[str, tuple[str, int, int]]] = {
    ".": ("passed", 11, 5),
    "F": ("failed", 1, 15),
    "x": ("expected", 6, 10),
    "~": ("hung", 1, 15),
    "?": ("lost", 4, 12),
    "-": ("skipped", 14, 2),
}
_WORDS: Final = {
    "passed": "passed",
    "failed": "failed",
    "known": "failed as known",
    "lost": "without a verdict",
    "unsupported": "unsupported",
    "skipped": "skipped",
}
_CLASSES: Final = {"known": "expected", "lost": "error"}


def strip(marks: Sequence[str], said: Sequence[str] = (), days: Sequence[str] = ()) -> Markup:
    """Runs as bars, the newest to the right; ` ` where there was none. What is `said` of each is
    told once of those beside each other that it fits, with their days."""
    bars, at = "", 0
    for (mark, words), alike in groupby(zip(marks, said or marks, strict=True)):
        first, at = at, at + len(list(alike))
        if mark in _SHAPES:
            name, top, tall = _SHAPES[mark]
            bar = "zm10 0".join([f"h8v{tall}h-8"] * (at - first))
            bars += f'<path class="o-{name}" d="M{first * _CELL + 1} {top}{bar}z">'
            if said:
                day = " to ".join(dict.fromkeys((days[first], days[at - 1])))
                bars += f"<title>{escape(day)}: {escape(words)}</title>"
            bars += "</path>"
    return Markup(
        '<svg class="strip" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" '
        'aria-label="last runs: {2}">{3}</svg>'
    ).format(max(1, len(marks)) * _CELL, _HIGH, "".join(marks).strip(), Markup(bars))


class Bar(NamedTuple):
    """A night of the trend: what came of how many cases, and where its page is."""

    name: str
    link: str
    counts: Mapping[str, int]


def trend(bars: Sequence[Bar]) -> Markup:
    """Nights beside each other, the newest to the right; each leads to its page."""
    most = max((sum(one.counts.values()) for one in bars), default=0) or 1
    drawn = []
    for at, bar in enumerate(bars):
        parts, top = Markup(""), float(_TALL)
        said = ", ".join(f"{count} {_WORDS[name]}" for name, count in bar.counts.items() if count)
        talls = {name: count * _TALL / most for name, count in bar.counts.items()}
        for name, count in bar.counts.items():
            # what went wrong is never too thin to be seen, at the cost of what is most
            thin = max(0.0, 3 - talls[name]) if count and name in ("failed", "lost") else 0.0
            talls[name] += thin
            talls[max(talls, key=lambda one: talls[one])] -= thin
        for name, tall in talls.items():
            top -= tall
            parts += Markup(
                '<rect class="o-{}" x="{}" y="{:.1f}" width="16" height="{:.1f}"/>'
            ).format(_CLASSES.get(name, name), at * 20 + 2, top, tall)
        drawn.append(
            Markup('<a href="{0}" aria-label="{1}: {2}"><title>{1}: {2}</title>{3}</a>').format(
                bar.link, bar.name, said, parts
            )
        )
    return Markup(
        '<svg class="chart trend" viewBox="0 -8 {0} {1}" preserveAspectRatio="xMinYMid" '
        'role="group" aria-label="nights">{2}</svg>'
    ).format(max(1, len(bars)) * 20, _TALL + 10, Markup("").join(drawn))


def curve(
    values: Sequence[float | None], said: Callable[[int], str], title: str, *, band: bool = True
) -> Markup:
    """A figure over runs, `said` tells each in words; with the band in which noise alone keeps
    it."""
    known = [(at, value) for at, value in enumerate(values) if value is not None and value > 0]
    if len(known) < 2:
        return Markup("")
    numbers = [value for _, value in known]
    low, high = _band(numbers) if band else (min(numbers), max(numbers))
    least, most = min(low, *(v for _, v in known)), max(high, *(v for _, v in known))
    wide, tall, span = 480, 70, (most - least) or 1.0

    def place(at: int, value: float) -> tuple[float, float]:
        return 4 + at * (wide - 8) / max(1, len(values) - 1), 66 - (value - least) / span * 62

    points = " ".join("{:.1f},{:.1f}".format(*place(*one)) for one in known)
    dots = ""
    for at, value in known:
        if not low <= value <= high or at == known[-1][0]:
            (x, y), style = place(at, value), "" if low <= value <= high else "out"
            dots += f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            dots += f"<title>{escape(said(at))}</title></circle>"
    top = place(0, high)[1]
    return Markup(
        '<figure><figcaption>{0}: {1}</figcaption><svg class="curve" viewBox="0 0 {2} {3}" '
        'role="img" aria-label="{0}"><rect class="{8}" x="0" '
        'y="{4:.1f}" width="{2}" height="{5:.1f}"/>'
        '<polyline points="{6}"/>{7}</svg></figure>'
    ).format(
        title,
        said(known[-1][0]),
        wide,
        tall,
        top,
        place(0, low)[1] - top,
        points,
        Markup(dots),
        "band" if band else "none",
    )


def beside(curves: Sequence[Markup]) -> Markup:
    """Curves beside each other, as many as there is room for."""
    return Markup('<div class="curves">{}</div>').format(Markup("").join(curves))


def _band(values: Sequence[float]) -> tuple[float, float]:
    """Between which values noise keeps a figure, as far as its own runs tell."""
    logs = np.log(np.array([values]))
    none = np.zeros(1, dtype=np.int64)
    scale, _ = scales(logs[:, :-1], logs[:, -1:], none, np.full(1, SMALLEST_SCALE))
    middle, width = float(median(logs)[0]), _BANDS * float(scale[0])
    return float(np.exp(middle - width)), float(np.exp(middle + width))
