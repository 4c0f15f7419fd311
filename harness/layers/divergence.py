"""What a search for the first wrong op found: as JSON, in lines, and as a page (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import inf, log10
from typing import Final, Literal, Self

from markupsafe import Markup
from pydantic import BaseModel

from harness.core.outgoing_text import counted
from harness.core.schema_field import Schema1
from harness.report.document import (
    Heading,
    Paragraph,
    Table,
    aligned,
    code,
    page,
    shortened,
)


class CurvePoint(BaseModel):
    """An op on the curve. An error is relative: length of the difference by that of the value.

    `nodes` are all that are calculated as one with it. `error` is that of the tested side in the
    whole graph, `made` what the op makes of the reference's inputs, `inherited` what an exact op
    makes of the tested side's inputs. `changed` is what the tested model's op makes in place of the
    reference's, both exact. None: not known. `skipped`: why some are not.
    """

    op: str
    type: str
    nodes: tuple[str, ...]
    output: str
    error: float | None = None
    made: float | None = None
    inherited: float | None = None
    changed: float | None = None
    skipped: str | None = None

    def without_infinite(self) -> Self:
        """The same without errors that are no figures: `skipped` has why."""
        names = ("error", "made", "inherited", "changed", "in_graph")
        return self.model_copy(
            update={name: None for name in names if getattr(self, name, None) == inf}
        )


Because = Literal["the model", "arithmetic", "the graph"]
"""The op is another than the reference's; it makes an error; it does so only beside others."""


class FirstOp(CurvePoint):
    """The first op that goes wrong, told by `because` of what; `error` is what that makes.

    `max_abs` and `cosine` are of what the exported ops give. `together` is how many these are:
    more than one where the op alone is right, none where no part of the graph shows the error.
    """

    in_graph: float | None
    because: Because
    max_abs: float | None = None
    cosine: float | None = None
    together: int = 1
    exported: str | None = None


class Divergence(BaseModel):
    """What `contexts diverge --json` prints.

    `whole` says whether every op was looked at in the graph; where it is false, those between
    were passed by on the way to the first that is wrong. `refused` is why the model as a whole did
    not run, if it did not.
    """

    schema_number: Schema1 = 1
    kind: Literal["divergence"] = "divergence"
    model: str
    reference: str | None
    tested: str
    against: str
    threshold: float
    first: FirstOp | None
    curve: tuple[CurvePoint, ...]
    whole: bool = True
    refused: str | None = None
    compiles: int = 0
    exit_code: int = 0

    @property
    def place(self) -> int | None:
        """Where the first op stands on the curve."""
        first = self.first
        nodes = [] if first is None else [first.op in one.nodes for one in self.curve]
        return nodes.index(True) if True in nodes else None


_SHOWN: Final = 24
_COLUMNS: Final = ("op", "type", "error", "made", "inherited", "")


