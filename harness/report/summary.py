"""What a run comes to, in few lines, and as a grid of two axes (pure).

A test asks for one with `bench.grid(rows, columns)`; it is made of all cases of that test that
differ in nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath
from typing import Any, Final, get_args

from harness.core.axes import AXES, IN_AXES, VERSIONS
from harness.core.outgoing_text import counted
from harness.core.versions import QnnVersion
from harness.diagnosis.any_log import CAME_TRUE
from harness.diagnosis.error import Diagnosis, ErrorRecord, Outcome, without_varying_parts
from harness.report.document import aligned
from harness.results.case_names import split_node_id
from harness.results.coverage import LOST_TO, Coverage
from harness.results.journal import Records, read_once
from harness.results.record import CaseRecord, DeviceEvent, Outputs, PreflightRecord
from harness.transport.faults import server_lost

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
_NO_DEVICE_TAKES: Final = frozenset({"context-arch", "context-floats"})
_WIDTH: Final = 300
_MAX_LINES: Final = 40


@dataclass
class FailureGroup:
    """Cases with the same signature, cause and expectation: the first one, and what tells them all.

    `versions` are those of each axis that names versions, `diagnoses` are by their words.
    The first one has no measurements here: of many groups they would take more than all else.
    """

    first: CaseRecord
    cases: list[str] = field(default_factory=list)
    devices: dict[str, None] = field(default_factory=dict)
    versions: dict[str, dict[str, None]] = field(
        default_factory=lambda: {axis: {} for axis in VERSIONS}
    )
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)

    def add(self, record: CaseRecord) -> None:
        """One more."""
        self.cases.append(record.case)
        if record.device is not None:
            self.devices[record.device.name] = None
        for axis, versions in self.versions.items():
            if (version := record.axes.get(axis)) is not None:
                versions[f"{version}"] = None
        if record.error is not None and (known := record.error.diagnosis) is not None:
            self.diagnoses.setdefault(known.words, known)

    def include(self, other: FailureGroup) -> None:
        """All of another group."""
        self.cases += other.cases
        self.devices |= other.devices
        for axis, versions in other.versions.items():
            self.versions[axis] |= versions
        self.diagnoses = {**self.diagnoses, **other.diagnoses, **self.diagnoses}

    @property
    def diagnosis(self) -> Diagnosis | None:
        """That of cases that have one, without what is said of some of them only."""
        if len(self.diagnoses) < 2:
            return next(iter(self.diagnoses.values()), None)
        # what preflight foresaw of a case stands before what is known of all
        ends = zip(*(reversed(words.split(": ")) for words in self.diagnoses), strict=False)
        alike = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, ends)]
        words, first = next(iter(self.diagnoses.items()))
        shared = ": ".join(reversed(alike)) or f"of the first: {words}"
        return first.model_copy(update={"words": shared})


SECTIONS: Final = {
    "failing": "What fails",
    "lab": "No verdict: test, input, lab or harness",
    "expected": "Fails as known",
    "unsupported": "Unsupported",
}
"""The parts of a page, the most important first, and their headings."""


def section(record: CaseRecord) -> str:
    """The part of a page where a failure stands, or what was unsupported."""
    if not record.is_bad:
        return "unsupported"
    if record.standing in LOST_TO:
        return "lab"
    return "expected" if record.standing == "known" else "failing"


def server_gone(record: CaseRecord) -> str | None:
    """Return the address of the adb server that a case was lost to, if to one."""
    if record.standing != "lab" or record.error is None:
        return None
    return server_lost(record.error.message)


def failure_groups(cases: Iterable[CaseRecord]) -> list[FailureGroup]:
    """Failures (and what was unsupported) by signature: by section, then the most frequent.

    What one adb server lost is one group.
    """
    found: dict[tuple[object, ...], FailureGroup] = {}
    for record in cases:
        if not record.is_bad and not (record.outcome == "unsupported" and record.error):
            continue
        signature = record.error.signature if record.error else None
        if record.error is not None and record.cause == "config":
            # a signature names no file, and each is wrong for itself
            signature = record.error.message
        signature = server_gone(record) or signature
        key = record.outcome, record.cause, record.known_issue, signature
        if key not in found:
            found[key] = FailureGroup(record.model_copy(update={"measurements": {}}))
        found[key].add(record)
    rank = {name: at for at, name in enumerate(SECTIONS)}
    return sorted(found.values(), key=lambda one: (rank[section(one.first)], -len(one.cases)))


def cut_short(info: Mapping[str, Any]) -> str | None:
    """Why a run may lack cases, as its run.json says; None if nothing says that it does."""
    if info.get("problem") is not None:
        return str(info["problem"])
    return "it was ended before it could say why" if info.get("finished", "") is None else None


def totals(cases: Iterable[CaseRecord]) -> dict[str, int]:
    """Cases per outcome, expected failures apart as `expected`; only what occurs."""
    counts = Counter(record.state for record in cases)
    return {name: counts[name] for name in (*OUTCOMES, "expected") if counts[name]}


def part_of(record: CaseRecord, name: str) -> dict[str, Any]:
    """A measurement that is an object; empty if it is none."""
    part = record.measurements.get(name)
    return part if isinstance(part, dict) else {}


def outputs_lines(cases: Iterable[CaseRecord]) -> list[str]:
    """What stands behind `passed`, where that is not a comparison with a reference."""
    passed = (one for one in cases if one.outcome == "passed")
    counts = Counter(one.outputs for one in passed if one.outputs is not None)
    if not set(counts) - {"reference"}:
        return []
    words: dict[Outputs, str] = {
        "reference": "as expected",
        "agreement": "the same each time, and compared with nothing else",
        "unverified": "looked at by nobody",
    }
    told = ", ".join(f"{counts[key]} {text}" for key, text in words.items() if counts[key])
    return [f"outputs of what passed: {told}"]


def summary_lines(
    cases: Iterable[CaseRecord],
    coverage: Coverage,
    report: PurePath | str,
    *,
    width: int = _WIDTH,
    above: str = "",
) -> list[str]:
    """The lines to print at the end of a run.

    None is longer than `width` (at least 60) characters, but for the report's path. A diagnosis
    that was told `above` is only named.
    """
    groups, behind, concluded = read_once(cases, failure_groups, outputs_lines, _conclusions)
    lines = [coverage.sentence()]
    # that a run says nothing about any target, its exit code of 0 does not tell
    if coverage.selected and coverage.is_whole and not coverage.judged:
        lines.append("NOTHING WAS TESTED: every case was skipped, or is unsupported where it ran")
    lines += behind
    for group in groups[:_MAX_LINES]:
        lines.append(_group_line(group, width))
        known = group.diagnosis
        if known is not None and section(group.first) != "expected":
            lines.append(_diagnosis_line(known, width, above))
    if len(groups) > _MAX_LINES:
        lines.append(f"... and {counted(len(groups) - _MAX_LINES, 'more signature')}")
    return [*(_fit(line, width) for line in [*lines, *concluded]), f"report: {report}"]


def _conclusions(cases: Iterable[CaseRecord]) -> list[str]:
    """What cases concluded, each once, and how many were tried again."""
    lines: list[str] = []
    concluded: dict[tuple[str, str], list[str]] = {}
    retried = 0
    for record in cases:
        retried += record.attempt > 1
        if record.conclusion is not None:
            name = record.case.rpartition("/")[2]
            concluded.setdefault((name.partition("[")[0], record.conclusion), []).append(name)
    for (_, conclusion), (name, *others) in concluded.items():
        first, *more = conclusion.splitlines() or [""]
        named = f"{name} and {len(others)} more" if others else name
        lines += [f"{named}: {first}", *(f"    {one}" for one in more)]
    if retried:
        lines.append(f"{counted(retried, 'case was', 'cases were')} tried more than once")
    return lines


def only_simulated(record: CaseRecord) -> bool:
    """Whether a case passed with a context that a device with this HTP does not take."""
    found = any(one.code in _NO_DEVICE_TAKES for one in record.preflight)
    return found and record.outcome == "passed"


def preflight_lines(cases: Iterable[CaseRecord], *, width: int = _WIDTH) -> list[str]:
    """What preflight had found, and what came of it: a line per code that was more than info.

    So is a context that passed although no device with this HTP takes it.
    """
    found: dict[tuple[str, str], tuple[dict[str, None], Counter[str]]] = {}
    for record in cases:
        seen = set()
        for one in record.preflight:
            only_here = one.code in _NO_DEVICE_TAKES and only_simulated(record)
            if one.severity != "info" or only_here:
                key = one.severity, one.code
                said, counts = found.setdefault(key, ({}, Counter()))
                said[CAME_TRUE if _is_told(one, record) else one.explanation] = None
                counts[record.outcome] += key not in seen  # a case counts once
                seen.add(key)
    lines = []
    for (severity, finding), (said, counts) in found.items():
        then = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        more = f" (and {len(said) - 1} more like it)" if len(said) > 1 else ""
        tail = f"{more}  [then: {then}]"
        head = f"preflight {severity} {finding}: {next(iter(said))}"
        lines.append(_fit(head, width - len(tail)) + tail)
    return lines


def _is_told(finding: PreflightRecord, record: CaseRecord) -> bool:
    known = record.error.diagnosis if record.error else None
    return known is not None and finding.explanation in known.words


def event_lines(events: Iterable[DeviceEvent], *, width: int = _WIDTH) -> list[str]:
    """One line per device that was not well: what was done to it, and how it was at the end.

    Those that one adb server lost share a line.
    """
    by_device: dict[str, list[DeviceEvent]] = {}
    for event in (one for one in events if not one.is_routine):
        by_device.setdefault(event.device, []).append(event)
    together: dict[tuple[str, str], list[str]] = {}
    for device, seen in by_device.items():
        server = server_lost(seen[-1].detail)
        together.setdefault((server or "", "" if server else device), []).append(device)
    lines = []
    for devices in together.values():
        done = Counter(event.event for device in devices for event in by_device[device])
        steps = ", ".join(f"{name} x {n}" if n > 1 else name for name, n in done.items())
        named = f"device{'s' * (len(devices) > 1)} {', '.join(devices)}"
        at_end = by_device[devices[0]][-1].detail
        lines.append(_fit(f"{named}: {steps}; at the end {at_end}", width))
    return lines


def _group_line(group: FailureGroup, width: int) -> str:
    record, error = group.first, group.first.error
    where = f", {LOST_TO[record.standing]}" if record.standing in LOST_TO else ""
    known = record.known_issue if record.standing == "known" else None
    label = f"expected, {known}: {record.outcome}" if known else record.outcome.upper()
    what = [] if error is None else [error.call, _why(error)]
    text = " ".join(part for part in what if part) or "no explanation"
    # Of a long node id the end says more: that is where the axes are.
    tail = f"  [first: {_fit(record.case, width // 3, keep_end=True)}]"
    head = f"{len(group.cases):>4} x {label}{where}: {text}"
    return _fit(head, width - len(tail)) + tail


def _diagnosis_line(known: Diagnosis, width: int, above: str) -> str:
    """What a failure is and what helps; of a long line the thread stays."""
    if known.words in above:
        return f"       {known.name}"
    tail = f"  [{known.thread}]" if known.thread else ""
    if len(tail) > width // 2:
        tail = ""
    told = known.model_copy(update={"thread": None}).text()
    return _fit(f"       {told}", width - len(tail)) + tail


def _why(error: ErrorRecord) -> str:
    line, began = _first_line(error.message), error.first_cause
    if began is None or began.message in ("", line) or began.source == "call":
        return line
    return f"{_first_line(began.message)} -> {line}"


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


def _fit(text: str, width: int, *, keep_end: bool = False) -> str:
    """One printable line of at most `width` characters."""
    text = "".join(char if char.isprintable() else " " for char in text)
    if len(text) <= width:
        return text
    kept = max(width - 3, 0)
    return f"...{text[len(text) - kept :]}" if keep_end else f"{text[:kept]}..."


def again(record: CaseRecord, *lab: str) -> list[str]:
    """Its words, of which `lab` says which lab it is, from where the run was begun."""
    words = [
        "pytest",
        "-m",
        "device",
        split_node_id(record.case)[0],
        "--qnn-only-case",
        record.case,
    ]
    words += ["--qnn-device", record.device.name] if record.device is not None else []
    said = record.axes | (
        record.placement.model_dump(exclude_none=True) if record.placement else {}
    )
    for axis in IN_AXES:
        value, option = said.get(axis), AXES[axis].option
        words += [option, str(value)] if value and option else []
    return [*words, *lab]


_MAX_LEGEND_CHARS: Final = 220
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
        """What stands in a cell: ok (and a right refusal's code), a failure's code, its outcome."""
        record = self.cells.get((row, column))
        if record is None:
            return _NOT_RUN
        if record.outcome == "passed":
            refused = record.measurements.get("refused_code")
            return "ok" if refused is None else f"ok ({refused})"
        return (code_of(record) if record.outcome == "failed" else None) or record.outcome


def code_of(record: CaseRecord) -> str | None:
    """What its failure is called in a cell: its code; None where there is none."""
    error = record.error
    if error is not None and error.code == 0:
        return "outputs"
    if error is None or error.code is not None:
        return None if error is None else str(error.code)
    return error.ort.name if error.ort is not None else None


def grids(cases: Records) -> list[Grid]:
    """The grids that tests asked for, in the order of their first cases.

    A case that failed before it could ask belongs to the grid of its test all the same.
    """
    asked = {_test(case): axes for case in cases if (axes := case.grid) is not None}
    groups: dict[tuple[str, str], list[CaseRecord]] = {}
    for case in cases if asked else ():
        if _test(case) in asked:
            groups.setdefault((_test(case), _elsewhere(case, asked[_test(case)])), []).append(case)
    return [
        _grid(test, elsewhere, asked[test], found) for (test, elsewhere), found in groups.items()
    ]


def asked_grids(cases: Iterable[CaseRecord]) -> list[tuple[str, str, str]]:
    """Suite, rows and columns of the grids that tests asked for, each once."""
    return list(dict.fromkeys((one.suite, *one.grid) for one in cases if one.grid is not None))


def grid_lines(grid: Grid) -> Iterator[str]:
    """The grid as text, with what the failing cells say below it."""
    rows = [[row, *(grid.label(row, column) for column in grid.columns)] for row in grid.rows]
    yield f"{grid.title}: {grid.row_axis} down, {grid.column_axis} across"
    yield from (f"  {line}" for line in aligned([[grid.row_axis, *grid.columns], *rows]))
    legend: dict[tuple[str, str], list[str]] = {}
    for cell, record in grid.cells.items():
        if record.error is not None and record.outcome != "passed":
            said = record.error.began
            legend.setdefault((grid.label(*cell), without_varying_parts(said)), []).append(said)
    for (label, _), texts in legend.items():
        text = f"  {len(texts)} x {label}: {texts[0]}"
        yield text if len(text) <= _MAX_LEGEND_CHARS else f"{text[: _MAX_LEGEND_CHARS - 3]}..."


def _grid(test: str, elsewhere: str, axes: tuple[str, str], cases: Sequence[CaseRecord]) -> Grid:
    row_axis, column_axis = axes
    cells = {(_value(case, row_axis), _value(case, column_axis)): case for case in cases}
    return Grid(
        title=f"{test.rpartition('::')[2]} on {elsewhere}",
        row_axis=row_axis,
        column_axis=column_axis,
        rows=tuple(sorted({row for row, _ in cells}, key=_order)),
        columns=tuple(sorted({column for _, column in cells}, key=_order)),
        cells=cells,
    )


def _test(case: CaseRecord) -> str:
    return case.case.partition("[")[0]


def _elsewhere(case: CaseRecord, axes: tuple[str, str]) -> str:
    """The device and the values of all other axes but versions, which tell grids apart."""
    device = [] if "device" in axes else [case.device.name if case.device else "?"]
    # what a case compares may follow from its other versions
    apart = {*axes, "device", *VERSIONS}
    others = [f"{case.axes[name]}" for name in case.axes if name not in apart]
    return ", ".join([*device, *others])


def _value(case: CaseRecord, axis: str) -> str:
    value = case.axes.get(axis)
    if axis == "device" and case.device is not None:
        value = case.device.name
    return _NOT_RUN if value is None else str(value)


def _order(value: str) -> tuple[bool, tuple[int, ...], str]:
    version = QnnVersion.found_in(value)
    return version is None, version.parts if version else (), value
