"""Health of devices: rules, findings, quarantine, and the state kept between cases and runs.

Whoever acquires a device removes its file, and writes a new one when giving the device back. So
the file tells what the last holder saw; after a holder that died there is none, and the device is
checked again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    StrictInt,
    TypeAdapter,
)

from harness.core.bounded_json import INTEGERS
from harness.core.errors import InfraError
from harness.core.files import read_json, write_json, write_whole
from harness.core.json_record import MessageText, Moment, Part, RecordText, Schema2, Seconds
from harness.core.state_folders import QUARANTINE_VARIABLE
from harness.lab.facts import DOZING, SEVERE, THERMAL, Vitals
from harness.lab.lease import device_file

State = Literal["good", "suspect", "bad"]

_MB: Final = 1_000_000
_JUST_BOOTED_S: Final = 60
_EMERGENCY: Final = 5
# Names that Qualcomm's kernels give to the processor that runs HTP code.
_COMPUTE_DSP: Final = "cdsp"


class HealthRules(BaseModel, extra="forbid", frozen=True):
    """Limits beyond which a device is not healthy."""

    min_free_storage_mb: Annotated[StrictInt, Field(ge=0)] = 50
    """Less free storage (10^6 bytes) in the file system of its work folder makes it suspect."""

    min_free_ram_mb: Annotated[StrictInt, Field(ge=0)] = 100
    """Less available memory (10^6 bytes) makes it suspect."""

    min_battery_percent: Annotated[StrictInt, Field(ge=0, le=100)] = 15
    """Less makes it suspect, and bad if it is not charging either."""

    max_temperature_c: Annotated[StrictInt, Field(ge=1, le=150)] = 90
    """More at the hottest sensor (degrees Celsius) makes it suspect, 10 more make it bad."""


class RecoveryRules(BaseModel, extra="forbid", frozen=True):
    """Steps that are allowed to recover a device that does not answer, or keeps failing."""

    reboot: StrictBool = True
    """False: the device is never rebooted."""

    come_back_s: Annotated[StrictInt, Field(ge=0, le=3600)] = 90
    """The time (seconds) that cases wait for the return of a lost device."""

    reboot_timeout_s: Annotated[StrictInt, Field(ge=5, le=3600)] = 240
    """The longest time (seconds) of a boot."""


class TimedGate(BaseModel, extra="forbid", frozen=True):
    """Conditions to wait for before a case marked `wait_until_idle`, so that figures compare."""

    max_temperature_c: Annotated[StrictInt, Field(ge=1, le=150)] = 50
    """The hottest sensor must not show more (degrees Celsius)."""

    max_busy_percent: Annotated[StrictInt, Field(ge=1, le=100)] = 25
    """All processors together must not be busier within a second."""

    wait_s: Annotated[StrictInt, Field(ge=0, le=7200)] = 600
    """The longest wait (seconds); then the case is an error of the lab."""


@dataclass(frozen=True)
class HealthFinding:
    """One thing that is not as it should be. `code` is a short word for programs."""

    state: State
    code: str
    text: str


@dataclass(frozen=True)
class Health:
    """The health of a device: the worst of the findings, `good` if there are none."""

    findings: tuple[HealthFinding, ...] = ()
    vitals: Vitals | None = None

    @property
    def state(self) -> State:
        states = {finding.state for finding in self.findings}
        return "bad" if "bad" in states else "suspect" if "suspect" in states else "good"

    def __str__(self) -> str:
        why = "; ".join(finding.text for finding in self.findings)
        return f"{self.state}: {why}" if why else self.state


@dataclass(frozen=True)
class Offline:
    """Why a device takes no cases, and the time of its next check (seconds since 1970)."""

    error: Annotated[
        InfraError, PlainValidator(lambda text: InfraError(str(text))), PlainSerializer(str)
    ]
    look_at: float


@dataclass
class Fitness:
    """The history of a device in a run. Times are in seconds since 1970.

    `is_fit` if it may be used without another check after that at `checked`. `strikes` are the
    failures of the lab on it in a row, `cases_lost` the cases that they ended; `switches`: how
    often it was power-cycled since it was last healthy, and `switch_at` from when on it may be
    again. `vitals` are the last ones with their time. `cases` started there. What is known
    of the files there is valid while `epoch` stays the same.
    """

    is_fit: bool = False
    checked: float = 0.0
    strikes: int = 0
    cases_lost: int = 0
    switches: int = 0
    switch_at: float = 0.0
    offline: Offline | None = None
    vitals: tuple[float, Vitals] | None = None
    cases: int = 0
    epoch: str = ""

    def succeeded(self) -> None:
        """Clear the counters after a case that ended well."""
        self.strikes, self.cases_lost, self.switches, self.switch_at = 0, 0, 0, 0.0


def unreachable(why: str) -> Health:
    """Return the health of a device that did not answer."""
    return Health((HealthFinding("bad", "unreachable", why),))


def judge_health(vitals: Vitals, rules: HealthRules, *, has_dsp: bool) -> Health:
    """Judge a device by its vitals. With `has_dsp` it must have nodes to reach its DSP."""
    findings: list[HealthFinding] = []

    def say(state: State, code: str, text: str) -> None:
        findings.append(HealthFinding(state, code, text))

    if vitals.booted is False:
        say("bad", "booting", "it has not finished booting")
    full = vitals.free_storage_bytes is not None and vitals.free_storage_bytes < _MB
    if vitals.write_problem is not None and (full or "No space left" in vitals.write_problem):
        # deployment makes room, and reports best what did not fit
        say("suspect", "storage-full", f"its storage is full: {vitals.write_problem}")
    elif vitals.write_problem is not None:
        say("bad", "not-writable", f"its work folder is not writable: {vitals.write_problem}")
    for code, kind, free, least_mb in (
        ("low-storage", "storage", vitals.free_storage_bytes, rules.min_free_storage_mb),
        ("low-memory", "memory", vitals.free_ram_bytes, rules.min_free_ram_mb),
    ):
        if free is not None and free < least_mb * _MB:
            say("suspect", code, f"{free / _MB:.0f} MB of {kind} are free, less than {least_mb}")
    percent, heat, limit = vitals.battery_percent, vitals.hottest_c, rules.max_temperature_c
    if percent is not None and percent < rules.min_battery_percent:
        charging = "charging" if vitals.battery_charging else "not charging"
        text = f"its battery has {percent} % and is {charging}"
        say("suspect" if vitals.battery_charging else "bad", "low-battery", text)
    if heat is not None and heat > limit:
        text = f"{vitals.hottest} is at {heat:.1f} C, more than {limit}"
        say("bad" if heat > limit + 10 else "suspect", "hot", text)
    if (status := vitals.thermal_status or 0) >= SEVERE:
        text = f"Android throttles it: {THERMAL[status]}"
        say("bad" if status >= _EMERGENCY else "suspect", "throttled", text)
    if vitals.doze in DOZING:
        say("suspect", "doze", f"it is in doze ({vitals.doze}) and does not wake up; unlock it")
    if vitals.uptime_s is not None and vitals.uptime_s < _JUST_BOOTED_S:
        say("suspect", "just-booted", f"it booted {vitals.uptime_s:.0f} s ago")
    for name, state in vitals.remoteprocs.items():
        if _COMPUTE_DSP in name and state not in ("running", "attached", "ONLINE"):
            say("bad", "dsp-down", f"remote processor {name} is {state}")
    if has_dsp and not any("r" in access for access in vitals.fastrpc.values()):
        listed = ", ".join(vitals.fastrpc)
        why = f"no permission for {listed}" if listed else "no fastrpc node in /dev"
        say("suspect", "no-fastrpc", f"the DSP may be out of reach: {why}")
    return Health(tuple(findings), vitals)


def gate_problem(vitals: Vitals, busy: float | None, gate: TimedGate) -> str | None:
    """Return why a timed case must wait, None if it need not. `busy` is 0 to 1, None if unknown."""
    if vitals.hottest_c is not None and vitals.hottest_c > gate.max_temperature_c:
        return (
            f"{vitals.hottest} is at {vitals.hottest_c:.1f} C, more than {gate.max_temperature_c}"
        )
    if status := vitals.thermal_status:
        return f"Android throttles it: {THERMAL[status]}"
    if busy is not None and busy * 100 > gate.max_busy_percent:
        return f"its processors are {busy:.0%} busy, more than {gate.max_busy_percent} %"
    return None


EventKind = Literal[
    "health",
    "reconnect",
    "end-leftovers",
    "restart-server",
    "reboot",
    "power-cycle",
    "quarantine",
    "healed",
    "gate",
    "push",
]


class DeviceEvent(Part):
    """An event of a device besides cases: a check, a step of recovery, files pushed.

    `run` is set by the journal. `state` is the state after the event, `findings` are the codes of
    its problems; `vitals` are null if they were not queried, or the device did not answer.
    `pushed_bytes` is the size of a push, whose `state` is suspect if it failed.
    """

    schema_number: Schema2 = 2
    kind: Literal["device"] = "device"
    run: RecordText = ""
    device: RecordText
    event: EventKind
    state: State
    findings: tuple[RecordText, ...] = ()
    detail: MessageText = ""
    started: Moment
    duration_s: Seconds
    vitals: Vitals | None = None
    pushed_bytes: Annotated[StrictInt, Field(ge=0, lt=INTEGERS)] | None = None

    @property
    def is_routine(self) -> bool:
        return self.event == "push" or (self.event == "health" and self.state == "good")


EventHandler = Callable[[DeviceEvent], None]


_MAX_QUARANTINE_BYTES = 64 << 10
_MAX_CHARS = 2000


Until = Literal["healed", "answers"]


@dataclass(frozen=True)
class Quarantined:
    """A quarantine: since when (RFC 3339, UTC) a device takes no cases, and why.

    `until` is what ends it: a check that finds the device well, or for one that was only out of
    reach, that it answers again.
    """

    since: str
    why: str
    until: Until = "healed"

    def end(self, name: str) -> str:
        """Return how the quarantine ends, for a person who knows the device as `name`."""
        if self.until == "answers":
            return f"{name} is used again as soon as it answers"
        return f"After the repair, run: qnn-harness devices recover {name}"


class Quarantine:
    """A folder with one small file per device; `device` is the device's unique key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, device: str) -> Quarantined | None:
        """Return the entry of a device, None if it has none. A damaged entry counts, too."""
        try:
            entry = read_json(self._file(device), _MAX_QUARANTINE_BYTES)
            return TypeAdapter(Quarantined).validate_python(entry)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._problem("read", error) from error
        except ValueError:
            return Quarantined("an unknown time", "the entry cannot be read")

    def put(self, device: str, why: str, *, until: Until = "healed") -> Quarantined:
        """Write an entry. Raises InfraError if that is impossible."""
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        entry, file = Quarantined(since, why[:_MAX_CHARS], until), self._file(device)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(file, {"device": device, **asdict(entry)})
        except OSError as error:
            raise self._problem("write", error) from error
        return entry

    def lift(self, device: str) -> bool:
        """Remove a device's entry. Return whether there was one."""
        try:
            self._file(device).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._problem("remove", error) from error
        return True

    def _problem(self, action: str, error: OSError) -> InfraError:
        return InfraError(
            f"cannot {action} the quarantine of devices in {self._folder}: {error.strerror}; "
            f"remove what is there, or set {QUARANTINE_VARIABLE} to a writable folder"
        )

    def _file(self, device: str) -> Path:
        return self._folder / f"{device_file(device)}.json"


