"""`qnn-harness bisect`: find the version that changed a case, and its axis."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import IO, Any, Final

import click
from click.core import ParameterSource

from harness.bisect.bad_condition import Judged, Point, Question, Stopped
from harness.bisect.folder import LOG, Answered, BisectFolder, BisectLog, Concluded, Resumed
from harness.bisect.reports import held_text, summary, write_reports
from harness.bisect.request import Request, Versions, device_of, make_task, replay_log
from harness.bisect.result import BisectionResult, Finding
from harness.bisect.search import CornerSpec, Task
from harness.bisect.search_loop import RunEnd, Watcher, pytest_arguments_to_resume
from harness.bisect.version_search import Bisection
from harness.cli.common_options import (
    CommandGroup,
    NamedPath,
    json_option,
    lab_option,
    reports_option,
)
from harness.cli.lab_options import (
    SERIAL,
    Number,
    PytestCommand,
    device_option,
    duration_option,
    lab_or_simulated,
)
from harness.cli.say import say, say_result
from harness.core.errors import INTERRUPTED, NEGATIVE, ConfigError, HarnessError
from harness.core.json_record import Printout
from harness.core.matrix_axes import SEARCHED, VERSIONS, AxisName
from harness.core.outgoing_text import counted, one_line, outgoing
from harness.core.state_folders import cache_root
from harness.core.yaml_document import shown
from harness.lab.inventory import load_lab
from harness.lab.new_devices import with_hardware
from harness.runtimes.catalog import Catalog

FOUND: Final = 0
STOPPED: Final = 3
_WHY_CHARS = 60


def run_bisection(
    folder: BisectFolder, stop_at: float | None, *, as_json: bool, new: bool = False
) -> int:
    """Run a locked bisection until it is over, and print its result.

    A `new` one without answers is removed if its input turns out to be wrong. Raises HarnessError.
    """
    command = f"to continue: qnn-harness bisect --resume {shlex.quote(short_path(folder.path))}"
    try:
        return _run_to_end(folder, stop_at, command, as_json=as_json)
    except HarnessError as error:
        if new and isinstance(error, ConfigError) and not folder.read().answers():
            folder.discard()
        else:
            say(f"nothing is lost; {command}", err=True)
        raise
    finally:
        folder.close()


def _run_to_end(folder: BisectFolder, stop_at: float | None, command: str, *, as_json: bool) -> int:
    log = folder.read()
    lab = load_lab(log.spec.lab, names=log.spec.devices)
    catalog = Catalog.of(lab, os.environ, cache_root())
    Versions(catalog, log.spec.target).register(log.spec.paths)
    finding: Finding | None = None
    stopped, code = "the time limit is reached", STOPPED
    try:
        step = Bisection(folder, BisectProgress(log, folder.path), stop_at=stop_at).run()
        if isinstance(step, Stopped):
            stopped = f"the lab failed {step.troubles} times in a row"
        elif step is not None:
            finding, code = step, FOUND if step.kind == "change" else NEGATIVE
    except KeyboardInterrupt:
        say("", err=True)
        stopped, code = "stopped", INTERRUPTED
    result = write_reports(folder, finding, catalog)
    printed = result.model_copy(update={"folder": str(folder.path), "exit_code": code})
    say_result(printed, result_lines(result, short_path(folder.path)), as_json)
    if finding is None:
        say(f"{stopped}; {command}", err=True)
    return code


def short_path(path: Path) -> str:
    """Return a path relative to the current folder, if it is below that."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


