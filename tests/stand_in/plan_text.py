"""A stand-in for native/plan.c: reads a plan's text back, and refuses what the probe refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes
from zlib import crc32

from harness.core.errors import ConfigError
from harness.probe.plan import LIMITS, Plan, Settings, Step, check_fields

_HEADER: Final = re.compile(r"probe-plan 2 bytes=(0|[1-9][0-9]{0,7}) crc32=([0-9a-f]{8})")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse(text: str) -> Plan:
    """The plan that has this text. Raises ConfigError, with the line, if there is none."""
    header, _, body = text.partition("\n")
    match = _HEADER.fullmatch(header)
    if match is None or not text.isascii():
        raise ConfigError("not a probe plan", line=1)
    if (int(match[1]), int(match[2], 16)) != (len(body), crc32(body.encode())):
        raise ConfigError("the plan is not what its first line says", line=1)
    settings: Settings | None = None
    steps: list[Step] = []
    *lines, last = body.split("\n")
    if last:
        raise ConfigError("a line without an end", line=len(lines) + 2)
    for number, line in enumerate(lines, 2):
        verb, *parts = line.split(" ")
        try:
            if len(line) >= LIMITS["PLAN_LINE_MAX"]:
                raise ConfigError("a line that is too long")
            fields = _parse_fields(parts)
            if verb == "set" and steps:
                raise ConfigError("set comes before the first step")
            if verb == "set" and settings is not None:
                raise ConfigError("set is given twice")
            if verb == "set":
                settings = _settings(fields)
            else:
                steps.append(Step(verb, fields))
        except ConfigError as error:
            raise ConfigError(error.problem, line=number, field=error.field) from None
    return Plan(tuple(steps), settings or Settings())


def _parse_fields(parts: Iterable[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key in fields or _BROKEN_ESCAPE.search(value):
            raise ConfigError(f"not a field, or given twice: {part[:80]!r}")
        fields[key] = unquote_to_bytes(value).decode("utf-8", "surrogateescape")
    return fields


def _settings(fields: Mapping[str, str]) -> Settings:
    check_fields("set", fields)
    values = {key: int(value) if value.isdigit() else value for key, value in fields.items()}
    return Settings(**values)  # type: ignore[arg-type]
