"""How fast and how right a user's model ran, op by op and node by node, as tables (pure).

Nodes without a reason are counted by their op; those that were refused are named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import quote

from harness.core.axes import ENGINES, VERSIONS
from harness.core.outgoing_text import counted
from harness.core.socs import limits_of_simulation
from harness.core.versions import QnnVersion
from harness.models.metadata import entries
from harness.models.source import MADE_UP
from harness.report.document import Block, Line, Paragraph, Span, Table, code, shortened
from harness.report.summary import part_of
from harness.results.journal import Reader, read_once
from harness.results.op_events import OpCost, most_expensive, op_costs
from harness.results.record import CaseRecord, is_figure

_MOST_OPS_IN_GRID: Final = 20
_Columns = dict[str, dict[str, OpCost]]


def ops_by_version(records: Iterable[CaseRecord]) -> list[Block]:
    """A table for each case that was profiled with several versions, the largest ops first.

    An op that was fused into another one says into which, one that is not there has a dash.
    """
    found: dict[str, _Columns] = {}
    for record in records:
        costs = op_costs(record.measurements.get("profile"))
        if costs and record.outcome == "passed":
            where = record.device.name if record.device is not None else ""
            axes = record.axes.items()
            apart = [f"{value}" for name, value in axes if name not in VERSIONS and value != where]
            title = ", ".join(filter(None, [*dict.fromkeys([where, *apart])]))
            found.setdefault(title, {})[f"{record.axes.get('qnn')}"] = costs
    return [_table(title, one) for title, one in found.items() if len(one) > 1]


def _table(title: str, columns: _Columns) -> Table:
    versions = sorted(columns, key=version_order)
    largest: dict[str, float] = {}
    for costs in columns.values():
        whole = sum(one.value for one in costs.values()) or 1
        for op, one in costs.items():
            largest[op] = max(largest.get(op, 0.0), one.value / whole)
    ops = sorted(largest, key=lambda op: -largest[op])[:_MOST_OPS_IN_GRID]
    rows: list[Sequence[Line]] = [
        [code(op), *(_cell(columns[version].get(op)) for version in versions)] for op in ops
    ]
    return Table(f"Ops by version: {title}", ["Op", *versions], rows)


def _cell(one: OpCost | None) -> Line:
    if one is None:
        return "-"
    return ["in ", code(one.inside)] if one.inside else f"{one.value:,.0f} {one.unit}"


def version_order(version: str) -> tuple[tuple[int, ...], str]:
    """What versions are sorted by: their numbers, however many digits these have."""
    found = QnnVersion.found_in(version)
    return found.parts if found else (), version


_MOST_CASES: Final = 20
_MOST_NODES: Final = 20
_MOST_OPS: Final = 8
_MOST_CHARS: Final = 160

_Row = tuple[str, str, str, str]
"""Node, op, where, why not on the NPU."""

_Added = Counter[str]
"""The ops of nodes that a runtime has added to those of the model."""


def nodes_tables(records: Iterable[CaseRecord]) -> list[Block]:
    """A line and a table for each case that knows where nodes run, of at most 20 cases."""
    found = [(one, told) for one in records if any(told := _rows(one))]
    blocks: list[Block] = []
    for record, (rows, added) in found[:_MOST_CASES]:
        on = Counter(where for _, _, where, _ in rows)
        where = sorted(on.items(), reverse=True)
        places = ", ".join(f"{number} on the {where}" for where, number in where)
        cut = "".join(f"; {words}" for words in (*_added(added), *_cut(record)))
        title, which = "What ran where", "of"
        if not _ran(record):
            title, which = "What would run where", "no run came to its end; if one did, of"
        line: list[str | Span] = [
            code(record.case.rpartition("/")[2]),
            f": {which} {counted(len(rows), 'node')} ",
            Span(places),
            cut,
        ]
        columns = ("Node", "Op", "On", "Why not on the NPU")
        blocks += [Paragraph(line), Table(title, columns, [*_lines(rows)])]
    if (more := len(found) - _MOST_CASES) > 0:
        blocks.append(Paragraph(f"... and what ran where in {counted(more, 'case')} more"))
    return blocks


def _ran(record: CaseRecord) -> bool:
    of_runs = ("executed", "runs", "session_outputs")
    ran = record.outcome == "passed" or record.outputs is not None
    return ran or any(map(record.measurements.get, of_runs))


def _rows(record: CaseRecord) -> tuple[list[_Row], _Added]:
    """The nodes of the model as the record has them, of those in their proper form, and others."""
    told: Any = record.measurements.get("nodes")
    found, added = [], Counter[str]()
    for one in told if isinstance(told, list | tuple) else ():
        match one:
            case {"added_by": str(), "op_type": str(op)}:
                added[op] += 1
            case {"node": str(node), "op_type": str(op), "on": str(on)}:
                reason = one.get("reason")
                found.append((node, op, on, reason if isinstance(reason, str) else ""))
    return found, added


def _added(added: _Added) -> Iterator[str]:
    if added:
        ops = ", ".join(f"{number} {op}" for op, number in added.most_common(_MOST_OPS))
        yield f"ONNX Runtime added {counted(added.total(), 'node')}: {ops}"


def _cut(record: CaseRecord) -> Iterator[str]:
    parts, carried = (record.measurements.get(name) for name in ("partitions", "transfers"))
    if isinstance(parts, int):
        yield counted(parts, "partition")
    match carried:
        case {"tensors": 0}:
            return
        case {"tensors": int(number), "bytes": int(size)}:
            yield f"{counted(number, 'tensor')} of {size:,} bytes carried over"
        case {"tensors": int(number)}:
            yield f"{counted(number, 'tensor')} carried over, not all of a known size"
        case None if isinstance(parts, int) and parts:
            yield "it is not known what is carried over"


def _lines(rows: Sequence[_Row]) -> Iterator[Sequence[Line]]:
    counts = Counter((op, where) for _, op, where, reason in rows if not reason)
    shown = len(counts) if len(counts) == _MOST_OPS + 1 else _MOST_OPS  # a row for one is a row
    for (op, where), number in counts.most_common(shown):
        yield counted(number, "node"), Span(op), where, ""
    if rest := sum(number for _, number in counts.most_common()[shown:]):
        yield counted(rest, "node"), counted(len(counts) - shown, "other op"), "", ""
    others = [one for one in rows if one[3]]
    for node, op, where, reason in others[:_MOST_NODES]:
        # a number alone would read as a count
        name = f"node {node}" if node.isdecimal() else node
        yield Span(name[:_MOST_CHARS]), Span(op), where, Span(reason[:_MOST_CHARS])
    if (more := len(others) - _MOST_NODES) > 0:
        yield f"... and {more} more", "", "", "the record has them all"


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
        title = f"The {len(shown)} most expensive of {counted(len(ops), 'op')}"
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
        said += f"; {counted(len(runs), 'run')}, {spread:.0%} apart"
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


_SUITES: Final = frozenset(engine.suite for engine in ENGINES.values())
_MOST_ROWS: Final = 60
_MOST_TOLD: Final = 20
"""Where a table is not on a page: a model in 66 parts shall not fill a terminal."""
_NUMBERED: Final = re.compile(r"(?:qnn_)+\d+(?:_\d+)*")
"""What ONNX Runtime calls a graph that it compiles."""
_FEWEST: Final = 3
"""Rounds that have a median."""
_USUAL: Final = {"median": "Median", "p95": "p95"}
_MADE_UP: Final = "With real inputs (--inputs DIR) these figures may be others."


def latency(records: Iterable[CaseRecord]) -> list[Block]:
    """A row for each graph; what its process needed stands in the first row of a case.

    What ran them is a column only where it was not the same for all: a table is to be read on a
    terminal of 80 columns.
    """
    rows: list[list[Line]] = []
    ran: list[str] = []
    simulated, cases = False, 0
    for record in records:
        cases += 1
        graphs = parts(record, "graphs")
        for at, (one, called) in enumerate(zip(graphs, _called(graphs), strict=True)):
            whole = [_load(record), _memory(record)] if not at else ["", ""]
            times = (duration(one.get("first_us")), *(_usual(one, name) for name in _USUAL))
            rounds = f"{one.get('rounds')}"
            rows.append(
                [_case(record, at), code(called or "the model", 60), *times, rounds, *whole]
            )
            ran.append(str(one.get("on")))
            simulated |= record.device is not None and record.device.simulated
    names = ["Case", "Graph", "First run", *_USUAL.values(), "Rounds", "Load", "Memory"]
    if rows and not any(row[3] for row in rows):
        names, rows = [*names[:3], *names[5:]], [[*row[:3], *row[5:]] for row in rows]
    told: list[Block] = []
    if len(set(ran)) > 1:
        names.append("On")
        rows = [[*row, code(on)] for row, on in zip(rows, ran, strict=True)]
    elif ran:
        told = [Paragraph(["On ", code(ran[0]), "."])]
    unknown = limits_of_simulation("speed", None, (), simulated=simulated)
    told += [Paragraph(f"{unknown[0].upper()}{unknown[1:]}.")] if unknown else []
    return [*table("How fast", *_named(names, rows, cases)), *told]


def accuracy(records: Iterable[CaseRecord]) -> list[Block]:
    """A row for each output that was compared, and what was not."""
    rows: list[list[Line]] = []
    untold: list[Block] = []
    made_up, cases = False, 0
    for record in records:
        cases += 1
        for at, one in enumerate(parts(record, "accuracy")):
            told = [_largest(one), _number(one.get("max_steps"))]
            told += [_number(one.get("cosine"), 7), _sqnr(one)]
            output, against, inputs = (
                code(str(one.get(key) or "?")) for key in ("output", "against", "inputs")
            )
            sets = one.get("samples")
            of = f"{sets} sets, " if is_figure(sets) and sets > 1 else ""
            rows.append([_case(record, at), output, *told, against, [of, inputs]])
            made_up |= str(one.get("inputs")).startswith(MADE_UP)
        for one in parts(record, "not_compared"):
            name, why = code(str(one.get("output"))), Span(str(one.get("why")))
            untold.append(Paragraph([name, " is not compared: ", why]))
    names = ["Case", "Output", "Max error", "Max steps", "Cosine", "SQNR (dB)", "Against", "Inputs"]
    if not any(row[3] for row in rows):  # nothing is quantised
        names, rows = [*names[:3], *names[4:]], [[*row[:3], *row[4:]] for row in rows]
    hint = [Paragraph(_MADE_UP)] if made_up else []
    return [*table("How right", *_named(names, rows, cases)), *hint, *untold[:_MOST_ROWS]]


def elements(records: Iterable[CaseRecord]) -> list[Block]:
    """A table for each output, folded: its element that is furthest off, and its worst channels."""
    told: list[Block] = []
    for record in records:
        for one in parts(record, "accuracy"):
            worst = one["worst"] if isinstance(one.get("worst"), dict) else {}
            of = f" of {worst['sample']}" if worst.get("sample") else ""
            values = [_number(worst.get(name), 6) for name in ("got", "expected")]
            place = f"furthest, at {worst.get('index')}{of}"
            rows: list[list[Line]] = [[Span(place), *values, _number(one.get("max_abs")), "", ""]]
            for each in entries(one, "channels"):
                figures = [_number(each.get("max_abs")), _number(each.get("cosine"), 7)]
                rows.append([f"channel {each.get('channel')}", "", "", *figures, _sqnr(each)])
            title = f"{one.get('output')} of {record.case.rpartition('/')[2]}: where it is off most"
            names = ("Where", "Came", "Expected", "Max error", "Cosine", "SQNR (dB)")
            told.append(Table(shortened(title, 160), names, rows[:_MOST_ROWS], folded=True))
    return told[:_MOST_ROWS]


def tokens(records: Iterable[CaseRecord]) -> list[Block]:
    """A row for each stage of a language model, and when the first token would be there."""
    rows: list[list[Line]] = []
    told: list[Block] = []
    cases = 0
    for record in records:
        cases += 1
        found = part_of(record, "tokens")
        for at, one in enumerate(entries(found, "stages")):
            length, cache = one.get("context_length"), one.get("kv_bytes")
            sizes = [f"{one.get('tokens')}", "?" if length is None else f"{length}"]
            rate = _number(one.get("tokens_per_s"))
            room = f"{cache:,}" if is_figure(cache) else ""
            how = Span(str(one.get("told")))
            times = [duration(one.get("us")), rate, room]
            rows.append([_case(record, at), f"{one.get('stage')}", *sizes, *times, how])
        if first := found.get("first_token"):
            told.append(Paragraph(first_token(first)))
    names = ("Case", "Stage", "Tokens", "Context", "Latency", "Tokens/s", "KV cache (bytes)")
    return [*table("Tokens", *_named((*names, "Told by"), rows, cases)), *told]


def first_token(first: Mapping[str, Any]) -> str:
    """In words, after how long a prompt's first token would be there."""
    keys = ("prompt_tokens", "token"), ("chunk", "token"), ("chunks", "execution")
    size, of, chunks = (counted(first.get(key) or 0, what) for key, what in keys)
    return f"First token of a prompt of {size}: {duration(first.get('us'))}, {chunks} of {of}."


