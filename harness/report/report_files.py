"""The files made from a run's journal, which can be made again at any time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harness.core.files import disk_errors, write_whole, written_whole
from harness.core.outgoing_text import printable
from harness.report.html import html_text
from harness.report.junit import junit_parts
from harness.report.sections import RunData, Since
from harness.report.summary import lacks, summary_lines
from harness.results.journal import read_once, without_gc
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder


def run_data(folder: RunFolder, since: Since | None = None) -> RunData:
    """Return the data that the projections of a run are made of."""
    return RunData(folder.run_id, folder.contents(), folder.info(), folder, since)


@without_gc()
def project(folder: RunFolder, since: Since | None = None) -> RunData:
    """Write the projections again; return their data, with a summary. Raises InfraError."""
    run = run_data(folder, since)

    def summary(cases: Iterable[CaseRecord]) -> list[str]:
        return summary_lines(cases, run.coverage, folder.path / "report.html")

    def junit(cases: Iterable[CaseRecord]) -> None:
        with written_whole(folder.path / "junit.xml") as stream:
            problem = "; ".join(lacks(run.info)) or None
            stream.writelines(junit_parts(cases, run.coverage, run=run.run, problem=problem))

    def page(cases: Iterable[CaseRecord]) -> None:
        write_whole(folder.path / "report.html", printable(html_text(run, cases)).encode())

    with disk_errors(f"cannot write reports to {folder.path}"):
        lines, *_ = read_once(run.cases, summary, junit, page)
    return replace(run, summary=lines)


def finish(folder: RunFolder, since: Since | None = None, **facts: object) -> RunData:
    """End a run with these facts in run.json, and write its projections.

    With `other_failures` it fails for something in no record: a test without a device, or outputs
    that drift. `left_out` says why devices have no cases, `not_started` why tests never began.
    run.json is completed even if the reports cannot be written. Raises InfraError then.
    """
    drift = [output.model_dump() for output in folder.drift() if output.drifts]
    folder.end({"drift": drift, "plugin_errors": [], **facts})
    return project(folder, since)
