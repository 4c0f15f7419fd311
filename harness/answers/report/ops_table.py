"""Which op is slow: the most expensive ops of each profiled case, as tables (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from harness.answers.report.document import Block, Line, Paragraph, Span, Table, shortened
from harness.answers.report.summary import part_of
from harness.contexts.context.metadata import entries
from harness.verdict.results.op_events import most_expensive
from harness.verdict.results.record import CaseRecord, is_figure

_SHOWN: Final = 10
_ON_PAGE: Final = 500
_CASES_MOST: Final = 20
_NAME_CHARS: Final = 60
_TIMES: Final = ("cycles", "us")


def ops_tables(records: Iterable[CaseRecord], *, page: bool = False) -> list[Block]:
    """A table of each profiled case, and one of what its preparation or loading took.

    Of a terminal's the ten most expensive ops; a `page` has hundreds.
    """
    profiled = islice((one for one in records if part_of(one, "profile")), _CASES_MOST)
    return [block for one in profiled for block in _of_case(one, page)]


def _of_case(record: CaseRecord, page: bool) -> Iterator[Block]:
    profile = part_of(record, "profile")
    name = shortened(record.case.rpartition("::")[2], 120)
    link = f"#case={quote(record.case)}" if page else ""
    yield Paragraph([Span(name, link=link, style="strong"), *_headline(profile)])
    ops = most_expensive(profile)
    shown = ops[: _ON_PAGE if page else _SHOWN]
    if shown:
        unit = next((one for one in _TIMES if one in shown[0][0]), "cycles")
        title = f"The {len(shown)} most expensive of {len(ops)} ops"
        columns = ("Op", "Node", unit, "Share", "Together", "Spread")
        rows = [_row(one, sum_, unit) for one, sum_ in shown]
        yield Table(title, columns, rows, "measured sortable" if page else "")
    if rows := [_phase(one) for one in entries(profile, "phases")]:
        yield Table("What preparing and loading took", ("Phase", "us"), rows, "measured")


def _headline(profile: Mapping[str, Any]) -> Iterator[Span]:
    """What the accelerator says of all ops together, and what is to be known of the figures."""
    total = profile.get("total")
    if isinstance(total, dict):
        unit = next((one for one in _TIMES if is_figure(total.get(one))), None)
        if unit is not None:
            yield Span(f": {total[unit]:,} {unit} ({total.get('event')}){_parts(total)}")
    added = profile.get("added_us")
    if is_figure(added):
        most = f"{added:,} us" if added > 0 else "nothing that can be told from noise"
        yield Span(f"; the profile itself added {most} to an execution (medians)")
    notes = profile.get("notes")
    for note in notes if isinstance(notes, list) else []:
        yield Span(f"; {note}")


def _parts(total: Mapping[str, Any]) -> str:
    share, spread, runs = total.get("ops_share"), total.get("spread"), total.get("runs")
    said = f", of which the ops are {share:.1%}" if is_figure(share) else ""
    if is_figure(spread) and isinstance(runs, list) and len(runs) > 1:
        said += f"; {len(runs)} runs, {spread:.0%} apart"
    return said


def _row(one: Mapping[str, Any], together: float, unit: str) -> Sequence[Line]:
    share, runs = one.get("share"), one.get("runs")
    part = share if is_figure(share) else 0.0
    seen = [run for run in runs if is_figure(run)] if isinstance(runs, list) else []
    value = one.get(unit)
    spread = (max(seen) - min(seen)) / value if seen and is_figure(value) and value else None
    graph = f" of {one['graph']}" if one.get("graph") else ""
    cells: list[Line] = [
        Span(shortened(f"{one.get('op')}{graph}", _NAME_CHARS)),
        Span(shortened(str(one.get("source") or ""), _NAME_CHARS)),
        f"{value:,}" if is_figure(value) else "",
        f"{part:.1%}",
        f"{together:.1%}",
        "" if spread is None else f"{spread:.0%}",
    ]
    return cells


def _phase(one: Mapping[str, Any]) -> Sequence[Line]:
    took = one.get("us")
    name = shortened(str(one.get("phase")), _NAME_CHARS)
    indented = f"  {name}" if one.get("part") else name
    return Span(indented), f"{took:,}" if is_figure(took) else ""
