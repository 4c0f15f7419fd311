"""Tables of speed and accuracy of users' models, and of their ops and nodes (pure).

Nodes without a reason are counted by op; refused ones are named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import quote

from harness.core.engine import ENGINES
from harness.core.outgoing_text import counted, first_names, shortened
from harness.core.socs import limits_of_simulation
from harness.models.context_metadata import entries
from harness.models.session_plan import MADE_UP
from harness.probe.plan import FULL
from harness.report.document import Block, Line, Paragraph, Span, Table, code
from harness.report.summary import part_of
from harness.results.journal import Reader, read_once
from harness.results.op_events import most_expensive
from harness.results.record import CaseRecord, is_figure

_MOST_CASES: Final = 20
_MOST_OPS: Final = 8
_MOST_CHARS: Final = 160

_Row = tuple[str, str, str, str]
"""Node, op, place, why not on the NPU."""


def nodes_tables(records: Iterable[CaseRecord]) -> list[Block]:
    """Return a line and a table for each case that knows where nodes run, at most 20 cases."""
    cases = [(record, nodes) for record in records if any(nodes := _rows(record))]
    blocks: list[Block] = []
    for record, (rows, added) in cases[:_MOST_CASES]:
        on = Counter(place for _, _, place, _ in rows)
        place = sorted(on.items(), reverse=True)
        places = ", ".join(f"{number} on the {place}" for place, number in place)
        ops = ", ".join(f"{number} {op}" for op, number in added.most_common(_MOST_OPS))
        added_words = [f"ONNX Runtime added {counted(added.total(), 'node')}: {ops}"] if ops else []
        cut = "".join(f"; {words}" for words in (*added_words, *_cut(record)))
        title, prefix = "Placement of nodes", "of"
        of_runs = map(record.measurements.get, ("executed", "runs", "session_outputs"))
        if record.outcome != "passed" and record.outputs is None and not any(of_runs):
            title, prefix = "Planned placement of nodes", "no run finished; planned: of"
        line: list[str | Span] = [
            code(record.case.rpartition("/")[2]),
            f": {prefix} {counted(len(rows), 'node')} ",
            Span(places),
            cut,
        ]
        columns = ("Node", "Op", "On", "Why not on the NPU")
        blocks += [Paragraph(line), Table(title, columns, [*_lines(rows)])]
    if (more := len(cases) - _MOST_CASES) > 0:
        blocks.append(Paragraph(f"... and the nodes of {counted(more, 'more case')}"))
    return blocks


def _rows(record: CaseRecord) -> tuple[list[_Row], Counter[str]]:
    """Return the well-formed nodes of the model in a record, and the ops that were added."""
    nodes: Any = record.measurements.get("nodes")
    rows, added = [], Counter[str]()
    for entry in nodes if isinstance(nodes, list | tuple) else ():
        match entry:
            case {"added_by": str(), "op_type": str(op)}:
                added[op] += 1
            case {"node": str(node), "op_type": str(op), "on": str(on)}:
                reason = entry.get("reason")
                rows.append((node, op, on, reason if isinstance(reason, str) else ""))
    return rows, added


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
            yield f"{counted(number, 'tensor')} carried over, some of unknown size"
        case None if isinstance(parts, int) and parts:
            yield "the tensors carried over are unknown"


def _lines(rows: Sequence[_Row]) -> Iterator[Sequence[Line]]:
    counts = Counter((op, place) for _, op, place, reason in rows if not reason)
    shown = len(counts) if len(counts) == _MOST_OPS + 1 else _MOST_OPS  # a row for one is a row
    for (op, place), number in counts.most_common(shown):
        yield counted(number, "node"), Span(op), place, ""
    if rest := sum(number for _, number in counts.most_common()[shown:]):
        yield counted(rest, "node"), counted(len(counts) - shown, "other op"), "", ""
    others = [row for row in rows if row[3]]
    for node, op, place, reason in others:
        # a number alone would read as a count
        name = f"node {node}" if node.isdecimal() else node
        yield Span(name[:_MOST_CHARS]), Span(op), place, Span(reason[:_MOST_CHARS])


_SHOWN: Final = 10
_ON_PAGE: Final = 500
_CASES_MOST: Final = 20
_NAME_CHARS: Final = 60
_TIMES: Final = ("cycles", "us")


def ops_tables(records: Iterable[CaseRecord], *, page: bool = False) -> list[Block]:
    """Return a table of each profiled case, and one of its preparation or loading.

    It has the ten most expensive ops; on a `page`, hundreds.
    """
    profiled = islice((record for record in records if part_of(record, "profile")), _CASES_MOST)
    return [block for record in profiled for block in _of_case(record, page)]


def _of_case(record: CaseRecord, page: bool) -> Iterator[Block]:
    profile = part_of(record, "profile")
    name = shortened(record.case.rpartition("::")[2], 120)
    link = f"#case={quote(record.case)}" if page else ""
    yield Paragraph([Span(name, link=link, style="strong"), *_headline(profile)])
    ops = most_expensive(profile)
    shown = ops[: _ON_PAGE if page else _SHOWN]
    if shown:
        unit = next((unit for unit in _TIMES if unit in shown[0][0]), "cycles")
        title = f"The {len(shown)} most expensive of {counted(len(ops), 'op')}"
        columns = ("Op", "Node", unit, "Share", "Together", "Spread")
        rows = [_row(op, sum_, unit) for op, sum_ in shown]
        yield Table(title, columns, rows, "measured sortable" if page else "")
    phases: list[Sequence[Line]] = []
    for phase in entries(profile, "phases"):
        time, indent = phase.get("us"), "  " if phase.get("part") else ""
        called = Span(indent + shortened(str(phase.get("phase")), _NAME_CHARS))
        phases.append((called, f"{time:,}" if is_figure(time) else ""))
    if phases:
        yield Table("What preparing and loading took", ("Phase", "us"), phases, "measured")


def _headline(profile: Mapping[str, Any]) -> Iterator[Span]:
    """Yield the accelerator's own total, and notes on the figures."""
    total = profile.get("total")
    if isinstance(total, dict):
        unit = next((name for name in _TIMES if is_figure(total.get(name))), None)
        if unit is not None:
            yield Span(f": {total[unit]:,} {unit} ({total.get('event')}){_parts(total)}")
    added = profile.get("added_us")
    if is_figure(added):
        most = f"{added:,} us" if added > 0 else "no more than noise"
        yield Span(f"; the profile itself added {most} to an execution (medians)")
    notes = profile.get("notes")
    for note in notes if isinstance(notes, list) else []:
        yield Span(f"; {note}")


