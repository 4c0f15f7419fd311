"""Profiles: how much may be asked for, and the numbers of QNN's profile events (QnnProfile.h)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

ProfileAsked = Literal["basic", "ops"]
PROFILES: Final[tuple[ProfileAsked, ...]] = get_args(ProfileAsked)

UNITS: Final[Mapping[object, str]] = MappingProxyType(
    {1: "us", 2: "bytes", 3: "cycles", 4: "count"}
)
KINDS: Final[Mapping[object, str]] = MappingProxyType(
    {100: "init", 300: "finalize", 400: "execute", 404: "node"}
)
