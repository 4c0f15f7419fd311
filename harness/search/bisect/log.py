"""The log of a search: JSON lines, only ever appended to, and a search again from any of it (pure).

The first line is the spec. A run is `asked` before it begins and `answered` when it ended. So a log
whose writer died shows what was under way; what was not answered is asked again. `resumed` says
that somebody saw to the lab. People may edit it: correct an answer, take lines out. A place that
was asked stays known, even if it would not be asked again.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import Field, JsonValue, TypeAdapter

from harness.ground.errors import ConfigError
from harness.ground.errors.outgoing_text import without_secrets_in
from harness.ground.files.bounded_json import parse_model, problem_in
from harness.ground.files.schema_field import Schema1
from harness.search.bisect.answers import Evidence, Point, Question, RunAnswer
from harness.search.bisect.task import Task
from harness.verdict.failure.error import Part

_MAX_LINE_CHARS: Final = 64 << 20
"""The first line of a minimization has the paths of all contexts."""
_At = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]


class FirstLine(Part):
    """The first line of any log: what is searched, and what a run is made of."""

    schema_number: Schema1 = 1
    kind: Literal["begun"] = "begun"
    spec: Any

    def points(self) -> Container[Point] | None:
        """Where the search can ask for runs; None where it is not known beforehand."""
        return None


class Begun(FirstLine):
    """The first line of a bisection's log."""

    spec: Task

    def points(self) -> Container[Point]:
        """The candidates, or pairs of them."""
        return frozenset(self.spec.search.points())


class Answered(Part):
    """A run ended on a `device`. `run` and `case` say where its record is, `detail` is free."""

    kind: Literal["answered"] = "answered"
    at: _At
    answer: RunAnswer
    why: str = ""
    seconds: float | None = None
    device: str | None = None
    run: str | None = None
    case: str | None = None
    detail: dict[str, JsonValue] = Field(default={})


class Resumed(Part):
    """Somebody saw to the lab, or began again after the writer died."""

    kind: Literal["resumed"] = "resumed"


class Concluded(Part):
    """What was found; a note only, which a replay finds again by itself."""

    kind: Literal["concluded"] = "concluded"
    text: str
    detail: dict[str, JsonValue] = Field(default={})


Entry = FirstLine | Question | Answered | Resumed | Concluded
AnySpec = TypeVar("AnySpec")
_Line = Question | Answered | Resumed | Concluded


@dataclass(frozen=True)
class Log(Generic[AnySpec]):
    """The log of any search, as it was read."""

    spec: AnySpec
    entries: tuple[_Line, ...]

    @property
    def is_over(self) -> bool:
        return bool(self.entries) and isinstance(self.entries[-1], Concluded)

    def evidence(self) -> Evidence:
        """Everything that was answered."""
        evidence = Evidence()
        for entry in self.entries:
            if isinstance(entry, Answered):
                evidence = evidence.plus(entry.at, entry.answer)
            elif isinstance(entry, Resumed):
                evidence = evidence.resumed()
        return evidence

    def answers(self) -> list[Answered]:
        """What runs told so far, even if only that the lab failed."""
        return [entry for entry in self.entries if isinstance(entry, Answered)]

    def asked(self) -> list[Point]:
        """What was asked, also what was never answered because its run died."""
        return [entry.at for entry in self.entries if isinstance(entry, Question)]

    def under_way(self) -> Question | None:
        """What was asked last and not answered."""
        last: Question | None = None
        for entry in self.entries:
            if isinstance(entry, Question):
                last = entry
            elif isinstance(entry, Answered):
                last = None
        return last


BisectLog = Log[Task]


def to_line(entry: Entry) -> str:
    """An entry as a line with its end, without secrets."""
    safe = without_secrets_in(entry.model_dump(mode="json"))
    return json.dumps(safe, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_log(
    text: str,
    begins: type[FirstLine] = Begun,
    *,
    file: str | None = None,
) -> Log[Any]:
    """Reads a log. `begins` is the kind of its first line, by default that of a bisection.

    A last line without its end is what a writer left that died: it is left out. Raises ConfigError
    that names the line for what is no entry or no point of the spec.
    """
    read = _reader(begins)
    begun: FirstLine | None = None
    points: Container[Point] | None = None
    entries: list[_Line] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        if not line.strip():
            continue
        if len(line) > _MAX_LINE_CHARS:
            raise ConfigError("is too long", file=file, line=number)
        try:
            entry = parse_model(read, line)
        except ValueError as error:
            raise ConfigError(problem_in(error), file=file, line=number) from error
        if begun is None:
            if not isinstance(entry, begins):
                break
            begun, points = entry, entry.points()
            continue
        if isinstance(entry, FirstLine):
            raise ConfigError("a second search begins here", file=file, line=number)
        if isinstance(entry, Question | Answered) and points is not None and entry.at not in points:
            shown = " with ".join(entry.at)[:200]
            raise ConfigError(f"{shown!r} is not a candidate", file=file, line=number, field="at")
        entries.append(entry)
    if begun is None:
        raise ConfigError("does not begin with the spec of a search", file=file, line=1)
    return Log(begun.spec, tuple(entries))


@lru_cache
def _reader(begins: type[FirstLine]) -> TypeAdapter[FirstLine | _Line]:
    line: Any = Annotated[begins | _Line, Field(discriminator="kind")]
    return TypeAdapter(line)
