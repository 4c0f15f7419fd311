"""The remedies that were tried for the contexts of a file, ranked, and how to use each (pure).

Only `known_remedies` reads files: the reports of the newest run that tried remedies.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from harness.core.context_options import CONTEXT_OPTIONS
from harness.core.errors import HarnessError
from harness.core.outgoing_text import counted
from harness.core.socs import limits_of_simulation
from harness.experiments.context_remedies import REMEDIES, Remedy
from harness.models.fit_text import Fit
from harness.models.session_plan import RESIDENCIES
from harness.report.document import aligned
from harness.report.model_tables import duration
from harness.report.summary import part_of
from harness.results.record import CaseRecord, DeviceRecord, is_figure
from harness.results.run_folder import RunFolder, info_in, run_folders

Result = Literal["works", "fails", "crashed", "hung", "unsupported", "not tried"]
_RESULTS: Final[tuple[Result, ...]] = get_args(Result)
_OF_OUTCOMES: Final[Mapping[str, Result]] = {
    "passed": "works",
    "failed": "fails",
    "error": "not tried",
    "skipped": "not tried",
}
_TOOLS: Final = {"qnn": "QNN", "ort": "ONNX Runtime", "executorch": "ExecuTorch"}
_NO_REMEDY: Final = "resident"
_OPTIONS: Final = ("--remedies", "qnn_remedies")


@dataclass(frozen=True)
class TriedRemedy:
    """One remedy, and what became of it on a device.

    `reason` says why it does not work. So many contexts were `loaded` and `executed`.
    `outputs_equal` compares their outputs with those of `sequential`, null if there was nothing to
    compare. `load_us` is the time in which all contexts load, `first_us` and `steady_us` that of
    an execution, `turn_us` that of an execution with the load before it, where contexts load again
    for each turn; null if it was not measured. `use` is what to write for it: arguments of `run`,
    and for `qnn`, `ort` and `executorch`; null where there is nothing. `since` is the oldest QNN
    that knows it, null for any.
    """

    remedy: str
    title: str
    result: Result
    reason: str | None
    loaded: int | None
    executed: int | None
    outputs_equal: bool | None
    load_us: float | None
    first_us: float | None
    steady_us: float | None
    turn_us: float | None
    memory_bytes: float | None
    costs: str
    forbids: str
    since: str | None
    use: dict[str, str | None]


@dataclass(frozen=True)
class DeviceRemedies:
    """All remedies on one device with one version, those that work first.

    Of those `resident`, which is no remedy, comes first, then the fastest, then the smallest.
    """

    device: str
    soc: str | None
    simulated: bool
    qnn: str
    contexts: int
    remedies: tuple[TriedRemedy, ...]


@dataclass(frozen=True)
class RemedyReport:
    """The forecast for a file's contexts, and on each device the remedies that were tried."""

    schema: Literal[1]
    file: str
    run: str
    forecast: Fit
    devices: tuple[DeviceRemedies, ...]

    @property
    def works(self) -> bool:
        return any(row.result == "works" for device in self.devices for row in device.remedies)


def on_devices(
    records: Iterable[CaseRecord], left_out: Mapping[str, str]
) -> tuple[DeviceRemedies, ...]:
    """Return the remedies of a run's records for each device and version.

    `left_out` are the remedies that were not tried at all, with the reasons.
    """
    groups: dict[tuple[str, str, int], tuple[DeviceRecord, list[TriedRemedy]]] = {}
    for record in records:
        if record.device is not None and record.axes.get("remedy") in REMEDIES:
            qnn = record.runtime.qnn if record.runtime else str(record.axes.get("qnn"))
            number = record.axes.get("contexts")
            key = (record.device.name, qnn, number if type(number) is int else 0)
            groups.setdefault(key, (record.device, []))[1].append(_row_of(record))
    others = [_row(name, "not tried", reason, {}) for name, reason in left_out.items()]
    return tuple(
        DeviceRemedies(name, device.soc, device.simulated, qnn, number, _ranked([*rows, *others]))
        for (name, qnn, number), (device, rows) in groups.items()
    )


def known_remedies(
    reports: Path, device: str, files_sha256: str | None, contexts: object
) -> list[TriedRemedy]:
    """Return the remedies that worked for so many contexts of a file on a device, the best first.

    They are those of the newest run that tried some for them; a damaged run is left out.
    """
    for folder in reversed(run_folders(reports) if files_sha256 else []):
        with contextlib.suppress(HarnessError):
            command = info_in(folder).get("command") or ()
            if not any(word.partition("=")[0] in _OPTIONS for word in command):
                continue
            records = RunFolder.open(folder).contents().cases
            same = (record for record in records if record.files_sha256 == files_sha256)
            for table in on_devices(same, {}):
                if (table.device, table.contexts) == (device, contexts):
                    works = (row for row in table.remedies if row.result == "works")
                    return [row for row in works if row.remedy != _NO_REMEDY]
    return []


def progress_line(record: CaseRecord) -> str:
    """Return a line about a remedy that has just been tried."""
    row, number = _row_of(record), record.axes.get("contexts")
    loaded = f"{row.loaded} of {number} contexts loaded" if row.loaded else ""
    return f"{row.remedy:<18} {row.result:<12} {loaded}".rstrip()


