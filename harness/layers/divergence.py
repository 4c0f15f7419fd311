"""Result of a search for the first wrong op: as JSON, as lines, and as a page (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import inf, log10
from typing import Final, Literal, Self

from markupsafe import Markup
from pydantic import BaseModel

from harness.core.json_record import Schema1
from harness.core.outgoing_text import counted, shortened
from harness.report.document import Heading, Paragraph, Table, aligned, code, page, template


class CurvePoint(BaseModel):
    """An op on the curve. Errors are relative: norm of the difference by norm of the value.

    `nodes` are all that are calculated as one with it. `error` is that of the tested side in the
    whole graph, `made` that of the op with the reference's inputs, `inherited` that of an exact op
    with the tested side's inputs. `changed` is that of the tested model's op against the
    reference's, both exact. None: not known; `skipped` says why.
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
        """Return a copy without infinite errors, which `skipped` explains."""
        names = ("error", "made", "inherited", "changed", "in_graph")
        return self.model_copy(
            update={name: None for name in names if getattr(self, name, None) == inf}
        )


Because = Literal["the model", "arithmetic", "the graph"]
"""The op differs from the reference's; it makes an error; it does so only together with others."""


class FirstOp(CurvePoint):
    """The first wrong op; `because` is the cause, `error` the error that it makes.

    `together` is the number of exported ops: more than one if the op alone is right, none if no
    part of the graph shows the error.
    """

    in_graph: float | None
    because: Because
    together: int = 1
    exported: str | None = None


class Divergence(BaseModel):
    """Output of `model layers --json`.

    `refused` is the reason if the model as a whole did not run.
    """

    schema_number: Schema1 = 1
    kind: Literal["layers"] = "layers"
    model: str
    reference: str | None
    tested: str
    against: str
    threshold: float
    first: FirstOp | None
    curve: tuple[CurvePoint, ...]
    refused: str | None = None
    exit_code: int = 0

    @property
    def place(self) -> int | None:
        """Index of the first wrong op on the curve."""
        first = self.first
        nodes = [] if first is None else [first.op in point.nodes for point in self.curve]
        return nodes.index(True) if True in nodes else None


_SHOWN: Final = 24
_COLUMNS: Final = ("op", "type", "relative error", "added", "inherited", "note")


def lines(result: Divergence) -> Iterator[str]:
    """Format a divergence as text; of a long curve, the part around the first wrong op."""
    yield f"{result.model} on {result.tested}, against {result.against}"
    if result.refused:
        yield f"the whole model did not run: {result.refused}"
    rows = _rows(result)
    begin = max(0, min((result.place or 0) - _SHOWN // 2, len(rows) - _SHOWN))
    shown = rows[begin : begin + _SHOWN]
    yield from aligned([_COLUMNS, *shown])
    if len(shown) < len(rows):
        yield f"{counted(len(rows) - len(shown), 'more op')} on the page and with --json"
    yield from _verdict(result)


def _verdict(result: Divergence) -> Iterator[str]:
    first = result.first
    if first is None:
        subject = "no op that ran" if result.refused else "no op"
        errors = [point.made for point in result.curve if point.made is not None]
        above = sum(error > result.threshold for error in errors)
        limit = f"a relative error above {result.threshold:g}"
        few = f"{subject} adds {limit}"
        yield f"no op stands out: {counted(above, 'op adds', 'ops add')} {limit}" if above else few
        return
    named = f"first wrong: {first.op} ({first.type})"
    alone, in_graph = (_text(error) or "unknown" for error in (first.made, first.in_graph))
    far = f"relative error {_text(first.error)}" if first.error is not None else first.skipped
    if first.because == "the model":
        yield f"{named} differs from the reference model: {far}"
    elif first.because == "arithmetic":
        yield f"{named} is wrong: {far} with correct inputs; in the graph {in_graph}"
    else:
        yield f"{named} is wrong only in the graph: {far}; alone, with correct inputs, {alone}"
        with_others = f"also wrong together with {counted(first.together - 1, 'op')} before it"
        yield with_others if first.together > 1 else "no smaller part of the graph reproduces this"
    if first.exported:
        folder = shlex.quote(first.exported)
        again = f"qnn-harness run {folder}/op.onnx --inputs {folder}/inputs"
        yield f"to reproduce it: {again} --expected {folder}/expected"


def as_page(result: Divergence) -> str:
    """Return a page with the curve as a picture and as a table."""
    rows = [[cell if i else code(cell) for i, cell in enumerate(row)] for row in _rows(result)]
    sides = f"{result.tested}, against {result.against}"
    paragraphs = [sides, *_verdict(result), picture(result)]
    table = Table(counted(len(rows), "op"), _COLUMNS, rows)
    title = f"Where {result.model} goes wrong"
    return page(title, [Heading(title, level=1), *map(Paragraph, paragraphs), table])


_LINES: Final = (
    ("error", "#c33", "in the graph"),
    ("made", "#36c", "added by the op with correct inputs"),
    ("inherited", "#999", "inherited from the ops before"),
)
_DECADES: Final = 8


def picture(result: Divergence, *, width: int = 900, height: int = 240) -> Markup:
    """Plot the relative errors of ops along the graph on a logarithmic scale, from 1e-8 to 1."""
    ops = result.curve

    def across(index: int) -> float:
        return index * width / max(1, len(ops) - 1)

    def down(value: float) -> float:
        return -log10(min(1.0, max(10**-_DECADES, value))) * height / _DECADES

    def points(name: str) -> str:
        values = [(index, getattr(op, name)) for index, op in enumerate(ops)]
        known = [(index, value) for index, value in values if value is not None]
        return " ".join(f"{across(index):.1f},{down(value):.1f}" for index, value in known)

    anchors = {len(ops) // 2: "middle", len(ops) - 1: "end", 0: "start"} if ops else {}
    figure = template("curve.svg.j2", __package__).render(
        result=result,
        width=width,
        height=height,
        decades=_DECADES,
        lines=_LINES,
        labels=[(i, shortened(ops[i].op, 30), anchor) for i, anchor in sorted(anchors.items())],
        across=across,
        down=down,
        points=points,
    )
    return Markup(figure)


def _rows(result: Divergence) -> list[list[str]]:
    return [_row(point, index == result.place) for index, point in enumerate(result.curve)]


def _row(point: CurvePoint, is_first: bool) -> list[str]:
    notes = " ".join(filter(None, ("<- first" if is_first else "", point.skipped)))
    numbers = map(_text, (point.error, point.made, point.inherited))
    return [shortened(point.op, 60), point.type, *numbers, shortened(notes, 80)]


def _text(error: float | None) -> str:
    return "" if error is None else f"{error:.3g}"