def _parts(total: Mapping[str, Any]) -> str:
    share, spread, runs = total.get("ops_share"), total.get("spread"), total.get("runs")
    text = f", of which the ops are {share:.1%}" if is_figure(share) else ""
    if is_figure(spread) and isinstance(runs, list) and len(runs) > 1:
        text += f"; {counted(len(runs), 'run')}, {spread:.0%} apart"
    return text


def _row(op: Mapping[str, Any], together: float, unit: str) -> Sequence[Line]:
    share, runs = op.get("share"), op.get("runs")
    part = share if is_figure(share) else 0.0
    times = [run for run in runs if is_figure(run)] if isinstance(runs, list) else []
    value = op.get(unit)
    spread = (max(times) - min(times)) / value if times and is_figure(value) and value else None
    graph = f" of {op['graph']}" if op.get("graph") else ""
    return [
        Span(shortened(f"{op.get('op')}{graph}", _NAME_CHARS)),
        Span(shortened(str(op.get("source") or ""), _NAME_CHARS)),
        f"{value:,}" if is_figure(value) else "",
        f"{part:.1%}",
        f"{together:.1%}",
        "" if spread is None else f"{spread:.0%}",
    ]


_MOST_ROWS: Final = 60
_MOST_ROWS_BRIEF: Final = 20
"""The rows of a table that is not on a page: a model in 66 parts must not fill a terminal."""
_NUMBERED: Final = re.compile(r"(?:qnn_)+\d+(?:_\d+)*")
"""ONNX Runtime's name of a graph that it compiles."""
_FEWEST: Final = 3
"""The fewest rounds with a median."""
_USUAL: Final = ("p50", "p90", "p99")
_DEFAULT_MODE: Final = (
    "Without a power profile (--power) times are of the device's default mode, which few apps use."
)
_MADE_UP: Final = "These figures may differ with real inputs (--inputs DIR)."


