"""The small JSON documents that commands print: what their reference and schema are made of.

Larger ones have models of their own, which say what is in them where they are made.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.device.lab.hands import Hands
from harness.device.lab.health import LabEvent, State
from harness.device.lab.lease_files import Holder
from harness.device.lab.quarantine import Quarantined
from harness.device.lab.vitals import Vitals
from harness.libraries.containers.manifest import Expects, PieceEntry
from harness.libraries.runtimes.findings import Finding
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.drift import OutputDifference


class Printout(Part):
    """A document of schema 1."""

    schema_version: Literal[1] = Field(alias="schema")


class ShownLease(Part):
    """Who holds a device, as its lease says. `silent_s`: for how long the lease has not moved.

    Of a holder that cannot be told only `silent_s` is there.
    """

    user: str | None = None
    host: str | None = None
    pid: int | None = None
    since: str | None = None
    purpose: str | None = None
    until: str | None = None
    silent_s: float


class ListedDevice(Part):
    """A device. What it did not say, or was not asked, is null.

    `configured`: devices.yaml names it. `state` is device (it answers), disabled, off (a simulated
    one that lacks something here), leased, unplugged, unreachable, or what adb says of one that
    devices.yaml does not name. `health` is good, suspect, bad or quarantine. `holder` is `lease`
    for people, `waiting` who waits for the device. `host` is the computer it hangs on, `host_lost`
    whether that does not answer. `findings` and `problem` are for people.
    """

    name: str | None
    serial: str | None
    configured: bool
    enabled: bool
    simulated: bool
    state: str | None
    health: State | Literal["quarantine"] | None
    holder: str | None
    lease: ShownLease | None
    waiting: list[Holder] | None
    soc: str | None
    htp_arch: int | None
    adreno: str | None
    target: str | None
    os_build: str | None
    free_storage_bytes: int | None
    ram_bytes: int | None
    host: str | None
    host_lost: bool | None
    problem: str | None
    findings: list[str]
    hands: Hands | None
    quarantine: Quarantined | None
    vitals: Vitals | None


class DevicesListed(Printout):
    """`devices --json`: the devices of the lab, then others that adb sees."""

    devices: list[ListedDevice]


class CleanedDevice(Part):
    """What was removed from a device and what is kept; only `problem` if it could not be cleaned.

    `holders` are the claims of those who use what is kept.
    """

    name: str
    problem: str | None
    freed_bytes: int | None = None
    kept_bytes: int | None = None
    sets_removed: list[str] | None = None
    sets_kept: list[str] | None = None
    holders: list[str] | None = None


class DevicesCleaned(Printout):
    """`devices clean --json`."""

    devices: list[CleanedDevice]


class HealedDevice(Part):
    """How a device is after `steps`. If another process holds it, only `problem` says so."""

    name: str
    state: State | None
    problem: str | None
    findings: list[str] | None = None
    was_in_quarantine: bool | None = None
    in_quarantine: bool | None = None
    steps: list[LabEvent] | None = None


class DevicesHealed(Printout):
    """`devices heal --json`."""

    devices: list[HealedDevice]


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
