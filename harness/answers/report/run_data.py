"""What every report of a run is made of (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.verdict.results.coverage import Coverage
from harness.verdict.results.journal import Contents, Records
from harness.verdict.results.run_folder import RunFolder


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

    `folder` is where its logs and outputs are; without it nothing is told of these. `since` is what
    became of cases since a run before; None if there is none. `summary` are lines for a terminal.
    """

    run: str
    contents: Contents
    info: Mapping[str, Any] = field(default_factory=dict)
    folder: RunFolder | None = None
    since: Since | None = None
    summary: Sequence[str] = ()

    @cached_property
    def cases(self) -> Records:
        return self.contents.cases

    @cached_property
    def coverage(self) -> Coverage:
        return self.contents.tally.coverage(self.info)
