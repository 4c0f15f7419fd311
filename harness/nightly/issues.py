"""One issue for each cause of failures, followed from night to night (pure)."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator

from harness.bisect.new_failures import NewFailure
from harness.core.axes import VERSIONS
from harness.core.names_inside import flat_name
from harness.core.outgoing_text import counted
from harness.diagnosis.error import Part, signature_text
from harness.history.attempts import Attempt, cause_of, hashed
from harness.history.comparison import Category, Comparison, Pair
from harness.history.states import CONFIRMED, CaseHistory, attempts_said
from harness.history.surroundings import files_used
from harness.history.timeline_text import CauseFacts, facts_line
from harness.plugin.own_contexts import is_of_a_file
from harness.report.document import (
    Line,
    Paragraph,
    Table,
    as_code,
    as_markdown,
    code,
    markdown,
)
from harness.report.summary import again
from harness.results.coverage import LOST_TO, VERDICTS, Coverage, Fault
from harness.results.record import CaseRecord
from harness.transport.faults import NO_SERVER, server_lost

_LOG_LINES: Final = 12
_PLACES: Final = 200
_ROWS: Final = 40
_COLUMNS: Final = 8


class PlaceTried(Part):
    """How many of the cases that were tried on a device, with some versions, fail so there, also as
    a known issue expects, or lack a verdict for this reason; and how many fail `otherwise`."""

    device: str
    kind: str
    versions: str
    failed: int
    tested: int
    otherwise: int = 0


class Example(Part):
    """A case that failed so: what it ran on and with, what was logged, and how the same tests did
    in all `places` that were tried. The `command` runs it again, from the `folder`.

    `logs` is its folder among the reports, `bundle` the command that packs it for others, if it can
    be packed.
    """

    ran: tuple[str, ...]
    log: tuple[str, ...]
    places: tuple[PlaceTried, ...] = ()
    command: tuple[str, ...]
    folder: str = ""
    logs: str | None = None
    bundle: tuple[str, ...] | None = None


def example_of(
    record: CaseRecord,
    failing: Sequence[str],
    records: Mapping[str, CaseRecord],
    *,
    run: str,
    lab: str,
    folder: str = "",
    reports: str = "reports",
) -> Example:
    """That of one of the cases that fail of one cause in a run; `records` has all.

    `reports` is how the folder with the run is named in `folder`.
    """
    error = record.error
    chain = (
        [f"{one.source}: {one.symbol or one.hex or ''} {one.message}" for one in error.chain]
        if error
        else []
    )
    said = chain or (error.message.splitlines() if error else [])
    left = record.logs[0].rpartition("/")[0] if record.logs else None
    words = ("qnn-harness", "contexts", "bundle", record.case, "--run", str(PurePath(reports, run)))
    return Example(
        ran=tuple(_ran(record)),
        log=tuple(" ".join(line.split())[:300] for line in said[:_LOG_LINES]),
        places=tuple(_places(set(failing), records)),
        command=tuple(again(record, f"--qnn-lab={lab}")),
        folder=folder,
        logs=str(PurePath(reports, run, left)) if left else None,
        bundle=words if is_of_a_file(record.case) else None,
    )


def _ran(record: CaseRecord) -> Iterator[str]:
    device, runtime = record.device, record.runtime
    if device is not None:
        kind = (device.soc, device.target, "simulated" if device.simulated else None)
        yield f"device {device.name} ({', '.join(filter(None, kind))})"
        if build := (device.model_extra or {}).get("os_build"):
            yield f"OS {build}"
    if runtime is not None:
        yield f"QNN {runtime.qnn}, build {runtime.build_id or 'not known'}"
        yield from (f"ONNX Runtime {one}" for one in (runtime.ort,) if one)
        yield from (f"contexts by QNN {one}" for one in (runtime.contexts_by,) if one)


def _places(failing: set[str], records: Mapping[str, CaseRecord]) -> Iterator[PlaceTried]:
    """Where the tests that fail so were run; where they fail comes first."""
    tests = {records[name].test for name in failing}
    failures = {_failure(records[name]) for name in failing}
    seen: dict[tuple[str, str, str], Counter[str]] = {}
    for record in records.values():
        tried = record.case in failing or record.standing in VERDICTS
        if record.test in tests and tried and record.device is not None:
            versions = ", ".join(
                f"{axis} {record.axes[axis]}" for axis in VERSIONS if record.axes.get(axis)
            )
            kind = record.device.soc or record.device.target or "?"
            counts = seen.setdefault((record.device.name, kind, versions), Counter())
            counts["tested"] += 1
            if record.case in failing or _failure(record) in failures:
                counts["failed"] += 1
            elif record.is_bad:
                counts["otherwise"] += 1
    order = sorted(seen.items(), key=lambda item: (not item[1]["failed"], item[0]))
    for (device, kind, versions), counts in order[:_PLACES]:
        yield PlaceTried(
            device=device,
            kind=kind,
            versions=versions,
            failed=counts["failed"],
            tested=counts["tested"],
            otherwise=counts["otherwise"],
        )


def _failure(record: CaseRecord) -> tuple[str, str | None]:
    return record.outcome, record.error.signature if record.error else None


def grid(places: Sequence[PlaceTried], became: str = "fails") -> list[Table | Paragraph]:
    """Devices down, the last versions across: how many became that, of those tried."""
    columns = sorted({one.versions for one in places}, key=_order)[-_COLUMNS:]
    rows: dict[tuple[str, str], dict[str, Line]] = {}
    for one in places:
        good = not one.failed and not one.otherwise
        mark = "❌" if one.failed == one.tested else "✅" if good else "⚠️"
        otherwise = f", {one.otherwise} otherwise" if one.otherwise else ""
        row = rows.setdefault((one.device, one.kind), {})
        row[one.versions] = f"{mark} {one.failed} of {one.tested}{otherwise}"
    table: list[list[Line]] = [
        [[code(device), " (", code(kind), ")"], *(row.get(name, "-") for name in columns)]
        for (device, kind), row in rows.items()
    ]
    titles = [became, *(as_code(name or "no versions") for name in columns)]
    more = (
        [Paragraph(f"and {counted(len(table) - _ROWS, 'more device')}")]
        if len(table) > _ROWS
        else []
    )
    return [Table("", titles, table[:_ROWS]), *more]


def _order(versions: str) -> list[tuple[int, str]]:
    return [(int(one), "") if one.isdigit() else (0, one) for one in re.split(r"(\d+)", versions)]


def example_lines(example: Example) -> Iterator[str]:
    """The same in Markdown, in which all that others said is code."""
    yield f"- seen on: {', '.join(as_code(one, 300) for one in example.ran) or 'nothing'}"
    if example.log:
        yield "- log:"
        yield from (f"  - {as_code(line, 320)}" for line in example.log)
    where = f", in {as_code(example.folder)}" if example.folder else ""
    yield f"- to reproduce{where}: {as_code(shlex.join(example.command), 2000)}"
    if example.logs:
        yield f"- what it left: {as_code(example.logs)}"
    if example.bundle:
        yield f"- packed for others by: {as_code(shlex.join(example.bundle), 2000)}"


# Versions that a bisection runs, roughly, by how many axes changed; with a third held, the answer
# may be that neither of the two matters.
_RUNS: Final = {1: 5, 2: 8, 3: 16}
_CASES: Final = 200
_MOST: Final = 500
_AGAIN_OF_A_CAUSE: Final = 20
_OVER: Final = (0, 1, 2)
_NEW: Final[tuple[Category, ...]] = ("new", "changed")
Histories = Mapping[str, CaseHistory]
NO_HISTORIES: Final[Histories] = MappingProxyType({})

FlatName = Annotated[str, AfterValidator(flat_name)]
"""The name of something right in the folder of reports, or of a night."""


class CauseSearch(Part):
    """The bisection of a cause. `since` is the night that first wanted it, `ended_in` the last one
    that had it end; `folder` is where it is kept, beside the runs.
    """

    command: tuple[str, ...]
    case: str
    cost_s: float
    since: FlatName
    ended_in: str | None = None
    exit_code: int | None = None
    answer: str | None = None
    first_bad: str | None = None
    folder: FlatName | None = None

    @property
    def is_open(self) -> bool:
        return self.exit_code not in _OVER


class Issue(Part):
    """A cause: failures of one test, outcome and signature that no known issue expects, or, where
    there is a `fault`, verdicts that are missing for one reason. `flaky` says how often, where its
    cases fail now and then; `again` what it came to where cases were run again in the night seen
    last. `new` of its cases did not fail so in the run before that one.

    `cases` are those of the last run that had it, at most 200 of `count`; none of what was not run.
    `files_changed` are files of its tests, models and inputs that changed when it came.
    `known_issues` expect what it was, if that is why it is closed. `facts` are what the history
    says of it. `hindrance` is why no bisection
    can tell more.
    """

    id: FlatName
    state: Literal["open", "closed"] = "open"
    fault: Fault | None = None
    outcome: str
    signature: str
    diagnosis: str | None
    message: str | None
    flaky: str | None = None
    again: str | None = None
    example: Example | None = None
    first_seen: str
    first_run: str
    last_seen: str
    last_run: str
    closed: str | None = None
    files_changed: tuple[str, ...] = ()
    known_issues: tuple[str, ...] = ()
    facts: CauseFacts | None = None
    count: int
    new: int = 0
    cases: tuple[str, ...]
    search: CauseSearch | None = None
    hindrance: str | None = None


def followed(
    known: Iterable[Issue],
    found: Comparison,
    records: Mapping[str, CaseRecord],
    *,
    run: str,
    seen: str,
    histories: Histories = NO_HISTORIES,
    lab: str = "devices.yaml",
    folder: str = "",
    reports: str = "reports",
) -> tuple[Issue, ...]:
    """The issues of the nights before, and what a run says of them; new causes are new issues.

    One is closed when all its cases had a verdict and none fails so any more, or only as a known
    issue expects: what was not tested is not gone, nor what is flaky, or passed too seldom to be
    believed. One with more cases than it names waits for a run that lacks no verdict. `records` are
    those of the run, by case, `seen` is when it was.
    """
    at = {"run": run, "lab": lab, "folder": folder, "reports": reports}
    run_now: dict[str, Any] = {"last_seen": seen, "last_run": run}
    begins: dict[str, Any] = {"first_seen": seen, "first_run": run, **run_now}
    pairs = [pair for listed in found.pairs.values() for pair in listed]
    judged = {
        name: one.after
        for one in pairs
        if one.after is not None and one.after.has_verdict
        for name in _names(one, histories.get(one.after.case))
    }
    fresh = {pair.shown.case for name in _NEW for pair in found[name]}
    everybody = {name for pair in pairs for name in pair.names}

    def came_with(cases: Sequence[Attempt]) -> dict[str, Any]:
        own = {one.case for one in cases}
        lost = cases[0].fault is not None  # for which no file can be blamed
        files = () if lost else files_used(found.files_changed, own, everybody - own)
        return {"files_changed": files}

    failing: dict[str, list[Attempt]] = {}
    for after in filter(None, (pair.after for pair in pairs)):
        history = histories.get(after.case)
        bad = history.now.bad if history is not None and history.is_flaky else None
        if cause := cause_of(bad or after):
            failing.setdefault(cause, []).append(bad or after)
    issues = []
    for issue in known:
        change: dict[str, object] = {"new": 0}
        if cases := failing.pop(issue.id, None):
            change |= {"state": "open", "closed": None, "known_issues": ()}
            change |= run_now | _cases(cases, histories, fresh)
            change |= {} if issue.state == "open" else came_with(cases)
            change |= _shown(cases, records, at)
        elif issue.state == "open":  # one of what was not run names no cases: see _not_run
            ended = [judged[case] for case in issue.cases if case in judged]
            names_all = issue.count == len(issue.cases) or not issue.cases
            stays = [one for one in ended if not (issue.fault or _is_gone(one, histories))]
            if stays:
                change |= _flaky(stays, histories)
            elif len(ended) == len(issue.cases) and (names_all or found.coverage.is_whole):
                change |= {"state": "closed", "closed": seen, "known_issues": _known(issue, ended)}
                change["again"] = _again(ended, histories)
        issues.append(issue.model_copy(update=change))
    for cause, cases in failing.items():
        issues.append(
            Issue(
                id=cause,
                fault=cases[0].fault,
                outcome=cases[0].outcome,
                signature=cases[0].signature,
                **begins,
                **_cases(cases, histories, fresh),
                **came_with(cases),
                **_shown(cases, records, at),
            )
        )
    issues = list(_not_run(issues, found.coverage, begins))
    issues.sort(key=lambda one: (one.state == "open", one.last_run == run))
    return tuple(issues[-_MOST:])


def _shown(
    cases: Sequence[Attempt], records: Mapping[str, CaseRecord], at: Mapping[str, str]
) -> dict[str, Any]:
    """What is told of the shortest of the cases: all of one."""
    failing = [one.case for one in cases]
    record = min((records[name] for name in failing), key=lambda one: one.duration_s)
    error = record.error
    return {
        "diagnosis": error.diagnosis.text() if error and error.diagnosis else None,
        "message": error.message if error else None,
        "example": example_of(record, failing, records, **at),
    }


def _names(pair: Pair, known: CaseHistory | None) -> Iterator[str]:
    yield from pair.names
    yield from (one.last.case for one in (known.before if known is not None else ()))


def _known(issue: Issue, after: Iterable[Attempt]) -> tuple[str, ...]:
    what = issue.outcome, issue.signature
    same = (one.known_issue for one in after if (one.outcome, one.signature) == what)
    return tuple(sorted({one for one in same if one}))


def _not_run(
    issues: Iterable[Issue], coverage: Coverage, begins: Mapping[str, Any]
) -> Iterator[Issue]:
    """The issues, with one for cases that left no record, old or new."""
    lacks, seen = coverage.not_run or coverage.selected is None, False
    for issue in issues:
        change: dict[str, Any] = {}
        if issue.fault == "not run":
            seen = True
            if lacks:
                last = {key: begins[key] for key in ("last_seen", "last_run")}
                change = {"state": "open", "closed": None, "count": coverage.not_run, **last}
                change["message"] = coverage.headline
        yield issue.model_copy(update=change)
    if lacks and not seen:
        yield Issue(
            id=hashed("not run"),
            fault="not run",
            outcome="not run",
            signature="not run",
            diagnosis=None,
            message=coverage.headline,
            count=coverage.not_run,
            cases=(),
            **begins,
        )


def _cases(
    found: Sequence[Attempt], histories: Histories, fresh: Collection[str]
) -> dict[str, Any]:
    cases = tuple(attempt.case for attempt in found[:_CASES])
    new = sum(attempt.case in fresh for attempt in found)
    counts = {"count": len(found), "new": new, "cases": cases}
    return {**counts, "again": _again(found, histories), **_flaky(found, histories)}


def _again(cases: Iterable[Attempt], histories: Histories) -> str | None:
    known = [one.now for one in map(histories.get, {one.case: one for one in cases}) if one]
    ran = [one for one in known if one.verdicts > 1]
    failed, passed = sum(one.failed for one in ran), sum(one.passed for one in ran)
    said = f"{attempts_said(failed, failed + passed)} ({counted(len(ran), 'case')})"
    return said if ran else None


def _flaky(cases: Iterable[Attempt], histories: Histories) -> dict[str, Any]:
    known = [histories.get(one.case) for one in cases]
    flaky = [one.state.said for one in known if one and one.is_flaky and one.state]
    return {"flaky": flaky[0] if flaky and len(flaky) == len(known) else None}


def _is_gone(after: Attempt, histories: Histories) -> bool:
    known = histories.get(after.case)
    state = known.state if known is not None else None
    return state is None or (state.is_sure and not state.is_flaky)


def to_run_again(
    histories: Histories, records: Mapping[str, CaseRecord], room_s: float
) -> dict[str, int]:
    """How often the cases whose end is not yet believed are run again, by their names.

    The shortest come first, so many of each cause, as far as the room goes (seconds). What fails as
    a known issue expects is not among them.
    """
    found: dict[str, int] = {}
    causes: Counter[str | None] = Counter()
    for name, one in sorted(histories.items(), key=lambda one: records[one[0]].duration_s):
        cause = cause_of(one.now.last)
        if not _wants_more(one):
            continue
        causes[cause] += 1
        if cause is not None and causes[cause] > _AGAIN_OF_A_CAUSE:
            continue
        times = CONFIRMED - one.now.verdicts
        room_s -= times * records[name].duration_s
        if room_s < 0:
            break
        found[name] = times
    return found


def _wants_more(one: CaseHistory) -> bool:
    last, state = one.now.last, one.state
    return bool(last.has_verdict and state and state.wants_more and not last.known_issue)


def to_bisect(
    issues: Iterable[Issue],
    found: Comparison,
    records: Mapping[str, CaseRecord],
    command: Callable[[NewFailure], list[str] | None],
    night: str,
    histories: Histories = NO_HISTORIES,
) -> tuple[Issue, ...]:
    """Gives each issue that is new in this comparison the bisection of its cheapest case.

    So it does with what this night shows to be flaky, if that came with other versions.
    """
    searches: dict[str | None, CauseSearch] = {}
    hindrances: dict[str | None, str] = {}
    flaky = [
        Pair(one.last.last, one.now.bad)
        for one in histories.values()
        if one.turned_flaky and one.last is not None
    ]
    for pair in (*found["new"], *found["changed"], *flaky):
        known = histories.get(pair.shown.case)
        failure, cause = NewFailure.of(pair, known.state if known else None), cause_of(pair.after)
        words = command(failure)
        if words is None:
            hindrances.setdefault(cause, str(failure.hindrance))
            continue
        case = failure.after.case
        cost = records[case].duration_s * _RUNS[len(failure.changed)] * failure.repeat
        if cause not in searches or cost < searches[cause].cost_s:
            searches[cause] = CauseSearch(command=tuple(words), case=case, cost_s=cost, since=night)
    issues = tuple(issues)
    cheapest: dict[tuple[str, str], Issue] = {}
    for issue in sorted(
        (issue for issue in issues if issue.id in searches),
        key=lambda issue: searches[issue.id].cost_s,
    ):
        first = cheapest.setdefault((issue.outcome, issue.signature), issue)
        if first is not issue:
            del searches[issue.id]
            hindrances[issue.id] = f"issue {first.id} has the same signature, and is bisected"
    return tuple(
        issue.model_copy(
            update={"search": searches[issue.id], "hindrance": None}
            if issue.id in searches
            else {"hindrance": hindrances.get(issue.id, issue.hindrance)}
        )
        for issue in issues
    )


def next_search(issues: Iterable[Issue], night: str) -> Issue | None:
    """Whose bisection comes next: those new in this night before older ones, the cheapest first."""
    waiting = [
        (one.search.since != night, one.search.cost_s, one.id, one)
        for one in issues
        if one.state == "open" and one.search and one.search.is_open
        if one.search.ended_in != night
    ]
    return min(waiting)[-1] if waiting else None


def with_facts(
    issues: Iterable[Issue], facts: Callable[[str], CauseFacts | None]
) -> Iterator[Issue]:
    """Issues with the facts of their causes; what is not in the last runs stays as it was."""
    for issue in issues:
        known = facts(issue.id) or issue.facts
        files = {"files_changed": issue.files_changed}
        update = {"facts": known and known.model_copy(update=files)}
        yield issue.model_copy(update=update)


_SHOWN: Final = 50
_REASON: Final = 100


def bisected(issue: Issue) -> str:
    """What is known of the version that brought it, in one line for a person."""
    search = issue.search
    if issue.fault is not None:
        return "not bisected: a verdict that is missing tells of no version"
    if search is None and issue.state == "closed":
        return "not bisected: it is gone"
    if search is None and issue.flaky:
        return f"not bisected: flaky: {issue.flaky}"
    if search is None:
        words = ("qnn-harness", "bisect", "--axis", "qnn", "--case", issue.cases[0])
        why = issue.hindrance or (
            "no run of this selection before it came is known in which it passed; "
            f"`{shlex.join(words)}` looks for a version"
        )
        return f"not bisected: {why}"
    if not search.is_open:
        return search.answer or f"no answer: the bisection ended with {search.exit_code}"
    state = "not over yet" if search.folder else "not reached in the time of the night"
    return f"{state}; the next night goes on with it"


def facts(issue: Issue) -> str:
    """Where it shows and where not, since when and what changed then, in Markdown; empty if that is
    not known, or it is gone."""
    if issue.facts is None or issue.state == "closed":
        return ""
    return as_markdown(facts_line(issue.facts))


def run_again(issue: Issue) -> str:
    """What running its cases again came to, and in which night; empty if they were not."""
    when = (issue.closed or issue.last_seen)[:16]
    return f"run again in the night of {when}: {issue.again}" if issue.again else ""


def issue_text(issue: Issue, reports: str = "reports") -> str:
    """An issue in Markdown, in which every name and message is code, short enough for trackers."""
    return "\n".join(_lines(issue, reports)) + "\n"


def title(issue: Issue) -> str:
    """How its cases ended, why if that is known, and the test or the device, as code."""
    named = signature_text(issue.signature)
    if issue.diagnosis:
        named = issue.diagnosis.partition(" ")[0].rstrip(":")
    server = server_lost(issue.message or "")
    if issue.fault == "lab" and server:
        return as_code(f"{LOST_TO['lab']}: {NO_SERVER}{server}", 120)
    if issue.fault == "lab" and issue.message:  # a signature has no names
        named = issue.message.partition("\n")[0]
        named = named if len(named) <= _REASON else named[:_REASON].rpartition(": ")[0] or named
        places = issue.example.places if issue.example else ()
        device = next((place.device for place in places if place.failed), "")
        on = f" on {device}" if device not in named else ""
        return as_code(f"{LOST_TO['lab']}{on}: {named}", 120)
    ended = LOST_TO[issue.fault] if issue.fault is not None else issue.outcome
    test = issue.cases[0].partition("[")[0].rpartition("::")[2] if issue.cases else ""
    why = "" if named == ended else f": {named}"
    return as_code(f"{ended}{why}{f' in {test}' if test else ''}", 120)


def _why_closed(issue: Issue, when: str) -> str:
    if issue.known_issues:
        names = ", ".join(map(as_code, issue.known_issues))
        return f"closed {when}: it still fails so, as known issue {names} expects"
    if issue.fault == "not run":
        return f"gone {when}: all cases were run"
    if issue.fault is not None:
        return f"gone {when}: all its cases have a verdict"
    return f"gone {when}: all its cases were tested, and none fails so"


def _lines(issue: Issue, reports: str) -> Iterator[str]:
    yield f"# {title(issue)} [{issue.id}]"
    yield ""
    yield f"State: {issue.state}"
    yield ""
    yield f"- first seen in the night of {issue.first_seen[:16]}, run {as_code(issue.first_run)}"
    yield f"- last seen in the night of {issue.last_seen[:16]}, run {as_code(issue.last_run)}"
    if issue.closed:
        yield f"- {_why_closed(issue, issue.closed[:16])}"
    yield f"- signature: {as_code(issue.signature, 500)}"
    if line := facts(issue):
        yield f"- {line}"
    if said := run_again(issue):
        yield f"- {said}"
    if issue.flaky:
        yield f"- flaky: {as_code(issue.flaky, 500)}"
    if issue.diagnosis:
        yield f"- diagnosis: {as_code(issue.diagnosis, 1000)}"
    if issue.message:
        yield f"- message: {as_code(issue.message, 2000)}"
    if issue.example:
        yield from example_lines(issue.example)
    yield f"- bisection: {as_code(bisected(issue), 1000)}"
    if issue.search:
        yield f"  - {as_code(shlex.join(('qnn-harness', *issue.search.command)), 2000)}"
        if issue.search.folder:
            yield f"  - {as_code(str(PurePath(reports, issue.search.folder, 'report.md')))}"
    yield ""
    if issue.example and issue.example.places:
        yield markdown(
            grid(issue.example.places, "is lost" if issue.fault else "fails")
        ).removesuffix("\n")
    yield f"Cases: {issue.count}"
    yield ""
    yield from (f"- {as_code(case, 300)}" for case in issue.cases[:_SHOWN])
    if issue.count > _SHOWN:
        yield f"- and {issue.count - _SHOWN} more"
