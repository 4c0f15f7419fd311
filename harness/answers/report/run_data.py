"""What every report of a run is made of (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.answers.report.bisections import Listed
from harness.verdict.results.coverage import Coverage, coverage_of
from harness.verdict.results.drift import Output
from harness.verdict.results.journal import Contents
from harness.verdict.results.record import CaseRecord


@dataclass(frozen=True)
class Since:
    """What became of cases since an earlier run, which is called `base`.

    `became` has a word for each case of either run (`Category` of history). `gone` are the cases
    that were not run this time, `titles` what is said of each word worth a mention.
    """

    base: str
    became: Mapping[str, str]
    gone: tuple[str, ...]
    titles: Mapping[str, str]


@dataclass(frozen=True)
class RunData:
    """A run's journal and run.json, and what stands beside them.

    `outputs` are those that cases have kept. `bisections` are those of the same folder of reports.
    `evidence` has texts of logs by their paths in the run's folder. `since` is what became of cases
    since a run before; None if there is none.
    """

    run: str
    contents: Contents
    info: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[Output] = ()
    bisections: Sequence[Listed] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    since: Since | None = None

    @property
    def cases(self) -> Sequence[CaseRecord]:
        return self.contents.cases

    @cached_property
    def coverage(self) -> Coverage:
        return coverage_of(self.contents.records, self.info)
