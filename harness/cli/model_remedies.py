"""`qnn-harness model fit --remedies`: what makes contexts fit, tried on devices."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final

import pytest

from harness.cli.run import RunWatcher, run_files
from harness.cli.say import say, say_result
from harness.containers.artefact import Artefact
from harness.core.errors import NEGATIVE, ConfigError
from harness.models.fit_text import Fit, fit_lines
from harness.plugin.terminal import RECORDS, write_lines
from harness.report.document import CodeBlock
from harness.report.sections import Section
from harness.results.record import CaseRecord

_ONLY_PROGRESS: Final = ("--no-summary", "--tb=no", "-o", "console_output_style=classic")
_OPTIONS: Final = {"--qnn-version": "--qnn", "--qnn-lab": "--lab"}


def require_one(artefacts: Sequence[Artefact]) -> Artefact:
    """Return the only file. Raises ConfigError for several: their contexts make one case."""
    if len(artefacts) != 1:
        advice = "extract their contexts with `model extract FILE... -o DIR`, and name DIR"
        problem = f"--remedies takes one file, not {len(artefacts)}; {advice}"
        raise ConfigError(problem, field="FILE")
    return artefacts[0]


def try_remedies(artefact: Artefact, forecast: Fit, words: Sequence[str], as_json: bool) -> int:
    """Print a forecast, try each remedy that applies in a run of its own case, and rank them.

    `words` are arguments for pytest. Returns the exit code.
    """
    from harness.experiments.context_remedies import REMEDIES
    from harness.experiments.remedy_ranking import RemedyReport, on_devices, remedy_lines
    from harness.plugin.user_files import require_name

    require_name(artefact.path)
    if not as_json:
        for line in fit_lines(forecast):
            say(line)
    left_out = _left_out(artefact, forecast)
    names = ",".join(name for name in REMEDIES if name not in left_out)
    arguments = [f"--qnn-copies={len(forecast.contexts)}", "-o", f"qnn_remedies={names}", *words]
    file, named = str(artefact.path), [word.partition("=") for word in words]
    options = [f"{_OPTIONS[name]}={value}" for name, _, value in named if name in _OPTIONS]

    def ranking(cases: Iterable[CaseRecord]) -> CodeBlock:
        return CodeBlock([*remedy_lines(on_devices(cases, left_out), file, *options)])

    watch = _Progress(Section("Remedies", ranking, "top"))
    code = run_files([artefact.path], [*arguments, *_ONLY_PROGRESS], watch, quiet=True)
    if watch.interrupted and watch.folder is not None:
        say(f"stopped; {watch.folder.resume_hint}", err=True)
    if watch.interrupted or watch.folder is None:
        return watch.exit_code(code)
    tables = on_devices(watch.folder.contents().cases, left_out)
    report = RemedyReport(1, file, watch.folder.path.name, forecast, tables)
    say_result(report, remedy_lines(tables, file, *options), as_json)
    if not as_json:
        say(f"report: {watch.folder.path / 'report.html'}")
    return 0 if report.works else watch.exit_code(code) or NEGATIVE


class _Progress(RunWatcher):
    """Prints a line for each remedy instead of pytest's dots, and ranks them in the report."""

    def __init__(self, section: Section) -> None:
        self._section = section

    @pytest.hookimpl
    def qnn_report_sections(self) -> list[Section]:
        return [self._section]

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self,
    ) -> Generator[None, tuple[str, object, object], tuple[str, str, str]]:
        category, _, _ = yield
        return category, "", ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        from harness.experiments.remedy_ranking import progress_line

        for record in getattr(report, RECORDS, ()):
            if isinstance(record, CaseRecord):
                write_lines(self.config, progress_line(record))


def _left_out(artefact: Artefact, forecast: Fit) -> dict[str, str]:
    """Return the remedies that cannot apply to these contexts, and why."""
    reasons = {}
    if artefact.kind != "onnx":
        reasons["weight-sharing"] = "it compiles the graphs into one context, and needs the .onnx"
    if not any(context.spill_fill_bytes for context in forecast.contexts):
        reasons["spill-fill"] = "no context has a spill-fill buffer to share"
    return reasons
