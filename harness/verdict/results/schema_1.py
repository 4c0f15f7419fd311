"""Records of schema 1, which had the placement of a case in its name only, made into today's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.verdict.results.case_names import NO_PLACEMENT, named, placement_in, split_node_id

SCHEMA: Final = 1


def upgraded(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of schema 1 as one of schema 2 (pure). What is damaged in it stays so."""
    new = {**line, "schema": 2}
    case = line.get("case")
    if line.get("kind") != "device" and isinstance(case, str):
        axes, device = (_object(line.get(name)) for name in ("axes", "device"))
        known = {"device": device.get("name"), **axes}
        new["test"], new["placement"] = placed(case, known, line.get("engine"))
    return new


def _object(said: object) -> Mapping[str, object]:
    return said if isinstance(said, Mapping) else {}


def placed(
    case: str, axes: Mapping[str, object], engine: object = None
) -> tuple[str, dict[str, object] | None]:
    """`test` and `placement` of a case that says neither, of its name and its axes (pure).

    The `device` may be among the axes. If the name says something else, the name is believed.
    """
    base, parameters = split_node_id(case)
    found = None
    if parameters is not None:
        found = placement_in(parameters, axes) or placement_in(parameters)
    if found is not None:
        placement, rest = found
        return named(base, rest), {**placement, "engine": engine}
    if parameters is not None and f"{parameters}-".startswith(f"{NO_PLACEMENT}-"):
        return named(base, parameters[len(NO_PLACEMENT) + 1 :]), None
    return case, None
