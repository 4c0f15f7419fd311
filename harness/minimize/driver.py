"""Runs ways of a case, each in a fresh process as any run, and remembers what they came to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from harness.artefacts.manifest import Expects
from harness.bisect.answers import Answer as Judgement
from harness.bisect.case_run import RunEnd, case_arguments, judge, named_again, run_case
from harness.bisect.match import ANY_FAILURE, Match
from harness.contexts.schedule import Residency
from harness.errors import ConfigError, InfraError
from harness.errors.outgoing_text import without_secrets_in
from harness.failure.error import ErrorRecord
from harness.files.cache import PRIVATE
from harness.files.copy_range import hold
from harness.files.names_inside import inner_name, refuse_links
from harness.files.whole_file import disk_errors, read_bounded, write_whole
from harness.minimize.search import Answer, Way, shrunk
from harness.minimize.subject import Subject, expected_of
from harness.pytest_plugin.own_contexts import nothing_beside
from harness.qnn.engines import QNN
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder, making_folders, new_run_id

BUNDLE: Final = "minimal.zip"
_TASK, _LOG, _SET = "task.json", "log.jsonl", "set"
_MAX_BYTES: Final = 64 << 20
_FIRST_RUNS: Final = 3
_TRIES: Final = 10
_MOST_REPEATS: Final = 20
_OVERLOOKED: Final = 0.02
"""How likely a failure may be overlooked that comes as often as it did at first."""
_PATIENCE: Final = 3

Came = Literal["fails", "passes", "unknown"]
_ANSWERS: Final[dict[Judgement, Came]] = {
    "bad": "fails",
    "good": "passes",
    "untestable": "passes",
    "unknown": "unknown",
}

Runner = Callable[[Sequence[str], Path, Path, float], RunEnd]


class Task(BaseModel, extra="forbid", frozen=True):
    """What is to be made smaller, and how long."""

    subject: Subject
    repeat: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_runs: Annotated[int, Field(ge=1)] = 200
    run_timeout_s: Annotated[int, Field(ge=1)] = 1800
    pytest_arguments: tuple[str, ...] = ()


class Tried(BaseModel, extra="forbid", frozen=True):
    """A line of the log: a run of a way, and what it came to; `run` is its folder."""

    order: tuple[int, ...]
    residency: Residency
    answer: Came
    why: str
    context: int | None = None
    expects: Expects | None = None
    run: Annotated[str, AfterValidator(inner_name)] | None = None
    seconds: float

    @property
    def way(self) -> Way:
        """What was run."""
        return Way(self.order, self.residency)


class Result(BaseModel):
    """What `contexts minimize --json` prints.

    `contexts` are the names of those that are left, in their order, of `before` in all. `minimal`:
    the failure is gone without any one of them. `order_matters`: it is gone in the other order;
    null where that was not tried. `shown` of `confirmed` runs of just these failed so.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    case: str
    expects: Expects | None
    contexts: tuple[str, ...]
    different: int
    before: int
    residency: Residency
    residency_before: Residency
    minimal: bool
    order_matters: bool | None
    shown: int
    confirmed: int
    runs: int
    seconds: float
    folder: str
    bundle: str | None
    exit_code: int


class _RunsAreOver(Exception):
    """As many were made as were allowed."""


