"""`qnn-harness bisect`: finds the version that changed a case, on one axis or two."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

from harness.bisect.answers import Stopped
from harness.bisect.begin import Wish, begin, know_paths, replayed, task_of
from harness.bisect.candidates import Costs, FetchAhead
from harness.bisect.driver import Bisection
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.log import read_log
from harness.bisect.outcome import write_outcome
from harness.bisect.state import LOG, BisectFolder, read_text
from harness.bisect.task import Axis
from harness.cache import cache_root
from harness.cli.bisect_view import Progress, log_lines, result_lines
from harness.cli.lab_options import json_option, lab_option
from harness.errors import ConfigError
from harness.lab.inventory import load_lab
from harness.pytest_plugin.terminal import end_in_order_on_sigterm
from harness.qnn.backends import BACKENDS
from harness.runtimes.catalog import Catalog

FOUND: Final = 0
NEGATIVE: Final = 1
STOPPED: Final = 3
INTERRUPTED: Final = 130
_LATEST = "latest"
_FOUND_KINDS = ("change", "frontier")

Command = TypeVar("Command", bound=Callable[..., Any])


class _Repeat(click.ParamType):  # type: ignore[type-arg]
    name = "N|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | Literal["auto"]:
        if value == "auto":
            return "auto"
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor auto", param, ctx)


def _reports_option(command: Command) -> Command:
    return click.option(
        "--reports",
        type=click.Path(path_type=Path),
        default=Path("reports"),
        show_default=True,
        help="Where bisections are kept.",
    )(command)


@click.group(invoke_without_command=True)
@click.option("--case", metavar="NODEID", help="The case, as reports name it; any versions in it.")
@click.option("--axis", metavar="AXIS[,AXIS]", help="What to search: qnn, ort, compiler.")
@click.option("--good", metavar="VERSION", help="A version that is good.")
@click.option("--bad", metavar="VERSION", help="A version that is bad.")
@click.option("--versions", metavar="A,B,C", help="The candidates (default: all there are).")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path),
    help="A file with the candidates, one a line, oldest first.",
)
@click.option("--match", metavar="WHAT", help="What counts as bad (default: any failure).")
@click.option("--repeat", type=_Repeat(), default="1", help="Runs of each, or auto if flaky.")
@click.option("--confidence", type=float, default=0.99, show_default=True, help="For auto.")
@click.option("--every", is_flag=True, help="Two axes: run every pair, conclude nothing.")
@click.option(
    "--newer",
    metavar="BETTER|WORSE,...",
    help="Two axes: whether newer is better or worse on each, where that is known.",
)
@click.option("--max-runs", type=int, help="Not more runs than these.")
@click.option("--max-minutes", type=float, help="Begin no run after so long; go on with --resume.")
@click.option("--run-timeout", type=click.IntRange(1), default=1800, show_default=True)
@click.option("--qnn", metavar="VERSION", help="Held at this, or the candidates of that axis.")
@click.option("--ort", metavar="VERSION", help="As for --qnn.")
@click.option("--compiler", metavar="VERSION", help="As for --qnn.")
@click.option("--device", multiple=True, metavar="NAME", help="The device; more to fall back on.")
@click.option("--backend", type=click.Choice(BACKENDS))
@click.option("--known-issues", type=click.Path(path_type=Path))
@click.option("--pytest-arg", multiple=True, metavar="ARG", help="Goes to pytest as it is.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[DIR]",
    help="Go on with the bisection in DIR, or with the last one.",
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
        return FOUND
    end_in_order_on_sigterm()
    stop_at = _stop_at(given["max_minutes"])
    if given["resume"] is not None:
        named = given["resume"]
        folder = (
            BisectFolder.newest(given["reports"])
            if named == _LATEST
            else BisectFolder.open(Path(named))
        )
        folder.hold()
        return _finish([folder], stop_at, as_json=given["as_json"])
    if not given["case"] or not given["axis"]:
        raise click.UsageError("--case and --axis say what to bisect; or --resume")
    wish = _wish(given)
    lab = load_lab(wish.lab)
    catalog = Catalog.of(lab, os.environ, cache_root(), notify=_tell, warn=_warn)
    folders = [BisectFolder.create(wish.reports, one) for one in begin(wish, lab, catalog)]
    return _finish(folders, stop_at, as_json=given["as_json"])


@bisect.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@_reports_option
@json_option
def log(folder: Path | None, reports: Path, as_json: bool) -> None:
    """Show what a bisection asked and was answered; edit its log.jsonl for `replay`."""
    found = BisectFolder.open(folder) if folder else BisectFolder.newest(reports)
    if as_json:
        click.echo(read_text(found.path / LOG), nl=False)
        return
    click.echo(str(found.path / LOG))
    for line in log_lines(found.read()):
        click.echo(line)


@bisect.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--no-run", is_flag=True, help="Only say what the log comes to.")
@_reports_option
@json_option
def replay(file: Path, no_run: bool, reports: Path, as_json: bool) -> int:
    """Begin again from a log, which may be edited: answers corrected, lines taken out."""
    if no_run:
        step = read_log(read_text(file), file=str(file)).search().next()
        if isinstance(step, Finding | GridFinding):
            click.echo(str(step))
            return _code(step)
        question = step.question if isinstance(step, Stopped) else step
        click.echo(f"next to run: {' with '.join(question.at)} ({question.why})")
        return NEGATIVE
    end_in_order_on_sigterm()
    return _finish([replayed(file, reports)], None, as_json=as_json)


def _finish(folders: list[BisectFolder], stop_at: float | None, *, as_json: bool) -> int:
    """Goes on with bisections until each is over; prints what they came to."""
    codes, results = [], []
    try:
        for folder in folders:
            code, result = _go_on(folder, stop_at, as_json=as_json)
            codes.append(code)
            results.append(result)
            if code == INTERRUPTED:
                break
    finally:
        for folder in folders:
            folder.close()
    if as_json:
        click.echo(json.dumps(results[0] if len(folders) == 1 else results, indent=2))
    return max(codes)


def _go_on(
    folder: BisectFolder, stop_at: float | None, *, as_json: bool
) -> tuple[int, dict[str, Any]]:
    log = folder.read()
    task = task_of(log)
    lab = load_lab(task.lab)
    catalog = Catalog.of(lab, os.environ, cache_root(), notify=_tell, warn=_warn)
    know_paths(task, catalog)
    progress = Progress(log, folder.path) if not as_json else Progress(log, folder.path, None)
    ahead = FetchAhead(catalog, task)
    bisection = Bisection(
        folder,
        task,
        progress,
        ahead=ahead,
        cost=Costs(catalog, task),
        stop_at=stop_at,
    )
    again = f"qnn-harness bisect --resume {shlex.quote(_shown(folder.path))}"
    try:
        step = bisection.go_on()
    except KeyboardInterrupt:
        click.echo(f"\nstopped; to go on: {again}", err=True)
        return INTERRUPTED, {"bisect": folder.path.name, "finished": False}
    except ConfigError:
        click.echo(f"what was asked: {_shown(folder.path / LOG)}", err=True)
        raise
    finally:
        ahead.stop()
    finding = step if isinstance(step, Finding | GridFinding) else None
    result = write_outcome(folder, task, finding, catalog, cache_root())
    code = _code(step)
    result |= {"folder": str(folder.path), "exit_code": code}
    if not as_json:
        for line in result_lines(result, _shown(folder.path)):
            click.echo(line)
    if code == STOPPED:
        why = "the time is over"
        if isinstance(step, Stopped):
            why = f"the lab failed {step.troubles} times in a row"
        click.echo(f"{why}; to go on: {again}", err=True)
    return code, result


def _code(step: Finding | GridFinding | Stopped | None) -> int:
    if isinstance(step, Finding | GridFinding):
        return FOUND if step.kind in _FOUND_KINDS else NEGATIVE
    return STOPPED


def _wish(given: dict[str, Any]) -> Wish:
    named: dict[Axis, str | None] = {
        "qnn": given["qnn"],
        "ort": given["ort"],
        "compiler": given["compiler"],
    }
    return Wish(
        case=given["case"],
        axes=tuple(part.strip() for part in given["axis"].split(",")),
        lab=given["lab_file"],
        reports=given["reports"],
        good=given["good"],
        bad=given["bad"],
        candidates=given["versions"],
        candidates_file=given["from_file"],
        versions={axis: spec for axis, spec in named.items() if spec},
        devices=[part for one in given["device"] for part in one.split(",")],
        backend=given["backend"],
        match=given["match"],
        repeat=given["repeat"],
        confidence=given["confidence"],
        max_runs=given["max_runs"],
        every=given["every"],
        newer=_newer(given["newer"]),
        known_issues=given["known_issues"],
        run_timeout_s=given["run_timeout"],
        pytest_arguments=given["pytest_arg"],
    )


def _newer(text: str | None) -> tuple[bool, bool] | None:
    if text is None:
        return None
    words = {"better": True, "worse": False}
    parts = [part.strip().lower() for part in text.split(",")]
    if len(parts) != 2 or any(part not in words for part in parts):
        raise ConfigError("one word for each axis", field="--newer", choices=words)
    return words[parts[0]], words[parts[1]]


def _stop_at(minutes: float | None) -> float | None:
    return None if minutes is None else time.monotonic() + 60 * minutes


def _shown(path: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)
