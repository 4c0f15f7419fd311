"""Findings of preflight as data: code, severity, and a public thread."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal

from harness.core.json_record import Part, RecordText

Severity = Literal["error", "warning", "info"]
"""error: it will not work; warning: it may not; info: unknown, or harmless here."""

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")


@dataclass(frozen=True)
class Code:
    """One kind of finding: usual severity, meaning, templates of its texts, a public thread."""

    name: str
    severity: Severity
    meaning: str
    explanation: str
    fix: str
    thread: str | None = None


CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {
        name: Code(name, **fields)
        for name, fields in tomllib.loads(
            files("harness.runtimes").joinpath("preflight-codes.toml").read_text("ascii")
        ).items()
    }
)


class Finding(Part):
    """One problem, certain or possible, that preflight found before a case ran.

    `files` are names inside the runtime, or of contexts, the one at fault first. `explanation` is
    the problem and its consequence, `fix` what to do. `thread` is a public URL.
    """

    code: RecordText
    severity: Severity
    files: tuple[RecordText, ...] = ()
    explanation: RecordText
    fix: RecordText
    thread: RecordText | None = None

    @property
    def context(self) -> str | None:
        return self.files[0] if self.code.startswith("context-") else None

    def __str__(self) -> str:
        thread = f" ({self.thread})" if self.thread else ""
        return f"{self.severity} {self.code}: {self.explanation}. {self.fix}.{thread}"


def finding(code: str, *names: str, severity: Severity | None = None, **facts: object) -> Finding:
    """Return a finding about files, with facts for the texts of its code."""
    kind, facts = CODES[code], {"file": (*names, "")[0], **facts}
    return Finding(
        code=code,
        severity=severity or kind.severity,
        files=names,
        explanation=kind.explanation.format_map(facts),
        fix=kind.fix.format_map(facts),
        thread=kind.thread,
    )
