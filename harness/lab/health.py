"""Whether a device is fit to be used, and what is known of it from case to case and run to run.

Who takes the device takes the file with it, and writes it anew when it gives the device back. So
what the file says was seen by the last holder; after one that died there is none, and the device is
looked at anew.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt

from harness.core.cache import QUARANTINE_VARIABLE
from harness.core.errors import InfraError
from harness.core.whole_file import read_json, write_json, write_whole
from harness.lab.facts import DOZING, SEVERE, THERMAL, Vitals
from harness.lab.lease import device_file

State = Literal["good", "suspect", "bad"]

_MB: Final = 1_000_000
_JUST_BOOTED_S: Final = 60
_EMERGENCY: Final = 5
MOST_SKEW_S: Final = 60.0
"""Logs of a case are found by time."""
# Names that Qualcomm's kernels give to the processor that runs HTP code.
_COMPUTE_DSP: Final = "cdsp"


class HealthRules(BaseModel, extra="forbid", frozen=True):
    """From when on a device is not healthy."""

    min_free_storage_mb: Annotated[StrictInt, Field(ge=0)] = 50
    """Less free storage (10^6 bytes) in the file system of its work folder makes it suspect."""

    min_free_ram_mb: Annotated[StrictInt, Field(ge=0)] = 100
    """Less available memory (10^6 bytes) makes it suspect."""

    min_battery_percent: Annotated[StrictInt, Field(ge=0, le=100)] = 15
    """Less makes it suspect, and bad if it is not charging either."""

    max_temperature_c: Annotated[StrictInt, Field(ge=1, le=150)] = 90
    """More at the hottest sensor (degrees Celsius) makes it suspect, 10 more make it bad."""


class RecoveryRules(BaseModel, extra="forbid", frozen=True):
    """What may be done to a device that does not answer, or keeps failing."""

    reboot: StrictBool = True
    """Whether it may be rebooted."""

    come_back_s: Annotated[StrictInt, Field(ge=0, le=3600)] = 90
    """How long (seconds) cases wait for a device that vanished in a run to come back."""

    restart_server: StrictBool = False
    """Whether your own adb server here may be restarted, which cuts off all who use it."""

    reboot_timeout_s: Annotated[StrictInt, Field(ge=5, le=3600)] = 240
    """How long (seconds) it may take to boot."""


class TimedGate(BaseModel, extra="forbid", frozen=True):
    """What is waited for before a case marked `timed`, so that its figures can be compared."""

    max_temperature_c: Annotated[StrictInt, Field(ge=1, le=150)] = 50
    """The hottest sensor must not show more (degrees Celsius)."""

    max_busy_percent: Annotated[StrictInt, Field(ge=1, le=100)] = 25
    """All processors together must not be busier within a second."""

    wait_s: Annotated[StrictInt, Field(ge=0, le=7200)] = 600
    """How long (seconds) is waited for that; then the case is an error of the lab."""


@dataclass(frozen=True)
class HealthFinding:
    """One thing that is not as it should be. `code` is a short word for programs."""

    state: State
    code: str
    text: str


@dataclass(frozen=True)
class Health:
    """How a device is doing: the worst of the findings, `good` if there are none."""

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
class Out:
    """Why a device takes no cases, and when (in seconds since 1970) it is looked at again."""

    error: InfraError
    look_at: float


@dataclass
class Fitness:
    """How a device has done so far. Times are in seconds since 1970.

    `is_fit` if it may be used without a look, since the one at `checked`. `strikes` are the
    failures of the lab on it in a row, `cases_lost` the cases that they ended; `switches`: how
    often it was switched off and on since it was last well, and `switch_at` from when on it may be
    again. `vitals` are the last, with the time of the look. `cases` began there. What was found out
    of what lies there holds while `epoch` stays the same.
    """

    is_fit: bool = False
    checked: float = 0.0
    strikes: int = 0
    cases_lost: int = 0
    switches: int = 0
    switch_at: float = 0.0
    out: Out | None = None
    vitals: tuple[float, Vitals] | None = None
    cases: int = 0
    epoch: str = ""

    def succeeded(self) -> None:
        """A case was survived: a fresh start."""
        self.strikes, self.cases_lost, self.switches, self.switch_at = 0, 0, 0, 0.0


def unreachable(why: str) -> Health:
    """The health of a device that did not answer."""
    return Health((HealthFinding("bad", "unreachable", why),))


def judge_health(vitals: Vitals, rules: HealthRules, *, has_dsp: bool) -> Health:
    """Judges what a device said. `has_dsp`: whether it should have nodes to reach its DSP."""
    found: list[HealthFinding] = []

    def say(state: State, code: str, text: str) -> None:
        found.append(HealthFinding(state, code, text))

    if vitals.booted is False:
        say("bad", "booting", "it has not finished booting")
    full = vitals.free_storage_bytes is not None and vitals.free_storage_bytes < _MB
    if vitals.write_problem is not None and (full or "No space left" in vitals.write_problem):
        # making room is for whoever puts something there, who also says best what did not fit
        say("suspect", "storage-full", f"its storage is full: {vitals.write_problem}")
    elif vitals.write_problem is not None:
        say("bad", "not-writable", f"its work folder cannot be written: {vitals.write_problem}")
    for code, what, free, least_mb in (
        ("low-storage", "storage", vitals.free_storage_bytes, rules.min_free_storage_mb),
        ("low-memory", "memory", vitals.free_ram_bytes, rules.min_free_ram_mb),
    ):
        if free is not None and free < least_mb * _MB:
            say("suspect", code, f"{free / _MB:.0f} MB of {what} are free, less than {least_mb}")
    percent, heat, limit = vitals.battery_percent, vitals.hottest_c, rules.max_temperature_c
    if percent is not None and percent < rules.min_battery_percent:
        how = "charging" if vitals.battery_charging else "not charging"
        text = f"its battery has {percent} % and is {how}"
        say("suspect" if vitals.battery_charging else "bad", "low-battery", text)
    if heat is not None and heat > limit:
        text = f"{vitals.hottest} has {heat:.1f} C, more than {limit}"
        say("bad" if heat > limit + 10 else "suspect", "hot", text)
    found += readiness_findings(vitals)
    if vitals.uptime_s is not None and vitals.uptime_s < _JUST_BOOTED_S:
        say("suspect", "just-booted", f"it booted {vitals.uptime_s:.0f} s ago")
    for name, state in vitals.remoteprocs.items():
        if _COMPUTE_DSP in name and state not in ("running", "attached", "ONLINE"):
            say("bad", "dsp-down", f"remote processor {name} is {state}")
    if has_dsp and not any("r" in how for how in vitals.fastrpc.values()):
        listed = ", ".join(vitals.fastrpc)
        why = f"no permission for {listed}" if listed else "no fastrpc node in /dev"
        say("suspect", "no-fastrpc", f"the DSP may be out of reach: {why}")
    return Health(tuple(found), vitals)


def readiness_findings(vitals: Vitals) -> Iterator[HealthFinding]:
    """What a phone's settings and states object to."""
    ready, status, skew_s = vitals.ready, vitals.ready.thermal_status or 0, vitals.skew_s or 0.0
    sensor = f" by {ready.throttled}" if ready.throttled else ""
    what, how = "thermal status", "thermalservice"
    if ready.battery_held:
        what, how = "battery's figures", "battery"
    ahead = "ahead of" if skew_s > 0 else "behind"
    for is_so, code, text in (
        (status >= SEVERE, "throttled", f"Android throttles it: {THERMAL[status]}{sensor}"),
        (ready.doze in DOZING, "doze", f"it is in doze ({ready.doze}), and does not wake"),
        (
            ready.battery_held or ready.thermal_held,
            "overridden",
            f"its {what} were set by hand: `adb shell cmd {how} reset`",
        ),
        (
            ready.update is not None,
            "update-pending",
            f"a system update waits, which may reboot it: {ready.update}",
        ),
        (
            ready.developer is False,
            "developer-off",
            "its developer options are off: adb may be gone after its next reboot",
        ),
        (ready.user, "other-user", f"user {ready.user} is in front, not its owner (0)"),
        (
            abs(skew_s) > MOST_SKEW_S,
            "clock-wrong",
            f"its clock is {abs(skew_s):.0f} s {ahead} this computer's",
        ),
    ):
        if is_so:
            yield HealthFinding(
                "bad" if status >= _EMERGENCY and code == "throttled" else "suspect", code, text
            )


