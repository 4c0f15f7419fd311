"""What people read of a cause: its title, where it is, what changed, and all of it (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from harness.answers.history.facts import facts_line
from harness.answers.report.document import as_code, as_markdown, markdown
from harness.device.transport.faults import NO_SERVER, server_lost
from harness.search.nightly.example import example_lines, grid
from harness.search.nightly.issues import Issue
from harness.verdict.results.coverage import LOST_TO

_SHOWN: Final = 50


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
        why = issue.hindrance or (
            "no run of this selection before it came is known in which it passed; `qnn-harness "
            f"bisect --axis qnn --case {shlex.quote(issue.cases[0])}` looks for a version"
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
    named = " ".join(part for part in issue.signature.split("|") if part != "-")
    if issue.diagnosis:
        named = issue.diagnosis.partition(" ")[0].rstrip(":")
    server = server_lost(issue.message or "")
    if issue.fault == "lab" and server:
        return as_code(f"{LOST_TO['lab']}: {NO_SERVER}{server}", 120)
    if issue.fault == "lab" and issue.message:  # a signature has no names
        named = issue.message.partition("\n")[0]
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