def power_profiles(records: Iterable[CaseRecord]) -> list[Block]:
    """Return a sentence for each power profile, and for each answer to its votes."""
    numbers: Counter[tuple[str, str]] = Counter()
    for record in records:
        if isinstance(power := record.measurements.get("power"), dict):
            numbers[str(power.get("profile")), str(power.get("answer"))] += 1
    return [
        Paragraph(shortened(f"Power profile {profile}, {counted(number, 'case')}: {answer}.", 300))
        for (profile, answer), number in numbers.most_common(_MOST_ROWS_BRIEF)
    ]


def latency(records: Iterable[CaseRecord]) -> list[Block]:
    """Return a row for each graph; the first row of a case has the figures of its process.

    Contexts of one name have one row, with the figures of the first.
    The processor is a column only if it was not the same for all, since a table should fit a
    terminal of 80 columns.
    """
    rows: list[list[Line]] = []
    sure: list[list[Line]] = []
    ran: list[str] = []
    flaws: dict[str, list[str]] = {}
    simulated, default_mode, cases = False, False, 0
    for record in records:
        cases += 1
        graphs = parts(record, "graphs")
        called_graphs: dict[str, list[Mapping[str, Any]]] = {}
        for called, graph in zip(_called(graphs), graphs, strict=True):
            called_graphs.setdefault(called, []).append(graph)
        for i, (called, (graph, *others)) in enumerate(called_graphs.items()):
            whole = [_load(record), _memory(record)] if not i else ["", ""]
            times = (duration(graph.get("first_us")), *(_usual(graph, name) for name in _USUAL))
            rounds = f"{graph.get('rounds')}"
            name = (called or "the model") + (f", the first of {1 + len(others)}" if others else "")
            row = [_case(record, i), code(name, 60)]
            rows.append([*row, *times, rounds, *whole])
            if part_of(record, "surroundings").get("profile_run") is not None:
                sure.append([*row, *_sureness(graph)])
                counts = (graph.get("rounds"), graph.get("warmup_count"))
                if sum(filter(is_figure, counts)) < FULL.most:
                    flaws.setdefault(f"Fewer than {FULL.most:,} rounds", []).append(name)
            if graph.get("steady") is False:
                flaws.setdefault("Median still drifts", []).append(name)
            ran.append(str(graph.get("on")))
            simulated |= record.device is not None and record.device.simulated
            on_phone = record.device is not None and not record.device.simulated
            on_htp = record.axes.get("backend") == "htp"
            default_mode |= on_phone and on_htp and not record.axes.get("power")
    names = ["Case", "Graph", "First run", *_USUAL, "Rounds", "Load", "Memory"]
    if rows and not any(row[3] for row in rows):
        names, rows = _without(names, rows, 3, 4, 5)
    notes: list[Block] = []
    if len(set(ran)) > 1:
        names.append("On")
        rows = [[*row, code(on)] for row, on in zip(rows, ran, strict=True)]
    elif ran:
        notes = [Paragraph(["On ", code(ran[0]), "."])]
    notes += [Paragraph(_DEFAULT_MODE)] if default_mode else []
    for flaw, graph_names in flaws.items():
        notes.append(Paragraph([f"{flaw}: ", Span(shortened(first_names(graph_names), 160)), "."]))
    unknown = limits_of_simulation("speed", None, (), simulated=simulated)
    notes += [Paragraph(f"{unknown[0].upper()}{unknown[1:]}.")] if unknown else []
    case = () if cases > 1 else (0,)
    sure_names = ["Case", "Graph", *_USUAL, "Warm-up", "Throttled"]
    return [
        *table("How fast", *_without(names, rows, *case)),
        *table("95 % confidence intervals", *_without(sure_names, sure, *case)),
        *notes,
    ]


