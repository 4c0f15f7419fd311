"""`qnn-harness bisect`: finds the version that changed a case, and which axis it is on."""

from __future__ import annotations

import logging
import math
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

from harness.bisect.driver import Bisection, search_of
from harness.bisect.folder import (
    LOG,
    Answered,
    Begun,
    BisectFolder,
    BisectLog,
    Concluded,
    Resumed,
    log_text,
    read_log,
)
from harness.bisect.loop import RunEnd, Watcher, named_again
from harness.bisect.match import ANY_FAILURE, Judged, Point, Question, Stopped, parse_match
from harness.bisect.report_text import doubts, held_text, summary, write_reports
from harness.bisect.request import Request, Versions, begin, replayed
from harness.bisect.result import BisectionResult, Finding, result_of
from harness.bisect.search import CornerSpec, Task
from harness.cli.lab_options import (
    DEFAULT_LAB,
    complete_devices,
    json_option,
    lab_option,
    run_timeout_option,
    simulated_instead,
)
from harness.cli.printout import Printout
from harness.cli.say import say, say_found, say_json
from harness.core.axes import BACKENDS, VERSIONS, AxisName
from harness.core.cache import cache_root
from harness.core.errors import ConfigError, HarnessError
from harness.core.outgoing_text import counted, outgoing
from harness.lab.inventory import load_lab
from harness.runtimes.catalog import Catalog

FOUND: Final = 0
NEGATIVE: Final = 1
STOPPED: Final = 3
INTERRUPTED: Final = 130
_WHY_CHARS = 60
_COLORS = {"good": "green", "bad": "red"}


def go_on_with(
    folder: BisectFolder, stop_at: float | None, *, as_json: bool, new: bool = False
) -> int:
    """Goes on with a bisection that is held until it is over; prints what it came to.

    A `new` one of which no run has answered is removed if its input turns out to be wrong. Raises
    HarnessError.
    """
    again = f"to go on: qnn-harness bisect --resume {shlex.quote(shown(folder.path))}"
    try:
        return _go_on(folder, stop_at, again, as_json=as_json)
    except HarnessError as error:
        if new and isinstance(error, ConfigError) and not folder.read().answers():
            folder.discard()
        else:
            say(f"nothing is lost; {again}", err=True)
        raise
    finally:
        folder.close()


def _go_on(folder: BisectFolder, stop_at: float | None, again: str, *, as_json: bool) -> int:
    log = folder.read()
    lab = load_lab(log.spec.lab)
    catalog = Catalog.of(lab, os.environ, cache_root())
    Versions(catalog, log.spec.target).know(log.spec.paths)
    step: Finding | Stopped | None = None
    stopped, code = "the time is over", STOPPED
    try:
        step = Bisection(folder, BisectProgress(log, folder.path), stop_at=stop_at).go_on()
        code = code_of(step)
    except KeyboardInterrupt:
        say("", err=True)
        stopped, code = "stopped", INTERRUPTED
    if isinstance(step, Stopped):
        stopped = f"the lab failed {step.troubles} times in a row"
    finding = None if isinstance(step, Stopped) else step
    result = write_reports(folder, finding, catalog, cache_root())
    printed = result.model_copy(update={"folder": str(folder.path), "exit_code": code})
    say_found(printed, result_lines(result, shown(folder.path)), as_json)
    if finding is None:
        say(f"{stopped}; {again}", err=True)
    return code


def code_of(step: Finding | Stopped | None) -> int:
    """The exit code for how a search ended."""
    if step is None or isinstance(step, Stopped):
        return STOPPED
    return FOUND if step.kind == "change" else NEGATIVE


