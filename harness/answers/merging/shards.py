"""A selection divided among machines that share nothing, and whether parts make it whole (pure)."""

from __future__ import annotations

import hashlib
import heapq
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from harness.ground.errors import ConfigError
from harness.ground.errors.outgoing_text import counted
from harness.verdict.failure.error import RecordText

_FORM: Final = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})", re.ASCII)
_USUAL_US: Final = 1_000_000
_MOST_NAMED: Final = 5
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[StrictInt, Field(ge=1)]


class Shard(BaseModel):
    """Which part of a selection a run has, as its run.json says.

    `cases` is how many the whole selection has. `division` is a digest of their names and of how
    long each took in the run `by`: where it is equal, cases are divided alike. `unfit` are tests
    that no device of its lab fits, which therefore are no cases of it. `code` has the SHA-256 of
    each file that says what cases do: test modules and what they import beside them, conftests,
    files of models, known issues. It has that of each folder of inputs and of expected outputs,
    too.
    """

    model_config = ConfigDict(frozen=True)

    number: _Count
    of: _Count
    cases: _Count
    division: RecordText
    by: RecordText | None = None
    unfit: RecordText | None = None
    code: Mapping[RecordText, _Digest] = {}

    @property
    def advice(self) -> str | None:
        """What to know before it runs where other machines have other devices."""
        if self.unfit is None:
            return None
        return (
            f"--shard: no device of this lab fits {self.unfit}; a machine whose lab has one "
            "divides other cases, and `merge` refuses: leave out of all what only some can run"
        )

    def in_run_json(self, selection: Sequence[str]) -> dict[str, Any]:
        """What run.json says of it; another division is another selection."""
        part = f"--shard={self.number}/{self.of} of {self.division}"
        return {"shard": self.model_dump(mode="json"), "selection": [*selection, part]}

    def divided_like(self, other: Shard) -> bool:
        """Whether both are of one division, in which each case is in exactly one shard."""
        mine, others = (
            one.model_dump(exclude={"number", "by", "unfit", "code"}) for one in (self, other)
        )
        return mine == others

    def code_unlike(self, other: Shard) -> list[str]:
        """The files and folders in which two shards differ, or which only one of them has."""
        names = sorted(self.code.keys() | other.code.keys())
        return [name for name in names if self.code.get(name) != other.code.get(name)]

    def refuse_to_complete(self, held: object) -> None:
        """Raises ConfigError if a run that holds another shard, or none, was to be resumed."""
        try:
            before = Shard.model_validate(held)
        except ValidationError:
            before = None
        if before is None or (before.number, before.divided_like(self)) != (self.number, True):
            problem = f"the run to resume is not {self}: options or cases were others"
            raise ConfigError(problem, field="--shard")
        if unlike := self.code_unlike(before):
            problem = f"the run to resume was of other test code or files: {named(unlike, 'file')}"
            raise ConfigError(problem, field="--shard")

    def __str__(self) -> str:
        durations = f"the durations of {self.by}" if self.by else "their number"
        return f"shard {self.number}/{self.of} of {counted(self.cases, 'case')} by {durations}"


def parse_shard(text: str) -> tuple[int, int]:
    """The numbers of `--shard i/n`. Raises ConfigError."""
    form = _FORM.fullmatch(text.strip())
    if form is None or int(form[1]) > int(form[2]):
        problem = f"{text[:40]!r} is no shard: i/n is wanted, with i from 1 to n"
        raise ConfigError(problem, field="--shard", choices=("1/3", "2/3", "3/3"))
    return int(form[1]), int(form[2])


def shard_of(
    asked: tuple[int, int],
    places: Mapping[str, str],
    seconds: Mapping[str, float],
    by: str | None,
    unfit: Collection[str] = (),
    code: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Shard, set[str]]:
    """One shard of cases, and those in it. Raises ConfigError for more shards than cases.

    `places` has the device or pool of each case, `seconds` how long some of them took in `by`.
    `unfit` are the tests that no device here fits, `code` the digests of files of test code.
    """
    number, of = asked
    if of > len(places):
        problem = f"{counted(len(places), 'case')} cannot be divided into {of} shards"
        raise ConfigError(problem, field="--shard")
    weights = _weights(places, seconds)
    whole = "\0\0".join(sorted(f"{case}\0{weight}" for case, weight in weights.items()))
    division = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    numbers = divided(places, seconds, of)
    none = named(unfit, "test") if unfit else None
    shard = Shard(
        number=number,
        of=of,
        cases=len(places),
        division=division,
        by=by,
        unfit=none,
        code=dict(code),
    )
    return shard, {case for case in places if numbers[case] == number}


