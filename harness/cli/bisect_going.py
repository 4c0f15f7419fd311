"""Goes on with one bisection, or with several that belong together, until they are over."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.bisect.answers import Stopped
from harness.bisect.case_run import task_of
from harness.bisect.driver import Bisection
from harness.bisect.findings import AxisFinding, GridFinding
from harness.bisect.folder import BisectFolder
from harness.bisect.versions import Supply, Versions
from harness.bisect.write_reports import write_reports
from harness.cli.bisect_view import Progress, result_lines
from harness.cli.say import say, say_json
from harness.errors import ConfigError, HarnessError
from harness.files.cache import cache_root
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
            say_json(results[0] if len(results) == 1 else results)
        if ends[-1].why is not None:
            say(f"{ends[-1].why}; {again}", err=True)
    except HarnessError as error:
        wrong = new and isinstance(error, ConfigError)
        if wrong and not any(folder.answers() for folder in folders):
            for folder in folders:
                folder.discard()
        else:
            say(f"nothing is lost; {again}", err=True)
        raise
    finally:
        for folder in folders:
            folder.close()
    return max(end.code for end in ends)


def _go_on(folder: BisectFolder, stop_at: float | None, *, as_json: bool) -> _End:
    log = folder.read()
    task = task_of(log)
    step: AxisFinding | GridFinding | Stopped | None = None
    try:
        lab = load_lab(task.lab)
        catalog = Catalog.of(lab, os.environ, cache_root())
        Versions(catalog, task.target).know(task.paths)
        progress = Progress(log, folder.path)
        with closing(Supply(catalog, task)) as supply:
            step = Bisection(folder, progress, supply=supply, stop_at=stop_at).go_on()
    except KeyboardInterrupt:
        say("", err=True)
        return _End(INTERRUPTED, _not_begun(folder), "stopped")
    finding = step if isinstance(step, AxisFinding | GridFinding) else None
    code = code_of(step)
    result = write_reports(folder, task, finding, catalog, cache_root())
    told = result.as_json() | {"folder": str(folder.path), "exit_code": code}
    if not as_json:
        for line in result_lines(result, shown(folder.path)):
            say(line)
    if isinstance(step, Stopped):
        return _End(code, told, f"the lab failed {step.troubles} times in a row")
    return _End(code, told, "the time is over" if step is None else None)


def _not_begun(folder: BisectFolder) -> dict[str, Any]:
    """The result of one that was not gone on with."""
    return {"bisect": folder.path.name, "folder": str(folder.path), "finished": False}


def code_of(step: AxisFinding | GridFinding | Stopped | None) -> int:
    """The exit code for how a search ended."""
    if isinstance(step, AxisFinding | GridFinding):
        return FOUND if step.kind in _FOUND_KINDS else NEGATIVE
    return STOPPED


def shown(path: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
