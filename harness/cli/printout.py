"""The base of the JSON documents that commands print, which are defined by the commands."""

from __future__ import annotations

from harness.core.record_part import Part
from harness.core.schema_field import Schema1


class Printout(Part):
    """A document of schema 1."""

    schema_number: Schema1 = 1