def shown(path: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


class RunLines(Watcher):
    """Tells of each run: a terminal what runs and then its answer, a pipe a line for each answer.

    It goes to stderr, so that stdout holds the result and nothing else.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._anew = "\r\x1b[2K" if self._terminal else ""

    def asked(self, question: Question) -> None:
        """A run begins: on a terminal its line is shown, to be completed."""
        if self._terminal:
            at = outgoing(self._what(question.at))
            self._say(f"{question.number:3}  {at} ...  {outgoing(question.why)}", end="")

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended: the line is written anew."""
        at, answer = outgoing(self._what(question.at)), f"{self._answer(judged):<10}"
        if self._terminal:
            answer = click.style(answer, fg=_COLORS.get(judged.answer, "yellow"))
        why = _short(judged.why)
        self._say(f"{self._anew}{question.number:3}  {at} {answer} {end.seconds:6.1f} s  {why}")

    def remark(self, text: str) -> None:
        """Something else that a person should know."""
        self._say(f"{self._anew}     {outgoing(text)}")

    def _what(self, at: Point) -> str:
        return f"{' with '.join(at):<18}"

    def _answer(self, judged: Judged) -> str:
        return judged.answer

    def _say(self, text: str, end: str = "\n") -> None:
        self._stream.write(text + end)
        self._stream.flush()


class BisectProgress(RunLines):
    """The lines of a bisection: first what it searches, in how many runs, and its folder."""

    def __init__(self, log: BisectLog, folder: Path, stream: IO[str] | None = None) -> None:
        super().__init__(stream)
        self._say(outgoing(next(plan_lines(log.spec))))
        self._say(outgoing(str(folder)))


def plan_lines(task: Task) -> Iterator[str]:
    """Return what a bisection searches and in how many runs, then its versions and devices."""
    yield f"{_searched(task)}: {task.search.bound()}"
    for axis, versions in task.search.versions.items():
        yield f"  {axis}: {', '.join(versions)}"
    yield f"  devices: {', '.join(task.devices)}"


def log_lines(log: BisectLog) -> Iterator[str]:
    """A log for a person, a line an entry."""
    yield next(plan_lines(log.spec))
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = f"  {entry.run}" if entry.run else ""
            yield f"  {' with '.join(entry.at):<18} {entry.answer:<10} {_short(entry.why)}{run}"
        elif isinstance(entry, Resumed):
            yield "  resumed"
        elif isinstance(entry, Concluded):
            yield entry.text
    under_way = log.under_way()
    if under_way is not None:
        yield f"  {' with '.join(under_way.at):<18} under way, or cut off ({under_way.why})"


def result_lines(result: BisectionResult, folder: str) -> Iterator[str]:
    """What a bisection came to."""
    yield from doubts(result)
    if result.answer is not None:
        yield result.answer.text
        yield from (f"  {line}" for line in summary(result))
        yield f"report: {folder}/report.html, as a bug report: {folder}/report.md"
    else:
        yield f"not over yet, after {counted(len(result.runs), 'run')}: {folder}"


def _searched(task: Task) -> str:
    search = task.search
    if isinstance(search, CornerSpec):
        pairs = (zip(search.axes, at, strict=True) for at in (search.good, search.bad))
        good, bad = (" with ".join(map(" ".join, pair)) for pair in pairs)
        text = f"corners of {' and '.join(search.axes)}: good {good}, bad {bad}"
    else:
        searched = search.searched()
        ends = f"{searched[0]} to {searched[-1]}"
        text = f"bisecting {search.axis} over {counted(len(searched), 'version')}, {ends}"
    held = held_text(task.held)
    return f"{text} ({held} held)" if held else text


def _short(text: str) -> str:
    plain = " ".join(outgoing(text).split())
    return plain if len(plain) <= _WHY_CHARS else plain[:_WHY_CHARS] + "..."


_log = logging.getLogger(__name__)

_LATEST: Final = "latest"
_WITH_RESUME: Final = (
    "resume",
    "reports",
    "max_minutes",
    "as_json",
    "lab_file",
    "pytest_arguments",
)

_reports_option = click.option(
    "--reports",
    type=click.Path(path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="Where bisections are kept.",
)


def _option_of_each_axis(command: Callable[..., int]) -> Callable[..., int]:
    first = VERSIONS[0]
    for axis in reversed(VERSIONS):
        same = f"As for --{first}."
        said = "Held at this, or the candidates of that axis." if axis == first else same
        command = click.option(f"--{axis}", metavar="VERSION", help=said)(command)
    return command


class BisectionPlanned(Printout):
    """`bisect --dry-run --json`: what would be searched, the versions of each axis oldest first.

    It takes `most_runs`, with one more for each version that cannot be tested.
    """

    case: str
    devices: tuple[str, ...]
    versions: Mapping[AxisName, tuple[str, ...]]
    most_runs: int


class _Bisect(click.Group):
    """Takes a case where a command is meant for a slip: pytest takes one without an option."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if "::" in args[0]:
            raise click.UsageError(f"name the case by --case {shlex.quote(args[0])}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Bisect, invoke_without_command=True)
@click.option("--case", metavar="NODEID", help="The case, as reports name it; any versions in it.")
@click.option(
    "--axis",
    metavar="AXIS[,AXIS]",
    help=f"The axis to search: {', '.join(VERSIONS)}.",
)
@click.option(
    "--good",
    metavar="VERSION",
    help="A version that is good; or a pair, qnn=2.32,ort=1.21: which of the two axes matters?",
)
@click.option("--bad", metavar="VERSION", help="A version that is bad; or a pair.")
@click.option(
    "--versions", "candidates", metavar="A,B,C", help="The candidates (default: all there are)."
)
@click.option(
    "--match",
    metavar="WHAT",
    help="What counts as bad: code=1002, drift:0, ... (default: any failure).",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Runs of each version: bad if any is bad, good if all are (default: 1, more for times).",
)
@click.option("--max-runs", type=click.IntRange(min=1), help="Maximum number of runs.")
@click.option("--dry-run", is_flag=True, help="Only say which versions, in how many runs.")
@click.option("--max-minutes", type=float, help="Begin no run after so long; go on with --resume.")
@run_timeout_option
@_option_of_each_axis
@click.option(
    "--device",
    multiple=True,
    metavar="NAME",
    help="The device; more to fall back on.",
    shell_complete=complete_devices,
)
@click.option("--backend", type=click.Choice(BACKENDS), help="As for `run`.")
@click.option(
    "--pytest-arg",
    "pytest_arguments",
    multiple=True,
    metavar="ARG",
    help="Goes to pytest as it is.",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[DIR]",
    help="Go on with the bisection in DIR, or with the last that is not over.",
)
@lab_option
@_reports_option
@json_option
@click.pass_context
def bisect(context: click.Context, /, **given: Any) -> int:
    """Find the version that changed a case: which QNN runtime, ONNX Runtime or compiler.

    \b
    Exit codes: 0 found, 1 nothing changed or only a range is known, 2 the input is wrong,
    3 the lab or --max-minutes stopped it (--resume goes on).
    """
    if context.invoked_subcommand is not None:
        # `bisect --reports DIR log` means the same as `bisect log --reports DIR`
        shared = {name: given[name] for name in ("reports", "as_json")}
        context.default_map = dict.fromkeys(bisect.commands, shared)
        return FOUND
    stop_at = _stop_at(given["max_minutes"])
    if given["resume"] is not None:
        _refuse_what_was_asked_before(context)
        source = context.get_parameter_source("lab_file")
        folder = _resumed(given, source == ParameterSource.COMMANDLINE)
        return go_on_with(folder, stop_at, as_json=given["as_json"])
    if not given["case"] or not (given["axis"] or given["good"] or given["bad"]):
        raise click.UsageError(
            "--case and --axis say what to bisect, or --case with --good and --bad that name axes; "
            "or --resume"
        )
    request = _request(given)
    if request.lab == DEFAULT_LAB and not request.lab.exists():
        instead = simulated_instead(request.devices)
        request = request if instead is None else replace(request, lab=instead)
    lab = load_lab(request.lab)
    task = begin(request, lab, Catalog.of(lab, os.environ, cache_root()))
    match = parse_match(request.match) if request.match else ANY_FAILURE
    if (doubt := match.too_trusting(task.search.repeat)) is not None:
        _log.warning(doubt)
    if given["dry_run"]:
        planned = BisectionPlanned(
            case=task.case,
            devices=task.devices,
            versions=task.search.versions,
            most_runs=task.search.bound().limit(alike=True),
        )
        say_found(planned, plan_lines(task), given["as_json"])
        return FOUND
    folder = BisectFolder.create(request.reports, Begun(spec=task))
    return go_on_with(folder, stop_at, as_json=given["as_json"], new=True)


@bisect.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@_reports_option
@json_option
def log(folder: Path | None, reports: Path, as_json: bool) -> None:
    """Show what a bisection asked and was answered; edit its log.jsonl for `replay`."""
    found = BisectFolder.open(folder) if folder else BisectFolder.newest(reports)
    if as_json:
        say(log_text(found.path / LOG), nl=False)
        return
    say(str(found.path / LOG))
    for line in log_lines(found.read()):
        say(line)


@bisect.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what the log comes to.")
@_reports_option
@json_option
def replay(file: Path, dry_run: bool, reports: Path, as_json: bool) -> int:
    """Begin again from a log, which may be edited: answers corrected, lines taken out."""
    if not dry_run:
        return go_on_with(replayed(file, reports), None, as_json=as_json)
    log = read_log(log_text(file), file=str(file))
    step = search_of(log).next()
    finding, asked = None, None
    if isinstance(step, Question | Stopped):
        asked, code = step.question if isinstance(step, Stopped) else step, NEGATIVE
        said = f"next to run: {' with '.join(asked.at)} ({asked.why})"
    else:
        finding, code, said = step, code_of(step), step.text
    if as_json:
        records = [None] * len(log.answers())
        result = result_of(file.absolute().parent.name, log, finding, records)
        say_json(result.model_copy(update={"next": asked, "exit_code": code}))
    else:
        say(said)
    return code


def _request(given: dict[str, Any]) -> Request:
    same = {field.name: given[field.name] for field in fields(Request) if field.name in given}
    named: dict[AxisName, str | None] = {axis: given[axis] for axis in VERSIONS}
    return Request(
        **same,
        axes=tuple(part.strip() for part in (given["axis"] or "").split(",") if part.strip()),
        lab=given["lab_file"],
        versions={axis: spec for axis, spec in named.items() if spec is not None},
        devices=[part for one in given["device"] for part in one.split(",")],
    )


def _stop_at(minutes: float | None) -> float | None:
    if minutes is None:
        return None
    if not (math.isfinite(minutes) and minutes > 0):
        raise ConfigError(f"{minutes} is no time: more than 0", field="--max-minutes")
    return time.monotonic() + 60 * minutes


def _refuse_what_was_asked_before(context: click.Context) -> None:
    """`--resume` goes on with what was asked: raises ConfigError for an option that asks anew."""
    given = [
        parameter
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) == ParameterSource.COMMANDLINE
        and parameter.name not in _WITH_RESUME
    ]
    if given:
        problem = "goes on with what was asked before, and takes nothing else"
        same = ("--lab if it is the same", "--pytest-arg if they are the same")
        choices = ("--reports", "--max-minutes", "--json", *same)
        raise ConfigError(f"--resume {problem}", field=given[0].opts[0], choices=choices)


def _resumed(given: dict[str, Any], lab_named: bool) -> BisectFolder:
    """The bisection to go on with, held."""
    named = given["resume"]
    if named == _LATEST:
        folder = BisectFolder.to_go_on_with(given["reports"])
    else:
        folder = BisectFolder.open(Path(named))
    spec = folder.read().spec
    if lab_named and spec.lab.resolve() != given["lab_file"].resolve():
        raise ConfigError(f"what was asked before is about the lab in {spec.lab}", field="--lab")
    folder.words = named_again(spec.pytest_arguments, given["pytest_arguments"])
    folder.hold()
    return folder
