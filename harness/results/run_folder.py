"""A run's folder, reports/<run-id>/: its journal, run.json, number, kept outputs, `latest`.

Each run takes the next number of its folder, under a lock, and keeps it in its run.json, so that a
clock that jumps does not disturb their order. Runs of several folders are ordered by their starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import platform
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from harness import __version__
from harness.core.bounded_json import parse_model, problem_in
from harness.core.errors import ConfigError, InfraError
from harness.core.files import disk_errors, keep_whole, write_whole
from harness.core.json_record import Schema1, named_text
from harness.core.linux_processes import locking_process
from harness.core.notices import ONCE
from harness.core.outgoing_text import without_secrets, without_secrets_in
from harness.core.paths_inside import NotInsideError, read_inside, refuse_links
from harness.core.state_folders import PRIVATE
from harness.results.coverage import Coverage
from harness.results.journal import Contents, Journal, read_journal
from harness.results.output_drift import Output, drift
from harness.results.record import WHOLE, as_json

INFO: Final = "run.json"
INFO_SCHEMA: Final = 1
_MAX_BYTES: Final = 16 << 20


class _OpenModel(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Named(_OpenModel):
    """A device or a computer."""

    name: str = ""
    host: str | None = None


class _Lab(_OpenModel):
    devices: list[_Named] = []


class RunInfo(_OpenModel):
    """A run.json, also that of a night or a bisection; other fields are kept as they are."""

    schema_number: Schema1
    run: str | None = None
    series: str | None = None
    number: int | None = None
    started: str | None = None
    finished: str | None = None
    exit_code: int | None = None
    problem: str | None = None
    other_failures: bool = False
    plugin_errors: list[str] = []
    left_out: list[str] = []
    not_started: list[str] = []
    command: list[str] = []
    selection: list[str] = []
    selected: Annotated[int, Field(ge=0, lt=1 << 53)] | None = None
    devices: list[str] = []
    lab: _Lab = _Lab()
    host: _Named = _Named()
    code: dict[str, str] = {}
    known_issues: dict[str, str | None] = {}
    resumed: list[dict[str, Any]] = []
    merged: list[dict[str, Any]] = []


def info_in(folder: Path) -> dict[str, Any]:
    """Return the run.json of a folder; empty if there is none.

    Raises ConfigError if it is damaged or of another schema.
    """
    try:
        info = parse_model(RunInfo, read_inside(folder, INFO, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=folder / INFO) from error
    except ValueError as error:
        problem = f"{problem_in(error)}; remove this file to read only the run's journal"
        raise ConfigError(problem, file=folder / INFO) from error
    return info.model_dump(by_alias=True, exclude_unset=True)


COUNTER: Final = ".number"
_SERIES: Final = re.compile(r"[0-9a-f]{16}")
_COUNT: Final = re.compile(rb"([0-9a-f]{16}) ([0-9]{19})\n")
_COUNT_BYTES: Final = 37
_NUMBERS: Final = 1 << 62
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class RunNumber(NamedTuple):
    """The number of a run, bisection or night in the `series` of its folder, and its start.

    `series` is empty if it has no number.
    """

    series: str
    number: int
    started: str
    name: str

    @classmethod
    def of(cls, name: str, info: Mapping[str, Any]) -> RunNumber:
        """Return the number in a run.json, which anybody may have written."""
        series, number = info.get("series") or "", info.get("number") or 0
        started = sortable_time(info.get("started")) or sortable_time(name.partition("-")[0])
        if not (0 < number < _NUMBERS and _SERIES.fullmatch(series)):
            return cls("", 0, started, name)
        return cls(series, number, started, name)


def moment_text(moment: datetime) -> str:
    """Return a time in UTC as a text that sorts."""
    text = moment.isoformat(timespec="microseconds")
    return f"{text.removesuffix('+00:00')}Z"


def sortable_time(text: object) -> str:
    """Return the text of a time as `moment_text` writes it; empty if it is no time."""
    try:
        return moment_text(datetime.fromisoformat(str(text)).astimezone(UTC))
    except (ValueError, OverflowError):
        return ""


def take_number(reports: Path) -> dict[str, object]:
    """Take the next number of a folder, and return its fields of run.json. Raises InfraError.

    Concurrent callers wait for each other.
    """
    try:
        # the folder may be somebody else's: do not overwrite another file through a link
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(reports / COUNTER, flags, 0o644), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            count = _COUNT.fullmatch(file.read(_COUNT_BYTES + 1))
            series, number = (count[1].decode(), int(count[2])) if count else ("", _NUMBERS)
            if number + 1 >= _NUMBERS:
                series, number = secrets.token_hex(8), 0
                file.truncate(0)
            file.seek(0)
            file.write(f"{series} {number + 1:019}\n".encode())
    except OSError as error:
        raise InfraError(
            f"cannot write the number of a run to {reports}: {error.strerror}"
        ) from error
    return {"series": series, "number": number + 1}


def number_folder(folder: Path, kind: str) -> None:
    """Write the run.json of a bisection or a night, with its number. Raises InfraError."""
    started = moment_text(datetime.now(UTC))
    info = {"schema": 1, "kind": kind, "started": started, **take_number(folder.parent)}
    try:
        write_whole(folder / INFO, f"{json.dumps(info, indent=2)}\n".encode())
    except OSError as error:
        raise InfraError(f"cannot write {folder / INFO}: {error.strerror}") from error


def ordered(folders: Iterable[Path]) -> list[Path]:
    """Return folders in the order of their starts.

    Those whose run.json cannot be read are left out, with a warning.
    """
    numbers: dict[Path, RunNumber] = {}
    for folder in sorted(folders):
        try:
            # by one name, so that it is reported once
            numbers[folder] = RunNumber.of(folder.name, info_in(folder.absolute()))
        except ConfigError as error:
            _log.warning("left out: %s", error, extra=ONCE)
    return in_order(numbers, numbers.__getitem__)


def in_order(things: Iterable[_T], number_of: Callable[[_T], RunNumber]) -> list[_T]:
    """Return things in the order of their starts (pure).

    Those of one series are in the order of their numbers, and each started no later than the next.
    """
    numbered = sorted(((number_of(thing), thing) for thing in things), key=lambda pair: pair[0])
    starts: dict[str, str] = {}
    keys: list[tuple[str, RunNumber, _T]] = []
    for number, thing in reversed(numbered):
        started = number.started
        if number.series:
            started = starts[number.series] = min(started, starts.get(number.series, started))
        keys.append((started, number, thing))
    return [thing for *_, thing in sorted(keys, key=lambda key: key[:2])]


JOURNAL: Final = "results.jsonl"
LATEST: Final = "latest"
_REPORTS: Final = Path("reports")
UNSEEN: Final = ".gitignore"
_NOTHING: Final = "*\n"
CASES: Final = "cases.json"
"""The file with the names of the selected cases."""
_ID_BYTES: Final = 3
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_PACKAGES = ("adbutils", "numpy", "onnx", "pydantic", "pytest", "pytest-xdist")
_MAX_CASES_BYTES: Final = 64 << 20
_MAX_OUTPUT_BYTES = 1 << 30
_OUTPUT_NAME = re.compile(r"[0-9a-f]{16}-\d{1,12}")
OUTPUTS: Final = "outputs"
"""The folder with the outputs that cases kept, each once."""


class _Cases(BaseModel):
    schema_number: Schema1
    cases: list[str]


def new_run_id(now: datetime | None = None, salt: str | None = None) -> str:
    """Return an id that begins with the time in UTC: 20261121-060000-3f9a0c.

    The rest are random bits; the order of runs does not depend on it.
    """
    now, salt = now or datetime.now(UTC), salt or secrets.token_hex(_ID_BYTES)
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{salt}"


def case_slug(node_id: str) -> str:
    """Return a unique folder name for a node id, readable and safe on any file system.

    It has at most 80 characters of the id and ten hex digits of its SHA-256.
    """
    digest = hashlib.sha256(node_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    file, _, name = node_id.partition("::")
    readable = f"{file.rpartition('/')[2].removesuffix('.py')}--{name}" if name else file
    readable = _UNSAFE.sub("-", readable).strip("-.")[:80].rstrip("-.")
    return f"{readable}-{digest}" if readable else digest


class RunFolder:
    """One run's folder, which is written or read.

    `path` is absolute. The journal is opened on first use, so that reading a folder does not
    write to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal: Journal | None = None
        self._read: tuple[tuple[int, int, int], Contents] | None = None
        self._drift: tuple[Contents, list[Output]] | None = None

    @classmethod
    def create(
        cls,
        reports: Path,
        *,
        command: Sequence[str],
        lab: Mapping[str, Any],
        devices: Sequence[str],
        more: Mapping[str, object] | None = None,
        run_id: str | None = None,
    ) -> Self:
        """Make a new run's folder with its run.json, and point `latest` to it.

        `command` is the command line, `lab` the content of devices.yaml, `devices` the names of the
        chosen devices, `more` further keys of run.json, `run_id` an earlier result of `new_run_id`
        (logs may be in its folder already). Raises ConfigError if the folder for reports cannot be
        used, InfraError if the disk is full or fails.
        """
        started = datetime.now(UTC)
        with making_folders(reports):
            path = reports.resolve() / (run_id or new_run_id(started))
            path.mkdir(exist_ok=run_id is not None)
        folder = cls(path)
        folder._write_info(
            {
                "schema": INFO_SCHEMA,
                "kind": "run",
                "run": folder.run_id,
                **take_number(folder.path.parent),
                "started": moment_text(started),
                "finished": None,
                "exit_code": None,
                "problem": None,
                "command": list(command),
                "command_line": shlex.join(map(without_secrets, command)),
                "devices": list(devices),
                "lab": lab,
                "host": {
                    "name": platform.node(),
                    "system": platform.platform(),
                    "machine": platform.machine(),
                    "cpus": os.cpu_count(),
                },
                "versions": dict(_versions()),
                **(more or {}),
            }
        )
        folder._journal = Journal(folder.path / JOURNAL, alone=True)
        point_to(folder.path, LATEST)
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing run's folder, or that of a journal. Raises ConfigError if it is none.

        A bare name that is no folder here is a run in `reports` here.
        """
        if path.name == JOURNAL and path.is_file():
            path = path.parent
        if path.parts == (path.name,) and not path.exists():
            path = _REPORTS / path if (_REPORTS / path).exists() else path
        if not (path / JOURNAL).is_file():
            problem, beside = f"is not the folder of a run: it has no {JOURNAL}", path
            if not path.exists():
                problem = "does not exist; `qnn-harness run FILE` or `pytest -m device` makes a run"
                beside = _REPORTS if path.parts == (path.name,) else path.parent
            runs = [str(run) for run in run_folders(beside)[-5:]]
            raise ConfigError(problem, file=path, choices=runs or None)
        folder = cls(path.resolve())
        folder.info()
        return folder

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Open a run that was cut short, to complete it, and lock it against other processes.

        The kernel drops the lock when this process ends, however it does. Raises ConfigError if
        `path` is no run's folder, is still run, or another version wrote a line of its journal,
        InfraError if the disk fails.
        """
        folder = cls.open(path)
        try:
            refuse_links(folder.path)
            folder._journal = Journal(folder.path / JOURNAL, alone=True)
        except BlockingIOError as error:
            problem = f"is still in use by {locking_process(folder.path / JOURNAL)}"
            raise ConfigError(problem, file=folder.path) from error
        except NotInsideError as error:
            raise ConfigError(str(error.strerror), file=error.filename) from error
        except OSError as error:
            problem = f"cannot be resumed: {error.strerror}"
            raise ConfigError(problem, file=error.filename or folder.path) from error
        if (foreign := folder.contents().left_out.foreign) is not None:
            folder.close()
            raise ConfigError(foreign.problem, file=folder.path / JOURNAL, line=foreign.line)
        return folder

    def resume(self, command: Sequence[str]) -> None:
        """Record in run.json that it is resumed, and point `latest` to it. Raises InfraError."""
        info = self.info()
        again = {"started": moment_text(datetime.now(UTC)), "command": list(command)}
        resumed = [*info.get("resumed", []), again]
        self._write_info(info | {"resumed": resumed, "finished": None, "exit_code": None})
        point_to(self.path, LATEST)

    def close(self) -> None:
        """Close the journal; safe to call twice."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def remove(self) -> None:
        """Delete the folder; reset `latest`."""
        shutil.rmtree(self.path, ignore_errors=True)
        if earlier := run_folders(self.path.parent):
            point_to(earlier[-1], LATEST)
        else:
            (self.path.parent / LATEST).unlink(missing_ok=True)

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self.path / JOURNAL)
        return self._journal

    def case_folder(self, node_id: str) -> Path:
        """Return the folder of a case's logs, logs/<slug>, which need not exist yet."""
        return self.path / "logs" / case_slug(node_id)

    def contents(self) -> Contents:
        """Return the journal as it is now; it is read again only if it has changed.

        Raises ConfigError if it cannot be read.
        """
        file = self.path / JOURNAL
        try:
            known = file.stat()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=file) from error
        state = (known.st_ino, known.st_size, known.st_mtime_ns)
        if self._read is None or self._read[0] != state:
            self._read = state, read_journal(file)
        return self._read[1]

    def info(self) -> dict[str, Any]:
        """Return run.json; empty if there is none. Raises ConfigError if it is damaged."""
        info: dict[str, Any] = without_secrets_in(info_in(self.path))
        return info

    @property
    def ended_in_order(self) -> bool:
        info = self.info()
        return bool(info.get("finished")) and info.get("problem") is None

    def coverage(self) -> Coverage:
        """Return its coverage, by its journal as it is now."""
        return self.contents().tally.coverage(self.info())

    @property
    def resume_hint(self) -> str:
        path = shlex.quote(os.path.relpath(self.path))
        return f"to continue: the same command with --resume {path}"

    def keep_selected(self, cases: Collection[str]) -> None:
        """Store the names of the cases to run now, added to earlier ones, and their number.

        Raises InfraError.
        """
        info, listed = self._info_so_far(), self.selected_cases() or set()
        names = listed.union(map(named_text, cases))  # as records have them
        recorded = {record.case for record in self.contents().cases if record.device is not None}
        most = max(len(names | recorded), info.get("selected") or 0)
        content: dict[str, Any] = {"schema": 1, "cases": sorted(names)}
        keep_whole(self.path / CASES, json.dumps(content, indent=0).encode())
        self._write_info(info | {"selected": most})

    def selected_cases(self) -> set[str] | None:
        """Return the names of the selected cases; None if they cannot be read."""
        try:
            return set(parse_model(_Cases, read_inside(self.path, CASES, _MAX_CASES_BYTES)).cases)
        except (OSError, ValueError):
            return None

    def drift(self) -> list[Output]:
        """Compare the outputs that cases kept between versions, devices and backends."""
        contents = self.contents()
        if self._drift is None or self._drift[0] is not contents:
            self._drift = contents, drift(contents.cases, self.kept_output)
        return self._drift[1]

    def kept_output(self, name: str) -> bytes | None:
        """Return an output by its name in records; None if it is not here."""
        if not _OUTPUT_NAME.fullmatch(name):
            return None
        try:
            return read_inside(self.path, f"{OUTPUTS}/{name}.raw", _MAX_OUTPUT_BYTES)
        except OSError:
            return None

    def end(self, facts: Mapping[str, object]) -> None:
        """Close the journal, and complete run.json with `facts` of the run's end.

        It ended now, unless `facts` has `finished`. Raises InfraError.
        """
        self.close()
        ended = {"finished": moment_text(datetime.now(UTC))}
        self._write_info({**self._info_so_far(), **ended, **facts})

    def _info_so_far(self) -> dict[str, Any]:
        """Return run.json, to be completed, even if it was damaged since it was written."""
        with contextlib.suppress(ConfigError):
            return {"schema": INFO_SCHEMA, "kind": "run", **self.info()}
        return {"schema": INFO_SCHEMA, "kind": "run"}

    def _write_info(self, info: Mapping[str, object]) -> None:
        safe = without_secrets_in(as_json(info, WHOLE))
        text = json.dumps(safe, indent=2, ensure_ascii=False) + "\n"
        with disk_errors(f"cannot write {self.path / INFO}"):
            write_whole(self.path / INFO, text.encode())


