"""Goes on with one bisection, or with several that belong together, until they are over."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from harness.bisect.answers import Stopped
from harness.bisect.begin import know_paths, task_of
from harness.bisect.candidates import Costs
from harness.bisect.driver import Bisection
from harness.bisect.fetching import FetchAhead
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.outcome import write_outcome
from harness.bisect.state import BisectFolder
from harness.cache import cache_root
from harness.cli.bisect_view import Progress, result_lines
from harness.errors import ConfigError, HarnessError
from harness.lab.inventory import load_lab
from harness.runtimes.catalog import Catalog

FOUND: Final = 0
NEGATIVE: Final = 1
STOPPED: Final = 3
INTERRUPTED: Final = 130
_FOUND_KINDS = ("change", "frontier")


@dataclass(frozen=True)
class _End:
    """How far one got; `why` it is not over, if it is not."""

    code: int
    result: dict[str, Any]
    why: str | None = None


def go_on_with(
    folders: Sequence[BisectFolder], stop_at: float | None, *, as_json: bool, new: bool = False
) -> int:
    """Goes on with bisections that are held until each is over; prints what they came to.

    What stops one stops those behind it, too, and one line says how to go on with all. `new` ones
    of which no run has answered are removed if their input turns out to be wrong. Raises
    HarnessError.
    """
    ends: list[_End] = []
    every = f" with all {len(folders)} slices" if len(folders) > 1 else ""
    command = f"qnn-harness bisect --resume {shlex.quote(shown(folders[0].path))}"
    again = f"to go on{every}: {command}"
    try:
        for folder in folders:
            if ends and ends[-1].why is not None:
                ends.append(_End(ends[-1].code, _not_begun(folder), ends[-1].why))
                continue
            ends.append(_go_on(folder, stop_at, as_json=as_json))
        if as_json:
            results = [end.result for end in ends]
            click.echo(json.dumps(results[0] if len(results) == 1 else results, indent=2))
        if ends[-1].why is not None:
            click.echo(f"{ends[-1].why}; {again}", err=True)
    except HarnessError as error:
        wrong = new and isinstance(error, ConfigError)
        if wrong and not any(folder.has_answers() for folder in folders):
            for folder in folders:
                folder.discard()
        else:
            click.echo(f"nothing is lost; {again}", err=True)
        raise
    finally:
        for folder in folders:
            folder.close()
    return max(end.code for end in ends)


def _go_on(folder: BisectFolder, stop_at: float | None, *, as_json: bool) -> _End:
    log = folder.read()
    task = task_of(log)
    step: Finding | GridFinding | Stopped | None = None
    ahead: FetchAhead | None = None
    try:
        lab = load_lab(task.lab)
        catalog = Catalog.of(lab, os.environ, cache_root(), notify=tell, warn=warn)
        know_paths(task, catalog)
        progress = Progress(log, folder.path)
        costs, ahead = Costs(catalog, task), FetchAhead(catalog, task)
        bisection = Bisection(folder, task, progress, ahead=ahead, cost=costs, stop_at=stop_at)
        step = bisection.go_on()
    except KeyboardInterrupt:
        click.echo("", err=True)
        return _End(INTERRUPTED, _not_begun(folder), "stopped")
    finally:
        if ahead is not None:
            ahead.stop()
    finding = step if isinstance(step, Finding | GridFinding) else None
    code = code_of(step)
    result = write_outcome(folder, task, finding, catalog, cache_root())
    result |= {"folder": str(folder.path), "exit_code": code}
    if not as_json:
        for line in result_lines(result, shown(folder.path)):
            click.echo(line)
    if isinstance(step, Stopped):
        return _End(code, result, f"the lab failed {step.troubles} times in a row")
    return _End(code, result, "the time is over" if step is None else None)


def _not_begun(folder: BisectFolder) -> dict[str, Any]:
    """The result of one that was not gone on with."""
    return {"bisect": folder.path.name, "folder": str(folder.path), "finished": False}


def code_of(step: Finding | GridFinding | Stopped | None) -> int:
    """The exit code for how a search ended."""
    if isinstance(step, Finding | GridFinding):
        return FOUND if step.kind in _FOUND_KINDS else NEGATIVE
    return STOPPED


def shown(path: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def tell(text: str) -> None:
    """Says on a terminal what goes on."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def warn(text: str) -> None:
    """Says what must be seen even in a pipe."""
    click.echo(f"warning: {text}", err=True)
