"""Summaries of a run, in few lines, and as grids of two axes (pure).

A test asks for a grid with `bench.grid(rows, columns)`; it is made of all cases of that test that
differ in nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, takewhile
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, get_args

from harness.core.matrix_axes import AXES, IN_AXES, VERSIONS
from harness.core.outgoing_text import counted, first_names, shortened
from harness.diagnosis.error_record import Diagnosis, ErrorRecord, Outcome
from harness.lab.health import DeviceEvent
from harness.report.document import aligned
from harness.results.case_names import split_node_id
from harness.results.coverage import LOST_TO, Coverage
from harness.results.journal import Records, read_once
from harness.results.record import CaseRecord, Outputs
from harness.runtimes.runtime import version_key
from harness.transport.transport_errors import server_lost

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
_NO_DEVICE_TAKES: Final = frozenset({"context-arch", "context-floats"})
_WIDTH: Final = 300
_MAX_LINES: Final = 40


@dataclass
class FailureGroup:
    """Cases with the same signature, cause and expectation.

    `versions` are those of each axis that names versions, `diagnoses` are by their words, `same` is
    false if messages differ. The first case has no measurements here, which would take more memory
    than all else.
    """

    first: CaseRecord
    cases: list[str] = field(default_factory=list)
    devices: dict[str, None] = field(default_factory=dict)
    versions: dict[str, dict[str, None]] = field(
        default_factory=lambda: {axis: {} for axis in VERSIONS}
    )
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)
    same: bool = True

    def add(self, record: CaseRecord) -> None:
        self.cases.append(record.case)
        errors = self.first.error, record.error
        self.same &= len({error and _why(error) for error in errors}) == 1
        if record.device is not None:
            self.devices[record.device.name] = None
        for axis, versions in self.versions.items():
            if (version := record.axes.get(axis)) is not None:
                versions[f"{version}"] = None
        if record.error is not None and (known := record.error.diagnosis) is not None:
            self.diagnoses.setdefault(known.words, known)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of its cases, without words that only some of them have."""
        if len(self.diagnoses) < 2:
            return next(iter(self.diagnoses.values()), None)
        # what preflight foresaw of a case precedes the common diagnosis
        ends = zip(*(reversed(words.split(": ")) for words in self.diagnoses), strict=False)
        alike = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, ends)]
        words, first = next(iter(self.diagnoses.items()))
        shared = ": ".join(reversed(alike)) or f"of the first: {words}"
        return first.model_copy(update={"words": shared})


SECTIONS: Final = ("failing", "lab", "expected", "unsupported")
"""The sections of a summary, the most important first."""
COUNTED: Final = {"expected": "expected failures", "unsupported": "unsupported"}
_FOR_MORE: Final = "figures, grids and reasons of all cases: in the report, or with -v"


def section(record: CaseRecord) -> str:
    """Return the section of a page for a failed or unsupported case."""
    if not record.is_bad:
        return "unsupported"
    if record.standing in LOST_TO:
        return "lab"
    return "expected" if record.standing == "known" else "failing"


def server_gone(record: CaseRecord) -> str | None:
    """Return the address of the adb server whose failure cost a case its verdict, if any."""
    if record.standing != "lab" or record.error is None:
        return None
    return server_lost(record.error.message)


def failure_groups(cases: Iterable[CaseRecord]) -> list[FailureGroup]:
    """Group failed and unsupported cases by signature, sorted by section, then by size.

    Cases lost to one adb server are one group.
    """
    groups: dict[tuple[object, ...], FailureGroup] = {}
    for record in cases:
        if not record.is_bad and not (record.outcome == "unsupported" and record.error):
            continue
        signature = record.error.signature if record.error else None
        if record.error is not None and record.cause == "config":
            # a signature names no file, and each file is another mistake
            signature = record.error.message
        signature = server_gone(record) or signature
        key = record.outcome, record.cause, record.known_issue, signature
        if key not in groups:
            groups[key] = FailureGroup(record.model_copy(update={"measurements": {}}))
        groups[key].add(record)
    rank = {name: i for i, name in enumerate(SECTIONS)}
    by_size = sorted(groups.values(), key=lambda group: len(group.cases), reverse=True)
    return sorted(by_size, key=lambda group: rank[section(group.first)])


def cut_short(info: Mapping[str, Any]) -> str | None:
    """Return why a run may lack cases, by its run.json; None if it ended in order."""
    if info.get("problem") is not None:
        return str(info["problem"])
    return "killed, or still running" if info.get("finished", "") is None else None


