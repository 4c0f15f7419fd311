"""`qnn-harness contexts minimize` and `bundle`: a failing case made small, and handed over."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from harness.bisect.match import Judged, Point
from harness.cli.bisect import RunLines
from harness.cli.lab_options import (
    DEFAULT_LAB,
    NamedPath,
    json_option,
    open_catalog,
    require_output,
    run_timeout_option,
)
from harness.cli.printout import Printout
from harness.cli.say import say, say_found, say_json
from harness.containers.manifest import Expects
from harness.core.axes import QNN
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.outgoing_text import counted
from harness.lab.inventory import SIMULATED_LAB, load_lab
from harness.models.artefact_sources import Given
from harness.models.compiler import CompileError
from harness.models.source import ClosenessAsked
from harness.reduce.driver import Minimization, Result
from harness.reduce.handover import came_to
from harness.reduce.subject import (
    Minimizing,
    Subject,
    Way,
    engine_of,
    expected_of,
    pack_model,
    record_in_run,
    subject_of,
)
from harness.results.asked_of_files import asked_of_files
from harness.results.case_names import split_node_id
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder

_INTERRUPTED: Final = 130
_LIMITS: Final = ("tolerance", "max-error", "min-cosine", "min-sqnr")
_RUN: Final = "The run whose record says how it ended (default: the latest of --reports)."

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


class CaseBundled(Printout):
    """`contexts bundle --json`: the archive, what is in it, and how a run of it should end."""

    case: str
    engine: str
    contexts: list[str]
    model: str | None
    bundle: str
    expects: Expects


def _case_options(command: AnyCommand) -> AnyCommand:
    """The run that has CASE, which says all else."""
    for option in (
        click.option("--lab", "lab_file", type=NamedPath(), help="The lab's devices."),
        click.option(
            "--reports", type=NamedPath(), default=Path("reports"), help="Where runs are."
        ),
        click.option("--run", type=NamedPath(), metavar="DIR", help=_RUN),
        json_option,
    ):
        command = option(command)
    return command


@click.command("minimize")
@click.argument("case", required=False)
@click.option("-o", "--output", type=NamedPath(), metavar="FILE", help="The new archive.")
@click.option("--repeat", type=click.IntRange(1, 1000), help="Runs of each (default: by itself).")
@click.option(
    "--max-runs", type=click.IntRange(1), default=200, show_default=True, help="Runs at most."
)
@run_timeout_option
@click.option("--pytest-arg", "pytest_arguments", multiple=True, help="Goes to pytest as it is.")
@click.option("--resume", type=NamedPath(), metavar="DIR", help="Go on with what was stopped.")
@_case_options
def minimize_command(
    case: str | None, output: Path | None, resume: Path | None, as_json: bool, **given: Any
) -> int:
    """Find the fewest contexts with which CASE still fails in the same way, and pack them.

    CASE is a case of a file, as reports name it: 'model.pte::test_contexts[...]'. Each set is run
    in a fresh process. What is left is a bundle, which `run` takes.

    \b
    Exit codes: 0 nothing more can be left away, 1 it did not fail, or --max-runs were over,
    2 the input is wrong, 3 the lab failed (--resume goes on).
    """
    if (case is None) == (resume is None):
        raise click.UsageError("CASE says what to minimize; or --resume DIR alone")
    if output is not None:
        require_output(output, new=resume is None)
    watcher = _Progress()
    if resume is not None:
        found = Minimization.resume(resume, given["pytest_arguments"], watcher=watcher)
    else:
        record = _record(str(case), given)
        subject = _subject(record, given)
        if subject.expects is not None and subject.expects.outcome == "passed":
            why = f"it passed in {record.run}, and only what fails is made smaller"
            raise ConfigError(f"{why}: --run DIR names a run where it fails", field="CASE")
        same = ("repeat", "max_runs", "run_timeout_s", "pytest_arguments")
        task = Minimizing(subject=subject, **{name: given[name] for name in same})
        found = Minimization.create(given["reports"], task, watcher=watcher)
    stopped = None
    try:
        found.go_on()
    except KeyboardInterrupt:
        stopped = _INTERRUPTED
    except InfraError as error:
        say(f"error: {error}", err=True)
        stopped = error.exit_code
    except HarnessError:
        if not found.folder.read().answers():
            found.folder.discard()
        raise
    result = found.result(output)
    if stopped is not None:
        result = result.model_copy(update={"exit_code": stopped})
        again = f"qnn-harness contexts minimize --resume {shlex.quote(str(found.folder.path))}"
        say(f"stopped; to go on: {again}", err=True)
    if as_json:
        say_json(result)
    elif not result.shown and stopped is None:
        say(f"it did not fail in {counted(result.runs, 'run')}: there is nothing to make smaller")
    elif result.shown:
        for line in _lines(result, found.subject.plan.qnn):
            say(line)
    return result.exit_code


@click.command("bundle")
@click.argument("case")
@click.option(
    "-o", "--output", type=NamedPath(), required=True, metavar="FILE", help="The new archive."
)
@_case_options
def bundle_command(case: str, output: Path, as_json: bool, **given: Any) -> None:
    """Pack CASE of a run: its contexts or model, its plan, versions and outcome, in one archive.

    CASE is a case of a file, as reports name it: 'model.pte::test_contexts[...]'. `run` takes the
    archive; README.txt in it says how to run it without qnn-harness. No host, serial number or path
    is told in it.
    """
    require_output(output, new=True)
    record = _record(case, given)
    expects = expected_of(record)
    if expects is None:
        raise ConfigError(f"{case} ended without a verdict: name another run", field="--run")
    engine = engine_of(record.case)
    contexts, subject = list[str](), None
    if engine == QNN:
        with contextlib.suppress(CompileError):  # then the model itself is what there is
            subject = _subject(record, given)
    if subject is not None:
        subject.bundle(output, subject.way, record, expects)
        contexts, plan = subject.names(subject.way), subject.plan
        content = f"{counted(len(contexts), 'context')}, {plan.residency}"
    else:
        plan = pack_model(output, record.case, _as_in_its_run(record, given), record, expects)
        content = f"the model, for {engine.title if engine != QNN else 'the compiler'}"
    file = split_node_id(record.case)[0].partition("::")[0]
    bundled = CaseBundled(
        case=record.case,
        engine=engine.name,
        contexts=contexts,
        model=None if subject is not None and not subject.model else Path(file).name,
        bundle=str(output),
        expects=expects,
    )
    known = record.error.diagnosis if record.error is not None else None
    outcome, *more = came_to(record)
    lines = [
        f"written: {output}: {content}",
        f"what the case came to: {': '.join([outcome, *more[:2]])}",
        *([f"    {known.text()}"] if known is not None else []),
        f"send this file; to run it: {_to_run(str(output), plan.qnn)}",
    ]
    say_found(bundled, lines, as_json)


def _to_run(bundle: str, qnn: str | None) -> str:
    version = f" --qnn {shlex.quote(qnn)}" if qnn else ""
    return f"qnn-harness run {shlex.quote(bundle)}{version}"


def _record(case: str, given: Mapping[str, Any]) -> CaseRecord:
    return record_in_run(case, given["run"], given["reports"])


def _subject(record: CaseRecord, given: Mapping[str, Any]) -> Subject:
    """Return a case as its run knows it, with its contexts."""
    lab_file = given["lab_file"] or (DEFAULT_LAB if DEFAULT_LAB.exists() else SIMULATED_LAB)
    asked = _as_in_its_run(record, given)
    lab, catalog = load_lab(lab_file), open_catalog(lab_file)
    subject = subject_of(record.case, lab_file, lab, catalog, asked)
    return subject.model_copy(update={"expects": expected_of(record)})


def _as_in_its_run(record: CaseRecord, given: Mapping[str, Any]) -> Given:
    """Return what was asked of the file when the case ran."""
    named = given["run"]
    run = RunFolder(given["reports"] / record.run) if named is None else RunFolder.open(named)
    asked = asked_of_files(run.info().get("command"))
    folders = {
        name: Path(asked[name]) if name in asked else None for name in ("inputs", "expected")
    }
    try:
        limits = {name: float(asked[name]) if name in asked else None for name in _LIMITS}
    except ValueError as error:
        raise ConfigError(f"its command cannot be read: {error}", file=run.path) from error
    closeness = ClosenessAsked(limits["max-error"], limits["min-cosine"], limits["min-sqnr"])
    return Given(
        **folders,
        tolerance=limits["tolerance"] or 0.0,
        graph=asked.get("graph"),
        fallback=asked.get("fallback") == "allow",
        closeness=closeness,
    )


class _Progress(RunLines):
    """Tells of each run: how many contexts, and whether they failed as is wanted."""

    def _what(self, at: Point) -> str:
        way = Way.at(at)
        return f"{counted(len(way.order), 'context'):>12}, {way.residency:<10}"

    def _answer(self, judged: Judged) -> str:
        if judged.answer in ("bad", "unknown"):
            return "fails" if judged.answer == "bad" else "unknown"
        return "passes" if judged.why == "passed" else "other"  # another failure is not this one


def _lines(result: Result, qnn: str | None) -> Iterator[str]:
    left = f"{counted(len(result.contexts), 'context')} of {result.before}"
    different = f", {result.different} different" if result.different > 1 else ""
    yield f"{left}{different}, {result.residency}, still come to: {result.expects}"
    for name, same in groupby(result.contexts):
        times = len(list(same))
        yield f"    {name}" + (f", {times} times" if times > 1 else "")
    if result.residency != result.residency_before:
        yield f"{result.residency} is enough; the case is {result.residency_before}"
    if result.order_matters is not None:
        other = "does not fail so" if result.order_matters else "fails so, too"
        yield f"in the other order it {other}"
    whole = "without any one of them it does not fail so" if result.minimal else "fewer may do"
    shown = f"{result.shown} of {counted(result.confirmed, 'run')} of just these failed so"
    runs = counted(result.runs, "run")
    yield f"{whole}; {shown}; {runs} in {result.seconds:.0f} s"
    if result.bundle is not None:
        yield f"to run them again: {_to_run(result.bundle, qnn)}"