class Minimization:
    """A folder below the reports, with all that was tried; it goes on with what is there."""

    def __init__(
        self,
        folder: Path,
        task: Task,
        *,
        run: Runner = run_case,
        tell: Callable[[int, Way, Tried | None], None] = lambda number, way, tried: None,
    ) -> None:
        self.folder, self.task, self.subject = folder, task, task.subject
        self.tried: list[Tried] = []
        self.best = self.subject.way
        self.minimal = False
        self.order_matters: bool | None = None
        self._expects = self.subject.expects
        self._run_case, self._tell = run, tell
        self._most, self._repeat = task.max_runs, task.repeat or 1
        self._sure = task.repeat or _FIRST_RUNS

    @classmethod
    def create(cls, reports: Path, task: Task, **more: Any) -> Self:
        """A new one. Raises ConfigError for a folder that cannot hold reports, InfraError."""
        with making_folders(reports):
            folder = reports.absolute() / f"{new_run_id()}-minimize"
            folder.mkdir(mode=PRIVATE, parents=True)
            write_whole(folder / _TASK, _kept(task))
        return cls(folder, task, **more)

    @classmethod
    def resume(cls, folder: Path, words: Sequence[str] = (), **more: Any) -> Self:
        """One that was stopped; as many runs are allowed again as at first. Raises ConfigError.

        `words` are those for pytest, which are named again where they had a secret.
        """
        try:
            refuse_links(folder, below=False)
            if (folder / _SET).exists():
                refuse_links(folder / _SET)
            task = Task.model_validate_json(read_bounded(folder / _TASK, _MAX_BYTES))
            words = named_again(task.pytest_arguments, words)
            task = task.model_copy(update={"pytest_arguments": words})
            known = cls(folder.absolute(), task, **more)
            if (folder / _LOG).exists():
                lines = read_bounded(folder / _LOG, _MAX_BYTES).splitlines(keepends=True)
                # whoever wrote the last line may have died within it
                whole = [one for one in lines if one.endswith(b"\n")]
                known.tried = [Tried.model_validate_json(one) for one in whole]
                known._most = len(whole) + task.max_runs
                write_whole(folder / _LOG, b"".join(whole))
        except OSError as error:
            problem = f"is no folder of a `minimize`: {error.strerror}"
            file = error.filename or folder
            raise ConfigError(problem, file=file, field="--resume") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            problem = f"cannot be gone on with: {first['msg']}"
            raise ConfigError(problem, file=folder, field="--resume") from error
        for one in known.tried:
            known._expects = known._expects or one.expects
        return known

    def go_on(self) -> None:
        """Runs until nothing can be left away, or --max-runs are over.

        `best` is the smallest known at any time. Raises ConfigError for a case that cannot be run
        at all, InfraError if the lab fails again and again.
        """
        try:
            if not self._is_seen():
                return
            for smaller in shrunk(self.subject.way, self._ask):
                self.best = smaller
            while len(self._answers(self.best)) < self._sure:
                self._run(self.best)
            self.minimal = True
            if self.best.reversed != self.best:
                self.order_matters = not self._ask(self.best.reversed).fails
        except _RunsAreOver:
            return

    @property
    def fails(self) -> bool:
        """Whether the case was seen to fail at all."""
        return any(one.answer == "fails" for one in self._answers(self.subject.way))

    def result(self, out: Path | None = None) -> Result:
        """What is known by now; what failed is packed, into `out` or into a file in the folder.

        Raises ConfigError if `out` cannot be written, InfraError.
        """
        bundle = None
        failed = [one for one in self._answers(self.best) if one.answer == "fails"]
        record = next(filter(None, map(self._record, failed)), None)
        if record is not None and self._expects is not None:
            bundle = out or self.folder / BUNDLE
            self.subject.bundle(bundle, self.best, record, self._expects)
        return Result(
            case=self.subject.case,
            expects=self._expects,
            contexts=tuple(self.subject.names(self.best)),
            different=len(set(self.best.order)),
            before=len(self.subject.order),
            residency=self.best.residency,
            residency_before=self.subject.plan.residency,
            minimal=self.minimal,
            order_matters=self.order_matters,
            shown=len(failed),
            confirmed=len(self._answers(self.best)),
            runs=len(self.tried),
            seconds=round(sum(one.seconds for one in self.tried), 3),
            folder=str(self.folder),
            bundle=None if bundle is None else str(bundle),
            exit_code=0 if self.minimal else 1,
        )

    def _is_seen(self) -> bool:
        """Runs the case itself some times, to see how often it fails; False if it never does."""
        whole = self.subject.way
        while len(answers := self._answers(whole)) < max(_TRIES, self._sure):
            if len(answers) >= self._sure and self.fails:
                break
            self._run(whole)
        often = sum(one.answer == "fails" for one in answers) / len(answers)
        if self.task.repeat is None and 0 < often < 1:
            needed = math.log(_OVERLOOKED) / math.log(1 - often)
            self._repeat = min(_MOST_REPEATS, math.ceil(needed))
        return self.fails

    def _answers(self, way: Way) -> list[Tried]:
        return [one for one in self.tried if one.way == way and one.answer != "unknown"]

    def _ask(self, way: Way) -> Answer:
        """A way fails if one of so many runs does: nothing fails with that signature by chance."""
        while True:
            answers = self._answers(way)
            failed = next((one for one in answers if one.answer == "fails"), None)
            if failed is not None:
                return Answer(True, failed.context)
            if len(answers) >= self._repeat:
                return Answer(False)
            self._run(way)

    def _run(self, way: Way) -> None:
        """Runs a way once more. Raises InfraError if the lab fails too often in a row."""
        if len(self.tried) >= self._most:
            raise _RunsAreOver
        number = len(self.tried) + 1
        self._tell(number, way, None)
        reports = self.folder / "runs" / f"{number:03}"
        end = self._run_case(
            self._arguments(way, reports, number), reports, self.folder, self.task.run_timeout_s
        )
        tried = self._judged(way, end)
        self._append(tried)
        self._tell(number, way, tried)
        last = self.tried[-_PATIENCE:]
        if len(last) == _PATIENCE and all(one.answer == "unknown" for one in last):
            raise InfraError(f"the lab failed {_PATIENCE} times in a row: {tried.why}")

    def _judged(self, way: Way, end: RunEnd) -> Tried:
        record, expects = end.record, self._expects
        judged = judge(end, _match(expects), None)
        if judged.answer == "untestable" and way == self.subject.way:
            raise ConfigError(f"the case cannot be run: {judged.why}", field="CASE")
        if judged.answer == "bad" and record is not None:
            self._expects = expects = expects or expected_of(record)
        return Tried(
            order=way.order,
            residency=way.residency,
            answer=_ANSWERS[judged.answer],
            why=_told(record) or judged.why,
            context=record.error.context if record is not None and record.error else None,
            expects=expects if judged.answer == "bad" else None,
            run=end.folder.relative_to(self.folder).as_posix() if end.folder else None,
            seconds=round(end.seconds, 3),
        )

    def _arguments(self, way: Way, reports: Path, number: int) -> list[str]:
        """pytest's arguments for a run of a way: as a manifest, with its files beside it."""
        subject, folder = self.subject, self.folder / _SET
        manifest, files = subject.packed(way, subject.plan)
        listed = folder / f"{number:03}.json"
        with disk_errors(f"cannot write to {folder}"):
            folder.mkdir(exist_ok=True)
            for name, file in files.items():
                hold(file, folder / name)
            write_whole(listed, manifest.text().encode())
        name = f"{_SET}/{listed.name}"
        case, plan = f"{name}::{QNN.test}", subject.plan
        arguments = case_arguments(case, subject.lab, reports, subject.devices, str(plan.backend))
        arguments += nothing_beside(self.folder)
        arguments += [f"--qnn={plan.qnn}"] if plan.qnn else []
        return [*arguments, *self.task.pytest_arguments, name]

    def _append(self, tried: Tried) -> None:
        path = self.folder / _LOG
        with disk_errors(f"cannot write {path}"), path.open("ab") as log:
            log.write(_kept(tried) + b"\n")
            log.flush()
            os.fsync(log.fileno())
        self.tried.append(tried)

    def _record(self, tried: Tried) -> CaseRecord | None:
        if tried.run is None or not (self.folder / tried.run).is_dir():
            return None
        return next(reversed(RunFolder(self.folder / tried.run).contents().cases), None)


def _kept(one: Task | Tried) -> bytes:
    """JSON as a file keeps it: without secrets."""
    return json.dumps(without_secrets_in(one.model_dump(mode="json"))).encode()


def _told(record: CaseRecord | None) -> str:
    """How a run ended, in few words."""
    if record is None or record.error is None:
        return record.outcome if record is not None else ""
    error = record.error
    what = f"{error.api or ''} {error.code or ''}".strip() or error.message.partition("\n")[0]
    return f"{record.outcome}: {what}"


def _match(expects: Expects | None) -> Match:
    """What counts as the failure that is wanted: whatever else happens passes for it."""
    if expects is None:
        return ANY_FAILURE

    def same(error: ErrorRecord) -> bool:
        return error.signature == expects.signature

    return Match(f"the signature {expects.signature}", same, others="good")