def _sureness(graph: Mapping[str, Any]) -> Iterator[str]:
    """Yield the intervals of percentiles, the warm-up, and the share that was throttled."""
    for name in _USUAL:
        match graph.get(f"{name}_interval_us"):
            case [low, high]:
                ends = [duration(end) or "?" for end in (low, high)]
                same = ends[0].partition(" ")[2] == ends[1].partition(" ")[2]
                yield " to ".join([ends[0].partition(" ")[0] if same else ends[0], ends[1]])
            case _:
                yield ""
    yield f"{graph.get('warmup_count')}"
    share = graph.get("throttled_share")
    yield f"{share:.1%}" if is_figure(share) else "unknown"


def accuracy(records: Iterable[CaseRecord]) -> list[Block]:
    """Return a row for each output that was compared, and lines for the others."""
    rows: list[list[Line]] = []
    untold: list[Block] = []
    made_up, cases = False, 0
    for record in records:
        cases += 1
        for i, skipped in enumerate(parts(record, "accuracy")):
            figures = [_largest(skipped), _number(skipped.get("max_steps"))]
            figures += [_number(skipped.get("cosine"), 7), _sqnr(skipped)]
            output, against, inputs = (
                code(str(skipped.get(key) or "?")) for key in ("output", "against", "inputs")
            )
            rows.append([_case(record, i), output, *figures, against, inputs])
            made_up |= str(skipped.get("inputs")).startswith(MADE_UP)
        for skipped in parts(record, "not_compared"):
            name, why = code(str(skipped.get("output"))), Span(str(skipped.get("why")))
            untold.append(Paragraph([name, " is not compared: ", why]))
    names = ["Case", "Output", "Max error", "In quantization steps"]
    names += ["Cosine", "SQNR (dB)", "Against", "Inputs"]
    if not any(row[3] for row in rows):  # nothing is quantised
        names, rows = _without(names, rows, 3)
    hint = [Paragraph(_MADE_UP)] if made_up else []
    case = () if cases > 1 else (0,)
    return [*table("How right", *_without(names, rows, *case)), *hint, *untold[:_MOST_ROWS]]


def versions(records: Iterable[CaseRecord]) -> list[Block]:
    """Compare versions and backends of models: a row with latency and accuracy for each output.

    Of several axes that differ alike one is shown, and none that differs as the models do.
    """
    rows: list[list[Line]] = []
    compared = [record for record in records if parts(record, "accuracy")]
    axes = {tuple(record.file.rpartition("/")[2] for record in compared): "model"}
    for name in dict.fromkeys(chain(("qnn", "backend"), *(record.axes for record in compared))):
        values = tuple(str(record.axes.get(name) or "") for record in compared)
        if name in ("qnn", "backend") or (name != "device" and len({*values}) > 1):
            axes.setdefault(values, name)
    for record, model, *places in zip(compared, *axes, strict=True):
        graphs = parts(record, "graphs")
        median = _usual(graphs[0], "p50") if len(graphs) == 1 else ""
        row: list[Line] = [code(model, 60), code(record.device.name if record.device else "")]
        row += map(code, places)
        for output in parts(record, "accuracy"):
            of, cosine = code(str(output.get("output")), 60), _number(output.get("cosine"), 7)
            rows.append([*row, of, median, _sqnr(output), cosine])
    model_title, *titles = ["QNN" if name == "qnn" else name.capitalize() for name in axes.values()]
    names = [model_title, "Device", *titles, "Output", "p50", "SQNR (dB)", "Cosine"]
    alike = [i for i in (1, len(names) - 4) if len({row[i] for row in rows}) < 2]
    alike += [] if any(row[-3] for row in rows) else [len(names) - 3]
    names, rows = _without(names, rows, *alike)
    models = {(record.file, record.axes.get("workload")) for record in compared}
    return [*table("By version and backend", names, rows)] if len(compared) > len(models) else []


FIGURES: Final[tuple[Callable[[Iterable[CaseRecord]], list[Block]], ...]] = (
    latency,
    nodes_tables,
    accuracy,
    versions,
    ops_tables,
)
"""The figures of users' models, in the order of terminal, CI and page."""


