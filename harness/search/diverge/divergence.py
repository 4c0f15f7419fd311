"""What a search for the first wrong op found: as JSON, in lines, and as a page (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from math import inf
from typing import Annotated, Final, Literal, Self

from markupsafe import Markup
from pydantic import BaseModel, Field

from harness.answers.report.document import Paragraph, Table, aligned, code, shortened
from harness.answers.report.pages import page
from harness.ground.errors.outgoing_text import counted


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

    schema_number: Annotated[Literal[1], Field(alias="schema")] = 1
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
        yield f"{len(curve) - len(shown)} more ops are in the page and in --json"
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
    told = [f"{found.tested}, against {found.against}", *_verdict(found), picture(found.curve)]
    table = Table(counted(len(rows), "op"), _COLUMNS, rows)
    return page("Where it goes wrong", [*map(Paragraph, told), table])


def picture(curve: Sequence[CurvePoint], *, width: int = 900, height: int = 240) -> Markup:
    """Errors along the graph, each decade as high as another, from 1e-8 to 1."""
    from math import log10

    def place(at: int, value: float) -> str:
        part = (log10(min(1.0, max(1e-8, value))) + 8) / 8
        across = at * width / max(1, len(curve) - 1)
        return f"{across:.1f},{height * (1 - part):.1f}"

    drawn = Markup()
    for name, colour in (("error", "#c33"), ("made", "#36c"), ("inherited", "#999")):
        values = [(at, getattr(one, name)) for at, one in enumerate(curve)]
        points = " ".join(place(at, value) for at, value in values if value is not None)
        line = '<polyline fill="none" stroke="{}" points="{}"><title>{}</title></polyline>'
        drawn += Markup(line).format(colour, points, name)
    svg = '<svg viewBox="-4 -4 {} {}" role="img" aria-label="{}">{}</svg>'
    what = "errors along the graph: red in the graph, blue made by the op, grey inherited"
    return Markup(svg).format(width + 8, height + 8, what, drawn)


def _row(one: CurvePoint, is_first: bool) -> list[str]:
    told = " ".join(filter(None, ("<- first" if is_first else "", one.skipped)))
    numbers = map(_text, (one.error, one.made, one.inherited))
    return [shortened(one.op, 60), one.type, *numbers, shortened(told, 80)]


def _text(error: float | None) -> str:
    return "" if error is None else f"{error:.3g}"
