"""`qnn-harness model fit --remedies`: what makes contexts fit, tried on devices."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cli.run import run_files
from harness.cli.say import say, say_result
from harness.containers.artefact import Artefact
from harness.core.errors import ConfigError
from harness.models.fit_text import Fit, fit_lines

_NOTHING_WORKS = 1


def require_one(artefacts: Sequence[Artefact]) -> Artefact:
    """Return the only file. Raises ConfigError for several: their contexts make one case."""
    if len(artefacts) != 1:
        problem = f"remedies are tried for the contexts of one file, not {len(artefacts)}"
        advice = "`qnn-harness model extract FILE... -o DIR`, then DIR"
        raise ConfigError(problem, field="FILE", choices=[advice])
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
    words = [f"--qnn-copies={len(forecast.contexts)}", "-o", f"qnn_remedies={names}", *words]
    code, watch = run_files([artefact.path], words, quiet=True)
    if watch.interrupted and watch.folder is not None:
        say(f"stopped; {watch.folder.resume_hint}", err=True)
    if watch.interrupted or watch.folder is None:
        return watch.exit_code(code)
    tables = on_devices(watch.folder.contents().cases, left_out)
    report = RemedyReport(1, str(artefact.path), watch.folder.path.name, forecast, tables)
    say_result(report, remedy_lines(report), as_json)
    return 0 if report.works else watch.exit_code(code) or _NOTHING_WORKS


def _left_out(artefact: Artefact, forecast: Fit) -> dict[str, str]:
    """Return the remedies that cannot apply to these contexts, and why."""
    reasons = {}
    if artefact.kind != "onnx":
        reasons["weight-sharing"] = "graphs are compiled into one context: needs the .onnx"
    if not any(context.spill_fill_bytes for context in forecast.contexts):
        reasons["spill-fill"] = "no context has a spill-fill buffer to share"
    return reasons