def versions(records: Iterable[CaseRecord]) -> list[Block]:
    """What several versions or backends gave: latency and closeness, a row for each output."""
    rows: list[list[Line]] = []
    told = [record for record in records if parts(record, "accuracy")]
    several = len({_device(record) for record in told}) > 1
    outputs = len({one.get("output") for record in told for one in parts(record, "accuracy")}) > 1
    for record in told:
        graphs = parts(record, "graphs")
        median = _usual(graphs[0], "median") if len(graphs) == 1 else ""
        model = record.case.partition("::")[0].rpartition("/")[2]
        where = [str(record.axes.get(axis)) for axis in ("qnn", "backend")]
        for one in parts(record, "accuracy"):
            cosine = _number(one.get("cosine"), 7)
            on: list[Line] = [code(_device(record))] if several else []
            of: list[Line] = [code(str(one.get("output")), 60)] if outputs else []
            rows.append([code(model, 60), *on, *where, *of, median, _sqnr(one), cosine])
    names = (
        "Model",
        *(["Device"] if several else []),
        "QNN",
        "Backend",
        *(["Output"] if outputs else []),
        "Median",
        "SQNR (dB)",
        "Cosine",
    )
    return [*table("By version and backend", names, rows)] if len(told) > 1 else []


def _device(record: CaseRecord) -> str:
    return record.device.name if record.device else ""


