"""Issues: causes of failures, followed from night to night (pure)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator

from harness.bisect.new_failures import NewFailure
from harness.core.json_record import Part
from harness.core.outgoing_text import counted
from harness.core.paths_inside import flat_name
from harness.diagnosis.error_record import signature_text
from harness.history.attempts import Attempt, cause_of, short_hash
from harness.history.case_states import CONFIRMED, CaseHistory, format_attempts
from harness.history.comparison import Category, Comparison, Pair
from harness.history.environment_differences import files_used
from harness.history.timeline import CauseFacts, facts_line
from harness.plugin.user_files import is_of_a_file
from harness.report.document import as_code, as_markdown, day_and_minute
from harness.report.summary import rerun_command
from harness.results.case_names import function_of
from harness.results.coverage import LOST_TO, Coverage, Fault
from harness.results.record import CaseRecord
from harness.transport.transport_errors import NO_SERVER, server_lost

_LOG_LINES: Final = 12


class Example(Part):
    """A case that failed so: what it ran on and with, and its log. The `command` runs it again, in
    the `folder`.

    `logs` is its folder in the reports, `bundle` the command that packs it for others, if possible.
    """

    device: str | None = None
    ran: tuple[str, ...]
    log: tuple[str, ...]
    command: tuple[str, ...]
    folder: str = ""
    logs: str | None = None
    bundle: tuple[str, ...] | None = None


def example_of(
    record: CaseRecord, *, run: str, lab: str, folder: str = "", reports: str = "reports"
) -> Example:
    """Return the example of a case that fails of a cause.

    `reports` is the path of the run's parent folder from `folder`.
    """
    error = record.error
    causes = error.chain if error else ()
    chain = [f"{each.source}: {each.symbol or each.hex or ''} {each.message}" for each in causes]
    lines = chain or (error.message.splitlines() if error else [])
    log_folder = record.logs[0].rpartition("/")[0] if record.logs else None
    words = ("qnn-harness", "model", "bundle", record.case, "--run", str(PurePath(reports, run)))
    return Example(
        device=record.device.name if record.device is not None else None,
        ran=tuple(_ran(record)),
        log=tuple(" ".join(line.split())[:300] for line in lines[:_LOG_LINES]),
        command=tuple(rerun_command(record, f"--qnn-lab={lab}")),
        folder=folder,
        logs=str(PurePath(reports, run, log_folder)) if log_folder else None,
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
        yield from (f"ONNX Runtime {version}" for version in (runtime.ort,) if version)
        yield from (f"contexts by QNN {version}" for version in (runtime.contexts_by,) if version)


def example_lines(example: Example) -> Iterator[str]:
    """Yield an example as Markdown, with all text from elsewhere as code."""
    yield f"- seen on: {', '.join(as_code(text, 300) for text in example.ran) or 'nothing'}"
    if example.log:
        yield "- log:"
        yield from (f"  - {as_code(line, 320)}" for line in example.log)
    folder = f", in {as_code(example.folder)}" if example.folder else ""
    yield f"- to reproduce{folder}: {as_code(shlex.join(example.command), 2000)}"
    if example.logs:
        yield f"- logs: {as_code(example.logs)}"
    if example.bundle:
        yield f"- to share it: {as_code(shlex.join(example.bundle), 2000)}"


# the approximate number of versions that a bisection runs, by the number of axes that changed; with
# three, it may also find that two of them do not matter
_RUNS: Final = {1: 5, 2: 8, 3: 16}
_CASES: Final = 200
_MOST: Final = 500
_AGAIN_OF_A_CAUSE: Final = 20
_OVER: Final = (0, 1, 2)
_NEW: Final[tuple[Category, ...]] = ("new", "changed")
Histories = Mapping[str, CaseHistory]
NO_HISTORIES: Final[Histories] = MappingProxyType({})

FlatName = Annotated[str, AfterValidator(flat_name)]
"""The name of an entry of the folder of reports, or of a night."""


class CauseSearch(Part):
    """The bisection of a cause. `since` is the night that first asked for it, `ended_in` the last
    one in which it ended; `folder` is its folder, beside the runs.
    """

    command: tuple[str, ...]
    case: str
    cost_s: float
    since: FlatName
    ended_in: str | None = None
    exit_code: int | None = None
    answer: str | None = None
    folder: FlatName | None = None

    @property
    def is_open(self) -> bool:
        return self.exit_code not in _OVER


class Issue(Part):
    """A cause: failures of one test, outcome and signature that no known issue expects, or, with a
    `fault`, verdicts that are missing for one reason. `flaky` says how often, if its cases fail now
    and then; `again` is the result of running its cases again in the night of `last_seen`. `new` of
    its cases did not fail so in the run before that one.

    `cases` are those of the last run that had it, at most 200 of `count`; none if they were not
    run. `files_changed` are files of its tests, models and inputs that changed when it appeared.
    `known_issues` expect the failure, if that is why it is closed. `facts` are those of the
    history. `hindrance` is why no bisection can find more.
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