def lacks(info: Mapping[str, Any]) -> list[str]:
    """Return why a run may lack cases, and which tests could not start."""
    cut, not_started = cut_short(info), Counter[str](info.get("not_started", ()))
    lines = [f"cut short: {cut}"] if cut else []
    return lines + [
        f"{counted(number, 'test')} could not start: {why}"
        for why, number in not_started.most_common(_MAX_LINES)
    ]


def gaps(info: Mapping[str, Any]) -> list[str]:
    """Return what a run lacks, and why devices were left out."""
    return [*lacks(info), *(f"left out: {why}" for why in info.get("left_out", ()))]


def totals(cases: Iterable[CaseRecord]) -> dict[str, int]:
    """Count cases by outcome, expected failures as `expected`, without zeros."""
    counts = Counter(record.state for record in cases)
    return {name: counts[name] for name in (*OUTCOMES, "expected") if counts[name]}


def part_of(record: CaseRecord, name: str) -> dict[str, Any]:
    """Return a measurement that is an object; empty if it is none."""
    part = record.measurements.get(name)
    return part if isinstance(part, dict) else {}


def outputs_lines(cases: Iterable[CaseRecord]) -> list[str]:
    """Return how outputs of passed cases were checked, unless all were compared with references."""
    passed = (record for record in cases if record.outcome == "passed")
    counts = Counter(record.outputs for record in passed if record.outputs is not None)
    if not set(counts) - {"reference"}:
        return []
    words: dict[Outputs, str] = {
        "reference": "as expected",
        "agreement": "the same in every round, but compared with no reference",
        "unverified": "not verified",
    }
    text = ", ".join(f"{counts[key]} {text}" for key, text in words.items() if counts[key])
    return [f"outputs of passed cases: {text}"]


def summary_lines(
    cases: Iterable[CaseRecord],
    coverage: Coverage,
    report: PurePath | str,
    *,
    width: int = _WIDTH,
    above: Mapping[str, str] = MappingProxyType({}),
    brief: bool = False,
) -> list[str]:
    """Return the lines to print at the end of a run.

    None is longer than `width` (at least 60) characters, but for the report's path. `above` has
    the text that was printed for a case. With `brief`, only what went wrong has lines of its
    own; expected failures and unsupported cases are counted by their reasons.
    """
    readers = () if brief else (outputs_lines, partial(_conclusions, above=above))
    groups, *others = read_once(cases, failure_groups, *readers)
    behind, concluded = others or ([], [_FOR_MORE])
    lines = [coverage.headline()]
    # the exit code 0 does not show that nothing was tested
    if coverage.selected and coverage.is_whole and not coverage.judged:
        lines.append("NOTHING WAS TESTED: every case was skipped or is unsupported")
    lines += behind
    shown = [group for group in groups if not brief or section(group.first) not in COUNTED]
    for group in shown[:_MAX_LINES]:
        known = None if section(group.first) == "expected" else group.diagnosis
        texts = [above[case] for case in group.cases if case in above]
        if known is not None and any(known.id in text for text in texts):
            known = None
        if known is not None or len(texts) != 1 or len(group.cases) > 1:
            lines.append(_group_line(group, width))
        lines += [f"       {line}" for line in known.lines()] if known is not None else []
    if len(shown) > _MAX_LINES:
        lines.append(f"... and {counted(len(shown) - _MAX_LINES, 'more signature')}")
    # those that are only counted are of the last sections
    for name, of_section in groupby(groups[len(shown) :], lambda group: section(group.first)):
        lines.append(f"{COUNTED[name]}: {_reasons(of_section)}")
    return [*(_fit(line, width) for line in [*lines, *concluded]), f"report: {report}"]


def _reasons(groups: Iterable[FailureGroup]) -> str:
    """Count cases by known issue, diagnosis, or code."""
    counts = Counter[str]()
    for group in groups:
        error, known = group.first.error, group.diagnosis
        symbol = (error.symbol or error.api) if error else None
        reason = group.first.known_issue or (known and known.id) or symbol or "other reasons"
        counts[reason] += len(group.cases)
    return ", ".join(f"{reason} ({count})" for reason, count in counts.most_common())


