"""Runs ways of a case, each in a fresh process, until the smallest that fails is found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, JsonValue

from harness.bisect.folder import RUNS, FirstLine, SearchFolder
from harness.bisect.loop import Loop, RunEnd, Watcher, judge, named_again, record_of
from harness.bisect.match import (
    ANY_FAILURE,
    Evidence,
    Judged,
    Match,
    Point,
    Question,
    Stopped,
    Tally,
)
from harness.bisect.search import Search, case_arguments
from harness.containers.manifest import Expects
from harness.core.axes import QNN
from harness.core.errors import ConfigError, InfraError
from harness.core.local_file import hold
from harness.core.names_inside import inner_name
from harness.core.schema_field import Schema1
from harness.core.whole_file import disk_errors, write_whole
from harness.diagnosis.error import ErrorRecord
from harness.models.source import Residency
from harness.plugin.own_contexts import nothing_beside
from harness.reduce.subject import Minimizing, Way, WayAnswer, expected_of, shrunk
from harness.results.record import CaseRecord

_FIRST_RUNS: Final = 3
_TRIES: Final = 10
_MOST_REPEATS: Final = 20
_OVERLOOKED: Final = 0.02
"""How likely a failure may be overlooked, if it comes as often as at first."""


@dataclass(frozen=True)
class Minimum:
    """The smallest `way` that is known to fail. If `fails` is False, none was seen to fail.

    `minimal`: it passes without any one of its contexts. `order_matters`: it passes in the other
    order; None where that was not tried.
    """

    way: Way
    fails: bool = True
    minimal: bool = False
    order_matters: bool | None = None

    def __str__(self) -> str:
        what = "is minimal" if self.minimal else "is the smallest known"
        return f"{' '.join(self.way.point)} {what}" if self.fails else "it did not fail"


class _UnknownError(Exception):
    """A way was not run often enough to be judged."""


class MinimizeSearch(Search[Minimizing, Minimum]):
    """Finds the smallest way that fails."""

    def __init__(self, spec: Minimizing, evidence: Evidence) -> None:
        super().__init__(spec, evidence)
        self.contexts: dict[Point, int | None] = {}
        """The places in their order at which ways failed, as far as they are known."""
        self.allowed = _made(evidence) + spec.max_runs
        """How many runs there may be in all, with those that the lab spoilt."""

    def known(self) -> Minimum:
        """What is known by now."""
        return self._known(self.evidence)[0]

    def _known(self, evidence: Evidence) -> tuple[Minimum, Way | None, str]:
        """What is known, and which way is to be run next, and why; None if none is."""
        whole = self.spec.subject.way
        sure = self.spec.repeat or _FIRST_RUNS
        seen = evidence.of(whole.point)
        fails, runs = seen.bad > 0, _runs(seen)
        if runs < sure or (not fails and runs < _TRIES):
            return Minimum(whole, fails=fails), whole, "whether it fails"
        if not fails:
            return Minimum(whole, fails=False), None, ""
        repeat = self.spec.repeat or _repeats(seen.bad / runs)
        best = asked = whole
        minimal = False

        def ask(way: Way) -> WayAnswer:
            """Whether one of so many runs of a way fails: nothing fails so by chance."""
            nonlocal asked
            asked, tally = way, evidence.of(way.point)
            if not tally.bad and _runs(tally) < repeat:
                raise _UnknownError
            return WayAnswer(tally.bad > 0, self.contexts.get(way.point))

        try:
            for smaller in shrunk(whole, ask):
                best = smaller
            if _runs(evidence.of(best.point)) < sure:
                return Minimum(best), best, "whether it fails again"
            minimal, other = True, best.reversed
            matters = None if other == best else not ask(other).fails
        except _UnknownError:
            why = f"whether {len(asked.order)} of {len(whole.order)} do"
            return Minimum(best, minimal=minimal), asked, why
        return Minimum(best, minimal=True, order_matters=matters), None, ""

    def _step(self, evidence: Evidence) -> Question | Minimum:
        found, way, why = self._known(evidence)
        if way is None or _made(evidence) >= self.allowed:
            return found
        return Question(at=way.point, number=evidence.runs + 1, why=why)


def _made(evidence: Evidence) -> int:
    return evidence.runs + evidence.unknown


def _runs(tally: Tally) -> int:
    return tally.told + tally.untestable


def _repeats(often: float) -> int:
    if often == 1:
        return 1
    return min(_MOST_REPEATS, math.ceil(math.log(_OVERLOOKED) / math.log(1 - often)))


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
