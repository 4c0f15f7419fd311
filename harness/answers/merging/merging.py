"""One run made of shards: its folder is written beside, and then there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import ValidationError

from harness.answers.history.previous import since_previous
from harness.answers.merging.shards import Shard, ShardRun, gaps
from harness.answers.report.projections import finish, project
from harness.ground.errors import ConfigError
from harness.ground.errors.outgoing_text import (
    LINE_WAS_CUT,
    MOST_LINE_BYTES,
    OpenKey,
    log_without_secrets,
)
from harness.ground.errors.schemas import other_schema
from harness.ground.files.names_inside import create_inside, listed_inside, open_below, open_inside
from harness.probe.events import kept_events
from harness.verdict.results.journal import Damage, LeftOut, cases_in, lines_in, uncollected
from harness.verdict.results.record import CaseRecord
from harness.verdict.results.run_folder import (
    CASES,
    JOURNAL,
    OUTPUTS,
    RunFolder,
    built_beside,
    new_run_id,
    rfc3339,
)
from harness.verdict.results.run_numbers import INFO

_MOST_FILE_BYTES: Final = 1 << 30
_INCOMPLETE: Final = 3
_AT_ONCE: Final = 1 << 20
_COPIED: Final = ("logs/", f"{OUTPUTS}/")
_FAR: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Merged:
    """What was made: the run, what it lacks, in words, and how many files were left out."""

    folder: RunFolder
    lacks: Sequence[str]
    left_out: int
    exit_code: int


class _Source:
    """A run that is to be merged, which somebody else may have written."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for what is no run's folder, or no shard."""
        self.folder = RunFolder.open(path)
        self.info = self.folder.info()
        file = self.folder.path / INFO
        try:
            self.shard = Shard.model_validate(self.info.get("shard"))
            if (schema := self.info.get("schema")) != 1:
                raise ConfigError(other_schema(schema, 1), file=file)
        except ValidationError as error:
            raise ConfigError("tells of no run with --shard", file=file) from error
        self.journal = self.folder.path / JOURNAL
        self.digest = self._digest()

    def part(self) -> ShardRun:
        """What of the selection it has, and has run. Raises ConfigError."""
        cases = self.folder.selected_cases()
        if cases is None:
            file = self.folder.path / CASES
            raise ConfigError("cannot be read as a list of cases", file=file)
        last = dict[str, tuple[int, bool]]()
        left_out = LeftOut()
        for _, record in cases_in(self.journal, left_out):
            if record.attempt >= last.get(record.case, (0, False))[0]:
                last[record.case] = record.attempt, record.device is not None
        if (foreign := left_out.foreign) is not None:
            raise ConfigError(foreign.problem, file=self.journal, line=foreign.line)
        ran = {case for case, (_, on_device) in last.items() if on_device}
        return ShardRun(str(self.folder.path), self.shard, cases, ran)

    def said(self) -> dict[str, Any]:
        """What the merged run's run.json tells of it."""
        keys = ("run", "started", "finished", "exit_code", "problem", "command_line", "devices")
        told = {key: self.info.get(key) for key in (*keys, "host", "versions")}
        return {**self.shard.model_dump(), **told, "journal": self.digest}

    def moment(self, key: str) -> datetime:
        """A time that run.json tells; long ago if it does not."""
        try:
            return datetime.fromisoformat(str(self.info.get(key))).astimezone(UTC)
        except (ValueError, OverflowError):
            return _FAR

    def write_into(self, folder: RunFolder) -> int:
        """Appends its journal and copies its files; how many lines and files were left out.

        Raises ConfigError if the journal is no more the one that was judged.
        """
        left_out, lost = 0, set[str]()
        for _, said in lines_in(self.journal):
            if isinstance(said, Damage):
                left_out += 1
                continue
            folder.journal.append(said.model_copy(update={"run": folder.run_id}))
            for name in said.logs if isinstance(said, CaseRecord) else ():
                if name not in lost and not _copied(self.folder.path, folder.path, name):
                    lost.add(name)
        if self._digest() != self.digest:
            raise ConfigError("was changed while it was read", file=self.journal)
        with contextlib.suppress(OSError):
            for name in listed_inside(self.folder.path, OUTPUTS):
                left_out += not _copied(self.folder.path, folder.path, f"{OUTPUTS}/{name}")
        return left_out + len(lost)

    def _digest(self) -> str:
        try:
            with open_below(self.folder.path, JOURNAL) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=self.journal) from error