def remedy_lines(tables: Iterable[DeviceRemedies], file: str, *options: str) -> Iterator[str]:
    """Yield for each device a table of the remedies, and below it how to use those that work.

    `options` are those of `qnn-harness run` for the same lab and version.
    """
    for table in tables:
        contexts = counted(table.contexts, "context")
        yield ""
        yield f"{contexts} of {file} on {table.device}, QNN {table.qnn}:"
        rows = [_cells(place, row) for place, row in enumerate(table.remedies, 1)]
        yield from aligned([_COLUMNS, *rows])
        if unknown := limits_of_simulation("speed", None, (), simulated=table.simulated):
            yield f"{unknown[0].upper()}{unknown[1:]}."
        if any(row.remedy == _NO_REMEDY and row.result == "works" for row in table.remedies):
            yield "No remedy is needed: all contexts fit together (resident)."
        alike: dict[str, list[str]] = {}
        for row in table.remedies:
            if row.result == "works":
                since = f" (QNN {row.since} or newer)" if row.since else ""
                yield f"{row.remedy}: {row.title}{since}"
                yield f"    costs: {row.costs}; forbids: {row.forbids}"
                if run := row.use["run"]:
                    words = [f"--copies={table.contexts}", f"--device={table.device}", *options]
                    yield f"    qnn-harness run {run} {shlex.join([*words, file])}"
                for tool, title in _TOOLS.items():
                    if use := row.use[tool]:
                        yield f"    {title}: {use}"
            else:
                reason = f"{row.result}: {row.reason or 'no reason was given'}"
                alike.setdefault(reason, []).append(row.remedy)
        yield from (f"{', '.join(names)}: {reason}" for reason, names in alike.items())


_FIGURES: Final = ("loaded", "executed", "load_us", "first_us", "steady_us", "memory_bytes")
_COLUMNS: Final = (
    *("", "remedy", "result", "loaded", "executed", "outputs"),
    *("load all", "first run", "next runs", "with load", "memory"),
)


def _cells(place: int, row: TriedRemedy) -> list[str]:
    equal = {True: "equal", False: "different", None: ""}[row.outputs_equal]
    counts = ["" if count is None else str(count) for count in (row.loaded, row.executed)]
    times = map(duration, (row.load_us, row.first_us, row.steady_us, row.turn_us))
    memory = "" if row.memory_bytes is None else f"{row.memory_bytes / 1e6:,.1f} MB"
    number = str(place) if row.result == "works" else "-"
    return [number, row.remedy, row.result, *counts, equal, *times, memory]


def _ranked(rows: Iterable[TriedRemedy]) -> tuple[TriedRemedy, ...]:
    def rank(row: TriedRemedy) -> tuple[float, ...]:
        figures = (row.turn_us, row.memory_bytes, row.load_us)
        # times that differ by a few percent do not decide
        known = (math.inf if figure is None else float(f"{figure:.2g}") for figure in figures)
        return (_RESULTS.index(row.result), row.remedy != _NO_REMEDY, *known)

    return tuple(sorted(rows, key=rank))


def _row_of(record: CaseRecord) -> TriedRemedy:
    reason, error = str(record.measurements.get("skip_reason") or ""), record.error
    if error is not None:
        known = f" ({error.diagnosis.id})" if error.diagnosis is not None else ""
        reason = error.summary + known
    result = _OF_OUTCOMES.get(record.outcome, cast("Result", record.outcome))
    return _row(str(record.axes["remedy"]), result, reason, part_of(record, "remedy"))


def _row(name: str, result: Result, reason: str, figures: Mapping[str, Any]) -> TriedRemedy:
    remedy, equal, options = REMEDIES[name], figures.get("outputs_equal"), figures.get("options")
    options = options if isinstance(options, dict) else {}
    numbers: dict[str, Any] = {
        key: number if is_figure(number := figures.get(key)) else None for key in _FIGURES
    }
    turn_us, loaded = numbers["steady_us"], numbers["loaded"]
    if turn_us is not None and remedy.residency != "resident":
        turn_us += (numbers["load_us"] or 0) / (loaded or 1)
    return TriedRemedy(
        remedy=name,
        title=remedy.title.format_map(defaultdict(str, options)),
        result=result,
        reason=reason or None,
        outputs_equal=equal if isinstance(equal, bool) else None,
        costs=remedy.costs,
        forbids=remedy.forbids,
        since=remedy.since or None,
        use=_use(remedy, options) if result == "works" else dict.fromkeys(("run", *_TOOLS)),
        turn_us=turn_us,
        **numbers,
    )


def _use(remedy: Remedy, options: Mapping[str, Any]) -> dict[str, str | None]:
    words = [f"--context-option={key}={options[key]}" for key in CONTEXT_OPTIONS if key in options]
    size = f"={options['window']}" if remedy.residency == "window" and "window" in options else ""
    words += [f"--residency={remedy.residency}{size}"] if remedy.name in RESIDENCIES else []
    # `run` gives contexts no buffers that they share
    words = [] if remedy.name == "reused-io-limit" else words
    lines = remedy.lines(defaultdict(str, options))
    return {"run": " ".join(words) or None} | {tool: lines.get(tool) for tool in _TOOLS}