def follow_issues(
    known: Iterable[Issue],
    comparison: Comparison,
    records: Mapping[str, CaseRecord],
    *,
    run: str,
    started: str,
    histories: Histories = NO_HISTORIES,
    lab: str = "devices.yaml",
    folder: str = "",
    reports: str = "reports",
) -> tuple[Issue, ...]:
    """Update the issues of earlier nights by a run, and add an issue for each new cause.

    An issue is closed when all its cases had a verdict and none fails so any more, or only as a
    known issue expects. It stays open while cases are not tested, flaky, or passed too seldom to be
    believed. An issue with more cases than it names waits for a run that lacks no verdict.
    `records` are those of the run, by case, `started` is the start of the night.
    """
    place = {"run": run, "lab": lab, "folder": folder, "reports": reports}
    run_now: dict[str, Any] = {"last_seen": started, "last_run": run}
    begins: dict[str, Any] = {"first_seen": started, "first_run": run, **run_now}
    pairs = [pair for listed in comparison.pairs.values() for pair in listed]
    judged = {
        name: pair.after
        for pair in pairs
        if pair.after is not None and pair.after.has_verdict
        for name in _names(pair, histories.get(pair.after.case))
    }
    fresh = {pair.shown.case for name in _NEW for pair in comparison[name]}
    everybody = {name for pair in pairs for name in pair.names}

    def came_with(cases: Sequence[Attempt]) -> dict[str, Any]:
        names = {case.case for case in cases}
        lost = cases[0].fault is not None  # no file is to blame for that
        files = () if lost else files_used(comparison.files_changed, names, everybody - names)
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
            change |= _shown(cases, records, place)
        elif issue.state == "open":  # that of cases that were not run names none: see _not_run
            ended = [judged[case] for case in issue.cases if case in judged]
            names_all = issue.count == len(issue.cases) or not issue.cases
            stays = [case for case in ended if not (issue.fault or _is_gone(case, histories))]
            if stays:
                change |= _flaky(stays, histories)
            elif len(ended) == len(issue.cases) and (names_all or comparison.coverage.is_whole):
                change |= {"state": "closed", "closed": started}
                change |= {"known_issues": _known(issue, ended), "again": _again(ended, histories)}
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
                **_shown(cases, records, place),
            )
        )
    issues = list(_not_run(issues, comparison.coverage, begins))
    issues.sort(key=lambda issue: (issue.state == "open", issue.last_run == run))
    return tuple(issues[-_MOST:])


def _shown(
    cases: Sequence[Attempt], records: Mapping[str, CaseRecord], place: Mapping[str, str]
) -> dict[str, Any]:
    record = min((records[case.case] for case in cases), key=lambda record: record.duration_s)
    error = record.error
    return {
        "diagnosis": "\n".join(error.diagnosis.lines()) if error and error.diagnosis else None,
        "message": error.message if error else None,
        "example": example_of(record, **place),
    }


def _names(pair: Pair, known: CaseHistory | None) -> Iterator[str]:
    yield from pair.names
    yield from (attempts.last.case for attempts in (known.before if known is not None else ()))


def _known(issue: Issue, after: Iterable[Attempt]) -> tuple[str, ...]:
    failure = issue.outcome, issue.signature
    same = (each.known_issue for each in after if (each.outcome, each.signature) == failure)
    return tuple(sorted({name for name in same if name}))


def _not_run(
    issues: Iterable[Issue], coverage: Coverage, begins: Mapping[str, Any]
) -> Iterator[Issue]:
    lacks, is_known = coverage.not_run or coverage.selected is None, False
    for issue in issues:
        change: dict[str, Any] = {}
        if issue.fault == "not run":
            is_known = True
            if lacks:
                last = {key: begins[key] for key in ("last_seen", "last_run")}
                change = {"state": "open", "closed": None, "count": coverage.not_run, **last}
                change["message"] = coverage.headline()
        yield issue.model_copy(update=change)
    if lacks and not is_known:
        yield Issue(
            id=short_hash("not run"),
            fault="not run",
            outcome="not run",
            signature="not run",
            diagnosis=None,
            message=coverage.headline(),
            count=coverage.not_run,
            cases=(),
            **begins,
        )


