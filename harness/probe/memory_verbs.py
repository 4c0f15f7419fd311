"""The verbs for buffers, memory and sharing, as native/plan.c has them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["text", "number", "real"]

MEMORY_VERBS: Final[Mapping[str, Mapping[str, Kind]]] = MappingProxyType(
    {
        "context-load-list": {"first": "number", "file.": "text", "share": "number"},
        "io-bind": {
            "context": "number",
            "graph": "number",
            "memory": "text",
            "input.": "text",
            "expect.": "text",
        },
        "io-run": {
            "context": "number",
            "tolerance": "real",
            "repeat": "number",
            "profile": "text",
        },
        "io-release": {"context": "number"},
        "memory-sample": {"label": "text"},
    }
)
OPTIONAL_MEMORY_FIELDS: Final = frozenset(
    {
        ("context-load", "group"),
        ("context-load", "max_spill_fill"),
        ("context-load-list", "file."),
        ("context-load-list", "share"),
        ("io-run", "profile"),
    }
)
