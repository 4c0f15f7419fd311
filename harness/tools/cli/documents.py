"""The small JSON documents that commands print: what their reference and schema are made of.

Larger ones have models of their own, which say what is in them where they are made.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.libraries.containers.manifest import Expects, PieceEntry
from harness.libraries.runtimes.findings import Finding
from harness.tools.cli.devices import DevicesCleaned, DevicesHealed, DevicesListed
from harness.tools.cli.printout import Printout
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.drift import OutputDifference


class NewDevice(Part):
    """A device that was found; `problem` says why it is left out of devices.yaml."""

    name: str
    serial: str
    target: str | None
    soc: str | None
    htp_arch: int | None
    problem: str | None


class LabWritten(Printout):
    """`init --json`: the file that was written, and the devices that were found."""

    file: str
    devices: list[NewDevice]


class ListedRuntime(Part):
    """A runtime that can be had. `cached`: it needs no network."""

    name: str
    source: str
    qnn: str
    target: str
    cached: bool


class ListedOrt(Part):
    """A version of ONNX Runtime that can be had. `cached`: it needs no network."""

    ort: str
    target: str
    source: str
    cached: bool


class RuntimesListed(Printout):
    """`runtimes list --json`. `problems` are of sources that did not answer."""

    runtimes: list[ListedRuntime]
    orts: list[ListedOrt]
    problems: list[str]


class FetchedRuntime(Part):
    """A runtime, or an ONNX Runtime, that is in the cache now."""

    name: str
    target: str
    files: int
    bytes: int


class RuntimesFetched(Printout):
    """`runtimes fetch --json`."""

    runtimes: list[FetchedRuntime]


class RuntimeFile(Part):
    """A file of a runtime. `pushed`: a device would get it. `problem`: why nothing is known of it.

    `kind` is what it is (stub, skel), `build` the SDK build that it names, `min_glibc` the oldest
    C library that runs it, `needed` the libraries that it asks for.
    """

    name: str
    bytes: int
    sha256: str
    pushed: bool
    kind: str
    htp_arch: int | None
    build: str | None
    machine: str | None
    libc: str | None
    min_glibc: str | None
    needed: list[str]
    problem: str | None


class ShownRuntime(Part):
    """A runtime with all its files, and what preflight says of it.

    `htp_archs` are those that it is for; `backend` and `htp_arch` are the device's that was meant.
    """

    name: str
    qnn: str
    build_id: str | None
    ort: str | None
    target: str
    source: str
    root: str
    htp_archs: list[int]
    backend: str
    htp_arch: int | None
    files: list[RuntimeFile]
    preflight: list[Finding]


class RuntimesShown(Printout):
    """`runtimes show --json`."""

    runtimes: list[ShownRuntime]


class VerifiedRuntime(Part):
    """A runtime on this computer; `damage` names each file that is not as it was."""

    name: str
    target: str
    damage: list[str]


class RuntimesVerified(Printout):
    """`runtimes verify --json`."""

    runtimes: list[VerifiedRuntime]


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


class ChannelTold(Part):
    """What became of one channel, and why."""

    state: str | None
    why: str


class NewsTold(Printout):
    """`tell --json`: the channels of `notify` by name."""

    news: str
    channels: dict[str, ChannelTold]


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

    schema_version: Literal[2] = Field(alias="schema")
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
    | NewsTold
    | OutputDrifted
)
