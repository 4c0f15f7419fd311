"""Runs ways of a case, each in a fresh process, until the smallest that fails is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, JsonValue

from harness.contexts.context.schedule import Residency
from harness.ground.errors import ConfigError, InfraError
from harness.ground.facts.engines import QNN
from harness.ground.files.copy_range import hold
from harness.ground.files.names_inside import inner_name
from harness.ground.files.schema_field import Schema1
from harness.ground.files.whole_file import disk_errors, write_whole
from harness.libraries.containers.manifest import Expects
from harness.run.pytest_plugin.own_contexts import nothing_beside
from harness.search.bisect.answers import Point, Stopped
from harness.search.bisect.case_run import RunEnd, judge, named_again
from harness.search.bisect.folder import RUNS, SearchFolder
from harness.search.bisect.log import FirstLine
from harness.search.bisect.loop import Loop, Watcher, record_of
from harness.search.bisect.match import ANY_FAILURE, Judged, Match
from harness.search.bisect.task import case_arguments
from harness.search.minimize.minimum import MinimizeSearch, Minimum
from harness.search.minimize.search import Way
from harness.search.minimize.subject import Minimizing, expected_of
from harness.verdict.failure.error import ErrorRecord
from harness.verdict.results.record import CaseRecord

BUNDLE: Final = "minimal.zip"
_SET: Final = "set"


class MinimizeFirstLine(FirstLine):
    """The first line of a minimization's log."""

    spec: Minimizing


class MinimizeFolder(SearchFolder[Minimizing]):
    """The folder of a minimization; beside log and runs the sets of contexts that were run."""

    begins, noun, suffix, written = MinimizeFirstLine, "minimization", "-minimize", (_SET,)


class Result(BaseModel):
    """What `contexts minimize --json` prints.

    `contexts` are the names of the contexts that are left, in their order, of `before` in all.
    `minimal`: the failure is gone without any one of them. `order_matters`: it is gone in the other
    order; null where that was not tried. `shown` of `confirmed` runs of just these failed so.
    """

    schema_number: Schema1 = 1
    kind: Literal["minimize"] = "minimize"
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


