"""What a case is at over many runs: it passes, it fails since then, or it is flaky (pure).

One run that ended otherwise says little: a flaky case would be new, fixed, new, fixed. So what is
told of a case is made of all its runs. It is flaky where one device with one set of versions gave
both verdicts of the same files, and no single change explains that. It stays so until so many runs
have ended alike that chance alone would hardly do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Final, Literal

from harness.core.axes import QNN, VERSIONS
from harness.core.outgoing_text import counted
from harness.history.attempts import Attempt, EarlierAttempts

StateKind = Literal["passing", "failing", "new", "fixed", "flaky"]
"""`new` fails and `fixed` passes since the last run; the others say what they did before."""

AGAIN: Final = 6
"""So often a case that ended otherwise than before is run again."""
CONFIRMED: Final = 1 + AGAIN
"""So many verdicts in a row are believed."""
NIGHTS: Final = 3
"""So many runs after each other are, too, where none was made again."""
_MOST_TURNS: Final = 2
# a flaky case is over where it would end alike so often in a row less than once in a thousand times
_BY_CHANCE: Final = 0.001

RanWith = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class CaseState:
    """What a case is at, since the run that was begun at `since`.

    `failed` of `verdicts` count since then; of what is flaky, all on which its rate is based.
    `is_sure` tells whether enough of them ended alike to be believed.
    """

    kind: StateKind
    since: str
    failed: int
    verdicts: int
    is_sure: bool
    versions: RanWith = ()
    """With which it was seen to end both ways, on one device; the newest of them."""
    never_bad_with: frozenset[RanWith] = frozenset()
    """All with which it was not seen to fail, of what is flaky: it may have come with others."""

    @property
    def is_flaky(self) -> bool:
        """Whether it fails now and then, so that no run of it is news."""
        return self.kind == "flaky"

    @property
    def wants_more(self) -> bool:
        """Whether it should be run again before it is believed."""
        return not self.is_sure and self.kind in ("new", "failing", "fixed")

    @property
    def said(self) -> str:
        """What is told of a flaky case: how often it fails, and why it is not the version."""
        named = said_versions(self.versions)
        why = "" if self.never_bad_with else ": it is not the version"
        return (
            f"{attempts_said(self.failed, self.verdicts)} on the same versions, first on "
            f"{self.since[:10] or 'then'}; good and bad with {named}{why}"
        )


@dataclass
class CaseHistory:
    """A case in a run, and in the runs before it: the oldest comes first. `last` is the last
    verdict up to the run that it is compared with.
    """

    now: EarlierAttempts
    before: list[EarlierAttempts] = field(default_factory=list)
    last: EarlierAttempts | None = None

    @cached_property
    def was(self) -> CaseState | None:
        """What it was at before this run."""
        return state_of(self.before)

    @cached_property
    def state(self) -> CaseState | None:
        """What it is at, this run included."""
        return state_of([*self.before, self.now])

    @property
    def is_flaky(self) -> bool:
        """Whether no run of it is news; whatever it is at, it has a verdict now."""
        return self.now.last.has_verdict and self.state is not None and self.state.is_flaky

    @property
    def turned_flaky(self) -> bool:
        """Whether it failed unexpectedly, and this is the run that shows that it is flaky."""
        was, bad = self.was is not None and self.was.is_flaky, self.now.bad
        return self.is_flaky and not was and bad is not None and bad.is_unexplained


def attempts_said(failed: int, of: int) -> str:
    """How often a case failed, each time that it ran counted: runs have it again."""
    return f"{failed} of {counted(of, 'attempt')} failed"


def versions_of(attempt: Attempt) -> RanWith:
    """The versions of an attempt, and its engine where that is not the usual one."""
    said = ((name, attempt.axis(name)) for name in VERSIONS)
    told = ((name, None if value is None else str(value)) for name, value in said)
    unusual = attempt.engine not in (None, QNN.name)
    return (*told, *([("engine", attempt.engine)] if unusual else []))


def said_versions(versions: RanWith) -> str:
    """Versions in words; those that nobody said are left out."""
    return ", ".join(f"{name} {said}" for name, said in versions if said)


def state_of(runs: Iterable[EarlierAttempts]) -> CaseState | None:
    """What a case is at after these runs, the oldest first; None if none gave a verdict."""
    seen = [one for one in runs if one.verdicts]
    if not seen:
        return None
    last = seen[-1].is_bad
    length = next(
        (at for at, one in enumerate(reversed(seen)) if one.is_bad is not last), len(seen)
    )
    tail = seen[len(seen) - (length if last is not None else 1) :]
    before = seen[: len(seen) - len(tail)]
    number = sum(one.verdicts for one in tail)
    by_key: dict[_Key, list[EarlierAttempts]] = {}
    for one in seen if before or last is None else ():  # what always ended alike is steady
        by_key.setdefault(_key(one), []).append(one)
    split = {key for key, of_key in by_key.items() if _is_unsteady(of_key)}
    if split and not _is_over(before, tail, split):
        return _flaky(seen, split)
    just = len(tail) == 1 and bool(before)
    return CaseState(
        kind=("new" if just else "failing") if last else ("fixed" if just else "passing"),
        since=tail[0].begun,
        failed=sum(one.failed for one in tail),
        verdicts=number,
        is_sure=number >= CONFIRMED or len(tail) >= NIGHTS,
    )


_Key = tuple[RanWith, str | None, str | None]


def _key(attempts: EarlierAttempts) -> _Key:
    """With which versions, on which device, and of which files."""
    last = attempts.last
    return versions_of(last), last.device, last.files_sha256


def _is_unsteady(seen: Sequence[EarlierAttempts]) -> bool:
    """Whether runs of one device with the same versions end so that no single change explains it.

    A change and back again is believed where what lay between was seen often enough.
    """
    alike = [(bad, list(group)) for bad, group in groupby(seen, key=lambda one: one.is_bad)]
    if any(bad is None for bad, _ in alike) or len(alike) - 1 > _MOST_TURNS:
        return True
    between = [sum(one.verdicts for one in group) for _, group in alike[1:-1]]
    return any(number < CONFIRMED for number in between)


def _is_over(
    before: Sequence[EarlierAttempts], tail: Sequence[EarlierAttempts], split: set[_Key]
) -> bool:
    """Whether what was flaky before has ended alike for so long that it is not flaky any more."""
    bad = tail[-1].is_bad
    if bad is None:
        return False
    counted = [one for one in before if _key(one) in split] or before
    failed, verdicts = sum(one.failed for one in counted), sum(one.verdicts for one in counted)
    rate = (failed + 0.5) / (verdicts + 1)
    chance: float = (rate if bad else 1 - rate) ** sum(one.verdicts for one in tail)
    return chance < _BY_CHANCE


def _flaky(seen: Sequence[EarlierAttempts], split: set[_Key]) -> CaseState:
    counted = [one for one in seen if _key(one) in split]
    return CaseState(
        kind="flaky",
        since=next(one.begun for one in counted if one.failed),
        failed=sum(one.failed for one in counted),
        verdicts=sum(one.verdicts for one in counted),
        is_sure=True,
        versions=_key(counted[-1])[0],
        never_bad_with=frozenset(
            {_key(one)[0] for one in seen} - {_key(one)[0] for one in seen if one.failed}
        ),
    )