class RunLines(Watcher):
    """Prints a line for each run, its end once it is there, to stderr: stdout has the result."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def on_question(self, question: Question) -> None:
        self._say(f"{question.number:3}  {outgoing(self._point_text(question.at))} ", end="")

    def on_answer(self, question: Question, judged: Judged, end: RunEnd) -> None:
        why = shown(one_line(judged.why), _WHY_CHARS)
        self._say(f"{self._answer(judged):<10} {end.seconds:6.1f} s  {why}")

    def on_note(self, text: str) -> None:
        self._say(f"     {outgoing(text)}")

    def _point_text(self, point: Point) -> str:
        return f"{' with '.join(point):<18}"

    def _answer(self, judged: Judged) -> str:
        return judged.answer

    def _say(self, text: str, end: str = "\n") -> None:
        self._stream.write(text + end)
        self._stream.flush()


class BisectProgress(RunLines):
    """Prints a bisection: first its search, the bound on its runs, and its folder."""

    def __init__(self, log: BisectLog, folder: Path, stream: IO[str] | None = None) -> None:
        super().__init__(stream)
        self._say(outgoing(next(plan_lines(log.spec))))
        self._say(outgoing(str(folder)))


def plan_lines(task: Task) -> Iterator[str]:
    """Yield the search and the bound on its runs, then its versions and devices."""
    runs = f"at most {counted(task.search.most_runs, 'run')}"
    yield f"{_search_text(task)}: {runs}, plus one for each that cannot be tested"
    for axis, versions in task.search.versions.items():
        yield f"  {axis}: {', '.join(versions)}"
    yield f"  devices: {', '.join(task.devices)}"


def log_lines(log: BisectLog) -> Iterator[str]:
    """Yield a log as text, a line per entry."""
    yield next(plan_lines(log.spec))
    for entry in log.entries:
        if isinstance(entry, Answered):
            run, why = f"  {entry.run}" if entry.run else "", shown(one_line(entry.why), _WHY_CHARS)
            yield f"  {' with '.join(entry.at):<18} {entry.answer:<10} {why}{run}"
        elif isinstance(entry, Resumed):
            yield "  resumed"
        elif isinstance(entry, Concluded):
            yield entry.text
    pending = log.pending()
    if pending is not None:
        yield f"  {' with '.join(pending.at):<18} running, or interrupted ({pending.why})"


def result_lines(result: BisectionResult, folder: str) -> Iterator[str]:
    """Yield the result of a bisection as text."""
    if result.answer is not None:
        yield result.answer.text
        yield from (f"  {line}" for line in summary(result))
        yield f"report: {folder}/report.html, as a bug report: {folder}/report.md"
    else:
        yield f"not finished after {counted(len(result.runs), 'run')}: {folder}"


def _search_text(task: Task) -> str:
    search = task.search
    if isinstance(search, CornerSpec):
        pairs = (zip(search.axes, pair, strict=True) for pair in (search.good, search.bad))
        good, bad = (" with ".join(map(" ".join, versions)) for versions in pairs)
        text = f"bisecting {' and '.join(search.axes)}: good {good}, bad {bad}"
    else:
        searched = search.searched()
        ends = f"{searched[0]} to {searched[-1]}"
        kind = "version" if search.axis in VERSIONS else "profile"
        text = f"bisecting {search.axis} over {counted(len(searched), kind)}, {ends}"
    held_versions = held_text(task.held)
    return f"{text} (with {held_versions})" if held_versions else text


_LATEST: Final = "latest"
_WITH_RESUME: Final = ("resume", "reports", "timeout_s", "as_json")


_NOUNS: Final = {
    "qnn": "QNN version",
    "ort": "ONNX Runtime version",
    "compiler": "QNN version of the compiler",
    "power": "Power profile",
}


def _axis_options(command: Callable[..., int]) -> Callable[..., int]:
    for axis in reversed(SEARCHED):
        text = f"{_NOUNS[axis]} to use, or those to search (default: all available)."
        metavar = "VERSION" if axis in VERSIONS else "NAME"
        command = click.option(f"--{axis}", metavar=metavar, help=text)(command)
    return command


class BisectionPlanned(Printout):
    """`bisect --dry-run --json`: the planned search, the versions of each axis oldest first.

    It takes at most `most_runs`, and one more for each version that cannot be tested.
    """

    case: str
    devices: tuple[str, ...]
    versions: Mapping[AxisName, tuple[str, ...]]
    most_runs: int


class _PytestGroup(PytestCommand, CommandGroup):
    pass


@click.group(cls=_PytestGroup, invoke_without_command=True)
@click.option("--case", metavar="NODEID", help="The case, as in reports; its versions are ignored.")
@click.option("--axis", metavar="AXIS[,AXIS]", help=f"The axis to search: {', '.join(SEARCHED)}.")
@click.option(
    "--good",
    metavar="VERSION",
    help="Version that passes; a pair such as qnn=2.32,ort=1.21 finds which of two axes matters.",
)
@click.option("--bad", metavar="VERSION", help="Version that fails, or a pair.")
@click.option(
    "--match",
    metavar="WHAT",
    help="Failure to search for: code=1002, drift:0 and others (default: any failure).",
)
@click.option(
    "--repeat",
    type=Number(1, 1000),
    metavar="N",
    help="Runs of each version: bad if any is bad; of figures the median counts (default: 1).",
)
@click.option("--dry-run", is_flag=True, help="Only print the versions and the number of runs.")
@duration_option("--timeout", "timeout_s", "Start no run after this time, such as 2h.")
@_axis_options
@device_option(
    "Device (default: ANDROID_SERIAL, else that of the case); others replace it if it fails.",
    multiple=True,
    envvar=SERIAL,
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[RUN]",
    help="Bisection to continue: its folder, or the last unfinished one.",
)
@lab_option
@reports_option
@json_option
@click.pass_context
def bisect(context: click.Context, /, **values: Any) -> int:
    """Find what changed a case: QNN runtime, ONNX Runtime, compiler or power profile.

    \b
    Examples:
      qnn-harness bisect --case 'suites/test_a.py::test_a[...]' --axis qnn
      qnn-harness bisect --case 'model.bin::test_contexts[...]' --good qnn=2.47 --bad qnn=2.51
      qnn-harness bisect --resume

    \b
    Exit codes: 0 found, 1 nothing changed or only a range is known, 2 the input is wrong,
    3 the lab or --timeout stopped it (--resume continues).
    """
    if context.invoked_subcommand is not None:
        return FOUND
    stop_at = None if values["timeout_s"] is None else time.monotonic() + values["timeout_s"]
    if values["resume"] is not None:
        _check_only_resumed(context)
        return run_bisection(_resumed(values), stop_at, as_json=values["as_json"])
    if not values["case"] or not (values["axis"] or values["good"] or values["bad"]):
        raise click.UsageError(
            "name the case and what may have changed it, --case NODEID --axis qnn (or ort, "
            "compiler, power), or use --resume"
        )
    request = _request(values)
    named = device_of(request.case)
    names = request.devices or ([named] if named else [])
    request = replace(request, lab=lab_or_simulated(request.lab, names, notice=True))
    # the name of a case may have a pool of the lab, or a kind of its devices
    names = request.devices if request.lab.exists() else names
    lab = with_hardware(load_lab(request.lab, names=names))
    task = make_task(request, lab, Catalog.of(lab, os.environ, cache_root()))
    if values["dry_run"]:
        planned = BisectionPlanned(
            case=task.case,
            devices=task.devices,
            versions=task.search.versions,
            most_runs=task.search.most_runs,
        )
        say_result(planned, plan_lines(task), values["as_json"])
        return FOUND
    folder = BisectFolder.create(request.reports, task)
    return run_bisection(folder, stop_at, as_json=values["as_json"], new=True)


@bisect.command()
@click.argument("folder", required=False, type=NamedPath())
@reports_option
def log(folder: Path | None, reports: Path) -> None:
    """Show the runs and answers of a bisection (default: the newest)."""
    bisection = BisectFolder.open(folder) if folder else BisectFolder.newest(reports)
    say(str(bisection.path / LOG))
    for line in log_lines(bisection.read()):
        say(line)


@bisect.command()
@click.argument("file", type=NamedPath())
@reports_option
@json_option
def replay(file: Path, reports: Path, as_json: bool) -> int:
    """Start a bisection from the answers in a log.jsonl, corrected or not."""
    return run_bisection(replay_log(file, reports), None, as_json=as_json)


def _request(values: dict[str, Any]) -> Request:
    same = {field.name: values[field.name] for field in fields(Request) if field.name in values}
    named: dict[AxisName, str | None] = {axis: values[axis] for axis in SEARCHED}
    return Request(
        **same,
        axes=tuple(part.strip() for part in (values["axis"] or "").split(",") if part.strip()),
        lab=values["lab_file"],
        versions={axis: spec for axis, spec in named.items() if spec is not None},
        devices=[part for names in values["device"] for part in names.split(",")],
    )


def _check_only_resumed(context: click.Context) -> None:
    changed = [
        parameter
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) == ParameterSource.COMMANDLINE
        and parameter.name not in _WITH_RESUME
    ]
    if changed:
        problem = "has no effect with --resume, which uses the stored options"
        choices = ("--reports", "--timeout", "--json", "the same `-- PYTEST_ARGS`")
        raise ConfigError(problem, field=changed[0].opts[0], choices=choices)


def _resumed(values: dict[str, Any]) -> BisectFolder:
    named = values["resume"]
    if named == _LATEST:
        folder = BisectFolder.newest_open(values["reports"])
    else:
        folder = BisectFolder.open(Path(named))
    stored = folder.read().spec.pytest_arguments
    folder.pytest_arguments = pytest_arguments_to_resume(stored, values["pytest_arguments"])
    folder.lock()
    return folder
