"""Findings of preflight as data: code, severity, and a public thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal, cast

Severity = Literal["error", "warning", "info"]
"""error: it will not work; warning: it may not; info: unknown, or harmless here."""

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")


@dataclass(frozen=True)
class Code:
    """One kind of finding: its usual severity, its meaning, and a public thread, if any."""

    name: str
    severity: Severity
    meaning: str
    thread: str | None = None


def _codes() -> Iterator[Code]:
    table = files("harness.runtimes").joinpath("preflight-codes.tsv").read_text("ascii")
    for line in table.splitlines():
        name, severity, meaning, thread = line.split("\t")
        yield Code(name, cast(Severity, severity), meaning, thread or None)


CODES: Final[Mapping[str, Code]] = MappingProxyType({code.name: code for code in _codes()})


@dataclass(frozen=True)
class Finding:
    """One problem, certain or possible.

    `files` are names inside the runtime, or of contexts, the one at fault first. `explanation` is
    the problem and its consequence, `fix` what to do. `thread` is a public URL.
    """

    code: str
    severity: Severity
    files: tuple[str, ...]
    explanation: str
    fix: str
    thread: str | None

    @property
    def context(self) -> str | None:
        return self.files[0] if self.code.startswith("context-") else None

    def __str__(self) -> str:
        thread = f" ({self.thread})" if self.thread else ""
        return f"{self.severity} {self.code}: {self.explanation}. {self.fix}.{thread}"


def finding(
    code: str,
    files: tuple[str, ...],
    explanation: str,
    fix: str,
    *,
    severity: Severity | None = None,
) -> Finding:
    """Return a finding with a code of the table, and its usual severity unless another is given."""
    kind = CODES[code]
    return Finding(code, severity or kind.severity, files, explanation, fix, kind.thread)
