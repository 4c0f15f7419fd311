"""A result as Markdown for a bug report, and as a page (pure but for the template)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from harness.bisect.bad_condition import parse_match
from harness.bisect.folder import Answered, BisectFolder
from harness.bisect.result import (
    BisectionResult,
    CornersFinding,
    Edge,
    Finding,
    Run,
    edges_of,
    result_of,
)
from harness.bisect.search import Task
from harness.bisect.search_loop import record_of
from harness.core.errors import HarnessError
from harness.core.files import LocalFile, disk_errors, write_whole
from harness.core.matrix_axes import AXES, VERSIONS, AxisName
from harness.core.outgoing_text import counted, printable, shortened, without_secrets_in
from harness.core.socs import HOST_TARGET, claim_of, limits_of_simulation
from harness.diagnosis.error_record import ErrorRecord
from harness.report.document import (
    Block,
    CodeBlock,
    Heading,
    Item,
    Items,
    Line,
    Paragraph,
    Span,
    Table,
    clip,
    joined,
    link,
    markdown,
    page,
)
from harness.results.case_names import function_of
from harness.results.record import CaseRecord
from harness.runtimes.catalog import Catalog
from harness.runtimes.difference import Difference, difference
from harness.runtimes.runtime import kind_of, version_key

_TITLE_CHARS: Final = 120
_SHOWN_CHARS: Final = 4000
_RUN_COLUMNS: Final = ("answer", "why", "device", "seconds", "results")
_MARKS: Final = {"good": "passed", "bad": "failed", "unknown": "error"} | dict.fromkeys(
    ("untestable", "unsure"), "unsupported"
)


def _blocks(result: BisectionResult) -> Iterator[Block]:
    yield Heading(Span(title(result)), level=1)
    answer = result.answer.text if result.answer else "The bisection is not over."
    yield Paragraph(Span(answer, style="strong"), style="verdict")
    yield Items([Item(line) for line in summary(result)])
    yield Heading("Reproduce")
    yield CodeBlock([*commands(result)])
    yield from chain.from_iterable(_edge(result, edge) for edge in result.edges)
    for axis, libraries in result.libraries.items():
        yield Heading(f"Changes in the libraries of {axis}")
        yield Items(list(_libraries(libraries)))
    yield Heading("All runs")
    runs = [*map(_run_row, result.runs)]
    yield Table("", ("run", *result.axes, *_RUN_COLUMNS), runs, "stacked")


def _edge(result: BisectionResult, edge: Edge) -> Iterator[Block]:
    sides = result.sides(edge)
    version = dict(zip(result.axes, sides[1].at, strict=True))[edge.axis]
    named = f" at {edge.axis} {version}" if len(result.edges) > 1 else ""
    yield Heading(f"Side by side{named}")
    cells = [_side_cells(side) for side in sides]
    rows: list[list[Line]] = [
        [name, *(_cell(side.get(name)) for side in cells)]
        for name in dict.fromkeys([*cells[0], *cells[1]])
    ]
    yield Table("", ("", *(" with ".join(side.at) for side in sides)), rows)
    bad = next((side for side in sides if side.answer == "bad"), None)
    record = bad.record if bad is not None else None
    if record is not None and record.error is not None:
        yield Paragraph("Error messages:")
        yield CodeBlock(record.error.message[:_SHOWN_CHARS].splitlines())
    if bad is not None and record is not None and record.logs:
        folders = {f"{bad.run}/{log}".rpartition("/")[0] for log in record.logs}
        top = sorted(path for path in folders if path.rpartition("/")[0] not in folders)
        yield Paragraph(["Evidence: ", *joined(Span(path, link=link(path)) for path in top)])


def _libraries(change: Difference) -> Iterator[Item]:
    yield from (Item(f"removed: {name} ({size:,} bytes)") for name, size in change.gone.items())
    yield from (Item(f"added: {name} ({size:,} bytes)") for name, size in change.new.items())
    for library in change.changed:
        yield Item(f"{library.name}: {library.size_before:,} -> {library.size_after:,} bytes")
    if change.same:
        yield Item(f"unchanged: {counted(len(change.same), 'file')}")


def _run_row(run: Run) -> list[Line]:
    folder = Span(run.run, link=link(f"{run.run}/report.html")) if run.run else "-"
    seconds = "-" if run.seconds is None else f"{run.seconds:g}"
    why = run.why
    if run.record is not None and why == run.record.outcome and (failure := _failure(run.record)):
        why = f"{why}: {failure}"
    cells: list[Line] = [_cell(run.answer), _cell(why), _cell(run.device), seconds, folder]
    return [str(run.number), *run.at, *cells]


def _failure(record: CaseRecord) -> str:
    error = record.error
    return (error.call or shortened(error.headline, _TITLE_CHARS)) if error is not None else ""


def held_text(versions: Mapping[Any, str]) -> str:
    """Return the versions at which axes are held, as text."""
    return ", ".join(f"{axis} {version}" for axis, version in versions.items())


def title(result: BisectionResult) -> str:
    """Return one line: the change, the failure, and the test."""
    answer, error = result.answer, _error_of(result)
    failure = (error.call or error.headline) if error is not None else ""
    test = function_of(result.case)
    words = [
        f"{', '.join(result.axes)}: {answer.text if answer else 'not finished'}",
        failure,
        test,
    ]
    return "; ".join(shortened(" ".join(word.split()), _TITLE_CHARS) for word in words if word)


def _error_of(result: BisectionResult) -> ErrorRecord | None:
    """Return the failure on the bad side of the main change, if there is one."""
    sides = result.sides(result.edges[0]) if result.edges else ()
    records = (side.record for side in sides if side.answer == "bad")
    return next((record.error for record in records if record is not None), None)


def summary(result: BisectionResult) -> list[str]:
    """Return the circumstances, a line each."""
    answer = result.answer
    lines = [f"case: `{result.case}`", *filter(None, [_simulated(result)])]
    if isinstance(answer, CornersFinding):
        for corner in answer.corners:
            named = " with ".join(map(" ".join, zip(result.axes, corner.at, strict=True)))
            lines.append(f"{named}: {corner.verdict or 'cannot be tested'}")
    lines += [flaky.description for flaky in answer.flaky] if answer else []
    comparison = parse_match(result.match).comparison if result.match else None
    if answer and result.repeat == 1:
        purpose = "flaky tests" if comparison is None else "figures that vary"
        lines.append(f"each candidate was run once; use --repeat N for {purpose}")
    elif answer:
        rule = "bad if any run is bad" if comparison is None else "the median counts"
        lines.append(f"each candidate was run {result.repeat} times (--repeat): {rule}")
    lines += answer.notes if answer else ()
    for search in answer.searches if isinstance(answer, CornersFinding) else ():
        lines += (f"{search.axis}: {note}" for note in search.answer.notes)
    for axis, builds in result.versions.items():
        for version, build in sorted(builds.items(), key=lambda item: version_key(item[0])):
            if build:
                lines.append(f"{axis} {version}: build {build}")
    if held_versions := held_text(result.held):
        lines.append(f"held fixed: {held_versions}")
    lines.append(f"counts as bad: {result.match or 'any failure'}")
    lines += _reasons(result)
    devices = sorted({str(run.device) for run in result.runs if run.device})
    lines.append(f"device: {', '.join(devices)} ({result.target}, {result.backend})")
    if answer:
        lost = f", and {answer.unknown} lost to the lab" if answer.unknown else ""
        lines.append(f"runs: {answer.runs}{lost}")
    return lines


def _simulated(result: BisectionResult) -> str | None:
    """Return the limits of a change found on simulated devices; None without a change."""
    records = [run.record for run in result.runs if run.record is not None]
    devices = [record.device for record in records if record.device is not None]
    if not result.edges or not devices:
        return None
    timed = (result.match or "").startswith(("measurement", "op-slower:"))
    error = _error_of(result)
    return limits_of_simulation(
        "speed" if timed else claim_of(error.code if error is not None else None),
        result.target,
        [record.placement.qnn for record in records if record.placement is not None],
        simulated=all(device.simulated for device in devices),
    )


def _reasons(result: BisectionResult) -> list[str]:
    """Return a warning if bad runs failed for different reasons and --match selects none: each
    reason may have come with another version.
    """
    by_signature: dict[str | None, list[Run]] = {}
    for run in result.runs if not result.match else ():
        if run.answer == "bad" and run.record is not None:
            error = run.record.error
            by_signature.setdefault(error.signature if error is not None else None, []).append(run)
    if len(by_signature) < 2:
        return []
    reasons = []
    for runs in by_signature.values():
        points = dict.fromkeys(" with ".join(run.at) for run in runs)
        first = runs[0].record
        reasons.append(f"{', '.join(points)}: {_failure(first) if first is not None else ''}")
    return [f"bad runs failed for different reasons; --match selects one: {'; '.join(reasons)}"]


def commands(result: BisectionResult) -> Iterator[str]:
    """Yield a command that runs the case, for each side, or with the usual versions."""
    points = dict.fromkeys(side.at for edge in result.edges for side in result.sides(edge))
    for point in points or [()]:
        words = ["pytest", "-m", "device", result.case.partition("[")[0]]
        words += ["-o", f"qnn_only_case={result.case}", "--qnn-device", result.devices[0]]
        words += ["--qnn-backend", result.backend] if result.backend != "htp" else []
        versions = dict(zip(result.axes, point, strict=True)) if point else {}
        for axis, version in {**result.held, **versions}.items():
            path = result.paths.get(axis, {}).get(version)
            # pytest takes a separate word for the path of a test
            words += [f"{AXES[axis].option}={path}"] if path else [f"{AXES[axis].option}", version]
        yield shlex.join(words)


def _side_cells(run: Run) -> dict[str, object]:
    cells: dict[str, object] = {"answer": run.answer}
    if (record := run.record) is None:
        return cells
    error, runtime, measured = record.error, record.runtime, record.measurements
    cells["outcome"] = record.outcome
    cells["preflight"] = (
        ", ".join(f"{hint.severity} {hint.code}" for hint in record.preflight) or None
    )
    cells["code"] = (error.call or None) if error is not None else None
    cells["signature"] = error.signature if error is not None else None
    cells["runtime"] = runtime.build_id if runtime is not None else None
    counts = ("loaded", "executed", "freed", "sessions")
    cells |= {name: measured[name] for name in counts if name in measured}
    if error is not None:
        cells |= {"failed step": error.step, "failed context": error.context}
    return cells | {"seconds": f"{record.duration_s:.1f}"}


def _cell(value: object) -> Span:
    if value is None:
        return Span("-")
    text = clip(str(value), _SHOWN_CHARS)
    return Span(text, mark=_MARKS.get(text))


RESULT: Final = "result.json"
REPORT_TEXT: Final = "report.md"
REPORT_PAGE: Final = "report.html"


def write_reports(
    folder: BisectFolder, finding: Finding | None, catalog: Catalog | None
) -> BisectionResult:
    """Build and write the result; without a catalog the libraries are not compared.

    Raises InfraError if it cannot be written.
    """
    log = folder.read()
    answers = log.answers()
    records = [record_of(folder.path, entry) for entry in answers]
    differences: Mapping[AxisName, Difference] = {}
    if catalog is not None:
        edges = edges_of(finding, answers)
        with_ort = any(record and record.runtime and record.runtime.ort for record in records)
        differences = _compare_libraries(log.spec, with_ort, answers, edges, catalog)
    result = result_of(folder.path.name, log, finding, records, differences)
    result = BisectionResult.model_validate(without_secrets_in(result.as_json()))
    report = printable(markdown(_blocks(result)))
    text = json.dumps(result.as_json(), indent=2, ensure_ascii=False) + "\n"
    with disk_errors(f"cannot write to {folder.path}"):
        write_whole(folder.path / RESULT, text.encode("utf-8", "replace"))
        write_whole(folder.path / REPORT_TEXT, report.encode("utf-8", "replace"))
        write_whole(
            folder.path / REPORT_PAGE, printable(page(title(result), _blocks(result))).encode()
        )
    return result


def _compare_libraries(
    task: Task,
    with_ort: bool,
    answers: list[Answered],
    edges: Sequence[tuple[int, int]],
    catalog: Catalog,
) -> dict[AxisName, Difference]:
    """Return how the libraries differ at each edge."""
    differences: dict[AxisName, Difference] = {}
    for edge in edges:
        before, after = (task.versions(answers[number].at) for number in edge)
        for axis in task.axes:
            if axis not in VERSIONS or before[axis] == after[axis] or axis in differences:
                continue
            try:
                old, new = (
                    _files_of(axis, versions, task.target, with_ort, catalog)
                    for versions in (before, after)
                )
            except HarnessError:
                continue  # the answer does not depend on it
            differences[axis] = difference(old, new)
    return differences


def _files_of(
    axis: AxisName, versions: Mapping[AxisName, str], target: str, with_ort: bool, catalog: Catalog
) -> tuple[LocalFile, ...]:
    """Return the libraries of one version; with ORT, QNN's plug-in for it as well."""
    if axis == "ort":
        return (catalog.ort.fetch(versions["ort"], target),)
    if axis == "compiler":
        return tuple(catalog.runtime(versions["compiler"], HOST_TARGET).files)
    if not with_ort:
        return tuple(catalog.runtime(versions["qnn"], target).files)
    runtime = catalog.with_ort(versions["qnn"], versions.get("ort"), target)
    return tuple(file for file in runtime.files if kind_of(file.name)[0] != "ort")
