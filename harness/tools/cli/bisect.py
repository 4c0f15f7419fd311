"""`qnn-harness bisect`: finds the version that changed a case, and which axis it is on."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from harness.device.lab.inventory import load_lab
from harness.ground.errors import ConfigError
from harness.ground.facts.axes import VERSIONS, AxisName
from harness.ground.facts.backends import BACKENDS
from harness.ground.files.cache import cache_root
from harness.libraries.runtimes.catalog import Catalog
from harness.search.bisect.answers import Question, Stopped
from harness.search.bisect.case_run import named_again
from harness.search.bisect.driver import search_of
from harness.search.bisect.folder import LOG, BisectFolder, log_text
from harness.search.bisect.log import Begun, read_log
from harness.search.bisect.match import ANY_FAILURE, parse_match
from harness.search.bisect.request import Request, begin, replayed
from harness.search.bisect.result import result_of
from harness.tools.cli.bisect_going import (
    FOUND,
    NEGATIVE,
    code_of,
    go_on_with,
    log_lines,
    plan_lines,
)
from harness.tools.cli.lab_options import (
    DEFAULT_LAB,
    complete_devices,
    json_option,
    lab_option,
    run_timeout_option,
    simulated_instead,
)
from harness.tools.cli.printout import Printout
from harness.tools.cli.say import say, say_found, say_json

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


@click.group(invoke_without_command=True)
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