def _conclusions(cases: Iterable[CaseRecord], above: Collection[str]) -> list[str]:
    """Return the conclusions of other cases, each once, and how many cases were tried again."""
    lines: list[str] = []
    concluded: dict[tuple[str, str], list[str]] = {}
    retried = 0
    for record in cases:
        retried += record.attempt > 1
        is_new = record.case not in above or "came_again" in record.measurements
        if record.conclusion is not None and is_new:
            name = record.case.rpartition("/")[2]
            concluded.setdefault((name.partition("[")[0], record.conclusion), []).append(name)
    for (_, conclusion), (name, *others) in concluded.items():
        first, *more = conclusion.splitlines() or [""]
        named = f"{name} and {len(others)} more" if others else name
        lines += [f"{named}: {first}", *(f"    {line}" for line in more)]
    if retried:
        lines.append(f"{counted(retried, 'case was', 'cases were')} tried more than once")
    return lines


def only_simulated(record: CaseRecord) -> bool:
    """Return whether a case passed with a context that no device with this HTP takes."""
    simulated = any(finding.code in _NO_DEVICE_TAKES for finding in record.preflight)
    return simulated and record.outcome == "passed"


def preflight_lines(cases: Iterable[CaseRecord]) -> list[str]:
    """Return a line for each finding of preflight above info, with the outcomes of its cases.

    A context that passed although no device with this HTP takes it has an entry, too.
    """
    by_finding: dict[tuple[str, str], tuple[dict[str, None], Counter[str]]] = {}
    for record in cases:
        keys = set()
        for entry in record.preflight:
            only_here = entry.code in _NO_DEVICE_TAKES and only_simulated(record)
            if entry.severity != "info" or only_here:
                key = entry.severity, entry.code
                explanations, counts = by_finding.setdefault(key, ({}, Counter()))
                diagnosis = record.error.diagnosis if record.error else None
                is_foreseen = diagnosis is not None and entry.explanation in diagnosis.words
                text = "confirmed by the failure" if is_foreseen else entry.explanation
                explanations[text] = None
                counts[record.outcome] += key not in keys  # a case counts once
                keys.add(key)
    lines = []
    for (severity, finding), (explanations, counts) in by_finding.items():
        then = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        more = f" (and {len(explanations) - 1} more like it)" if len(explanations) > 1 else ""
        tail = f"{more}  [then: {then}]"
        head = f"preflight {severity} {finding}: {next(iter(explanations))}"
        lines.append(_fit(head, _WIDTH - len(tail)) + tail)
    return lines


def event_lines(events: Iterable[DeviceEvent], *, width: int = _WIDTH) -> list[str]:
    """Return a line for each device that was not well: its recovery, and its state at the end.

    Devices that one adb server lost share a line.
    """
    by_device: dict[str, list[DeviceEvent]] = {}
    for event in (event for event in events if not event.is_routine):
        by_device.setdefault(event.device, []).append(event)
    together: dict[tuple[str, str], list[str]] = {}
    for device, listed in by_device.items():
        server = server_lost(listed[-1].detail)
        together.setdefault((server or "", "" if server else device), []).append(device)
    lines = []
    for devices in together.values():
        counts = Counter(event.event for device in devices for event in by_device[device])
        steps = ", ".join(f"{name} x {n}" if n > 1 else name for name, n in counts.items())
        named = f"device{'s' * (len(devices) > 1)} {', '.join(devices)}"
        state = by_device[devices[0]][-1].detail
        lines.append(_fit(f"{named}: {steps}; at the end {state}", width))
    return lines