def gate_problem(vitals: Vitals, busy: float | None, gate: TimedGate) -> str | None:
    """Why a timed case must wait, None if it need not. `busy` is 0 to 1, None if not known."""
    if vitals.hottest_c is not None and vitals.hottest_c > gate.max_temperature_c:
        return f"{vitals.hottest} has {vitals.hottest_c:.1f} C, more than {gate.max_temperature_c}"
    if status := vitals.ready.thermal_status:
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


@dataclass(frozen=True)
class LabEvent:
    """One check of a device or one thing done to it, and how the device was afterwards.

    `codes` are those of the findings, `detail` says it all for people; `vitals` is what the device
    said of itself, None if it did not answer or was not asked. `pushed_bytes` is how much a push
    was to send.
    """

    device: str
    event: EventKind
    state: State
    codes: tuple[str, ...]
    detail: str
    started: datetime
    duration_s: float
    vitals: Vitals | None = None
    pushed_bytes: int | None = None


Tell = Callable[[LabEvent], None]


_MAX_QUARANTINE_BYTES = 64 << 10
_MAX_CHARS = 2000


Until = Literal["healed", "answers"]


@dataclass(frozen=True)
class Quarantined:
    """Since when (RFC 3339, UTC) a device takes no cases, and why.

    `until` is what ends it: a check that finds the device well, or for one that was only out of
    reach, that it answers again.
    """

    since: str
    why: str
    until: Until = "healed"

    def end(self, name: str) -> str:
        """What ends it, for a person who knows the device as `name`."""
        if self.until == "answers":
            return f"{name} is used again as soon as it answers"
        return f"When it is mended: qnn-harness devices heal {name}"


