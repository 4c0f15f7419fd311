"""The search for the smallest way of running a case that fails; each run is a fresh process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, JsonValue

from harness.bisect.bad_condition import (
    ANY_FAILURE,
    Evidence,
    Judged,
    Match,
    Point,
    Question,
    Stopped,
    Tally,
    repeats_needed,
)
from harness.bisect.folder import RUNS, SearchFolder
from harness.bisect.search import Search, case_arguments
from harness.bisect.search_loop import (
    RUN_TIMEOUT_S,
    Loop,
    RunEnd,
    Watcher,
    judge,
    pytest_arguments_to_resume,
    record_of,
)
from harness.containers.manifest import Expects
from harness.core.engine import DEFAULT_ENGINE, ENGINES
from harness.core.errors import ConfigError, InfraError
from harness.core.files import disk_errors, link_or_copy, write_whole
from harness.core.json_record import Schema1
from harness.core.paths_inside import inner_name
from harness.diagnosis.error_record import ErrorRecord
from harness.models.session_plan import Residency
from harness.plugin.user_files import isolated_arguments
from harness.reduce.subject import Reducing, Way, WayAnswer, expected_of, shrink

_FIRST_RUNS: Final = 3
_TRIES: Final = 10
_MOST_REPEATS: Final = 20


@dataclass(frozen=True)
class Minimum:
    """The smallest `way` that is known to fail. If `fails` is False, none failed.

    `minimal`: it passes without any one of its contexts.
    """

    way: Way
    fails: bool = True
    minimal: bool = False

    def __str__(self) -> str:
        verdict = "is minimal" if self.minimal else "is the smallest known"
        return f"{' '.join(self.way.point)} {verdict}" if self.fails else "it did not fail"


class _UnknownError(Exception):
    """A way needs more runs before it can be judged."""


class ReductionSearch(Search[Reducing, Minimum]):
    """Finds the smallest way that fails."""

    def __init__(self, spec: Reducing, evidence: Evidence) -> None:
        super().__init__(spec, evidence)
        self.contexts: dict[Point, int | None] = {}
        """The index of the context at which each way failed; None if it is not known."""

    def known(self) -> Minimum:
        return self._state(self.evidence)[0]

    def _state(self, evidence: Evidence) -> tuple[Minimum, Way | None, str]:
        """Return what is known, the next way to run (None if there is none), and the reason."""
        whole = self.spec.subject.way
        tally = evidence.of(whole.point)
        fails, runs = tally.bad > 0, _runs(tally)
        if runs < _FIRST_RUNS or (not fails and runs < _TRIES):
            return Minimum(whole, fails=fails), whole, "whether it fails"
        if not fails:
            return Minimum(whole, fails=False), None, ""
        needed = repeats_needed(tally.bad, runs) if tally.bad < runs else 1
        repeat = min(_MOST_REPEATS, needed)
        best = last = whole

        def run(way: Way) -> WayAnswer:
            """Return whether one of `repeat` runs of a way fails; no such failure is chance."""
            nonlocal last
            last, tally = way, evidence.of(way.point)
            if not tally.bad and _runs(tally) < repeat:
                raise _UnknownError
            return WayAnswer(tally.bad > 0, self.contexts.get(way.point))

        try:
            for smaller in shrink(whole, run):
                best = smaller
            if _runs(evidence.of(best.point)) < _FIRST_RUNS:
                return Minimum(best), best, "whether it fails again"
        except _UnknownError:
            some = f"{len(last.order)} of {len(whole.order)} contexts"
            return Minimum(best), last, f"whether {some} fail"
        return Minimum(best, minimal=True), None, ""

    def _step(self, evidence: Evidence) -> Question | Minimum:
        minimum, way, why = self._state(evidence)
        if way is None:
            return minimum
        return Question(at=way.point, number=evidence.runs + 1, why=why)


def _runs(tally: Tally) -> int:
    return tally.answers + tally.untestable


BUNDLE: Final = "minimal.zip"
_SET: Final = "set"


class ReductionFolder(SearchFolder[Reducing]):
    """The folder of a reduction: its log, its runs, and the sets of contexts that were run."""

    spec, noun, suffix, written = Reducing, "reduction", "-reduce", (_SET,)


class Result(BaseModel):
    """The output of `model reduce --json`.

    `contexts` are the names of the remaining contexts, in order, out of `before`. `minimal`: it
    does not fail without any one of them. `shown` of `confirmed` runs of just these failed.
    """

    schema_number: Schema1 = 1
    kind: Literal["reduce"] = "reduce"
    case: str
    expects: Expects | None
    contexts: tuple[str, ...]
    different: int
    before: int
    residency: Residency
    residency_before: Residency
    minimal: bool
    shown: int
    confirmed: int
    runs: int
    seconds: float
    folder: str
    bundle: str | None
    exit_code: int


class Reduction(Loop[Minimum]):
    """The loop that runs a case with fewer and fewer contexts."""

    folder: ReductionFolder

    def __init__(
        self, folder: ReductionFolder, task: Reducing, watcher: Watcher | None = None, **more: Any
    ) -> None:
        """`more` is as for `Loop`."""
        log = folder.read()
        search = ReductionSearch(task, log.evidence())
        super().__init__(folder, watcher or Watcher(), search, **more)
        self.task, self.subject = task, task.subject
        self._contexts = search.contexts
        self._known = search.known
        self._expects, self._why = task.subject.expects, ""
        for entry in log.answers():
            self._remember(entry.at, entry.detail)

    @classmethod
    def create(cls, reports: Path, task: Reducing, **more: Any) -> Self:
        """Begin a new one. Raises ConfigError if the folder cannot be used, InfraError."""
        return cls(ReductionFolder.create(reports, task), task, **more)

    @classmethod
    def resume(cls, path: Path, arguments: Sequence[str] = (), **more: Any) -> Self:
        """Resume a stopped one. Raises ConfigError.

        `arguments` are those for pytest, which are needed again if they had a secret.
        """
        folder = ReductionFolder.open(path)
        log = folder.read()
        arguments = pytest_arguments_to_resume(log.spec.pytest_arguments, arguments)
        try:
            for entry in log.answers():
                inner_name(entry.run or RUNS)
            task = log.spec.model_copy(update={"pytest_arguments": arguments})
            reduction = cls(folder, task, **more)
        except ValueError as error:
            raise ConfigError(f"cannot be resumed: {error}", file=path) from error
        folder.lock()
        return reduction

    def run(self) -> Minimum | None:
        """Run until nothing can be removed.

        Raises ConfigError for a case that cannot be run at all, InfraError if the lab fails
        repeatedly.
        """
        minimum = super().run()
        if isinstance(minimum, Stopped):
            raise InfraError(f"the lab failed {minimum.troubles} times in a row: {self._why}")
        return minimum

    def result(self, out: Path | None = None) -> Result:
        """Return the result so far, and bundle the failing contexts in `out` or in the folder.

        Raises ConfigError if `out` cannot be written, InfraError.
        """
        answers, known, bundle = self.folder.read().answers(), self._known(), None
        best = known.way
        runs = [entry for entry in answers if entry.at == best.point and entry.answer != "unknown"]
        failed = [entry for entry in runs if entry.answer == "bad"]
        records = (record_of(self.folder.path, entry) for entry in failed)
        record = next(filter(None, records), None)
        if record is not None and self._expects is not None:
            bundle = out or self.folder.path / BUNDLE
            self.subject.bundle(bundle, best, record, self._expects)
        return Result(
            case=self.subject.case,
            expects=self._expects,
            contexts=tuple(self.subject.names(best)),
            different=len(set(best.order)),
            before=len(self.subject.order),
            residency=best.residency,
            residency_before=self.subject.plan.residency,
            minimal=known.minimal,
            shown=len(failed),
            confirmed=len(runs),
            runs=len(answers),
            seconds=round(sum(entry.seconds or 0 for entry in answers), 3),
            folder=str(self.folder.path),
            bundle=None if bundle is None else str(bundle),
            exit_code=0 if known.minimal else 1,
        )

    def _judge(self, point: Point, end: RunEnd) -> Judged:
        record = end.record
        judged = judge(end, _match(self._expects), None)
        if judged.answer == "untestable" and Way.from_point(point) == self.subject.way:
            raise ConfigError(f"the case cannot be run: {judged.why}", field="CASE")
        self._why = judged.why
        if record is not None:
            error = record.error
            failure = (error.call or error.headline) if error is not None else ""
            self._why = f"{record.outcome}: {failure}" if failure else record.outcome
        detail: dict[str, JsonValue] = {}
        if judged.answer == "bad" and record is not None:
            expects = self._expects or expected_of(record)
            detail["context"] = record.error.context if record.error else None
            detail["expects"] = expects.model_dump(mode="json") if expects else None
            self._remember(point, detail)
        return Judged(judged.answer, self._why, detail)

    def _remember(self, point: Point, detail: Mapping[str, JsonValue]) -> None:
        """Remember where a way failed, and the first failure, which later ones must match."""
        if "context" in detail:
            context = detail["context"]
            self._contexts.setdefault(point, context if isinstance(context, int) else None)
        if self._expects is None and detail.get("expects") is not None:
            self._expects = Expects.model_validate(detail["expects"])

    def _run_at(self, point: Point, reports: Path) -> RunEnd:
        folder = self.folder.path
        arguments = self._arguments(Way.from_point(point), reports)
        return self._run_case(arguments, reports, folder, RUN_TIMEOUT_S)

    def _arguments(self, way: Way, reports: Path) -> list[str]:
        """Return pytest's arguments for a run of a way, and write its manifest and files."""
        subject, folder = self.subject, self.folder.path / _SET
        manifest, files = subject.packed(way, subject.plan)
        manifest_path = folder / f"{reports.name.partition('-')[0]}.json"
        with disk_errors(f"cannot write to {folder}"):
            folder.mkdir(exist_ok=True)
            for name, file in files.items():
                link_or_copy(file, folder / name)
            write_whole(manifest_path, manifest.text().encode())
        name = f"{_SET}/{manifest_path.name}"
        case, plan = f"{name}::{ENGINES[DEFAULT_ENGINE].test}", subject.plan
        arguments = case_arguments(case, subject.lab, reports, subject.devices, str(plan.backend))
        arguments += isolated_arguments(self.folder.path)
        arguments += [f"--qnn-version={plan.qnn}"] if plan.qnn else []
        return [*arguments, *self.task.pytest_arguments, name]


def _match(expects: Expects | None) -> Match:
    """Return the condition for the wanted failure; any other counts as passed."""
    if expects is None:
        return ANY_FAILURE

    def same(error: ErrorRecord) -> bool:
        return expects.met_by(expects.outcome, error.signature)

    return Match(f"the signature {expects.signature}", same, others="good")
