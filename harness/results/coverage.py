"""The coverage of a run: what its selected cases came to, and why some have no verdict.

All summaries of runs are made from it, so that nothing is green above a missing verdict: terminal,
pages, Markdown, comparison, history, night, merge, CI exports. A verdict is passed,
failed, crashed or hung. What a target cannot do (`unsupported`) is an answer, and what a test skips
is a choice: neither has a verdict, and none is missing. (Pure.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

from pydantic import Field, StrictInt

from harness.core.errors import Cause, ConfigError, InfraError
from harness.core.json_record import Part
from harness.core.outgoing_text import counted
from harness.diagnosis.error_record import Outcome

Standing = Literal["passed", "failed", "known", "unsupported", "skipped", "input", "lab", "harness"]
"""The result of a case: `known` fails as a known issue expects; the last three have no verdict,
and name the fault."""
Fault = Literal["input", "lab", "harness", "not run"]
"""The reason why a verdict is missing."""

VERDICTS: Final[tuple[Standing, ...]] = ("passed", "failed", "known")
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
LOST_TO: Final[Mapping[Standing | Fault, str]] = {
    "input": "lost to wrong input",
    "lab": "lost to the lab",
    "harness": "lost to a harness error",
    "not run": "not run",
}
"""The words for missing verdicts, the same everywhere."""
_REGRESSION: Final = 1
_Count = Annotated[StrictInt, Field(ge=0)]


NO_CAUSE: Final[tuple[Outcome, ...]] = ("passed", "unsupported", "skipped")
"""The outcomes of cases in which nothing went wrong."""


class Ended:
    """One attempt at a case, the base class of `CaseRecord` and smaller types.

    `attempt` counts from 1. `device` is where it ran, or was to run; None if no device of the lab
    fits. `breaks_strictness` is true if it passed where that fails the run. `files_sha256` is the
    hash of the files that it used: a result with other files says nothing about these.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        case: str
        attempt: int
        device: object | None
        outcome: Outcome
        cause: Cause | None
        files_sha256: str | None

        @property
        def known_issue(self) -> str | None: ...
        @property
        def breaks_strictness(self) -> bool: ...

    @property
    def standing(self) -> Standing:
        """The result; known issues never explain a missing verdict."""
        if self.outcome == "passed" or self.outcome == "unsupported" or self.outcome == "skipped":
            return self.outcome
        if self.cause == "config":
            return "input"
        if self.cause == "infra":
            return "lab"
        if self.cause == "harness" or self.outcome == "error":
            return "harness"
        return "known" if self.known_issue is not None else "failed"

    @property
    def fault(self) -> Fault | None:
        """The fault behind a missing verdict; None if there is a verdict, or none was due."""
        standing = self.standing
        return standing if standing in ("input", "lab", "harness") else None

    @property
    def is_bad(self) -> bool:
        """True if something went wrong, expected or not."""
        return self.outcome not in NO_CAUSE

    @property
    def is_unexpected(self) -> bool:
        """True if something went wrong that no known issue explains."""
        return self.is_bad and self.standing != "known"


