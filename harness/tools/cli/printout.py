"""The base of the JSON documents that commands print; each stands beside its command."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.verdict.failure.error import Part


class Printout(Part):
    """A document of schema 1."""

    schema_number: Literal[1] = Field(default=1, alias="schema")
