"""The `schema` field of the models of the harness's JSON files."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError


def _is_number(known: int, schema: object) -> object:
    if type(schema) is not int:  # true and 1.0 are 1 for a Literal
        raise PydanticKnownError("literal_error", {"expected": str(known)})
    return schema


Schema1 = Annotated[Literal[1], BeforeValidator(partial(_is_number, 1)), Field(alias="schema")]
Schema2 = Annotated[Literal[2], BeforeValidator(partial(_is_number, 2)), Field(alias="schema")]