def lines(found: Divergence) -> Iterator[str]:
    """It in words; of a long curve what lies around the first wrong op."""
    yield f"{found.model} on {found.tested}, against {found.against}"
    if found.refused:
        yield f"not as a whole: {found.refused}"
    curve, at = found.curve, found.place or 0
    begin = max(0, min(at - _SHOWN // 2, len(curve) - _SHOWN))
    shown = curve[begin : begin + _SHOWN]
    rows = [_row(one, at == found.place) for at, one in enumerate(shown, begin)]
    yield from aligned([_COLUMNS, *rows])
    if len(shown) < len(curve):
        yield f"{counted(len(curve) - len(shown), 'more op')} in the page and in --json"
    yield from _verdict(found)


def _verdict(found: Divergence) -> Iterator[str]:
    first = found.first
    if first is None:
        which = "no op that ran" if found.refused else "no op"
        above = sum(one.made is not None and one.made > found.threshold for one in found.curve)
        few = f"{which} makes an error above {found.threshold:g}"
        many = f"no op stands out: {counted(above, 'op')} make errors above {found.threshold:g}"
        yield many if above else few
        return
    named = f"first wrong: {first.op} ({first.type})"
    alone, in_graph = (_text(one) or "not known" for one in (first.made, first.in_graph))
    far = f"relative error {_text(first.error)}" if first.error is not None else first.skipped
    if first.because == "the model":
        yield f"{named} is not the reference's: {far}"
    elif first.because == "arithmetic":
        yield f"{named} is wrong: {far} from right inputs; in the graph {in_graph}"
    else:
        yield f"{named} is wrong in the graph only: {far}; alone, from right inputs, {alone}"
        with_others = f"with {counted(first.together - 1, 'op')} before it it is wrong, too"
        yield with_others if first.together > 1 else "no part of the graph up to it shows that"
    if first.exported:
        folder = shlex.quote(first.exported)
        again = f"qnn-harness run {folder}/op.onnx --inputs {folder}/inputs"
        yield f"to reproduce it: {again} --expected {folder}/expected"


def as_page(found: Divergence) -> str:
    """A page with the curve as a picture and as a table."""
    rows = [
        [code(one) if at == 0 else one for at, one in enumerate(_row(point, place == found.place))]
        for place, point in enumerate(found.curve)
    ]
    told = [f"{found.tested}, against {found.against}", *_verdict(found), picture(found)]
    table = Table(counted(len(rows), "op"), _COLUMNS, rows)
    title = f"Where {found.model} goes wrong"
    return page(title, [Heading(title, level=1), *map(Paragraph, told), table])


_LINES: Final = (
    ("error", "#c33", "in the graph"),
    ("made", "#36c", "made by the op of right inputs"),
    ("inherited", "#999", "inherited from the ops before"),
)
_DECADES: Final = 8


def picture(found: Divergence, *, width: int = 900, height: int = 240) -> Markup:
    """Relative errors of ops along the graph, each decade as high as another, from 1e-8 to 1."""
    ops = found.curve

    def across(at: int) -> float:
        return at * width / max(1, len(ops) - 1)

    def down(value: float) -> float:
        return -log10(min(1.0, max(10**-_DECADES, value))) * height / _DECADES

    drawn = Markup()

    def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
        shape = '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>'
        return Markup(shape).format(x1, y1, x2, y2, Markup(style))

    def text(x: float, y: float, words: str, anchor: str = "end") -> Markup:
        shape = '<text x="{:.1f}" y="{:.1f}" text-anchor="{}" fill="currentColor">{}</text>'
        return Markup(shape).format(x, y, anchor, words)

    for decade in range(_DECADES + 1):
        at = decade * height / _DECADES
        drawn += line(0, at, width, at, 'stroke="#8884"')
        drawn += text(-6, at + 4, "1" if not decade else f"1e-{decade}")
    if found.threshold > 0:
        at = down(found.threshold)
        drawn += line(0, at, width, at, 'stroke="#a60" stroke-dasharray="6 4"')
        drawn += text(width, at - 4, f"threshold {found.threshold:g}")
    if found.place is not None:
        at = across(found.place)
        drawn += line(at, 0, at, height, 'stroke="#a60" stroke-dasharray="2 4"')
    for name, colour, words in _LINES:
        values = [(at, getattr(one, name)) for at, one in enumerate(ops)]
        points = " ".join(
            f"{across(at):.1f},{down(value):.1f}" for at, value in values if value is not None
        )
        shape = '<polyline fill="none" stroke="{}" points="{}"><title>{}</title></polyline>'
        drawn += Markup(shape).format(colour, points, words)
    for at in sorted({0, len(ops) // 2, len(ops) - 1} if ops else ()):
        anchor = "start" if not at else "end" if at == len(ops) - 1 else "middle"
        drawn += text(across(at), height + 16, f"{at + 1}: {shortened(ops[at].op, 30)}", anchor)
    drawn += text(width / 2, height + 36, "ops in the order of the graph", "middle")
    legend = Markup("").join(
        Markup('<span><i style="background:{}"></i>{}</span>').format(colour, words)
        for _, colour, words in _LINES
    )
    title = f"Relative error of each op of {found.model}, {found.tested} against {found.against}"
    return Markup(
        '<figure><figcaption>{0}</figcaption><svg class="chart" viewBox="-50 -14 {1} {2}" '
        'role="img" aria-label="{0}">{3}</svg><div class="legend">{4}</div></figure>'
    ).format(title, width + 60, height + 60, drawn, legend)


def _row(one: CurvePoint, is_first: bool) -> list[str]:
    told = " ".join(filter(None, ("<- first" if is_first else "", one.skipped)))
    numbers = map(_text, (one.error, one.made, one.inherited))
    return [shortened(one.op, 60), one.type, *numbers, shortened(told, 80)]


def _text(error: float | None) -> str:
    return "" if error is None else f"{error:.3g}"