class Coverage(Part):
    """The numbers of selected cases by result; the last attempt at each counts.

    `selected` is null for a run that was cut short and does not say how many cases it had. Of those
    `passed`, `strict` fail the run, since a known issue expects them to fail (`qnn_strict_known`),
    and `flaky` failed in another attempt. `input`, `lab` and `harness` count cases without a
    verdict by who is at fault; `not_run` left no record.
    """

    selected: _Count | None
    passed: _Count = 0
    failed: _Count = 0
    known: _Count = 0
    unsupported: _Count = 0
    skipped: _Count = 0
    input: _Count = 0
    lab: _Count = 0
    harness: _Count = 0
    not_run: _Count = 0
    strict: _Count = 0
    flaky: _Count = 0

    @property
    def judged(self) -> int:
        return self.passed + self.failed + self.known

    @property
    def missing(self) -> Mapping[Fault, int]:
        counts = {name: int(getattr(self, name.replace(" ", "_"))) for name in FAULTS}
        return {name: count for name, count in counts.items() if count}

    @property
    def is_whole(self) -> bool:
        return self.selected is not None and not self.missing

    @property
    def fails(self) -> bool:
        return bool(self.failed or self.strict)

    @property
    def is_green(self) -> bool:
        """True if the run may be called passed: it judged cases, none lacks a verdict, and no
        attempt failed unexpectedly."""
        return self.is_whole and bool(self.judged) and not (self.fails or self.flaky)

    @property
    def exit_code(self) -> int:
        return _REGRESSION if self.fails else self.lost_code

    @property
    def lost_code(self) -> int:
        """The exit code for missing verdicts: 2 if wrong input, which the user can mend, cost
        some, else 3; 0 if none is missing."""
        if self.input:
            return int(ConfigError.exit_code)
        return 0 if self.is_whole else int(InfraError.exit_code)

    def headline(self, new: int | None = None) -> str:
        """Return the sentence that every report begins with, what went wrong first.

        `new` is the number of failures that were not there before, if known.
        """
        if self.selected == 0:
            return "no case was run"
        failures = counted(self.failed, "new failure" if new == self.failed else "failure")
        if new is not None and new != self.failed:
            failures += f" ({new or 'none'} new)"
        notes = [f"{self.flaky} flaky"] if self.flaky else []
        notes += [f"{self.strict} unexpectedly"] if self.strict else []
        passed = f"{self.passed} passed" + (f" ({', '.join(notes)})" if notes else "")
        parts = [failures] if self.failed else []
        parts += [f"{count} {LOST_TO[name]}" for name, count in self.missing.items()]
        parts += ["an unknown number not run"] if self.selected is None else []
        parts += [passed] if self.passed else []
        parts += [counted(self.known, "expected failure")] if self.known else []
        parts += [f"{self.unsupported} unsupported"] if self.unsupported else []
        parts += [f"{self.skipped} skipped"] if self.skipped else []
        return ", ".join(parts)


class _LastAttempt(NamedTuple):
    """The part of a case's last attempt that counts, since records are large.

    `place` is the attempt's index among all that were added.
    """

    number: int
    place: int
    standing: Standing
    fits: bool
    breaks_strictness: bool
    files_sha256: str | None


class Tally:
    """Counts of the attempts of a run; the last attempt at each case counts."""

    def __init__(self, attempts: Iterable[Ended] = ()) -> None:
        self._last: dict[str, _LastAttempt] = {}
        self._failed = set[str]()
        self._count = 0
        for attempt in attempts:
            self.add(attempt)

    def add(self, attempt: Ended) -> None:
        """Add an attempt."""
        last = self._last.get(attempt.case)
        is_later = last is None or attempt.attempt >= last.number
        same_files = last is None or attempt.files_sha256 == last.files_sha256
        if is_later and not same_files:
            self._failed.discard(attempt.case)
        if attempt.standing == "failed" and (is_later or same_files):
            self._failed.add(attempt.case)
        if is_later:
            self._last[attempt.case] = _LastAttempt(
                attempt.attempt,
                self._count,
                attempt.standing,
                attempt.device is not None,
                attempt.breaks_strictness,
                attempt.files_sha256,
            )
        self._count += 1

    @property
    def last(self) -> list[int]:
        """The indexes of the last attempts, in the order in which their cases first appeared."""
        return [last.place for last in self._last.values()]

    def coverage(self, info: Mapping[str, Any] | None = None) -> Coverage:
        """Return the coverage; `info` is run.json, which says how many cases the run had.

        Without `info` there are no cases but these.
        """
        attempts = self._last.values()
        counts: Counter[str] = Counter(last.standing for last in attempts)
        selected: int | None = len(attempts)
        if info is not None:
            unfit = sum(not last.fits for last in attempts)
            selected = selected_of(info, len(attempts), unfit)
        return Coverage(
            selected=selected,
            not_run=0 if selected is None else selected - len(attempts),
            strict=sum(last.breaks_strictness for last in attempts),
            flaky=sum(self._last[case].standing == "passed" for case in self._failed),
            **counts,
        )


def coverage_of(attempts: Iterable[Ended], info: Mapping[str, Any] | None = None) -> Coverage:
    """Return the coverage of a run by all its attempts; `info` is its run.json."""
    return Tally(attempts).coverage(info)


def selected_of(info: Mapping[str, Any], recorded: int, unfit: int) -> int | None:
    """Return how many cases a run had, and tests that could not start; None if unknown.

    `recorded` is the number of cases with a record, `unfit` of which fit no device. If run.json
    has no number, a run that ended in order left none out.
    """
    selected, not_started = info.get("selected"), len(info.get("not_started", ()))
    if selected is not None:
        return int(max(selected + unfit, recorded)) + not_started
    ended = info.get("finished") and info.get("problem") is None
    return recorded + not_started if ended else None
