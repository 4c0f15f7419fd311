"""Merging of several runs into one folder with all their records and logs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.core.errors import ConfigError
from harness.core.files import disk_errors
from harness.core.paths_inside import create_inside, list_inside, open_inside
from harness.lab.health import DeviceEvent
from harness.results.journal import Damage, lines_in, without_gc
from harness.results.record import CaseRecord
from harness.results.run_folder import INFO, JOURNAL, OUTPUTS, RunFolder, making_folders

_KEPT: Final = ("run", "started", "finished", "exit_code", "problem", "command_line", "devices")
_INCOMPLETE: Final = 3
_Key: TypeAlias = tuple[str, str, datetime, str]
"""The key of a record: case, or device and event; its start; its run."""


@without_gc()
def merge_runs(paths: Sequence[Path], output: Path) -> list[str]:
    """Merge runs into `output`, without reports, and return the logs that could not be copied.

    An attempt that several runs have counts once. All attempts at a case are numbered by their
    starts, so that the latest is final. Raises ConfigError for an input that is no run, is damaged
    or of another schema, and if `output` exists; InfraError if the disk fails. Nothing is left
    behind then.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ConfigError("already exists; name a new folder", file=output)
    runs = sorted(map(RunFolder.open, paths), key=lambda run: run.info().get("started") or "")
    numbers = _numbered(runs)
    with (
        making_folders(output.parent),
        tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as folder,
        disk_errors(f"cannot write {output}"),
    ):
        merged = RunFolder(Path(folder))
        lost_logs = [log for run in runs for log in _copy_run(run, merged, numbers)]
        _end(runs, merged, output.name)
        merged.path.rename(output)
    return lost_logs


def _numbered(runs: Sequence[RunFolder]) -> dict[_Key, int]:
    """Number the records of each case by their starts.

    Raises ConfigError for damage, and if the runs have different options for one file.
    """
    keys, questions = set[_Key](), dict[str, str]()
    for run in runs:
        info, journal = run.info(), run.path / JOURNAL
        if not info or (info.get("selected") and run.selected_cases() is None):
            raise ConfigError(f"its {INFO} or its list of cases cannot be read", file=run.path)
        for line_number, line in lines_in(journal):
            if isinstance(line, Damage):
                advice = f"is not a record: {line.problem}; remove the line to merge the others"
                problem = line.problem if line.is_foreign else advice
                raise ConfigError(problem, file=journal, line=line_number)
            keys.add(_key(line))
            if not isinstance(line, CaseRecord):
                continue
            if questions.setdefault(line.case, line.question) != line.question:
                problem = f"has other options for {line.case} ({line.asked or 'no option'}) than "
                advice = "earlier runs; merge runs with the same options"
                raise ConfigError(f"{problem}{advice}", file=journal, line=line_number)
    attempts = groupby(sorted(keys), key=lambda key: key[:2])
    return {key: number for _, group in attempts for number, key in enumerate(group, start=1)}


def _key(line: CaseRecord | DeviceEvent) -> _Key:
    subject = (line.case, "") if isinstance(line, CaseRecord) else (line.device, line.event)
    return (*subject, line.started, line.run)


def _copy_run(run: RunFolder, merged: RunFolder, numbers: dict[_Key, int]) -> list[str]:
    """Write the records of a run that are in `numbers`, each once, and copy its files."""
    copies = dict[str, str | None]()
    for _, line in lines_in(run.path / JOURNAL):
        number = None if isinstance(line, Damage) else numbers.pop(_key(line), None)
        if isinstance(line, Damage) or number is None:
            continue  # another run has it, too, or it was just written
        if isinstance(line, CaseRecord):
            for log in [log for log in line.logs if log not in copies]:
                other_name = f"logs/{line.run}/{log.removeprefix('logs/')}"
                copies[log] = _copied(run.path, merged.path, log, (log, other_name))
            logs = tuple(name for log in line.logs if (name := copies[log]) is not None)
            line = line.model_copy(update={"attempt": number, "logs": logs})
        merged.journal.append(line)
    outputs = list[str]()
    with contextlib.suppress(OSError):
        outputs = list_inside(run.path, OUTPUTS)
    for name in [f"{OUTPUTS}/{output}" for output in outputs]:
        _copied(run.path, merged.path, name, (name,))
    return [str(run.path / log) for log, copy in copies.items() if copy is None]


def _copied(source: Path, target: Path, name: str, names: Sequence[str]) -> str | None:
    """Copy a log or an output to the first of `names` that is free, and return that name.

    Return None if it is no such file: links are not followed.
    """
    try:
        stream = open_inside(source, name)
    except OSError:
        return None
    with stream:
        for new_name in names if name.startswith(("logs/", f"{OUTPUTS}/")) else ():
            with contextlib.suppress(FileExistsError), create_inside(target, new_name) as copy:
                shutil.copyfileobj(stream, copy)
                return new_name
    return None


def _end(runs: Sequence[RunFolder], merged: RunFolder, name: str) -> None:
    """Write run.json and the list of cases of the merged run."""
    merged.keep_selected({case for run in runs for case in run.selected_cases() or ()})
    infos = [run.info() for run in runs]

    def values(key: str) -> list[Any]:
        return [info[key] for info in infos if info.get(key) is not None]

    ends = [info.get("problem") or (not info.get("finished") and "no end") for info in infos]
    problems = [f"{run.run_id}: {why}" for run, why in zip(runs, ends, strict=True) if why]
    codes = [*values("exit_code"), _INCOMPLETE if problems else 0]
    facts = {
        "run": name,
        "started": infos[0].get("started"),
        "finished": max([*values("started"), *values("finished")], default=None),
        "exit_code": merged.coverage().exit_code or max(codes),
        "problem": "; ".join(problems) or None,
        "not_started": [*chain(*values("not_started"))],
        "other_failures": any(values("other_failures")),
        "drift": [output.model_dump() for output in merged.drift() if output.drifts],
        "devices": list(dict.fromkeys(chain(*values("devices")))),
        "known_issues": dict(chain(*(issues.items() for issues in values("known_issues")))),
        "lab": next(iter(values("lab")), {}),
        "selection": sorted(set(chain(*values("selection")))),
        "merged": [{key: info.get(key) for key in _KEPT} for info in infos],
    }
    merged.end(facts)
