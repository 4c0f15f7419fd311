"""Which of two runs came first, by what they know of each other, not by clocks and names.

Whatever is begun in a folder of reports (a run, a bisection, a night) is given the next number of
that folder's series, and the name of the one before it. Both are kept in its own order.json, so
that they go along where it is copied. Clocks only decide between those that know nothing of each
other: of several series, or from before there were numbers.
"""

from __future__ import annotations

import fcntl
import heapq
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeVar

from pydantic import Field, StrictInt, ValidationError

from harness.ground.errors import InfraError
from harness.ground.errors.schemas import other_schema
from harness.ground.files.names_inside import read_inside
from harness.ground.files.whole_file import write_whole
from harness.verdict.failure.error import Part

_log = logging.getLogger(__name__)

ORDER: Final = "order.json"
LAST: Final = ".order"
_MAX_BYTES: Final = 4096
_STATES: Final = ("results.jsonl", "log.jsonl", "nightly.json")
_ID_CHARS: Final = 200
_NUMBERS: Final = 1 << 62
_Id = Annotated[str, Field(max_length=_ID_CHARS)]
_T = TypeVar("_T")


class RunPlace(Part):
    """The number of something in the series of its folder, and the name of what came before it."""

    schema_number: Annotated[Literal[1], Field(alias="schema")] = 1
    kind: Literal["order"] = "order"
    name: _Id
    series: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    number: Annotated[StrictInt, Field(ge=1, lt=_NUMBERS)]
    after: _Id | None = None


def give_place(folder: Path) -> RunPlace:
    """Writes down that a folder is the newest of those beside it. Raises InfraError.

    Two at once wait for each other.
    """
    reports = folder.parent
    try:
        # the folder may be somebody else's: a link in it would have another file overwritten
        note = reports / LAST
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(note, flags, 0o644), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            last = _last(file, note) or _newest(reports)
            # one that somebody wrote may be the last number that there is
            goes_on = last is not None and last.number + 1 < _NUMBERS
            place = RunPlace(
                name=folder.name,
                series=last.series if last is not None and goes_on else secrets.token_hex(8),
                number=last.number + 1 if last is not None and goes_on else 1,
                after=last.name if last is not None else _newest_unplaced(reports, folder.name),
            )
            text = place.model_dump_json().encode() + b"\n"
            write_whole(folder / ORDER, text)
            file.seek(0)
            file.truncate()
            file.write(text)
    except OSError as error:
        raise InfraError(f"cannot number {folder}: {error.strerror}") from error
    return place


def place_of(folder: Path) -> RunPlace | None:
    """The place of a folder; None if it names none. A place of another schema is logged."""
    try:
        return _place_in(read_inside(folder, ORDER, _MAX_BYTES), folder / ORDER)
    except OSError:
        return None


def ordered(
    folders: Iterable[Path], by: Callable[[Path], Any] = lambda one: one.name
) -> list[Path]:
    """Folders in the order in which they were begun; `by` decides where they do not know."""
    return in_order(folders, place_of, lambda one: one.name, by)


def in_order(
    things: Iterable[_T],
    place: Callable[[_T], RunPlace | None],
    name: Callable[[_T], str],
    by: Callable[[_T], Any],
) -> list[_T]:
    """Things in the order of their places (pure).

    Things of one series are in its order, and each is behind the one that it names. Where that
    leaves the order open, or contradicts itself, the least `by` comes first.
    """
    found = sorted(things, key=lambda one: (by(one), name(one)))
    chains: dict[str, list[tuple[int, int]]] = {}
    after: list[str | None] = []
    for at, one in enumerate(found):
        told = place(one)
        chains.setdefault(told.series if told else "", []).append((told.number if told else 0, at))
        after.append(told.after if told else None)
    names = {name(one): at for at, one in enumerate(found)}
    waits = [0] * len(found)
    then: list[list[int]] = [[] for _ in found]
    for chain in chains.values():
        chain.sort()
        for (_, first), (_, second) in pairwise(chain):
            then[first].append(second)
            waits[second] += 1
    for at, before in enumerate(after):
        if before is not None and (known := names.get(before, at)) != at:
            then[known].append(at)
            waits[at] += 1
    return [found[at] for at in _walk(then, waits)]


def _walk(then: Sequence[Sequence[int]], waits: list[int]) -> list[int]:
    ready = [at for at, number in enumerate(waits) if not number]
    done: list[int] = []
    while len(done) < len(waits):
        if not ready:  # a circle: the first of it goes on
            ready = [next(at for at, number in enumerate(waits) if number > 0)]
        at = heapq.heappop(ready)
        waits[at] = -1
        done.append(at)
        for other in then[at]:
            if waits[other] > 0:
                waits[other] -= 1
                if not waits[other]:
                    heapq.heappush(ready, other)
    return done


def _last(file: BinaryIO, note: Path) -> RunPlace | None:
    file.seek(0)
    return _place_in(file.read(_MAX_BYTES), note)


def _place_in(text: bytes, file: Path) -> RunPlace | None:
    try:
        return RunPlace.model_validate_json(text)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            if one["loc"] == ("schema",):
                _tell(file, other_schema(one["input"], 1))
        return None


@cache
def _tell(file: Path, problem: str) -> None:
    """Logs a warning once for a file, however often its place is asked."""
    _log.warning("%s %s; clocks say what came first", file, problem)


def _newest(reports: Path) -> RunPlace | None:
    """The last place that was given, where the note of it is lost."""
    places = [place_of(one.parent) for one in reports.glob(f"*/{ORDER}")]
    return max(filter(None, places), key=lambda one: one.number, default=None)


def _newest_unplaced(reports: Path, but: str) -> str | None:
    """The last of before there were numbers, by its name."""
    names = {file.parent.name for state in _STATES for file in reports.glob(f"*/{state}")}
    unlinked = (one for one in names if one != but and not (reports / one).is_symlink())
    return max(filter(_is_id, unlinked), default=None)


def _is_id(name: str) -> bool:
    """Whether a folder's name can be written down: not if it is too long, or no UTF-8."""
    return len(name) <= _ID_CHARS and name.isprintable()
