"""A night as it is kept on the disk: what is next, the lab as it was, and what it found out."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, Literal, get_args

from harness.core.bounded_json import parse_model, problem_in
from harness.core.errors import ConfigError, InfraError
from harness.core.outgoing_text import INSTEAD, counted
from harness.core.platform import locking_process
from harness.core.schema_field import Schema1
from harness.core.whole_file import read_bounded
from harness.diagnosis.error import Part
from harness.history.database import (
    CauseTold,
    DeviceTold,
    NightTold,
    keep_night,
    open_database,
)
from harness.lab.inventory import SIMULATED_LAB
from harness.nightly.issues import FlatName, Issue, bisected, facts, run_again, title
from harness.report.document import as_code
from harness.results.coverage import Coverage
from harness.results.record import CaseRecord
from harness.results.run_folder import making_folders, ordered
from harness.site.build import build
from harness.transport.faults import server_lost

_NAMED: Final = 3


class DeviceSeen(DeviceTold):
    """How a device was when it was asked: `good`, `suspect`, `bad`, in `quarantine`, `away`, or
    `in use` by others; why, and since when it is so, as far as that is known. `hands` is what only
    a person can do for it. `host` is the other computer that it hangs on.
    """

    device: str
    host: str = ""
    host_lost: bool = False
    simulated: bool = False


def devices_seen(said: object, before: Iterable[DeviceSeen], now: str) -> tuple[DeviceSeen, ...]:
    """What `devices --json` said of devices that are to be used; `before` is the last that is
    known of them."""
    earlier = {one.device: one for one in before}
    found = []
    for row in said.get("devices", ()) if isinstance(said, dict) else ():
        if row.get("enabled"):
            held = row.get("quarantine") or {}
            leased = "in use" if row.get("state") == "leased" else "away"
            state = leased if row.get("health") is None or row.get("problem") else row["health"]
            why = row.get("problem") or "; ".join([*row.get("findings", ()), held.get("why", "")])
            was = earlier.get(row["name"])
            since = held.get("since") or (was.since if was and was.state == state else now)
            text = "" if state == "good" else why.strip("; ")
            found.append(
                DeviceSeen(
                    device=row["name"],
                    state=state,
                    since=since,
                    why=text[:500],
                    hands=_hands(row, text),
                    host=row.get("host") or "",
                    host_lost=bool(row.get("host_lost")),
                    simulated=bool(row.get("simulated")),
                )
            )
    return tuple(found)


def _hands(row: Mapping[str, Any], told: str) -> str:
    if (hands := row.get("hands")) is None:
        return ""
    why = "" if hands["why"] in told else f" ({hands['why']})"
    return f"{hands['do']}{why}"[:500]


def lost_on(records: Iterable[CaseRecord]) -> Counter[str]:
    """Return how many cases the lab kept each device from testing; most first."""
    lost = (record for record in records if record.device and record.standing == "lab")
    counts = Counter(record.device.name for record in lost if record.device)
    return Counter(dict(counts.most_common()))


def lab_lines(
    begin: Iterable[DeviceSeen], end: Iterable[DeviceSeen], lost: Mapping[str, int]
) -> Iterator[str]:
    """The lab in Markdown: how many devices and hosts were there, then which were not well."""
    first, last = ({one.device: one for one in found} for found in (begin, end))
    there, still_there = (_there(seen.values()) for seen in (first, last))
    hosts = sorted({one.host for one in (*first.values(), *last.values()) if one.host})
    away, at_end = _lost_hosts(first.values()), _lost_hosts(last.values())
    if first:
        far = f", {len(hosts) - len(away)} of {counted(len(hosts), 'other host')}" if hosts else ""
        at_the_end = f"{still_there} at the end" if last else "not asked at the end"
        when = "" if last and still_there == there else f" at the beginning, {at_the_end}"
        short = f"; {counted(len(lost), 'device')} did not test all cases" if lost else ""
        kind = _simulated(first.values())
        yield f"Lab: {there} of {counted(len(first), 'device')} there{when}{far}{short}.{kind}"
    for host in (one for one in hosts if one in away or one in at_end):
        told = [f"out of reach since {away[host][:16]}"] if host in away else []
        if (host in away) != (host in at_end) and last:
            back = f"out of reach since {at_end[host][:16]}" if host in at_end else "there"
            told.append(f"at the end {back}")
        yield f"- host {as_code(host)}: {'; '.join(told)}"
    together: dict[object, list[str]] = {}
    for name in dict.fromkeys((*first, *last, *lost)):
        together.setdefault(_fault(name, first.get(name), last.get(name)), []).append(name)
    for names in together.values():
        then, now = first.get(names[0]), last.get(names[0])
        told = [_said(then)] if then and then.state != "good" else []
        if now and (now.state != then.state if then else now.state != "good"):
            told.append(f"at the end {_said(now)}")
        if (seen := now or then) and seen.hands:
            told.append(f"needs hands: {as_code(seen.hands, 300)}")
        if not_tested := sum(lost.get(name, 0) for name in names):
            told.append(f"{counted(not_tested, 'case')} not tested there")
        if told:
            yield f"- {', '.join(map(as_code, names))}: {'; '.join(told)}"


def _fault(name: str, *seen: DeviceSeen | None) -> object:
    """Return what devices that one host or adb server lost have in common; else the name."""
    lost = [one and (one.host if one.host_lost else server_lost(one.why)) for one in seen]
    states = [one and (one.state, at or one.why) for one, at in zip(seen, lost, strict=True)]
    return tuple(states) if any(lost) else name


def _there(seen: Iterable[DeviceSeen]) -> int:
    return sum(device.state in ("good", "suspect") for device in seen)


def lost_devices(lost: Mapping[str, int]) -> str:
    """The devices on which most was not tested, for the end of a headline."""
    shown = [f"{as_code(device)} ({count})" for device, count in lost.items()]
    more = [f"{len(shown) - _NAMED} more"] if len(shown) > _NAMED else []
    return f": {', '.join([*shown[:_NAMED], *more])}" if shown else ""


def _simulated(seen: Collection[DeviceSeen]) -> str:
    number = sum(one.simulated for one in seen)
    if not number:
        return ""
    if number < len(seen):
        return f" {number} of them simulated."
    return " All are simulated." if number > 1 else " It is simulated."


def _lost_hosts(seen: Iterable[DeviceSeen]) -> dict[str, str]:
    return {one.host: one.since for one in seen if one.host_lost}


def _said(one: DeviceSeen) -> str:
    why = f" ({as_code(one.why, 300)})" if one.why else ""
    return "good" if one.state == "good" else f"{one.state} since {one.since[:16]}{why}"


NightStep = Literal["fetch", "run", "compare", "bisect", "publish"]
STEPS: Final[tuple[NightStep, ...]] = get_args(NightStep)
MOST_CASES: Final = 200
"""So many cases that are new or vanished are named."""


class Night(Part):
    """What a night was asked for, what of it is done, and what came of that.

    `until` is the end of its time, in seconds since 1970; `database` is where the history is, if
    that was said, without its password; `site` is the folder of the lab's pages. `run` and `base`
    are the ids of its run and of the one it was compared with. `run_is_whole` tells that nothing
    cut the run short, `other_failures` whether it failed for what is in no record. `lab_before` and
    `lab_after` are how devices were when it began and ended, `lost` is how many cases were not
    tested on each. `coverage` is how many of its cases have a verdict, `failed_on` what of it is
    new and bad. `new` and `vanished` are the first cases that are so, if it is that.
    `told` is what went wrong without ending it.
    """

    schema_number: Schema1 = 1
    kind: Literal["nightly"] = "nightly"
    night: FlatName
    started: str
    arguments: tuple[str, ...]
    selection: tuple[str, ...]
    lab: str
    folder: str
    database: str | None = None
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
    told: tuple[str, ...] = ()

    @property
    def next_step(self) -> NightStep | None:
        return next((step for step in STEPS if step not in self.done), None)

    def not_over(self, run: str | None, coverage: Coverage | None) -> Night:
        """Return the night as it is reported once a step failed; `run` is the one it had begun."""
        so_far = self.verdict or (coverage.headline if coverage else "no case was run")
        change = {"verdict": f"not over: {so_far}", "run": run, "coverage": coverage}
        return self.model_copy(update=change)

    @property
    def exit_code(self) -> int:
        """1 if something new fails; else 2 or 3 if verdicts are missing, or as its run ended; else
        0.
        """
        if self.failed_on:
            return 1
        if self.coverage is not None and self.coverage.lost_code:
            return self.coverage.lost_code
        if self.run_exit_code in (0, 1):
            return 0
        return 2 if self.run_exit_code == 2 else 3

    @property
    def headline(self) -> str:
        """What its exit code means, where the comparison of its run does not say it."""
        ended = self.exit_code and not (
            self.failed_on or (self.coverage and self.coverage.lost_code)
        )
        return f"### Devices: the run ended with {self.run_exit_code}" if ended else ""

    @property
    def is_worth_a_message(self) -> bool:
        closed = [issue for issue in self.issues if issue.closed == self.started]
        return bool(self.exit_code) or any(not issue.known_issues for issue in closed)

    @property
    def issues_told(self) -> list[Issue]:
        return [one for one in self.issues if one.state == "open" or one.closed == self.started]

    @property
    def where(self) -> dict[str, str]:
        return {"folder": self.folder, "lab": self.named(PurePath(self.lab))}

    def named(self, path: PurePath) -> str:
        """A path as it is named in the folder that the night was begun in."""
        return str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)

    @property
    def on_a_simulator(self) -> str:
        if self.lab != str(SIMULATED_LAB):
            return ""
        return "; run on a simulated device of this computer: no devices.yaml was there"

    @property
    def lab_lines(self) -> tuple[str, ...]:
        return tuple(lab_lines(self.lab_before, self.lab_after, self.lost))

    def left(self, now: float) -> float:
        """How many seconds of its time are left; never more than it had, whatever the clock did."""
        return min(max(self.until - now, 0.0), self.budget_s)

    def goes_on_with(self, other: Night, now: float) -> bool:
        """Whether another night, asked for by these words in this place, has work and time left."""
        names = ("arguments", "lab", "folder", "database", "budget_s")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and other.next_step is not None and other.left(now) > 0

    def resumed(self, asked: Night, now: float, *, budget: bool, database: bool) -> Night:
        """This night with its whole time again, and with the `budget` and the `database` that
        another was asked for, if they were named. Raises ConfigError for other arguments.

        Words that were not named again must be whole: a secret in them was not kept.
        """
        if asked.arguments and asked.arguments != self.arguments:
            problem = "goes on with what was asked before: no arguments, or the same ones"
            raise ConfigError(problem, field="--resume")
        if not asked.arguments and "run" not in self.done and INSTEAD in " ".join(self.arguments):
            problem = "a word for pytest had a secret, which no file keeps: name all of them again"
            raise ConfigError(problem, field="--resume")
        where = asked.database if database else self.database
        if INSTEAD in (where or "") and where != asked.database:
            problem = f"{where} had a password, which no file keeps: name it again"
            raise ConfigError(problem, field="--database")
        time_s = asked.budget_s if budget else self.budget_s
        change = {"database": where, "budget_s": time_s, "until": now + time_s}
        change["site"] = asked.site or self.site
        return self.model_copy(update=change)

    def repeats(self, other: Night) -> bool:
        """Whether another night of the same lab ran these cases, and is over."""
        return self.follows(other) and self.lab == other.lab

    def follows(self, other: Night) -> bool:
        """Whether another night ran these cases and is over, so that its issues are followed."""
        same = other.selection == self.selection and other.night != self.night
        return same and other.next_step is None


def summary_lines(night: Night) -> Iterator[str]:
    """The issues of a night in Markdown: new ones first, then those seen in its run (pure)."""
    run = night.run
    shown = sorted(night.issues_told, key=lambda one: (not _is_new(one, run), one.last_run != run))
    for heading, issues in (
        ("Causes of failures", [one for one in shown if not one.fault]),
        ("Verdicts that are missing", [one for one in shown if one.fault]),
    ):
        if issues:
            yield from ("", f"#### {heading}, {night.night}", "")
        for one in issues:
            fresh = "**flaky** " if one.flaky else "**new** " if _is_new(one, run) else ""
            cases = counted(one.count, "case")
            cases += f", {one.new} of them new" if 0 < one.new < one.count else ""
            yield f"- {fresh}{one.state}: {title(one)} ({cases}, {one.id})"
            if line := facts(one):
                yield f"  - {line}"
            if said := run_again(one):
                yield f"  - {said}"
            if not one.fault and (one.state == "open" or one.search):
                yield f"  - {as_code(bisected(one), 500)}"
    if night.told:
        yield from ("", f"#### What went wrong besides, {night.night}", "")
        yield from (f"- {as_code(text, 500)}" for text in night.told)


def _is_new(issue: Issue, run: str | None) -> bool:
    return issue.first_run == run or bool(issue.new)


def summary(night: Night, head: str, intro: str, details: str = "") -> str:
    """Return summary.md: what matters most first, since messages have only its head (pure)."""
    lab = ("", *night.lab_lines) if night.lab_lines else ()
    return "\n".join([head, intro, *summary_lines(night), *lab, details]).rstrip() + "\n"


STATE: Final = "nightly.json"
SUFFIX: Final = "-nightly"
_MAX_BYTES: Final = 64 << 20
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def held(reports: Path) -> Iterator[None]:
    """Keeps other nights away from a folder of reports. Raises ConfigError if one is at it."""
    path = reports / ".nightly.lock"
    try:
        with making_folders(reports):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(path, flags, 0o644), "r+b")
    except OSError as error:
        raise InfraError(f"cannot keep a night in {reports}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = f"a night is still run here by {locking_process(path)}"
            raise ConfigError(problem, file=reports) from error
        except OSError as error:
            raise InfraError(f"cannot keep a night in {reports}: {error.strerror}") from error
        yield


def nights(reports: Path) -> Iterator[Night]:
    """The nights of a folder, the newest first; what cannot be read is logged."""
    found = ordered(one.parent for one in reports.glob(f"[0-9]*{SUFFIX}/{STATE}"))
    for file in (one / STATE for one in reversed(found)):
        try:
            night = parse_model(Night, read_bounded(file, _MAX_BYTES))
            if night.night != file.parent.name:
                raise ValueError(f"it is that of {night.night}")  # it would be kept there
            yield night
        except (OSError, ValueError) as error:
            why = problem_in(error) if isinstance(error, ValueError) else error
            _log.warning("%s tells of no night: %s", file, why)


def night_told(night: Night) -> NightTold | None:
    """A night's devices as they were last seen, and its open causes; None of one without a run."""
    if night.run is None:
        return None
    seen = {one.device: one for one in (*night.lab_before, *night.lab_after)}
    return NightTold(
        night=night.night,
        run=night.run,
        base=night.base,
        exit_code=night.exit_code,
        verdict=night.verdict or "",
        devices=seen,
        causes={one.id: _cause(one) for one in night.issues if one.state == "open"},
        besides=night.told,
        failed_on=night.failed_on,
        new=night.new,
        vanished=night.vanished,
    )


def tell_site(night: Night, database: str) -> None:
    """Holds what a night said, and writes the pages that it was to keep. Raises HarnessError."""
    held, told = open_database(database), night_told(night)
    if told is not None:
        keep_night(held, told)
    if night.site is not None:
        build(held, Path(night.site))


def _cause(issue: Issue) -> CauseTold:
    return CauseTold(
        known=bisected(issue),
        folder=(issue.search and issue.search.folder) or "",
        command=issue.search.command if issue.search else (),
        files_changed=issue.files_changed,
    )
