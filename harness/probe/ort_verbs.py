"""The verbs for ONNX Runtime, as native/plan.c has them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

_Kind = Literal["text", "number", "real"]

ORT_VERBS: Final[Mapping[str, Mapping[str, _Kind]]] = MappingProxyType(
    {
        "ort-load": {"lib": "text"},
        "ort-env": {"severity": "number"},
        "ort-register-ep": {"name": "text", "lib": "text"},
        "ort-session": {
            "context": "number",
            "file": "text",
            "ep": "text",
            "device": "number",
            "threads": "number",
            "session.": "text",
            "provider.": "text",
        },
        "ort-placement": {"context": "number", "whole": "text"},
        "ort-run": {
            "context": "number",
            "input.": "text",
            "expect.": "text",
            "save.": "text",
            "tolerance": "real",
            "repeat": "number",
        },
        "ort-session-free": {"context": "number"},
        "ort-unregister-ep": {"name": "text"},
        "ort-env-free": {},
    }
)
OPTIONAL_ORT_FIELDS: Final = frozenset(
    {
        ("ort-env", "severity"),
        ("ort-session", "ep"),
        ("ort-session", "device"),
        ("ort-session", "threads"),
        ("ort-session", "session."),
        ("ort-session", "provider."),
        ("ort-placement", "whole"),
    }
)
