"""QNN version numbers: parsing, order, prefixes, ranges, and the wheels that carry them."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from types import MappingProxyType
from typing import Final, Self

from harness.core.errors import ConfigError

_VERSION = re.compile(r"v?(\d{1,18}(?:\.\d{1,18}){0,5})", re.ASCII)
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)?\s*(\S+)", re.ASCII)

_OPERATORS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}

# QNN version -> version of the PyPI project onnxruntime-qnn that carries it. Source: `qnn_version`
# in onnxruntime_qnn/build_and_package_info.py of each wheel.
QNN_WHEELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "2.47.0": "2.3.0",
        "2.48.40": "2.4.0",
        "2.49.40": "2.5.0",
        "2.50.40": "2.6.0",
        "2.51.0": "2.7.0",
    }
)


@total_ordering
@dataclass(frozen=True)
class QnnVersion:
    """A dotted version such as 2.51.0 or 2.28.2.241116 (the last part is the build's date).

    Ordered by its numbers, so a short form comes before the longer ones that begin with it.
    """

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "2.51.0" or "v2.51.0". Raises ConfigError for anything else."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"{text[:80]!r} is not a version such as 2.51.0")
        return cls(tuple(int(part) for part in match[1].split(".")))

    @classmethod
    def found_in(cls, text: str | None) -> Self | None:
        """Parse the version in a file or a library (2.28.2.241116_103); None if it is not one."""
        try:
            return cls.parse(text.split("_")[0]) if text else None
        except ConfigError:
            return None

    def matches(self, short: QnnVersion) -> bool:
        """Return whether `short` is this version or a prefix of it (2.28.2 of 2.28.2.241116)."""
        return self.parts[: len(short.parts)] == short.parts

    def is_newer_than(self, other: QnnVersion) -> bool:
        """Return whether it is newer, compared by the parts that both have.

        A date of a build counts if both have it with the time, as binaries do, or both without.
        """
        shared = min(len(self.parts), len(other.parts))
        if shared > 3 and len(str(self.parts[3])) != len(str(other.parts[3])):
            shared = 3
        return self.parts[:shared] > other.parts[:shared]

    def __lt__(self, other: QnnVersion) -> bool:
        return self.parts < other.parts

    def __str__(self) -> str:
        return ".".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class VersionRange:
    """Clauses that must all hold, as in ">=2.47,<2.51" or "2.28.2" (which means ==2.28.2).

    Versions are compared by the parts that both have: 2.28.2.241116 satisfies ==2.28, <=2.28 and
    >=2.28.2, and not >2.28. Also used for ORT versions.
    """

    clauses: tuple[tuple[str, QnnVersion], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse clauses separated by commas. Raises ConfigError for anything else."""
        clauses = []
        for clause in text.split(","):
            match = _CLAUSE.fullmatch(clause.strip())
            if match is None:
                raise ConfigError(
                    f"{text[:80]!r} is not a version range such as >=2.47,<2.51 or 2.50.40"
                )
            clauses.append((match[1] or "==", QnnVersion.parse(match[2])))
        return cls(tuple(clauses))

    def __contains__(self, version: QnnVersion) -> bool:
        return all(
            _OPERATORS[sign](version.parts[: len(bound.parts)], bound.parts[: len(version.parts)])
            for sign, bound in self.clauses
        )

    def __str__(self) -> str:
        return ",".join(f"{operator}{bound}" for operator, bound in self.clauses)