def divided(places: Mapping[str, str], seconds: Mapping[str, float], of: int) -> dict[str, int]:
    """The shard of each case, from 1 on, whatever order they come in.

    The work of each device or pool is divided evenly, longest case first, and so is the whole. No
    shard is empty if there are as many cases.
    """
    weights = _weights(places, seconds)
    cases_of: dict[str, list[str]] = {}
    for case in sorted(places, key=lambda case: (-weights[case], case)):
        cases_of.setdefault(places[case], []).append(case)
    work = {place: sum(weights[case] for case in cases) for place, cases in cases_of.items()}
    found: dict[str, int] = {}
    total = [0] * of
    for place in sorted(work, key=lambda place: (-work[place], place)):
        least = sorted((0, total[shard], shard) for shard in range(of))
        for case in cases_of[place]:
            own, _, shard = least[0]
            found[case] = shard + 1
            total[shard] += weights[case]
            heapq.heapreplace(least, (own + weights[case], total[shard], shard))
    return found


def _weights(places: Mapping[str, str], seconds: Mapping[str, float]) -> dict[str, int]:
    """In microseconds, whose sums do not depend on their order; at least one for each case.

    A case of which nothing is known counts as much as others usually do.
    """
    known = {case: max(1, round(seconds[case] * 1e6)) for case in places if case in seconds}
    usual = statistics.median_low(known.values()) if known else _USUAL_US
    return {case: known.get(case, usual) for case in places}


@dataclass(frozen=True)
class ShardRun:
    """A run that is to be merged: its shard, the cases that it was to run, and those it ran."""

    run: str
    shard: Shard
    cases: Collection[str]
    ran: Collection[str]


def gaps(parts: Sequence[ShardRun]) -> list[str]:
    """What parts of one selection lack of it, in words. Raises ConfigError if they are none."""
    first, found = parts[0], []
    runs: dict[int, str] = {}
    owners: dict[str, str] = {}
    for one in parts:
        shard = one.shard
        if not shard.divided_like(first.shard):
            raise ConfigError(
                f"were not divided alike: {first.run} is {first.shard}, {one.run} is {shard}; "
                f"{_unlike(first, one)}selection, lab, versions, N of --shard I/N, and the run of "
                "--shard-by have to be the same",
                field="RUN",
            )
        if unlike := shard.code_unlike(first.shard):
            raise ConfigError(
                f"ran other test code or files: {first.run} and {one.run} differ in "
                f"{named(unlike, 'file')}; run one of them again with what the other had",
                field="RUN",
            )
        if shard.number in runs:
            twice = f"{runs[shard.number]} and {one.run} are both shard {shard.number}/{shard.of}"
            raise ConfigError(twice, field="RUN")
        runs[shard.number] = one.run
        if shared := [case for case in one.cases if case in owners]:
            both = f"{owners[min(shared)]} and {one.run} both have {named(shared)}"
            raise ConfigError(both, field="RUN")
        owners |= dict.fromkeys(one.cases, one.run)
        if foreign := set(one.ran) - set(one.cases):
            problem = f"{one.run} has run what is not in its shard: {named(foreign)}"
            raise ConfigError(problem, field="RUN")
        if lacks := set(one.cases) - set(one.ran):
            found.append(f"shard {shard.number} ({one.run}) has not run {named(lacks)}")
    if missing := [str(number) for number in range(1, shard.of + 1) if number not in runs]:
        found.insert(0, f"of {shard.of} shards these are missing: {', '.join(missing)}")
    elif len(owners) != shard.cases:
        problem = f"have {len(owners)} cases together, not {shard.cases}: a list was changed"
        raise ConfigError(problem, field="RUN")
    return found


def _unlike(*parts: ShardRun) -> str:
    """What labs could not run, if they differ in that."""
    if len({one.shard.unfit for one in parts}) == 1:
        return ""
    return "".join(
        f"{one.run} had no device for {one.shard.unfit}; " for one in parts if one.shard.unfit
    )


def named(cases: Collection[str], what: str = "case") -> str:
    """How many there are, and the names of the first ones."""
    shown = sorted(cases)[:_MOST_NAMED]
    more = f" and {len(cases) - len(shown)} more" if len(cases) > len(shown) else ""
    return f"{counted(len(cases), what)}: {', '.join(shown)}{more}"
