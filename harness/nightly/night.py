"""A night as it is stored: its steps, the lab, and its results."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Final, Literal, get_args

from harness.core.bounded_json import parse_model, problem_in
from harness.core.errors import ConfigError, InfraError
from harness.core.files import read_bounded
from harness.core.json_record import Part, Schema1
from harness.core.linux_processes import locking_process
from harness.core.outgoing_text import REDACTED, counted
from harness.history.comparison_text import reasons_text
from harness.history.database import (
    CauseSummary,
    DeviceSummary,
    NightSummary,
    open_database,
    store_night,
)
from harness.history.speed_changes import alike
from harness.lab.inventory import SIMULATED_LAB
from harness.nightly.issues import FlatName, Issue, bisection_text, facts_text, rerun_text, title
from harness.report.document import as_code, day_and_minute
from harness.results.coverage import Coverage
from harness.results.record import CaseRecord
from harness.results.run_folder import making_folders, ordered
from harness.site.build import build
from harness.transport.transport_errors import server_lost

_NAMED: Final = 3


class DeviceSeen(DeviceSummary):
    """The state of a device when it was checked: `good`, `suspect`, `bad`, in `quarantine`, `away`,
    or `in use` by others; why and since when, as far as known. `host` is the other computer that
    it is connected to.
    """

    device: str
    host: str = ""
    host_lost: bool = False
    simulated: bool = False


def read_devices(answer: object, before: Iterable[DeviceSeen], now: str) -> tuple[DeviceSeen, ...]:
    """Return the states of enabled devices in the output of `devices list --json`.

    `before` are those last known.
    """
    earlier = {device.device: device for device in before}
    devices = []
    for row in answer.get("devices", ()) if isinstance(answer, dict) else ():
        if row.get("enabled"):
            quarantine = row.get("quarantine") or {}
            leased = "in use" if row.get("state") == "leased" else "away"
            state = leased if row.get("health") is None or row.get("problem") else row["health"]
            findings = [*row.get("findings", ()), quarantine.get("why", "")]
            why = row.get("problem") or "; ".join(findings)
            was = earlier.get(row["name"])
            since = quarantine.get("since") or (was.since if was and was.state == state else now)
            text = "" if state == "good" else why.strip("; ")
            was_simulated = state == "away" and was is not None and was.simulated
            devices.append(
                DeviceSeen(
                    device=row["name"],
                    state=state,
                    since=since,
                    why=text[:500],
                    host=row.get("host") or "",
                    host_lost=bool(row.get("host_lost")),
                    simulated=bool(row.get("simulated")) or was_simulated,
                )
            )
    return tuple(devices)


def lost_by_device(records: Iterable[CaseRecord]) -> Counter[str]:
    """Return how many cases the lab kept each device from testing; most first."""
    lost = (record.device for record in records if record.standing == "lab")
    return Counter(dict(Counter(device.name for device in lost if device).most_common()))


def lab_lines(devices: Iterable[DeviceSeen], lost: Mapping[str, int]) -> Iterator[str]:
    """Yield the lab as Markdown: the numbers of devices and hosts, then those not well."""
    known = {device.device: device for device in devices}
    hosts = {device.host for device in known.values() if device.host}
    away = {device.host: device.since for device in known.values() if device.host_lost}
    if known:
        present = sum(device.state in ("good", "suspect") for device in known.values())
        far = f", {len(hosts) - len(away)} of {counted(len(hosts), 'other host')}" if hosts else ""
        short = f"; {counted(len(lost), 'device')} did not test all cases" if lost else ""
        simulated = sum(device.simulated for device in known.values())
        kind = f" Simulated: {simulated}." if simulated else ""
        yield f"Lab: {present} of {counted(len(known), 'device')} available{far}{short}.{kind}"
    for host, since in sorted(away.items()):
        yield f"- host {as_code(host)}: out of reach since {day_and_minute(since)}"
    together: dict[object, list[str]] = {}  # devices that one host or adb server lost share a line
    for name in dict.fromkeys((*known, *lost)):
        device = known.get(name)
        place = device and (device.host if device.host_lost else server_lost(device.why))
        fault = (device.state, place) if device and place else name
        together.setdefault(fault, []).append(name)
    for names in together.values():
        device, parts = known.get(names[0]), []
        if device and device.state != "good":
            why = f" ({as_code(device.why, 300)})" if device.why else ""
            parts.append(f"{device.state} since {day_and_minute(device.since)}{why}")
        if not_tested := sum(lost.get(name, 0) for name in names):
            parts.append(f"{counted(not_tested, 'case')} not tested there")
        if parts:
            yield f"- {', '.join(map(as_code, names))}: {'; '.join(parts)}"


def lost_devices(lost: Mapping[str, int]) -> str:
    """Return the devices that lost the most cases, for the end of a headline."""
    shown = [f"{as_code(device)} ({count})" for device, count in lost.items()]
    more = [f"{len(shown) - _NAMED} more"] if len(shown) > _NAMED else []
    return f": {', '.join([*shown[:_NAMED], *more])}" if shown else ""


NightStep = Literal["fetch", "run", "compare", "bisect", "publish"]
STEPS: Final[tuple[NightStep, ...]] = get_args(NightStep)
MOST_CASES: Final = 200
"""The number of new or vanished cases that are named."""


class Night(Part):
    """A night: its arguments, the steps that are done, and their results.

    `until` is the end of its time, in seconds since 1970; `site` is the folder of the lab's pages.
    `run` and `base` are the ids of its run and of the one it was compared with. `run_is_whole` is
    true if nothing cut the run short, `other_failures` if it failed for something in no record.
    `lab_before` and `lab_after` are the states of devices at its start and end, `lost` the number
    of cases not tested on each. `coverage` is how many of its cases have a verdict, `failed_on` has
    the reasons for which it fails, `new` the first new failures, `vanished` the first vanished
    cases if that is one of the reasons. `warnings` are problems that did not end it.
    """

    schema_number: Schema1 = 1
    kind: Literal["nightly"] = "nightly"
    night: FlatName
    started: str
    arguments: tuple[str, ...]
    selection: tuple[str, ...]
    lab: str
    folder: str
    site: str | None = None
    budget_s: float
    until: float
    done: tuple[NightStep, ...] = ()
    lab_before: tuple[DeviceSeen, ...] = ()
    lab_after: tuple[DeviceSeen, ...] = ()
    lost: Mapping[str, int] = {}
    fetched: tuple[str, ...] = ()
    run: FlatName | None = None
    run_exit_code: int | None = None
    run_is_whole: bool = False
    other_failures: bool = False
    base: FlatName | None = None
    verdict: str | None = None
    coverage: Coverage | None = None
    failed_on: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    issues: tuple[Issue, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def next_step(self) -> NightStep | None:
        return next((step for step in STEPS if step not in self.done), None)

    def as_unfinished(self, run: str | None, coverage: Coverage | None) -> Night:
        """Return the night as it is reported once a step failed; `run` is its unfinished run."""
        so_far = self.verdict or (coverage.headline() if coverage else "no case was run")
        change = {"verdict": f"unfinished: {so_far}", "run": run, "coverage": coverage}
        return self.model_copy(update=change)

    @property
    def exit_code(self) -> int:
        """1 for new failures; else 2 or 3 for missing verdicts, or by the run; else 0."""
        if self.failed_on:
            return 1
        if self.coverage is not None and self.coverage.lost_code:
            return self.coverage.lost_code
        if self.run_exit_code in (0, 1):
            return 0
        return 2 if self.run_exit_code == 2 else 3

    @property
    def ending(self) -> str:
        """Its exit code and the reason; empty for 0."""
        if self.failed_on:
            why = reasons_text(self.failed_on)
        elif self.coverage is not None and self.coverage.lost_code:
            why = f"verdicts are missing{lost_devices(self.lost)}"
        else:
            why = f"the run ended with {self.run_exit_code}"
        return f"exit code {self.exit_code}: {why}" if self.exit_code else ""

    @property
    def headline(self) -> str:
        """The reason for its exit code, if the comparison of its run does not have it."""
        lost = self.coverage and self.coverage.lost_code
        ended = self.exit_code and not (self.failed_on or lost)
        return f"### Devices: the run ended with {self.run_exit_code}" if ended else ""

    @property
    def is_worth_a_message(self) -> bool:
        closed = [issue for issue in self.issues if issue.closed == self.started]
        return bool(self.exit_code) or any(not issue.known_issues for issue in closed)

    @property
    def reported_issues(self) -> list[Issue]:
        return [each for each in self.issues if each.state == "open" or each.closed == self.started]

    @property
    def place(self) -> dict[str, str]:
        return {"folder": self.folder, "lab": self.named(PurePath(self.lab))}

    def named(self, path: PurePath) -> str:
        """Return a path relative to the folder that the night was started in, if it is inside."""
        return str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)

    @property
    def on_a_simulator(self) -> str:
        if self.lab != str(SIMULATED_LAB):
            return ""
        return "; run on a simulated device of this computer, since there was no devices.yaml"

    @property
    def lab_lines(self) -> tuple[str, ...]:
        return tuple(lab_lines(self.lab_after or self.lab_before, self.lost))

    def remaining(self, now: float) -> float:
        """Return the seconds left of its time, never more than it had, even if the clock jumps."""
        return min(max(self.until - now, 0.0), self.budget_s)

    def can_resume(self, other: Night, now: float) -> bool:
        """Return whether another night with the same arguments has work and time left."""
        names = ("arguments", "lab", "folder", "budget_s")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and other.next_step is not None and other.remaining(now) > 0

    def resumed(self, request: Night, now: float, *, budget: bool) -> Night:
        """Return this night with its whole time again, and with the options of `request`.

        `budget` tells whether it has a time. Raises ConfigError for other arguments.
        Arguments that are not named again must be whole: secrets in them were not stored.
        """
        if request.arguments and request.arguments != self.arguments:
            problem = "continues with the stored arguments; give none, or the same ones"
            raise ConfigError(problem, field="--resume")
        has_secret = "run" not in self.done and REDACTED in " ".join(self.arguments)
        if has_secret and not request.arguments:
            problem = (
                "an argument for pytest had a secret, which is not stored; give all arguments again"
            )
            raise ConfigError(problem, field="--resume")
        time_s = request.budget_s if budget else self.budget_s
        change = {"budget_s": time_s, "until": now + time_s, "site": request.site or self.site}
        return self.model_copy(update=change)

    def follows(self, other: Night) -> bool:
        """Return whether another night ran these cases and is over: its issues are followed."""
        same = other.selection == self.selection and other.night != self.night
        return same and other.next_step is None


def summary_lines(night: Night) -> Iterator[str]:
    """Yield the issues of a night as Markdown: new ones first, then those of its run (pure)."""
    issues, run = night.reported_issues, night.run
    shown = sorted(issues, key=lambda issue: (not _is_new(issue, run), issue.last_run != run))
    for heading, issues in (
        ("Causes of failures", [issue for issue in shown if not issue.fault]),
        ("Verdicts that are missing", [issue for issue in shown if issue.fault]),
    ):
        if issues:
            yield from ("", f"#### {heading}, {night.night}", "")
        for issue in issues:
            fresh = "**flaky** " if issue.flaky else "**new** " if _is_new(issue, run) else ""
            cases = counted(issue.count, "case")
            cases += f", {issue.new} of them new" if 0 < issue.new < issue.count else ""
            yield f"- {fresh}{issue.state}: {title(issue)} ({cases}, {issue.id})"
            yield from (f"  - {text}" for text in (facts_text(issue), rerun_text(issue)) if text)
            if not issue.fault and (issue.state == "open" or issue.search):
                yield f"  - {as_code(bisection_text(issue), 500)}"
    if night.warnings:
        yield from ("", f"#### Other problems, {night.night}", "")
        yield from (f"- {as_code(text, 500)}" for text in night.warnings)


def _is_new(issue: Issue, run: str | None) -> bool:
    return issue.first_run == run or bool(issue.new)


def summary(night: Night, head: str, intro: str, details: str = "") -> str:
    """Return summary.md, the most important first, since messages have only its head (pure)."""
    lab = ("", *night.lab_lines) if night.lab_lines else ()
    return "\n".join([head, intro, *summary_lines(night), *lab, details]).rstrip() + "\n"


STATE: Final = "nightly.json"
SUFFIX: Final = "-nightly"
_MAX_BYTES: Final = 64 << 20
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def lock_nights(reports: Path) -> Iterator[None]:
    """Lock a folder of reports against other nights. Raises ConfigError if one is running."""
    path = reports / ".nightly.lock"
    try:
        with making_folders(reports):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(path, flags, 0o644), "r+b")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        problem = f"{locking_process(path)} is still running a night here"
        raise ConfigError(problem, file=reports) from error
    except OSError as error:
        raise InfraError(f"cannot write a night to {reports}: {error.strerror}") from error
    with lock:
        yield


def nights(reports: Path) -> Iterator[Night]:
    """Yield the nights of a folder, the newest first; log those that cannot be read."""
    folders = ordered(file.parent for file in reports.glob(f"[0-9]*{SUFFIX}/{STATE}"))
    for file in (folder / STATE for folder in reversed(folders)):
        try:
            night = parse_model(Night, read_bounded(file, _MAX_BYTES))
            if night.night != file.parent.name:
                raise ValueError(
                    f"it belongs to another night, {night.night}"
                )  # it would be kept there
            yield night
        except (OSError, ValueError) as error:
            why = problem_in(error) if isinstance(error, ValueError) else error
            _log.warning("cannot read the night %s: %s", file, why)


def night_summary(night: Night) -> NightSummary | None:
    """Return the summary of a night: its devices and open causes; None without a run."""
    if night.run is None:
        return None
    devices = {device.device: device for device in (*night.lab_before, *night.lab_after)}
    causes = {issue.id: _cause(issue) for issue in night.issues if issue.state == "open"}
    fields = {"verdict": night.verdict or "", "devices": devices, "causes": causes}
    return NightSummary(**alike(NightSummary, night) | fields)


def publish_site(night: Night, database: str) -> None:
    """Store the summary of a night, and update its site, if it has one. Raises HarnessError."""
    history, stored = open_database(database), night_summary(night)
    if stored is not None:
        store_night(history, stored)
    if night.site is not None:
        build(history, Path(night.site))


def _cause(issue: Issue) -> CauseSummary:
    return CauseSummary(
        known=bisection_text(issue),
        folder=(issue.search and issue.search.folder) or "",
        command=issue.search.command if issue.search else (),
        files_changed=issue.files_changed,
    )
