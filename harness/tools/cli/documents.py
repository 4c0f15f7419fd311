"""The small JSON documents that commands print: what their reference and schema are made of.

Larger ones have models of their own, which say what is in them where they are made.
"""

from __future__ import annotations

from harness.tools.cli.contexts import ContextsExtracted
from harness.tools.cli.contexts_compile import ContextCompiled
from harness.tools.cli.contexts_minimize import CaseBundled
from harness.tools.cli.devices import DevicesCleaned, DevicesHealed, DevicesListed
from harness.tools.cli.init import LabWritten
from harness.tools.cli.printout import Printout
from harness.tools.cli.run import OutputDrifted
from harness.tools.cli.runtimes import (
    RuntimesFetched,
    RuntimesListed,
    RuntimesShown,
    RuntimesVerified,
)
from harness.verdict.results.coverage import Coverage


class ContextsCalibrated(Printout):
    """`contexts calibrate --json`: protection domains and the budget of each; null: no limit."""

    qnn: str
    budget_bytes: int | None
    sessions: int


class RunsMerged(Printout):
    """`merge --json`: the new run. `lacks` says what is missing, `left_out` counts what was bad."""

    run: str
    folder: str
    shards: int
    cases: int
    coverage: Coverage
    outcomes: dict[str, int]
    lacks: list[str]
    left_out: int


Printed = (
    DevicesListed
    | DevicesCleaned
    | DevicesHealed
    | LabWritten
    | RuntimesListed
    | RuntimesFetched
    | RuntimesShown
    | RuntimesVerified
    | ContextsExtracted
    | ContextsCalibrated
    | ContextCompiled
    | CaseBundled
    | RunsMerged
    | OutputDrifted
)
