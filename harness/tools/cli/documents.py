"""The small JSON documents that commands print: what their reference and schema are made of.

Larger ones have models of their own, which say what is in them where they are made.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.libraries.containers.manifest import Expects, PieceEntry
from harness.tools.cli.devices import DevicesCleaned, DevicesHealed, DevicesListed
from harness.tools.cli.init import LabWritten
from harness.tools.cli.printout import Printout
from harness.tools.cli.runtimes import (
    RuntimesFetched,
    RuntimesListed,
    RuntimesShown,
    RuntimesVerified,
)
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.drift import OutputDifference


class ContextsExtracted(Printout):
    """`contexts extract --json`: the new folder, and what its manifest.json lists."""

    folder: str
    pieces: list[PieceEntry]


class ContextsCalibrated(Printout):
    """`contexts calibrate --json`: protection domains and the budget of each; null: no limit."""

    qnn: str
    budget_bytes: int | None
    sessions: int


class ContextCompiled(Printout):
    """`contexts compile --json`. `memory_bytes` is what the context needs at least."""

    files: list[str]
    bytes: int
    sha256: str
    qnn: str
    soc: str
    htp_arch: int
    graphs: list[str]
    memory_bytes: int


class CaseBundled(Printout):
    """`contexts bundle --json`: the archive, what is in it, and how a run of it should end."""

    case: str
    contexts: list[str]
    bundle: str
    expects: Expects


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


class DriftPoint(Part):
    """Where an output was seen: it was there the one of `differences` with the number `variant`."""

    device: str
    backend: str
    qnn: str
    variant: int
    deterministic: bool


class OutputDrifted(Part):
    """A line of `run --json`, after the records: an output that was not the same everywhere.

    `differences` are those from the first one, null of one that was not kept.
    """

    schema_number: Literal[2] = Field(alias="schema")
    kind: Literal["drift"]
    context: str
    output: str
    points: list[DriftPoint]
    differences: list[OutputDifference | None]


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