@contextlib.contextmanager
def making_folders(reports: Path) -> Iterator[None]:
    """Make a folder for reports that git ignores, and convert OSError in the block.

    An existing folder stays as it is.
    """
    try:
        if not reports.is_dir():
            reports.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            (reports / UNSEEN).write_text(_NOTHING)
        yield
    except OSError as error:
        # a full or broken disk is the lab's; a wrong or forbidden place is the user's
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
            why = "it is a file" if reports.is_file() else error.strerror
            raise ConfigError(f"cannot hold reports: {why}", file=reports) from error
        raise InfraError(f"cannot make a folder in {reports}: {error.strerror}") from error


def run_folders(reports: Path) -> list[Path]:
    """Return the runs' folders in a folder of reports, in the order of their starts."""
    folders = (journal.parent for journal in reports.glob(f"*/{JOURNAL}") if journal.is_file())
    return ordered(folder for folder in folders if folder.name != LATEST)


def point_to(folder: Path, name: str) -> None:
    """Replace a link in one step, so that it always points to the old or the new folder.

    Raises ConfigError if something else has its name, InfraError if the disk fails.
    """
    latest = folder.parent / name
    if latest.exists() and not latest.is_symlink():
        raise ConfigError("must be a link to the newest run; move it away", file=latest)
    link = folder.parent / f".{name}-{folder.name}"
    try:
        link.symlink_to(folder.name, target_is_directory=True)
        link.replace(latest)
    except OSError as error:
        link.unlink(missing_ok=True)
        raise InfraError(f"cannot point {latest} to {folder.name}: {error.strerror}") from error


@cache
def _versions() -> Mapping[str, str]:
    """Return the installed versions, read once in a process that may write a hundred runs."""
    versions = {"qnn-harness": __version__, "python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return MappingProxyType(versions)
