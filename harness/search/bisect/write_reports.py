"""Writes what a bisection came to: result.json, report.md and report.html beside its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.ground.errors import HarnessError
from harness.ground.errors.outgoing_text import printable, without_secrets_in
from harness.ground.facts.axes import AxisName
from harness.ground.files.local_file import LocalFile
from harness.ground.files.whole_file import disk_errors, write_whole
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.difference import Difference, difference
from harness.libraries.runtimes.known_facts import KnownFacts
from harness.libraries.runtimes.library_facts import build_id_of, kind_of
from harness.search.bisect.before_after import edges_of
from harness.search.bisect.findings import Finding
from harness.search.bisect.folder import BisectFolder
from harness.search.bisect.log import Answered
from harness.search.bisect.loop import record_of
from harness.search.bisect.report_text import bug_report, page_of
from harness.search.bisect.result import BisectionResult, Builds, result_of
from harness.search.bisect.task import Task
from harness.search.bisect.versions import COMPILING_TARGET

RESULT: Final = "result.json"
REPORT_TEXT: Final = "report.md"
REPORT_PAGE: Final = "report.html"


def write_reports(
    folder: BisectFolder,
    finding: Finding | None,
    catalog: Catalog | None,
    cache: Path,
) -> BisectionResult:
    """Makes and writes the result; without a catalog nothing is said of the libraries.

    Raises InfraError if it cannot be written.
    """
    log = folder.read()
    answers = log.answers()
    records = [record_of(folder.path, entry) for entry in answers]
    differences: Mapping[AxisName, Difference] = {}
    builds: Builds = {}
    if catalog is not None:
        edges = edges_of(finding, answers)
        with_ort = any(one and one.runtime and one.runtime.ort for one in records)
        differences, builds = _libraries(log.spec, with_ort, answers, edges, catalog, cache)
    result = result_of(
        folder.path.name, log, finding, records, differences=differences, builds=builds
    )
    result = BisectionResult.model_validate(without_secrets_in(result.as_json()))
    report = printable(bug_report(result))
    text = json.dumps(result.as_json(), indent=2, ensure_ascii=False) + "\n"
    with disk_errors(f"cannot write to {folder.path}"):
        write_whole(folder.path / RESULT, text.encode("utf-8", "replace"))
        write_whole(folder.path / REPORT_TEXT, report.encode("utf-8", "replace"))
        write_whole(folder.path / REPORT_PAGE, printable(page_of(result)).encode())
    return result


def _libraries(
    task: Task,
    with_ort: bool,
    answers: list[Answered],
    edges: Sequence[tuple[int, int]],
    catalog: Catalog,
    cache: Path,
) -> tuple[Mapping[AxisName, Difference], Builds]:
    """What changed between the libraries at each edge, and their build ids."""
    differences: dict[AxisName, Difference] = {}
    builds: dict[AxisName, dict[str, str | None]] = {}
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
                    version: build_id_of(facts.of(catalog.runtime(version, COMPILING_TARGET)))
                    for version in (before[axis], after[axis])
                }
    return differences, builds


def _files_of(
    axis: AxisName, versions: Mapping[AxisName, str], target: str, with_ort: bool, catalog: Catalog
) -> tuple[LocalFile, ...]:
    """The libraries that one version brings: with ORT in the game, QNN's plug-in for it as well."""
    if axis == "ort":
        return (catalog.ort.fetch(versions["ort"], target),)
    if axis == "compiler":
        return tuple(catalog.runtime(versions["compiler"], COMPILING_TARGET).files)
    if not with_ort:
        return tuple(catalog.runtime(versions["qnn"], target).files)
    whole = catalog.with_ort(versions["qnn"], versions.get("ort"), target)
    return tuple(file for file in whole.files if kind_of(file.name)[0] != "ort")