class Quarantine:
    """A folder with one small file per device; `device` is what makes a device unique."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, device: str) -> Quarantined | None:
        """The entry of a device, None if it has none. A damaged one still counts as one."""
        try:
            said = read_json(self._file(device), _MAX_QUARANTINE_BYTES)
            since, why = str(said["since"])[:40], str(said["why"])[:_MAX_CHARS]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._problem("read", error) from error
        except (ValueError, TypeError, KeyError):
            return Quarantined("an unknown time", "the entry cannot be read")
        return Quarantined(since, why, "answers" if said.get("until") == "answers" else "healed")

    def put(self, device: str, why: str, *, until: Until = "healed") -> Quarantined:
        """Writes an entry. Raises InfraError if that is impossible."""
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        entry, file = Quarantined(since, why[:_MAX_CHARS], until), self._file(device)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(file, {"device": device, **asdict(entry)})
        except OSError as error:
            raise self._problem("write", error) from error
        return entry

    def lift(self, device: str) -> bool:
        """Removes a device's entry; whether there was one."""
        try:
            self._file(device).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._problem("remove", error) from error
        return True

    def _problem(self, what: str, error: OSError) -> InfraError:
        return InfraError(
            f"cannot {what} which devices are in quarantine in {self._folder}: {error.strerror}; "
            f"remove what is there, or set {QUARANTINE_VARIABLE} to a folder that can be written"
        )

    def _file(self, device: str) -> Path:
        return self._folder / f"{device_file(device)}.json"


_MAX_BYTES: Final = 256 << 10
_COUNTS: Final = ("strikes", "cases_lost", "switches", "cases")
_TIMES: Final = ("checked", "switch_at")
AROUND: Final = ("hottest_c", "clock_limit_khz", "governor")
"""What is kept of what a device said of itself."""


@dataclass
class KnownState:
    """How a device has done, and which sets of files (`lies`) were put there.

    `identity` and `device_ids` are what it said it is in the run that asks.
    """

    fitness: Fitness = field(default_factory=Fitness)
    lies: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()
    device_ids: frozenset[str] = frozenset()


class KnownStates:
    """A folder with one small file per device; `device` is what makes a device unique."""

    def __init__(self, folder: Path, run: str) -> None:
        """Cases are counted for each `run`, in which a device has to stay the same one."""
        self._folder, self._run = folder, run

    def take(self, device: str) -> KnownState:
        """Reads and removes what is known of a device that is held; nothing is known of others."""
        state = self.look(device)
        with contextlib.suppress(OSError):
            self._file(device).unlink()
        return state

    def look(self, device: str) -> KnownState:
        """What is known of a device that nobody holds. Damaged files say nothing."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            said = read_json(self._file(device), _MAX_BYTES)
            state = _parsed(said)
            if said["run"] != self._run:
                state.fitness.cases = 0
                state.identity, state.device_ids = (), frozenset()
            return state
        return KnownState()

    def keep(self, device: str, state: KnownState) -> None:
        """Writes down what is known of a device that is about to be given back.

        Where that is impossible, whoever comes next looks anew.
        """
        file, fitness = self._file(device), state.fitness
        plain: dict[str, Any] = {
            **{name: getattr(fitness, name) for name in (*_COUNTS, *_TIMES, "is_fit", "epoch")},
            "lies": sorted(state.lies),
            "identity": state.identity,
            "device_ids": sorted(state.device_ids),
            "run": self._run,
        }
        if fitness.out is not None:
            plain["out"] = [str(fitness.out.error), fitness.out.look_at]
        if fitness.vitals is not None:
            seen_at, vitals = fitness.vitals
            plain["vitals"] = [seen_at, {name: getattr(vitals, name) for name in AROUND}]
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(plain).encode(), durable=False)

    def _file(self, device: str) -> Path:
        return self._folder / f"{device_file(device)}.json"


def _parsed(said: Any) -> KnownState:
    fitness = Fitness(is_fit=said["is_fit"] is True, epoch=str(said["epoch"]))
    for name in _COUNTS:
        setattr(fitness, name, int(said[name]))
    for name in _TIMES:
        setattr(fitness, name, float(said[name]))
    if (out := said.get("out")) is not None:
        fitness.out = Out(InfraError(str(out[0])), float(out[1]))
    if (seen := said.get("vitals")) is not None:
        fitness.vitals = float(seen[0]), Vitals(**{name: seen[1][name] for name in AROUND})
    return KnownState(
        fitness,
        frozenset(map(str, said["lies"])),
        tuple(map(str, said["identity"])),
        frozenset(map(str, said["device_ids"])),
    )