def _cases(
    attempts: Sequence[Attempt], histories: Histories, fresh: Collection[str]
) -> dict[str, Any]:
    cases = tuple(attempt.case for attempt in attempts[:_CASES])
    new = sum(attempt.case in fresh for attempt in attempts)
    counts = {"count": len(attempts), "new": new, "cases": cases}
    return {**counts, "again": _again(attempts, histories), **_flaky(attempts, histories)}


def _again(cases: Iterable[Attempt], histories: Histories) -> str | None:
    names = dict.fromkeys(case.case for case in cases)
    known = [histories[name].now for name in names if name in histories]
    ran = [attempts for attempts in known if attempts.verdicts > 1]
    failed, passed = sum(case.failed for case in ran), sum(case.passed for case in ran)
    text = f"{format_attempts(failed, failed + passed)} ({counted(len(ran), 'case')})"
    return text if ran else None


def _flaky(cases: Iterable[Attempt], histories: Histories) -> dict[str, Any]:
    known = [histories.get(case.case) for case in cases]
    flaky = [case.state.summary for case in known if case and case.is_flaky and case.state]
    return {"flaky": flaky[0] if flaky and len(flaky) == len(known) else None}


def _is_gone(after: Attempt, histories: Histories) -> bool:
    known = histories.get(after.case)
    state = known.state if known is not None else None
    return state is None or (state.is_sure and not state.is_flaky)


def rerun_counts(
    histories: Histories, records: Mapping[str, CaseRecord], room_s: float
) -> dict[str, int]:
    """Return how often to run cases again whose result is not yet believed, by name.

    The shortest come first, with a limit for each cause, as far as `room_s` goes. Cases that fail
    as a known issue expects are not among them.
    """
    times_by_case: dict[str, int] = {}
    causes: Counter[str | None] = Counter()
    for name in sorted(histories, key=lambda name: records[name].duration_s):
        history = histories[name]
        last, state = history.now.last, history.state
        if not (last.has_verdict and state and state.wants_more and not last.known_issue):
            continue
        cause = cause_of(last)
        causes[cause] += 1
        if cause is not None and causes[cause] > _AGAIN_OF_A_CAUSE:
            continue
        times = CONFIRMED - history.now.verdicts
        room_s -= times * records[name].duration_s
        if room_s < 0:
            break
        times_by_case[name] = times
    return times_by_case


def add_searches(
    issues: Iterable[Issue],
    comparison: Comparison,
    records: Mapping[str, CaseRecord],
    command: Callable[[NewFailure], list[str] | None],
    night: str,
    histories: Histories = NO_HISTORIES,
) -> tuple[Issue, ...]:
    """Give each issue that is new in this comparison the bisection of its cheapest case.

    So too each issue that this night shows to be flaky, if that came with other versions.
    """
    searches: dict[str | None, CauseSearch] = {}
    hindrances: dict[str | None, str] = {}
    flaky = [
        Pair(history.last.last, history.now.bad)
        for history in histories.values()
        if history.turned_flaky and history.last is not None
    ]
    for pair in (*comparison["new"], *comparison["changed"], *flaky):
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
            hindrances[issue.id] = f"issue {first.id} with the same signature is bisected instead"
    return tuple(
        issue.model_copy(update={"search": searches[issue.id], "hindrance": None})
        if issue.id in searches
        else issue.model_copy(update={"hindrance": hindrances.get(issue.id, issue.hindrance)})
        for issue in issues
    )


def next_search(issues: Iterable[Issue], night: str) -> Issue | None:
    """Return the issue to bisect next: new ones before older ones, the cheapest first."""
    waiting = [
        (search.since != night, search.cost_s, issue.id, issue)
        for issue in issues
        if issue.state == "open" and (search := issue.search) and search.is_open
        if search.ended_in != night
    ]
    return min(waiting)[-1] if waiting else None


def add_facts(
    issues: Iterable[Issue], facts: Callable[[str], CauseFacts | None]
) -> Iterator[Issue]:
    """Yield issues with the facts of their causes; those not in the last runs keep theirs."""
    for issue in issues:
        known = facts(issue.id) or issue.facts
        files = {"files_changed": issue.files_changed}
        yield issue.model_copy(update={"facts": known and known.model_copy(update=files)})


_SHOWN: Final = 50
_REASON_CHARS: Final = 100