def _group_line(group: FailureGroup, width: int) -> str:
    record, error = group.first, group.first.error
    lost = f", {LOST_TO[record.standing]}" if record.standing in LOST_TO else ""
    known = record.known_issue if record.standing == "known" else None
    label = f"expected, {known}: {record.outcome}" if known else record.outcome.upper()
    parts = () if error is None else (error.call, _why(error))
    text = ": ".join(filter(None, parts)) or "no explanation"
    where = (
        _fit(f"{', '.join(places(group.devices, group.versions))}; ", width // 3)
        if len(group.cases) > 1
        else ""
    )
    tail = f"  [{where}first: {_fit(record.case, width // 3)}]"
    first = "" if group.same else ", the first"
    head = f"{len(group.cases):>4} x {label}{lost}{first}: {text}"
    return _fit(head, width - len(tail)) + tail


def places(devices: Iterable[str], versions: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the devices and versions of cases in words."""
    qnn, compiler = versions["qnn"], versions["compiler"]
    named = {"on": devices, "QNN": qnn, "ORT": versions["ort"]}
    named |= {} if {*compiler} == {*qnn} else {"compiled by": compiler}
    for title, names in named.items():
        if names:
            yield f"{title} {first_names(sorted(names, key=_order))}"


def _why(error: ErrorRecord) -> str:
    line, root = _first_line(error.message), error.first_cause
    if root is None or root.message in ("", line) or root.source == "call":
        return line
    return f"{_first_line(root.message)} -> {line}"


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


def _fit(text: str, width: int) -> str:
    return shortened("".join(char if char.isprintable() else " " for char in text), width)


def rerun_command(record: CaseRecord, *lab: str) -> list[str]:
    """Return the command that runs a case again, in the same folder; `lab` are its lab options."""
    words = ["pytest", "-m", "device", split_node_id(record.case)[0]]
    words += ["-o", f"qnn_only_case={record.case}"]
    words += ["--qnn-device", record.device.name] if record.device is not None else []
    for axis in IN_AXES:
        value = getattr(record.placement, axis, None) or record.axes.get(axis)
        words += [AXES[axis].option, str(value)] if value else []
    return [*words, *lab]


_NOT_RUN: Final = "-"


@dataclass(frozen=True)
class Grid:
    """The cases of one test on one device and backend, by the values of two axes."""

    title: str
    row_axis: str
    column_axis: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], CaseRecord]

    @property
    def compares(self) -> bool:
        ends = {self.row_axis: self.rows, self.column_axis: self.columns}
        return len(self.cells) > 1 and len(ends.get("device", ("", ""))) > 1

    def label(self, row: str, column: str) -> str:
        """Return the text of a cell: ok (and a right refusal's code), an error code, an outcome."""
        record = self.cells.get((row, column))
        if record is None:
            return _NOT_RUN
        if record.outcome == "passed":
            refused = record.measurements.get("refused_code")
            return "ok" if refused is None else f"ok ({refused})"
        return (code_of(record) if record.outcome == "failed" else None) or record.outcome


def code_of(record: CaseRecord) -> str | None:
    """Return the code of a failure for a cell of a grid; None without one."""
    error = record.error
    if error is not None and error.code == 0:
        return "outputs"
    if error is None or error.code is not None:
        return None if error is None else str(error.code)
    return error.ort.name if error.ort is not None else None


def grids(cases: Records) -> list[Grid]:
    """Return the grids that tests asked for, in the order of their first cases.

    A case that failed before it could ask belongs to the grid of its test, too.
    """
    axes_of = {_test(case): axes for case in cases if (axes := case.grid) is not None}
    groups: dict[tuple[str, str], list[CaseRecord]] = {}
    for case in cases if axes_of else ():
        if (test := _test(case)) in axes_of:
            device = case.device.name if case.device else "?"
            # the axes of a grid may follow from other versions
            apart = {*axes_of[test], "device", *VERSIONS}
            named = ((name, value) for name, value in case.axes.items() if name not in apart)
            others = [f"{value}" for name, value in named if (name, value) != ("power", None)]
            elsewhere = others if "device" in axes_of[test] else [device, *others]
            groups.setdefault((test, ", ".join(elsewhere)), []).append(case)
    shown = []
    for (test, place), group in groups.items():
        row_axis, column_axis = axes_of[test]
        cells = {(_value(case, row_axis), _value(case, column_axis)): case for case in group}
        rows, columns = (
            tuple(sorted(set(names), key=_order)) for names in zip(*cells, strict=True)
        )
        title = f"{test.rpartition('::')[2]} on {place}"
        shown.append(Grid(title, row_axis, column_axis, rows, columns, cells))
    return shown


def asked_grids(cases: Iterable[CaseRecord]) -> list[tuple[str, str, str]]:
    """Return suite, rows and columns of the grids that tests asked for, each once."""
    return list(dict.fromkeys((case.suite, *case.grid) for case in cases if case.grid is not None))


def grid_lines(grid: Grid) -> Iterator[str]:
    """Yield the grid as text."""
    rows = [[row, *(grid.label(row, column) for column in grid.columns)] for row in grid.rows]
    yield f"{grid.title}: {grid.row_axis} down, {grid.column_axis} across"
    yield from (f"  {line}" for line in aligned([[grid.row_axis, *grid.columns], *rows]))


def _test(case: CaseRecord) -> str:
    return case.case.partition("[")[0]


def _value(case: CaseRecord, axis: str) -> str:
    value = case.axes.get(axis)
    if axis == "device" and case.device is not None:
        value = case.device.name
    return _NOT_RUN if value is None else str(value)


def _order(value: str) -> tuple[bool, tuple[int, ...], str]:
    parts, _ = version_key(value)
    return not parts, parts, value
