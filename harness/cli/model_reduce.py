"""`qnn-harness model reduce` and `bundle`: reduce a failing case, and pack it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from harness.bisect.bad_condition import Judged, Point
from harness.cli.bisect import RunLines
from harness.cli.common_options import NamedPath, json_option, lab_option, reports_option
from harness.cli.lab_options import (
    PytestCommand,
    lab_to_name,
    open_catalog,
    output_option,
    require_output,
)
from harness.cli.say import say, say_result
from harness.core.context_options import parsed_options
from harness.core.errors import INTERRUPTED, ConfigError, HarnessError, InfraError
from harness.core.outgoing_text import counted
from harness.lab.device_config import AdbDeviceConfig
from harness.lab.inventory import SIMULATED_LAB, load_lab
from harness.models.artefact_sources import ModelOptions
from harness.models.compiler import CompileError
from harness.models.session_plan import ClosenessLimits
from harness.reduce.bundle import outcome_lines
from harness.reduce.reduction import Reduction, Result
from harness.reduce.subject import (
    Reducing,
    Subject,
    Way,
    engine_of,
    expected_of,
    find_record,
    find_subject,
    pack_model,
)
from harness.results.file_options import LIMITS, file_options_in
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder

_RUN: Final = "Run of the case (default: the latest one in --reports)."


def _case_options(command: Callable[..., Any]) -> Callable[..., Any]:
    run_option = click.option("--run", type=NamedPath(), metavar="DIR", help=_RUN)
    return run_option(reports_option(lab_option(command)))


@click.command("reduce", cls=PytestCommand)
@click.argument("case", required=False)
@output_option("The bundle to write.")
@click.option("--resume", type=NamedPath(), metavar="RUN", help="Search to continue: its folder.")
@_case_options
@json_option
def reduce_command(
    case: str | None, output: Path | None, resume: Path | None, as_json: bool, **options: Any
) -> int:
    """Find the fewest contexts with which CASE still fails in the same way, and bundle them.

    CASE is a case of a file, as reports name it: 'model.pte::test_contexts[...]'. `run` accepts the
    bundle.

    \b
    Exit codes: 0 nothing more can be removed, 1 it did not fail, 2 the input is wrong,
    3 the lab failed (--resume continues).
    """
    if (case is None) == (resume is None):
        raise click.UsageError("give either CASE or --resume RUN")
    if output is not None:
        require_output(output, new=resume is None)
    watcher = _Progress()
    if resume is not None:
        reduction = Reduction.resume(resume, options["pytest_arguments"], watcher=watcher)
    else:
        record = find_record(str(case), options["run"], options["reports"])
        subject = _subject(record, options)
        if subject.expects is not None and subject.expects.outcome == "passed":
            why = f"the case passed in {record.run}, and only a failing case can be reduced"
            raise ConfigError(f"{why}; name a run where it fails with --run DIR", field="CASE")
        task = Reducing(subject=subject, pytest_arguments=options["pytest_arguments"])
        reduction = Reduction.create(options["reports"], task, watcher=watcher)
    stopped = None
    try:
        reduction.run()
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    except InfraError as error:
        say(f"error: {error}", err=True)
        stopped = error.exit_code
    except HarnessError:
        if not reduction.folder.read().answers():
            reduction.folder.discard()
        raise
    result = reduction.result(output)
    if stopped is not None:
        result = result.model_copy(update={"exit_code": stopped})
        path = shlex.quote(str(reduction.folder.path))
        say(f"stopped; to continue: qnn-harness model reduce --resume {path}", err=True)
    passed = f"the case did not fail in {counted(result.runs, 'run')}; nothing to reduce"
    reduced = _lines(result, reduction.subject.plan.qnn) if result.shown else [passed]
    say_result(result, reduced if result.shown or stopped is None else [], as_json)
    return result.exit_code


@click.command("bundle")
@click.argument("case")
@output_option("The bundle to write.", required=True)
@_case_options
def bundle_command(case: str, output: Path, **options: Any) -> None:
    """Pack CASE of a run into one archive: contexts or model, plan, versions and outcome.

    CASE is a case of a file, as reports name it: 'model.pte::test_contexts[...]'. `run` accepts the
    archive; its README.txt says how to run it without qnn-harness. It has no host name, serial
    number or path, so you can send it to others.
    """
    require_output(output, new=True)
    record = find_record(case, options["run"], options["reports"])
    expects = expected_of(record)
    if expects is None:
        raise ConfigError(f"{case} ended without a verdict; name another run", field="--run")
    engine = engine_of(record.case)
    subject = None
    if engine.takes_contexts:
        with contextlib.suppress(CompileError):  # then the model itself is bundled
            subject = _subject(record, options)
    if subject is not None:
        subject.bundle(output, subject.way, record, expects)
        plan = subject.plan
        content = f"{counted(len(subject.names(subject.way)), 'context')}, {plan.residency}"
    else:
        file_options = _options_of_its_run(record, options)
        plan = pack_model(output, record.case, file_options, record, expects)
        content = f"the model, for {'the compiler' if engine.takes_contexts else engine.title}"
    outcome, *more = outcome_lines(record)
    say(f"written: {output}: {content}")
    say(f"outcome of the case: {', '.join([outcome, *more[:2]])}")
    if record.error is not None and record.error.diagnosis is not None:
        say("\n".join(f"    {line}" for line in record.error.diagnosis.lines()))
    say(f"send this file; to run it: {_run_command(str(output), plan.qnn)}")


def _run_command(bundle: str, qnn: str | None) -> str:
    version = f" --qnn {shlex.quote(qnn)}" if qnn else ""
    return f"qnn-harness run {shlex.quote(bundle)}{version}"


def _subject(record: CaseRecord, options: Mapping[str, Any]) -> Subject:
    lab_file = options["lab_file"] if lab_to_name(options["lab_file"]) else SIMULATED_LAB
    file_options = _options_of_its_run(record, options)
    message = (record.error.message if record.error else None) or ""
    if message.startswith("nan[") and file_options.expected is None:
        problem = "failed because of NaN, which its contexts alone do not show without a limit"
        advice = "run it again with --limit max-error=X, and name that run"
        raise ConfigError(f"{problem}; {advice}", field="CASE")
    lab, catalog, device = load_lab(lab_file), open_catalog(lab_file), record.device
    if device is not None and lab.find(device.name) is None:  # such as a phone named by its serial
        config = AdbDeviceConfig.model_construct(
            name=device.name, serial=device.serial or "", soc=device.soc, target=device.target
        )
        lab = lab.with_devices([config])
    subject = find_subject(record.case, lab_file, lab, catalog, file_options)
    return subject.model_copy(update={"expects": expected_of(record)})


def _options_of_its_run(record: CaseRecord, options: Mapping[str, Any]) -> ModelOptions:
    named = options["run"]
    run = RunFolder(options["reports"] / record.run) if named is None else RunFolder.open(named)
    values = file_options_in(run.info().get("command"))
    folders = {name: Path(values[name]) for name in ("inputs", "expected") if name in values}
    try:
        limits = {name: float(values[name]) if name in values else None for name in LIMITS}
    except ValueError as error:
        raise ConfigError(
            f"the command of this run cannot be parsed: {error}", file=run.path
        ) from error
    closeness = ClosenessLimits(limits["max-error"], limits["min-cosine"], limits["min-sqnr"])
    return ModelOptions(
        inputs=folders.get("inputs"),
        expected=folders.get("expected"),
        tolerance=limits["tolerance"] or 0.0,
        graph=values.get("graph"),
        fallback=values.get("fallback") == "allow",
        closeness=closeness,
        context_options=parsed_options(
            filter(None, values.get("context-option", "").split(",")), "--context-option"
        ),
    )


class _Progress(RunLines):
    def _point_text(self, point: Point) -> str:
        way = Way.from_point(point)
        return f"{counted(len(way.order), 'context'):>12}, {way.residency:<10}"

    def _answer(self, judged: Judged) -> str:
        if judged.answer in ("bad", "unknown"):
            return "fails" if judged.answer == "bad" else "unknown"
        return "passes" if judged.why == "passed" else "other"  # another failure is not this one


def _lines(result: Result, qnn: str | None) -> Iterator[str]:
    remaining = f"{counted(len(result.contexts), 'context')} of {result.before}"
    different = f", {result.different} different" if result.different > 1 else ""
    yield f"same outcome with {remaining}{different}, {result.residency}: {result.expects}"
    for name, same in groupby(result.contexts):
        times = len(list(same))
        yield f"    {name}" + (f", {times} times" if times > 1 else "")
    if result.residency != result.residency_before:
        yield f"residency {result.residency} is enough; the case uses {result.residency_before}"
    whole = "each of them is needed for this failure" if result.minimal else "fewer may be enough"
    shown = f"{result.shown} of {counted(result.confirmed, 'run')} with only these failed this way"
    runs = counted(result.runs, "run")
    yield f"{whole}; {shown}; {runs} in {result.seconds:.0f} s"
    if result.bundle is not None:
        yield f"to run them again: {_run_command(result.bundle, qnn)}"