FIGURES: Final[tuple[Callable[[Iterable[CaseRecord]], list[Block]], ...]] = (
    latency,
    tokens,
    nodes_tables,
    accuracy,
    elements,
    versions,
    ops_tables,
    ops_by_version,
)
"""What is told of users' models, in this order, at the end of a run, to CI and in its page."""


def figure_blocks(cases: Iterable[CaseRecord], *, page: bool = False) -> list[Block]:
    """All tables about the cases of users' files.

    On a `page` ops have a section of their own. Only a page has what can be unfolded there, and
    long tables.
    """

    def of_files(figures: Callable[[Iterable[CaseRecord]], list[Block]]) -> Reader:
        return lambda cases: figures(one for one in cases if one.suite in _SUITES)

    left = ops_tables if page else elements
    blocks = chain.from_iterable(
        read_once(cases, *(of_files(figures) for figures in FIGURES if figures is not left))
    )
    return [*blocks] if page else [*_begun(blocks)]


def _begun(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, Table) and len(block.rows) > _MOST_TOLD:
            yield replace(block, rows=block.rows[:_MOST_TOLD])
            yield Paragraph(
                f"... and {counted(len(block.rows) - _MOST_TOLD, 'more row')}, in the report"
            )
        else:
            yield block


def parts(record: CaseRecord, name: str) -> list[Mapping[str, Any]]:
    """The parts of a measurement that is a list of objects; nothing if it is none."""
    return entries({name: record.measurements.get(name)}, name)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Line]]) -> Iterator[Block]:
    """A table, and how many rows it lacks; nothing without rows."""
    if rows:
        yield Table(title, columns, rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        yield Paragraph(f"... and {counted(len(rows) - _MOST_ROWS, 'more row')}: see the records")


def _usual(graph: Mapping[str, Any], name: str) -> str:
    rounds = graph.get("rounds")
    few = is_figure(rounds) and rounds < _FEWEST
    return "" if few else duration(graph.get(f"{name}_us"))


def duration(time: object) -> str:
    """Microseconds as people read them; empty if it is none."""
    if not is_figure(time):
        return ""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time >= size:
            return (
                f"{time / size:.3g} {unit}" if time < 1000 * size else f"{time / size:.0f} {unit}"
            )
    return f"{time:.0f} us"


def _named(names: Sequence[str], rows: Sequence[list[Line]], cases: int) -> Any:
    return (names, rows) if cases > 1 else (names[1:], [row[1:] for row in rows])


def _case(record: CaseRecord, at: int) -> Line:
    name = record.case.rpartition("/")[2]
    said = shortened(name.partition("[")[2].removesuffix("]") or name, 90)
    return Span(said, title=record.case, style="code") if not at else ""


def _called(graphs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Graphs of a case by their names, else those of their contexts, else by both."""
    names: list[str] = []
    for keys in (("graph",), ("context",), ("graph", "context")):
        names = [" of ".join(filter(None, (_name(one, key) for key in keys))) for one in graphs]
        if len(set(names)) == len(names):
            break
    return names


def _name(one: Mapping[str, Any], key: str) -> str:
    name, context = one.get(key), str(one.get("context"))
    if not isinstance(name, str):
        return ""
    # of a model that was compiled here the graph has a number that says nothing
    is_ours = key == "graph" and context.endswith(".onnx") and _NUMBERED.fullmatch(name)
    return context.removesuffix(".onnx") if is_ours else name


def _load(record: CaseRecord) -> str:
    for name in ("load_us", "create_us"):
        times = record.measurements.get(name)
        if isinstance(times, list) and times:
            return duration(sum(one for one in times if is_figure(one)))
    return ""


def _memory(record: CaseRecord) -> str:
    peak = part_of(record, "rss_bytes").get("peak")
    return f"{peak / 1e6:.0f} MB" if is_figure(peak) else ""


def _largest(one: Mapping[str, Any]) -> str:
    bad, elements = one.get("not_finite"), one.get("elements")
    alike = one.get("same_not_finite")
    both = f", {alike} on both" if alike else ""
    if bad:
        return f"{bad} of {elements} NaN or infinite on one side{both}"
    told = _number(one.get("max_abs"))
    return f"{told} ({alike} of {elements} NaN or infinite on both)" if alike else told


def _sqnr(one: Mapping[str, Any]) -> str:
    return "equal" if one.get("max_abs") == 0 else _number(one.get("sqnr_db"))


def _number(value: object, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if is_figure(value) else ""