class Minimization(Loop[Minimum]):
    """The loop that runs a case with fewer and fewer contexts."""

    folder: MinimizeFolder

    def __init__(
        self, folder: MinimizeFolder, task: Minimizing, watcher: Watcher | None = None, **more: Any
    ) -> None:
        """`more` is as for `Loop`."""
        log = folder.read()
        search = MinimizeSearch(task, log.evidence())
        super().__init__(folder, watcher or Watcher(), search, **more)
        self.task, self.subject = task, task.subject
        self._contexts = search.contexts
        self._known = search.known
        self._expects, self._why = task.subject.expects, ""
        for entry in log.answers():
            self._keep(entry.at, entry.detail)

    @classmethod
    def create(cls, reports: Path, task: Minimizing, **more: Any) -> Self:
        """A new one. Raises ConfigError for a folder that cannot hold reports, InfraError."""
        return cls(MinimizeFolder.create(reports, MinimizeFirstLine(spec=task)), task, **more)

    @classmethod
    def resume(cls, path: Path, words: Sequence[str] = (), **more: Any) -> Self:
        """Goes on with a stopped one, with as many runs allowed as at first. Raises ConfigError.

        `words` are those for pytest, which are named again where they had a secret.
        """
        folder = MinimizeFolder.open(path)
        log = folder.read()
        words = named_again(log.spec.pytest_arguments, words)
        try:
            for entry in log.answers():
                inner_name(entry.run or RUNS)
            found = cls(folder, log.spec.model_copy(update={"pytest_arguments": words}), **more)
        except ValueError as error:
            raise ConfigError(f"cannot be gone on with: {error}", file=path) from error
        folder.hold()
        return found

    def go_on(self) -> Minimum | None:
        """Runs until nothing can be left away, or --max-runs are over.

        Raises ConfigError for a case that cannot be run at all, InfraError if the lab fails again
        and again.
        """
        found = super().go_on()
        if isinstance(found, Stopped):
            raise InfraError(f"the lab failed {found.troubles} times in a row: {self._why}")
        return found

    def result(self, out: Path | None = None) -> Result:
        """What is known by now; what failed is packed, into `out` or into a file in the folder.

        Raises ConfigError if `out` cannot be written, InfraError.
        """
        answers, known, bundle = self.folder.read().answers(), self._known(), None
        best = known.way
        ran = [one for one in answers if one.at == best.point and one.answer != "unknown"]
        failed = [one for one in ran if one.answer == "bad"]
        records = (record_of(self.folder.path, one) for one in failed)
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
            order_matters=known.order_matters,
            shown=len(failed),
            confirmed=len(ran),
            runs=len(answers),
            seconds=round(sum(one.seconds or 0 for one in answers), 3),
            folder=str(self.folder.path),
            bundle=None if bundle is None else str(bundle),
            exit_code=0 if known.minimal else 1,
        )

    def _judged(self, at: Point, end: RunEnd) -> Judged:
        record = end.record
        judged = judge(end, _match(self._expects), None)
        if judged.answer == "untestable" and Way.at(at) == self.subject.way:
            raise ConfigError(f"the case cannot be run: {judged.why}", field="CASE")
        self._why = _told(record) or judged.why
        more: dict[str, JsonValue] = {}
        if judged.answer == "bad" and record is not None:
            expects = self._expects or expected_of(record)
            more["context"] = record.error.context if record.error else None
            more["expects"] = expects.model_dump(mode="json") if expects else None
            self._keep(at, more)
        return Judged(judged.answer, self._why, more)

    def _keep(self, at: Point, detail: Mapping[str, JsonValue]) -> None:
        """Remembers where a way failed; the first failure is what later ones must be like."""
        if "context" in detail:
            context = detail["context"]
            self._contexts.setdefault(at, context if isinstance(context, int) else None)
        if self._expects is None and detail.get("expects") is not None:
            self._expects = Expects.model_validate(detail["expects"])

    def _begin(self, at: Point, reports: Path) -> RunEnd:
        folder = self.folder.path
        arguments = self._arguments(Way.at(at), reports)
        return self._run_case(arguments, reports, folder, self.task.run_timeout_s)

    def _arguments(self, way: Way, reports: Path) -> list[str]:
        """pytest's arguments for a run of a way: as a manifest, with its files beside it."""
        subject, folder = self.subject, self.folder.path / _SET
        manifest, files = subject.packed(way, subject.plan)
        listed = folder / f"{reports.name.partition('-')[0]}.json"
        with disk_errors(f"cannot write to {folder}"):
            folder.mkdir(exist_ok=True)
            for name, file in files.items():
                hold(file, folder / name)
            write_whole(listed, manifest.text().encode())
        name = f"{_SET}/{listed.name}"
        case, plan = f"{name}::{QNN.test}", subject.plan
        arguments = case_arguments(case, subject.lab, reports, subject.devices, str(plan.backend))
        arguments += nothing_beside(self.folder.path)
        arguments += [f"--qnn-version={plan.qnn}"] if plan.qnn else []
        return [*arguments, *self.task.pytest_arguments, name]


def _told(record: CaseRecord | None) -> str:
    if record is None or record.error is None:
        return record.outcome if record is not None else ""
    error = record.error
    what = f"{error.api or ''} {error.code or ''}".strip() or error.message.partition("\n")[0]
    return f"{record.outcome}: {what}"


def _match(expects: Expects | None) -> Match:
    """What counts as the failure that is wanted: anything else counts as passed."""
    if expects is None:
        return ANY_FAILURE

    def same(error: ErrorRecord) -> bool:
        return error.signature == expects.signature

    return Match(f"the signature {expects.signature}", same, others="good")
