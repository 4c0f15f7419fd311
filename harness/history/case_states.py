"""The state of a case over many runs: passing, failing, new, fixed or flaky (pure).

A single run that ended otherwise proves little: a flaky case would be new, fixed, new, fixed. So
the state is judged by all runs of the case. It is flaky if one device with one set of versions gave
both verdicts for the same files, and no single change explains that. It stays flaky until so many
runs have ended alike that this is hardly due to chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Final, Literal

from harness.core.engine import DEFAULT_ENGINE
from harness.core.matrix_axes import LISTED
from harness.core.outgoing_text import counted
from harness.history.attempts import Attempt, CaseAttempts

StateKind = Literal["passing", "failing", "new", "fixed", "flaky"]
"""`new` fails and `fixed` passes since the last run, unlike before."""

AGAIN: Final = 6
"""The number of times that a case is run again after it ended otherwise than before."""
CONFIRMED: Final = 1 + AGAIN
"""The number of equal verdicts in a row that are believed."""
NIGHTS: Final = 3
"""The number of equal runs in a row that are believed without being repeated."""
_MOST_TURNS: Final = 2
# flakiness is over if so many equal verdicts in a row would have a lower chance than this
_BY_CHANCE: Final = 0.001

RanWith = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class CaseState:
    """The state of a case since the run that started at `since`.

    `failed` of `verdicts` are counted since then; of a flaky case, they are those of its rate.
    `is_sure` is true if enough of them ended alike to be believed.
    """

    kind: StateKind
    since: str
    failed: int
    verdicts: int
    is_sure: bool
    versions: RanWith = ()
    """The newest versions with which it both passed and failed on one device."""
    never_bad_with: frozenset[RanWith] = frozenset()
    """The versions with which a flaky case never failed."""

    @property
    def is_flaky(self) -> bool:
        return self.kind == "flaky"

    @property
    def wants_more(self) -> bool:
        """True if it should be run again before it is believed."""
        return not self.is_sure and self.kind in ("new", "failing", "fixed")

    @property
    def summary(self) -> str:
        """The summary of a flaky case: how often it fails, and why that is not the version."""
        named = format_versions(self.versions)
        why = "" if self.never_bad_with else ": the version is not the cause"
        return (
            f"{format_attempts(self.failed, self.verdicts)} on the same versions, first on "
            f"{self.since[:10] or 'then'}; good and bad with {named}{why}"
        )


@dataclass
class CaseHistory:
    """A case in a run and in the runs before it, oldest first.

    `last` are its last attempts with a verdict, up to the run that it is compared with.
    """

    now: CaseAttempts
    before: list[CaseAttempts] = field(default_factory=list)
    last: CaseAttempts | None = None

    @cached_property
    def state(self) -> CaseState | None:
        return state_of([*self.before, self.now])

    @property
    def is_flaky(self) -> bool:
        """True if its state is flaky and it has a verdict now."""
        return self.now.last.has_verdict and self.state is not None and self.state.is_flaky

    @property
    def turned_flaky(self) -> bool:
        """True if it failed unexpectedly, and this run is the first to show that it is flaky."""
        was, bad = state_of(self.before), self.now.bad
        was_flaky = was is not None and was.is_flaky
        return self.is_flaky and not was_flaky and bad is not None and bad.is_unexpected


def format_attempts(failed: int, of: int) -> str:
    """Return how often a case failed, in words; runs may have several attempts."""
    return f"{failed} of {counted(of, 'attempt')} failed"


def versions_of(attempt: Attempt) -> RanWith:
    """Return the versions of an attempt, and other values than the usual ones of its axes."""
    axes = (axis.name for axis in LISTED if axis.mark or axis.type == "version")
    values = ((name, attempt.axis(name)) for name in axes)
    texts = ((name, None if value is None else str(value)) for name, value in values)
    unusual = attempt.engine not in (None, DEFAULT_ENGINE)
    return (*texts, *([("engine", attempt.engine)] if unusual else []))


def format_versions(versions: RanWith) -> str:
    """Return versions in words, without those that are unknown."""
    return ", ".join(f"{name} {version}" for name, version in versions if version)


def state_of(runs: Iterable[CaseAttempts]) -> CaseState | None:
    """Return the state of a case after these runs, oldest first; None without any verdict."""
    judged = [run for run in runs if run.verdicts]
    if not judged:
        return None
    last = judged[-1].is_bad
    length = next(
        (i for i, run in enumerate(reversed(judged)) if run.is_bad is not last), len(judged)
    )
    tail = judged[len(judged) - (length if last is not None else 1) :]
    before = judged[: len(judged) - len(tail)]
    number = sum(run.verdicts for run in tail)
    by_key: dict[_Key, list[CaseAttempts]] = {}
    for run in judged if before or last is None else ():  # else it always ended alike
        by_key.setdefault(_key(run), []).append(run)
    split = {key for key, of_key in by_key.items() if _is_unsteady(of_key)}
    if split and not _is_over(before, tail, split):
        return _flaky(judged, split)
    just = len(tail) == 1 and bool(before)
    return CaseState(
        kind=("new" if just else "failing") if last else ("fixed" if just else "passing"),
        since=tail[0].started,
        failed=sum(run.failed for run in tail),
        verdicts=number,
        is_sure=number >= CONFIRMED or len(tail) >= NIGHTS,
    )


_Key = tuple[RanWith, str | None, str | None]


def _key(run: CaseAttempts) -> _Key:
    """Return the versions, the device and the files of a run."""
    last = run.last
    return versions_of(last), last.device, last.files_sha256


def _is_unsteady(runs: Sequence[CaseAttempts]) -> bool:
    """Return whether no single change explains the runs of one device with the same versions.

    A change there and back is believed if there were enough verdicts in between.
    """
    alike = [(bad, list(group)) for bad, group in groupby(runs, key=lambda run: run.is_bad)]
    if any(bad is None for bad, _ in alike) or len(alike) - 1 > _MOST_TURNS:
        return True
    between = [sum(run.verdicts for run in group) for _, group in alike[1:-1]]
    return any(number < CONFIRMED for number in between)


def _is_over(
    before: Sequence[CaseAttempts], tail: Sequence[CaseAttempts], split: set[_Key]
) -> bool:
    """Return whether a flaky case has ended alike so often that it is not flaky any more."""
    bad = tail[-1].is_bad
    if bad is None:
        return False
    counted = [run for run in before if _key(run) in split] or before
    failed, verdicts = sum(run.failed for run in counted), sum(run.verdicts for run in counted)
    rate = (failed + 0.5) / (verdicts + 1)
    chance: float = (rate if bad else 1 - rate) ** sum(run.verdicts for run in tail)
    return chance < _BY_CHANCE


def _flaky(runs: Sequence[CaseAttempts], split: set[_Key]) -> CaseState:
    counted = [run for run in runs if _key(run) in split]
    return CaseState(
        kind="flaky",
        since=next(run.started for run in counted if run.failed),
        failed=sum(run.failed for run in counted),
        verdicts=sum(run.verdicts for run in counted),
        is_sure=True,
        versions=_key(counted[-1])[0],
        never_bad_with=frozenset(
            {_key(run)[0] for run in runs} - {_key(run)[0] for run in runs if run.failed}
        ),
    )
