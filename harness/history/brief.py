"""What comparing needs of a line of results.jsonl, which is read ten times as fast as all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AliasPath, ConfigDict, Field, JsonValue, TypeAdapter

from harness.errors import Cause, ConfigError
from harness.failure.error import Outcome
from harness.results.journal import MAX_LINE_BYTES, journal_lines
from harness.results.record import NO_CAUSE, CaseRecord

_UNTESTED: Final = ("skipped", "unsupported")
"""Left out, or unsupported where it was to run."""


def _inside(*path: str) -> Any:
    return Field(validation_alias=AliasPath(*path))


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a device."""

    name: str


@dataclass(frozen=True, slots=True)
class Brief:
    """One attempt at one case; the fields mean what they mean in a `CaseRecord`.

    `failure` is the signature of its error, `diagnosis` the id of that.
    """

    __pydantic_config__ = ConfigDict(extra="ignore")

    case: str
    axes: dict[str, JsonValue]
    outcome: Outcome
    started: str
    cause: Cause | None = None
    device: Named | None = None
    ort: Annotated[str | None, _inside("runtime", "ort")] = None
    known_issue: Annotated[str | None, _inside("expected", "known_issue")] = None
    failure: Annotated[str | None, _inside("error", "signature")] = None
    diagnosis: Annotated[str | None, _inside("error", "diagnosis", "id")] = None
    attempt: int = 1
    measurements: Mapping[str, Any] = field(default_factory=dict)
    schema: Literal[1] = 1

    @classmethod
    def of(cls, record: CaseRecord) -> Brief:
        """The same, of a whole record."""
        return _BRIEF.validate_json(record.model_dump_json())

    def axis(self, name: str) -> JsonValue:
        """The value of an axis; of `ort` also the version that came with a user's own files.

        The device is one, whether or not cases were asked for on each.
        """
        said = self.axes.get(name)
        if said is None and name == "device":
            return self.device.name if self.device is not None else None
        return self.ort if name == "ort" and said is None else said

    @property
    def is_bad(self) -> bool:
        """Whether something went wrong, expected or not."""
        return self.outcome not in NO_CAUSE

    @property
    def is_unexplained(self) -> bool:
        """Whether something went wrong that no known issue explains."""
        return self.is_bad and self.known_issue is None

    @property
    def is_spoilt(self) -> bool:
        """Whether the lab, the harness or wrong input kept it from a verdict about the target."""
        return self.outcome == "error" or self.cause not in (None, "target")

    @property
    def has_verdict(self) -> bool:
        """Whether it says something about the target."""
        return not self.is_spoilt and self.outcome not in _UNTESTED

    @property
    def signature(self) -> str:
        """What tells its failure from others."""
        return self.outcome if self.failure is None else self.failure


_BRIEF: Final[TypeAdapter[Brief]] = TypeAdapter(Brief)


def numbered_lines(journal: Path) -> Iterator[tuple[int, bytes, Brief | None]]:
    """The lines of a journal about cases, from 1; None for one that is no record.

    Raises ConfigError if it cannot be read.
    """
    for number, line in enumerate(journal_lines(journal), start=1):
        if not line.strip():
            continue
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError("too long")
            yield number, line, _BRIEF.validate_json(line)
        except ValueError:
            if _object(line).get("kind") != "device":
                yield number, line, None


def read_briefs(journal: Path) -> tuple[list[Brief], int]:
    """All attempts of a journal in their order, and how many of its lines are no records.

    Raises ConfigError if it cannot be read, or is wholly of another schema.
    """
    whole, damaged = [], 0
    for number, line, brief in numbered_lines(journal):
        if brief is not None:
            whole.append(brief)
            continue
        damaged += 1
        if not whole and (schema := _object(line).get("schema", 1)) != 1:
            raise ConfigError(
                f"{journal}:{number}: records of schema {schema!s:.20}; this version reads schema 1"
            )
    return whole, damaged


def _object(line: bytes) -> Mapping[str, Any]:
    """What a line says, whatever it is; nothing of a line that says none."""
    try:
        said = json.loads(line) if len(line) <= MAX_LINE_BYTES else None
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