@uncollected()
def merge(runs: Sequence[Path], reports: Path, *, partial: bool = False) -> Merged:
    """Makes one run of shards in `reports`, and has `latest` name it.

    With `partial` it may lack shards and cases, and is then marked as a run that was cut short.
    Raises ConfigError for what are no shards of one run, lack something, or are merged already,
    and InfraError if the disk fails; nothing is left behind then.
    """
    sources = sorted(map(_Source, runs), key=lambda one: one.shard.number)
    lacks = gaps([one.part() for one in sources])
    lacks += [f"{one.folder.path} has no end" for one in sources if not one.info.get("finished")]
    if lacks and not partial:
        advice = "`pytest --resume` completes a shard, `merge --partial` takes what there is"
        raise ConfigError(f"{'; '.join(lacks)} ({advice})", field="RUN")
    told = [one.said() for one in sources]
    begun = min(one.moment("started") for one in sources)
    salt = hashlib.sha256("".join(one["journal"] for one in told).encode()).hexdigest()[:16]
    run_id = new_run_id(begun, salt)  # the same for the same journals
    if (reports / run_id).exists():
        raise ConfigError("these shards are merged already: here", file=reports / run_id)
    with built_beside(reports, run_id) as beside:
        left_out, code = _write(sources, told, beside, run_id, lacks)
    folder = RunFolder.open(reports / run_id)
    if (since := since_previous(folder)) is not None:
        project(folder, since)
    return Merged(folder, lacks, left_out, code)


def _write(
    sources: Sequence[_Source],
    told: Sequence[Mapping[str, Any]],
    beside: Path,
    run_id: str,
    lacks: Sequence[str],
) -> tuple[int, int]:
    """Writes the run; how many files and lines were left out, and how it would have ended."""
    first, issues = sources[0].info, dict[str, Any]()
    for one in sources:
        issues |= _of(dict, one.info.get("known_issues"))
    devices = [str(name) for one in told for name in _of(list, one["devices"])]
    begun = min(one.moment("started") for one in sources)
    folder = RunFolder.create(
        beside,
        command=sys.argv,
        lab=_of(dict, first.get("lab")),
        devices=list(dict.fromkeys(devices)),
        more={
            "started": rfc3339(begun),
            "known_issues": issues,
            # as the whole run would have it, so that `compare --previous` finds one or the other
            "selection": _of(list, first.get("selection"))[:-1],
            "selected": sources[0].shard.cases,
            "shards": told,
        },
        run_id=run_id,
    )
    left_out = sum(source.write_into(folder) for source in sources)
    code = folder.coverage().exit_code or max(_code(one["exit_code"]) for one in told)
    code = code or (_INCOMPLETE if lacks else 0)
    ended = max(begun, *(one.moment("finished") for one in sources))
    finish(folder, exit_code=code, problem="; ".join(lacks) or None, finished=ended)
    return left_out, code


def _of(kind: type[Any], said: object) -> Any:
    """What somebody's run.json says, if it is of the kind that it should be."""
    return said if isinstance(said, kind) else kind()


def _code(said: object) -> int:
    """How a shard ended, which its records need not tell; None for what is no exit code."""
    return said if isinstance(said, int) and 0 < said <= _INCOMPLETE else 0


def _copied(source: Path, target: Path, name: str) -> bool:
    """Copies a file of a run into another; False if it is none, leads out of it, or is huge.

    What is there already is left as it is. Raises OSError if it cannot be written.
    """
    if not name.startswith(_COPIED):
        return False
    try:
        stream = open_inside(source, name)
    except OSError:
        return False
    with stream:
        if os.fstat(stream.fileno()).st_size > _MOST_FILE_BYTES:
            return False
        try:
            with create_inside(target, name) as copy:
                if name.startswith(f"{OUTPUTS}/"):
                    shutil.copyfileobj(stream, copy)
                else:
                    copy_without_secrets(stream, copy, sealed=name.endswith(".jsonl"))
        except (FileExistsError, NotADirectoryError):
            return (target / name).is_file()
    return True


def copy_without_secrets(source: BinaryIO, target: BinaryIO, *, sealed: bool) -> None:
    """Copies a log without secrets, whoever wrote it; `sealed`: it is one of a probe's events.

    It takes little memory: a line is cut at MOST_LINE_BYTES. Raises OSError.
    """
    keys = OpenKey(), OpenKey()

    def clean(block: bytes) -> bytes:
        return kept_events(block, *keys) if sealed else log_without_secrets(block, keys[0])

    rest, was_cut = b"", False
    while block := source.read(_AT_ONCE):
        rest += block
        end = rest.rfind(b"\n") + 1
        if was_cut and end:
            rest, end, was_cut = rest[rest.find(b"\n") :], end - rest.find(b"\n"), False
        if was_cut:
            rest = b""
        elif not end and len(rest) > MOST_LINE_BYTES:
            target.write(clean(rest[:MOST_LINE_BYTES]) + LINE_WAS_CUT)
            rest, was_cut = b"", True
        else:
            target.write(clean(rest[:end]))
            rest = rest[end:]
    target.write(clean(rest))