def figure_blocks(cases: Iterable[CaseRecord], *, page: bool = False) -> list[Block]:
    """Return all tables about the cases of users' files, after the power profiles of all cases.

    On a `page`, ops have their own section, and tables are longer.
    """
    suites = {engine.suite for engine in ENGINES.values()}

    def of_files(figures: Callable[[Iterable[CaseRecord]], list[Block]]) -> Reader:
        return lambda cases: figures(case for case in cases if case.suite in suites)

    shown = [figures for figures in FIGURES if not page or figures is not ops_tables]
    blocks = chain.from_iterable(read_once(cases, power_profiles, *map(of_files, shown)))
    return [*_cut_tables(blocks, page)]


def _cut_tables(blocks: Iterable[Block], page: bool) -> Iterator[Block]:
    most, place = (_MOST_ROWS, "results.jsonl") if page else (_MOST_ROWS_BRIEF, "the report")
    for block in blocks:
        if isinstance(block, Table) and (more := len(block.rows) - most) > 0:
            yield replace(block, rows=block.rows[:most])
            yield Paragraph(f"... and {counted(more, 'more row')} in {place}")
        else:
            yield block


def parts(record: CaseRecord, name: str) -> list[Mapping[str, Any]]:
    """Return the parts of a measurement that is a list of objects; empty if it is none."""
    return entries({name: record.measurements.get(name)}, name)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Line]]) -> Iterator[Block]:
    """Yield a table; nothing without rows."""
    if rows:
        yield Table(title, columns, rows)


def _usual(graph: Mapping[str, Any], name: str) -> str:
    rounds = graph.get("rounds")
    few = is_figure(rounds) and rounds < _FEWEST
    return "" if few else duration(graph.get(f"{name}_us"))


def duration(time: object) -> str:
    """Format microseconds for people; empty if it is no number."""
    if not is_figure(time):
        return ""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time >= size:
            return (
                f"{time / size:.3g} {unit}" if time < 1000 * size else f"{time / size:.0f} {unit}"
            )
    return f"{time:.0f} us"


def _without(
    names: Sequence[str], rows: Sequence[Sequence[Line]], *columns: int
) -> tuple[list[str], list[list[Line]]]:
    """Return the names and cells of the other columns of a table."""
    kept = [i for i in range(len(names)) if i not in columns]
    return [names[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _case(record: CaseRecord, i: int) -> Line:
    name = record.case.rpartition("/")[2]
    name_text = shortened(name.partition("[")[2].removesuffix("]") or name, 90)
    return Span(name_text, title=record.case, style="code") if not i else ""


def _called(graphs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the graphs of a case by their names, by their contexts, or by both."""
    candidates = [
        [" of ".join(filter(None, (_name(graph, key) for key in keys))) for graph in graphs]
        for keys in (("graph",), ("context",), ("graph", "context"))
    ]
    return max(candidates, key=lambda names: len(set(names)))


def _name(graph: Mapping[str, Any], key: str) -> str:
    name, context = graph.get(key), str(graph.get("context"))
    if not isinstance(name, str):
        return ""
    # the graph of a model that was compiled here has a meaningless number
    is_ours = key == "graph" and context.endswith(".onnx") and _NUMBERED.fullmatch(name)
    return context.removesuffix(".onnx") if is_ours else name


def _load(record: CaseRecord) -> str:
    for name in ("load_us", "create_us"):
        times = record.measurements.get(name)
        if isinstance(times, list) and times:
            return duration(sum(time for time in times if is_figure(time)))
    return ""


def _memory(record: CaseRecord) -> str:
    peak = part_of(record, "rss_bytes").get("peak")
    return f"{peak / 1e6:.0f} MB" if is_figure(peak) else ""


def _largest(output: Mapping[str, Any]) -> str:
    bad, elements = output.get("not_finite"), output.get("elements")
    alike = output.get("same_not_finite")
    both = f", {alike} on both" if alike else ""
    if bad:
        return f"{bad} of {elements} NaN or infinite on one side{both}"
    error = _number(output.get("max_abs"))
    return f"{error} ({alike} of {elements} NaN or infinite on both)" if alike else error


def _sqnr(entry: Mapping[str, Any]) -> str:
    return "equal" if entry.get("max_abs") == 0 else _number(entry.get("sqnr_db"))


def _number(value: object, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if is_figure(value) else ""