_MAX_BYTES: Final = 256 << 10
AROUND: Final = ("hottest_c", "clock_limit_khz", "governor")
"""The vitals that are kept between runs and recorded with each case."""


@dataclass
class KnownState:
    """The fitness of a device, and the sets of files (`deployed`) that were deployed there.

    `identity` and `device_ids` are how it identified itself in the `run`.
    """

    fitness: Fitness = field(default_factory=Fitness)
    deployed: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()
    device_ids: frozenset[str] = frozenset()
    run: str = ""


class KnownStates:
    """A folder with one small file per device; `device` is the device's unique key."""

    def __init__(self, folder: Path, run: str) -> None:
        """Count cases for each `run`, in which a device must keep its identity."""
        self._folder, self._run = folder, run

    def pop(self, device: str) -> KnownState:
        """Read and remove the state of a device that this process holds."""
        state = self.read(device)
        with contextlib.suppress(OSError):
            self._file(device).unlink()
        return state

    def read(self, device: str) -> KnownState:
        """Return the state of a device that nobody holds; an empty one if the file is damaged."""
        with contextlib.suppress(OSError, ValueError):
            content = read_json(self._file(device), _MAX_BYTES)
            state = _state_adapter().validate_python(content)
            if state.run != self._run:
                state.fitness.cases = 0
                if state.fitness.offline is not None:
                    # each run checks it once more
                    state.fitness.offline = replace(state.fitness.offline, look_at=0.0)
                state.identity, state.device_ids = (), frozenset()
            return state
        return KnownState()

    def save(self, device: str, state: KnownState) -> None:
        """Write the state of a device that is about to be given back.

        If that fails, the next holder checks the device again.
        """
        content = _state_adapter().dump_json(replace(state, run=self._run))
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(device), content, durable=False)

    def _file(self, device: str) -> Path:
        return self._folder / f"{device_file(device)}.json"


@cache
def _state_adapter() -> TypeAdapter[KnownState]:
    return TypeAdapter(KnownState)
