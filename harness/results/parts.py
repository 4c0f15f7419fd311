"""What all parts of a result record have in common: strictness, and text that can be stored."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


def clean_text(text: object) -> object:
    """Text that UTF-8 can hold: halves of surrogate pairs become question marks."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(clean_text)]


class Part(BaseModel):
    """A part of a record: known keys only, never changed, every key written."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )
