"""Writes what a bisection came to: result.json, report.md and report.html beside its log."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.bisect.begin import know_paths, task_of
from harness.bisect.driver import record_of
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.log import Answered, concluded
from harness.bisect.report_page import page_of
from harness.bisect.report_text import bug_report
from harness.bisect.result import result_of
from harness.bisect.sides import edges_of
from harness.bisect.state import BisectFolder
from harness.bisect.task import Axis, Task
from harness.errors import HarnessError, InfraError
from harness.lab.inventory import load_lab
from harness.results.bisections import write_index
from harness.results.record import CaseRecord
from harness.results.whole_file import write_whole
from harness.runtimes.catalog import Catalog
from harness.runtimes.difference import Difference, difference
from harness.runtimes.known_facts import KnownFacts, build_id_of
from harness.runtimes.library_facts import kind_of
from harness.runtimes.runtime import RuntimeFile

RESULT: Final = "result.json"
REPORT_TEXT: Final = "report.md"
REPORT_PAGE: Final = "report.html"
_COMPILING_TARGET = "linux-x64"


def write_outcome(
    folder: BisectFolder,
    task: Task,
    finding: Finding | GridFinding | None,
    catalog: Catalog | None,
    cache: Path,
) -> dict[str, Any]:
    """Makes and writes the result; without a catalog nothing is said of the libraries.

    Raises InfraError if it cannot be written.
    """
    log = folder.read()
    answers = [entry for entry in log.entries if isinstance(entry, Answered)]
    records: dict[int, CaseRecord] = {}
    for number, entry in enumerate(answers):
        record = record_of(folder.path, entry)
        if record is not None:
            records[number] = record
    differences: Mapping[str, Difference] = {}
    builds: Mapping[str, Mapping[str, str | None]] = {}
    if catalog is not None:
        edges = edges_of(finding, answers)
        with_ort = any(one.runtime is not None and one.runtime.ort for one in records.values())
        differences, builds = _libraries(task, with_ort, answers, edges, catalog, cache)
    result = result_of(
        folder.path.name, log, task, finding, records, differences=differences, builds=builds
    )
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    try:
        write_whole(folder.path / RESULT, text.encode("utf-8", "replace"))
        write_whole(folder.path / REPORT_TEXT, bug_report(result).encode("utf-8", "replace"))
        write_whole(folder.path / REPORT_PAGE, page_of(result).encode("utf-8", "replace"))
    except OSError as error:
        raise InfraError(f"cannot write to {folder.path}: {error.strerror}") from error
    with contextlib.suppress(OSError):
        write_index(folder.path.parent)  # only a list of what stands in each folder
    return result


def write_again(
    folder: BisectFolder, environment: Mapping[str, str], cache: Path
) -> dict[str, Any] | None:
    """Makes and writes the result anew from the log; nothing is run.

    What changed in the libraries is told as far as its lab can still be read. None for one that is
    left as it is, since its log alone does not lead to its conclusion. Raises ConfigError for a
    log that makes no sense, InfraError if nothing can be written.
    """
    log = folder.read()
    task = task_of(log)
    catalog = None
    with contextlib.suppress(HarnessError):
        catalog = Catalog.of(load_lab(task.lab), environment, cache)
        know_paths(task, catalog)
    step = log.search().next()
    finding = step if isinstance(step, Finding | GridFinding) else None
    if finding is None and concluded(log) and (folder.path / RESULT).is_file():
        # what was asked depends on what runs cost then, and the conclusion on what was asked
        return None
    return write_outcome(folder, task, finding, catalog, cache)


def _libraries(
    task: Task,
    with_ort: bool,
    answers: list[Answered],
    edges: Sequence[tuple[int, int]],
    catalog: Catalog,
    cache: Path,
) -> tuple[dict[str, Difference], dict[str, dict[str, str | None]]]:
    """What changed between the libraries at each edge, and their build ids."""
    differences: dict[str, Difference] = {}
    builds: dict[str, dict[str, str | None]] = {}
    facts = KnownFacts(cache)
    for edge in edges:
        before, after = (task.versions(answers[number].at) for number in edge)
        for axis in task.axes:
            if before[axis] == after[axis] or axis in differences:
                continue
            try:
                old, new = (
                    _files_of(axis, versions, task.target, with_ort, catalog)
                    for versions in (before, after)
                )
            except HarnessError:
                continue  # the answer stands without it
            differences[axis] = difference(old, new)
            if axis == "compiler":
                builds[axis] = {
                    version: build_id_of(facts.of(catalog.runtime(version, _COMPILING_TARGET)))
                    for version in (before[axis], after[axis])
                }
    return differences, builds


def _files_of(
    axis: Axis, versions: Mapping[Axis, str], target: str, with_ort: bool, catalog: Catalog
) -> tuple[RuntimeFile, ...]:
    """The libraries that one version brings: with ORT in the game, QNN's plug-in for it as well."""
    if axis == "ort":
        return (catalog.ort.fetch(versions["ort"], target),)
    if axis == "compiler":
        return tuple(catalog.runtime(versions["compiler"], _COMPILING_TARGET).files)
    if not with_ort:
        return tuple(catalog.runtime(versions["qnn"], target).files)
    whole = catalog.with_ort(versions["qnn"], versions.get("ort"), target)
    return tuple(file for file in whole.files if kind_of(file.name)[0] != "ort")
