"""Parts of the harness's JSON files: records, their texts, and the field `schema` (pure)."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
)
from pydantic_core import PydanticKnownError

MAX_MESSAGE_CHARS: Final = 16_000


def clean_text(text: object) -> object:
    """Return text that UTF-8 can encode: lone surrogates become question marks."""
    if not isinstance(text, str) or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def named_text(text: object) -> object:
    """Return `clean_text` for databases: NUL, which PostgreSQL refuses, becomes U+FFFD."""
    cleaned = clean_text(text)
    return cleaned.replace("\0", "\ufffd") if isinstance(cleaned, str) else cleaned


RecordText = Annotated[str, BeforeValidator(named_text)]


class Part(BaseModel):
    """A part of a record: immutable, with known keys only, all of which are written."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )


def _is_number(known: int, schema: object) -> object:
    if type(schema) is not int:  # true and 1.0 are 1 for a Literal
        raise PydanticKnownError("literal_error", {"expected": str(known)})
    return schema


Schema1 = Annotated[Literal[1], BeforeValidator(partial(_is_number, 1)), Field(alias="schema")]
Schema2 = Annotated[Literal[2], BeforeValidator(partial(_is_number, 2)), Field(alias="schema")]


class Printout(Part):
    """A JSON document of schema 1 that a command prints."""

    schema_number: Schema1 = 1


def cut_message(message: str) -> str:
    """Return a message of at most 16,000 characters, cut in the middle."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    half = MAX_MESSAGE_CHARS // 2 - 20
    return f"{message[:half]}\n[... cut ...]\n{message[-half:]}"


MessageText = Annotated[RecordText, AfterValidator(cut_message)]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is outside the range of dates in UTC") from error


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]
"""A duration; nothing here takes 115 days."""
Count = Annotated[StrictInt, Field(ge=1, le=(1 << 31) - 1)]
"""A number from 1 that fits any database."""