def bisection_text(issue: Issue) -> str:
    """Return the result of its bisection, or why there is none, in one line."""
    search = issue.search
    if issue.fault is not None:
        return "not bisected: a missing verdict is not a failure of a version"
    if search is None and issue.state == "closed":
        return "not bisected: it is gone"
    if search is None and issue.flaky:
        return f"not bisected: flaky: {issue.flaky}"
    if search is None:
        command = ("qnn-harness", "bisect", "--axis", "qnn", "--case", issue.cases[0])
        why = issue.hindrance or (
            "no earlier run of these cases is known in which it passed; find the version with "
            f"`{shlex.join(command)}`"
        )
        return f"not bisected: {why}"
    if not search.is_open:
        return search.answer or f"no answer: the bisection ended with exit code {search.exit_code}"
    state = "not finished" if search.folder else "not started in time"
    return f"{state}; the next night continues it"


def facts_text(issue: Issue) -> str:
    """Return the facts of its cause as a line of Markdown; empty if unknown, or it is closed."""
    if issue.facts is None or issue.state == "closed":
        return ""
    return as_markdown(facts_line(issue.facts))


def rerun_text(issue: Issue) -> str:
    """Return the result of running its cases again; empty if they were not."""
    time = day_and_minute(issue.closed or issue.last_seen)
    return f"run again in the night of {time}: {issue.again}" if issue.again else ""


def issue_text(issue: Issue, reports: str = "reports") -> str:
    """Return an issue as Markdown short enough for trackers, with all names as code."""
    return "\n".join(_lines(issue, reports)) + "\n"


def title(issue: Issue) -> str:
    """Return its title as code: outcome, diagnosis or signature, and test or device."""
    named = signature_text(issue.signature)
    if issue.diagnosis:
        named = issue.diagnosis.partition(" ")[0].rstrip(":")
    server = server_lost(issue.message or "")
    if issue.fault == "lab" and server:
        return as_code(f"{LOST_TO['lab']}: {NO_SERVER}{server}", 120)
    if issue.fault == "lab" and issue.message:  # a signature has no names
        named = issue.message.partition("\n")[0]
        if len(named) > _REASON_CHARS:
            named = named[:_REASON_CHARS].rpartition(": ")[0] or named
        device = (issue.example.device if issue.example else None) or ""
        on = f" on {device}" if device not in named else ""
        return as_code(f"{LOST_TO['lab']}{on}: {named}", 120)
    ended = LOST_TO[issue.fault] if issue.fault is not None else issue.outcome
    test = function_of(issue.cases[0]) if issue.cases else ""
    why = "" if named == ended else f": {named}"
    return as_code(f"{ended}{why}{f' in {test}' if test else ''}", 120)


def _why_closed(issue: Issue, time: str) -> str:
    if issue.known_issues:
        names = ", ".join(map(as_code, issue.known_issues))
        return f"closed {time}: it still fails, as known issue {names} expects"
    if issue.fault == "not run":
        return f"gone {time}: all cases were run"
    if issue.fault is not None:
        return f"gone {time}: all its cases have a verdict"
    return f"gone {time}: all its cases were tested, and none fails this way"


def _lines(issue: Issue, reports: str) -> Iterator[str]:
    yield f"# {title(issue)} [{issue.id}]"
    yield ""
    yield f"State: {issue.state}"
    yield ""
    first, last = day_and_minute(issue.first_seen), day_and_minute(issue.last_seen)
    yield f"- first seen in the night of {first}, run {as_code(issue.first_run)}"
    yield f"- last seen in the night of {last}, run {as_code(issue.last_run)}"
    if issue.closed:
        yield f"- {_why_closed(issue, day_and_minute(issue.closed))}"
    yield f"- signature: {as_code(issue.signature, 500)}"
    yield from (f"- {text}" for text in (facts_text(issue), rerun_text(issue)) if text)
    if issue.flaky:
        yield f"- flaky: {as_code(issue.flaky, 500)}"
    if issue.diagnosis:
        name, *details = (as_code(line, 1000) for line in issue.diagnosis.splitlines())
        yield from (f"- diagnosis: {name}", *(f"  - {line}" for line in details))
    if issue.message:
        yield f"- message: {as_code(issue.message, 2000)}"
    if issue.example:
        yield from example_lines(issue.example)
    yield f"- bisection: {as_code(bisection_text(issue), 1000)}"
    if issue.search:
        yield f"  - {as_code(shlex.join(('qnn-harness', *issue.search.command)), 2000)}"
        if issue.search.folder:
            yield f"  - {as_code(str(PurePath(reports, issue.search.folder, 'report.md')))}"
    yield ""
    yield f"Cases: {issue.count}"
    yield ""
    yield from (f"- {as_code(case, 300)}" for case in issue.cases[:_SHOWN])
    if issue.count > _SHOWN:
        yield f"- and {issue.count - _SHOWN} more"
