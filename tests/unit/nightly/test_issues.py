"""Causes followed from night to night, their examples, and the next bisection."""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from harness.diagnosis.error_record import ChainLink, ErrorRecord
from harness.history.attempts import Attempt, attempts_by_name, cause_of, finder
from harness.history.case_states import AGAIN, CaseHistory
from harness.history.comparison import Comparison, apply_history, compare
from harness.history.timeline import CauseFacts, kind_of
from harness.nightly.issues import (
    NO_HISTORIES,
    CauseSearch,
    Issue,
    add_facts,
    add_searches,
    bisection_text,
    example_lines,
    example_of,
    follow_issues,
    issue_text,
    next_search,
    rerun_counts,
    title,
)
from harness.nightly.night import summary_lines
from harness.results.record import CaseRecord, PlacementRecord, RuntimeRecord
from tests.report_page import without_code
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, briefs
from tests.unit.nightly.nights import a_night

NIGHT = "20261123T010000Z-ab-nightly"
Histories = Mapping[str, CaseHistory]


def no_facts(_: str) -> None:
    """Nothing is held."""


def records_of(text: str, **changed: Any) -> list[CaseRecord]:
    """Attempts divided by semicolons."""
    return [attempt(part, **changed) for part in text.split(";") if part.strip()]


def by_case(records: Iterable[CaseRecord]) -> dict[str, CaseRecord]:
    return {record.case: record for record in records}


def compared(
    before: str | Sequence[CaseRecord],
    after: Sequence[CaseRecord],
    histories: Histories = NO_HISTORIES,
    **more: Any,
) -> Comparison:
    base = records_of(before) if isinstance(before, str) else before
    comparison = compare(map(Attempt.of, base), map(Attempt.of, after), **more)
    return apply_history(comparison, histories)


def followed(
    known: Sequence[Issue],
    before: str | Sequence[CaseRecord],
    after: str | Sequence[CaseRecord],
    started: str = "2",
    histories: Histories = NO_HISTORIES,
    **more: Any,
) -> tuple[Issue, ...]:
    """The issues after a night."""
    records = records_of(after) if isinstance(after, str) else after
    comparison = compared(before, records, histories, **more)
    return follow_issues(
        known,
        comparison,
        by_case(records),
        run=f"run {started}",
        started=started,
        histories=histories,
    )


def searched(
    before: str | Sequence[CaseRecord],
    after: Sequence[CaseRecord],
    histories: Histories = NO_HISTORIES,
) -> tuple[Issue, ...]:
    """The issues of a night, with the bisections that are to be made."""
    return add_searches(
        followed([], before, after, histories=histories),
        compared(before, after, histories),
        by_case(after),
        lambda failure: failure.command("lab", "reports"),
        NIGHT,
        histories,
    )


def histories_of(*before: str, now: str) -> dict[str, CaseHistory]:
    """The cases of a run, and what those before said of them, the oldest first."""
    runs = [attempts_by_name(briefs(texts)) for texts in before]
    histories = {}
    for name, attempts in attempts_by_name(briefs(now)).items():
        observed = [then for run in runs if (then := finder(run)(attempts.last)) is not None]
        last = next((then for then in reversed(observed) if then.last.has_verdict), None)
        histories[name] = CaseHistory(attempts, observed, last)
    return histories


def summary_of(*issues: Issue, run: str = "run 2", started: str = "2") -> list[str]:
    return list(summary_lines(a_night(issues=issues, started=started, run=run)))


def test_the_files_that_changed_when_it_came_are_named_and_what_is_gone_accuses_nobody() -> None:
    def seen(known: Sequence[Issue], before: str, after: str, code: str) -> Issue:
        infos = {"code": {"test_a.py": "1"}}, {"code": {"test_a.py": code}}
        issues = followed(known, before, after, infos=infos)
        (issue,) = (issue for issue in issues if not issue.fault)
        return issue

    (first,) = add_facts([seen([], "a passed", "a failed", "2")], no_facts)
    assert (first.facts, "fails on" in issue_text(first)) == (None, False), "nothing is held of it"
    facts = CauseFacts(
        shows="fails", devices=(), since="2026-11-02T22:00", since_run="r", versions_changed=""
    )
    (first,) = add_facts([first], {first.id: facts, "another": facts}.get)
    line = "- fails; since 2026-11-02; changed then: `test_a.py`"
    assert line in issue_text(first).splitlines()
    assert f"  {line}" in summary_of(first)
    assert list(add_facts([first], no_facts)) == [first], "what is long ago is not in the last runs"
    later = seen([first], "a failed", "a failed", "1")
    assert later.files_changed == ("test_a.py",), "what changes later did not bring it"
    missing = seen([later], "a failed", "a passed", "1")
    assert missing.state == "closed"
    summary = "\n".join(summary_of(missing))
    for text in (issue_text(missing), summary):
        assert "fails; since" not in text
        assert "test_a.py`" not in text
    assert "not bisected" not in summary
    again = seen([missing], "a passed", "a failed", "1")
    assert (again.state, again.files_changed) == ("open", ()), "this time none had changed"


def test_what_the_lab_lost_on_a_device_is_one_issue_that_names_it() -> None:
    late = "b error message=not_done_in_60_s"
    early = attempt("a error message=phone-2:_away", device="phone-2")
    two = attempt(late, device="phone-2", duration_s=9)
    first = followed([], "", [early, two])
    assert [(title(issue), issue.count) for issue in first] == [
        ("`lost to the lab: phone-2: away`", 2)
    ]
    both = followed(first, "", [two, attempt(late, device="phone-3")])
    assert [(title(issue), issue.id == first[0].id) for issue in both] == [
        ("`lost to the lab on phone-2: not done in 60 s`", True),
        ("`lost to the lab on phone-3: not done in 60 s`", False),
    ], "a second phone is an issue of its own"


def test_devices_that_one_adb_server_lost_are_one_issue_that_names_the_server() -> None:
    text, other = "no adb server at pc:5037: Connection refused", "no adb server at pc:5038: Broken"
    unplugged = (
        "is unplugged: it is not attached to the adb server at pc:5037, which sees no device"
    )
    records = [
        attempt("a error", device=device, error=ErrorRecord.of(message=message))
        for device, message in (
            ("phone-1", text),
            ("phone-2", f"device phone-2 is not used: it does not answer: {text}; is it running?"),
            ("phone-3", f"{text}\nat test_a.py:3"),
            ("phone-4", other),
            ("phone-5", "adb server at pc:5037 does not answer within 5 s"),
            # a phone that the server does not see is an issue of its own
            *((name, f"device {name} {unplugged}") for name in ("phone-6", "phone-7")),
        )
    ]
    assert {title(issue): issue.count for issue in followed([], "", records)} == {
        "`lost to the lab: no adb server at pc:5037`": 4,
        "`lost to the lab: no adb server at pc:5038`": 1,
        f"`lost to the lab: device phone-6 {unplugged}`": 1,
        f"`lost to the lab: device phone-7 {unplugged}`": 1,
    }
    assert {kind_of(Attempt.of(record)) for record in records[:3]} == {"no adb server at pc:5037"}


def test_a_new_failure_behind_an_old_signature_is_told() -> None:
    old, both = "a crashed", "a crashed;b crashed"
    first = followed([], "", old, "1")
    (issue,) = followed(first, "a crashed;b passed", both)
    assert (issue.count, issue.new) == (2, 1)
    (line,) = (line for line in summary_of(issue) if issue.id in line)
    assert "(2 cases, 1 of them new, " in line
    other = [*records_of("a crashed;b passed"), attempt("c crashed", file="suites/test_c.py")]
    apart = followed(first, old, other, "3")
    assert [(issue.first_run, issue.count) for issue in apart] == [("run 1", 1), ("run 3", 1)], (
        "another test is an issue of its own"
    )
    assert [issue.new for issue in followed([issue], "", "b passed")] == [0]


def test_one_bisection_is_made_of_a_signature_however_many_tests_have_it() -> None:
    names = {f"suites/test_{name}.py": cost for name, cost in (("a", 2.0), ("b", 1.0))}
    before = [attempt("a@2.50.40 passed", file=name) for name in names]
    after = [attempt("a failed", file=name, duration_s=cost) for name, cost in names.items()]
    first, second = sorted(searched(before, after), key=lambda issue: issue.search is None)
    assert first.search.case.startswith("suites/test_b.py"), "the shortest"
    assert second.search is None
    assert first.id in str(second.hindrance)


def test_its_message_is_that_of_the_case_that_reproduces_it() -> None:
    long = attempt("v failed message=at_8", duration_s=9)
    short = attempt("w failed message=at_12", duration_s=1)
    issues = followed([], "", [long, short])
    assert [(issue.count, issue.message) for issue in issues if issue.cases] == [(2, "at 12")]


def test_a_cause_is_an_issue_of_its_own_until_it_is_gone() -> None:
    first = followed([], "", "a failed;b failed;c crashed;d passed;e failed known=k;f error", "1")
    assert {(issue.outcome, issue.count, issue.state) for issue in first} == {
        ("failed", 2, "open"),
        ("crashed", 1, "open"),
        ("error", 1, "open"),
    }
    assert all((issue.first_seen, issue.last_seen) == ("1", "1") for issue in first)
    # one of its cases still fails, the other one passes; what was not tested is not gone
    second = followed(first, "a failed;b failed;c crashed", "a failed;b passed;c error", "2")
    by_outcome = {issue.outcome: issue for issue in second}
    failed, crashed = by_outcome["failed"], by_outcome["crashed"]
    assert (failed.count, failed.first_seen, failed.last_seen) == (1, "1", "2")
    assert (crashed.state, crashed.last_seen) == ("open", "1")
    third = followed(second, "a failed;b passed;c error", "a passed;b passed;c passed", "3")
    assert [(issue.state, issue.closed) for issue in third] == [("closed", "3")] * 3
    assert followed(third, "", "a passed;b passed;c passed", "4") == third, "gone since then"
    fourth = followed(third, "a passed", "a failed", "4")
    again = next(issue for issue in fourth if issue.outcome == "failed")
    assert (again.state, again.closed, again.first_seen) == ("open", None, "1")


def test_one_is_found_again_with_other_versions_in_the_names_of_its_cases() -> None:
    first = followed([], "", "a@2.50.40 failed", "1")
    (second,) = followed(first, "a@2.50.40 failed", "a@2.51.0 failed", "2")
    assert (second.id, second.last_seen) == (first[0].id, "2")
    (third,) = followed([second], "a@2.51.0 failed", "a@2.52.0 passed", "3")
    assert third.state == "closed"
    (issue,) = followed([second], "b passed", "b passed", "3")
    assert issue.state == "open", "its case was not run"


def test_what_still_fails_as_a_known_issue_expects_is_not_said_to_be_gone(
    snapshot: Snapshot,
) -> None:
    first = followed([], "", "a crashed;b crashed", "1")
    (second,) = followed(first, "a crashed;b crashed", "a crashed known=old-bug;b passed", "2")
    assert (second.state, second.known_issues) == ("closed", ("old-bug",))
    (third,) = followed([second], "a crashed known=old-bug", "a crashed;b passed", "3")
    assert (third.state, third.known_issues) == ("open", ())
    (other,) = followed(first, "a crashed", "a failed known=else;b passed", "2")
    lines = [line for issue in (second, other) for line in issue_text(issue).splitlines()]
    assert [line for line in lines if "closed" in line or "gone" in line] == snapshot


def test_missing_verdicts_are_an_issue_for_each_reason_until_there_is_one(
    snapshot: Snapshot,
) -> None:
    lost = "a error cause=config;b error cause=config;c error;d error cause=harness;e passed"
    first = followed([], "", lost, "1")
    assert {issue.fault: issue.count for issue in first} == {"input": 2, "lab": 1, "harness": 1}
    assert len({issue.id for issue in first}) == 3
    texts = [f"{title(issue)}: {bisection_text(issue)}" for issue in first]
    second = {
        issue.fault: issue
        for issue in followed(first, lost, "a failed;b error cause=config;c passed", "2")
    }
    assert {fault: (issue.state, issue.count) for fault, issue in second.items()} == {
        "input": ("open", 1),
        "lab": ("closed", 1),
        "harness": ("open", 1),
        None: ("open", 1),
    }
    lines = issue_text(second["lab"]).splitlines()
    assert [*texts, *(line for line in lines if line.startswith("- gone"))] == snapshot


def test_cases_that_were_not_run_are_one_issue(snapshot: Snapshot) -> None:
    def ran(known: Sequence[Issue], selected: int, started: str) -> tuple[Issue, ...]:
        infos = (None, {"selected": selected})
        return followed(known, "", "a passed", started, infos=infos)

    (first,) = ran([], 3, "1")
    assert (first.fault, first.count, first.state) == ("not run", 2, "open")
    (second,) = ran([first], 2, "2")
    assert (second.id, second.count, second.first_seen, second.last_seen) == (first.id, 1, "1", "2")
    assert second.cases == ()
    (third,) = ran([second], 1, "3")
    assert (third.state, third.closed) == ("closed", "3")
    (line,) = (line for line in issue_text(third).splitlines() if line.startswith("- gone"))
    assert line == snapshot
    assert ran([third], 1, "4") == (third,)
    (again,) = ran([third], 2, "5")
    assert (again.id, again.state, again.closed) == (first.id, "open", None)
    assert (again.first_seen, again.last_seen, again.last_run) == ("1", "5", "run 5")
    # a run that does not say how many cases it had may have left some out
    (unknown,) = followed([], "", "a passed", infos=(None, {"finished": None}))
    assert (unknown.fault, unknown.state, unknown.count) == ("not run", "open", 0)


def test_issues_are_the_same_ones_for_every_version_of_the_harness() -> None:
    """Else an update would open each of them anew."""
    (issue,) = followed([], "", "a failed id=x")
    text = f"failed {briefs('a failed id=x')[0].signature} suites/test_a.py::test_b"
    assert issue.id == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert issue.id == cause_of(briefs("other failed id=x")[0])
    assert (cause_of(None), cause_of(briefs("a passed")[0])) == (None, None)


def test_what_first_failed_so_tells_why() -> None:
    text = "failed id=first message=it_broke"
    (issue,) = followed([], "", f"a {text};b {text}")
    error = attempt(f"a {text}").error
    assert (issue.outcome, issue.signature) == ("failed", error.signature)
    assert (issue.diagnosis, issue.message) == ("\n".join(error.diagnosis.lines()), "it broke")
    assert title(issue) == "`failed: first in test_b`"
    (bare,) = followed([], "", "a failed")
    assert bare.diagnosis is None
    (dumb,) = followed([], "", [attempt("a failed", error=None)])
    assert (dumb.signature, dumb.diagnosis, dumb.message) == ("failed", None, None)


def test_of_more_issues_than_are_kept_those_of_the_last_run_and_open_ones_stay() -> None:
    (failing, missing, elsewhere) = followed([], "", "a failed;b crashed;c hung", "1")
    many = [
        missing.model_copy(update={"id": str(n), "state": "closed", "closed": "1"})
        for n in range(499)
    ]
    kept = followed([failing, elsewhere, *many], "", "a failed", "2")
    assert len(kept) == 500
    assert [issue.outcome for issue in kept[-2:]] == ["hung", "failed"], (
        "what is seen now is the last"
    )
    assert [issue.id for issue in kept[:2]] == ["1", "2"], "what was seen longest ago went"


def case_of(issue: Issue) -> str:
    """The name of the case that is bisected."""
    return issue.search.case.split("-")[-1][:-1] if issue.search else ""


def of_durations(text: str, durations: Mapping[str, float]) -> list[CaseRecord]:
    return [attempt(part, duration_s=durations[part[0]]) for part in text.split(";")]


def test_of_a_cause_the_cheapest_case_is_bisected_and_the_cheapest_cause_first() -> None:
    issues = searched(
        "a@2.50.0 passed;b@2.50.0 passed;c@2.50.0 passed;d@2.50.0 failed;e passed",
        of_durations(
            "a failed;b failed;c crashed;d failed message=other;e hung",
            {"a": 40, "b": 4, "c": 9, "d": 1, "e": 1},
        ),
    )
    assert set(map(case_of, issues)) == {"b", "c", "d", ""}, "of a and b the shorter one"
    (alike,) = (issue for issue in issues if issue.search is None)
    assert alike.hindrance
    order = []
    while (issue := next_search(issues, NIGHT)) and issue.search:
        order.append(case_of(issue))
        finished = issue.search.model_copy(update={"exit_code": 3, "ended_in": NIGHT})
        issues = tuple(
            entry.model_copy(update={"search": finished}) if entry is issue else entry
            for entry in issues
        )
    assert order == ["d", "b", "c"]
    # what the time did not reach, or the lab stopped, is next night's, after what is new then
    later = next_search(issues, "20261124T010000Z-cd-nightly")
    assert case_of(later) == "d"


def test_what_is_new_is_searched_before_what_is_older_however_long_it_takes() -> None:
    after = of_durations("a failed;b crashed", {"a": 40, "b": 4})
    a, b = sorted(searched("a@2.50.0 passed;b@2.50.0 passed", after), key=case_of)
    older = b.model_copy(update={"search": b.search.model_copy(update={"since": "20261101"})})
    assert next_search([older, a], NIGHT) == a
    assert next_search([older, a.model_copy(update={"state": "closed"})], NIGHT) == older
    assert next_search([a.model_copy(update={"search": None})], NIGHT) is None
    finished = a.search.model_copy(update={"exit_code": 0})
    assert next_search([older, a.model_copy(update={"search": finished})], NIGHT) == older


def test_a_search_on_more_axes_takes_longer() -> None:
    old, new = "2.50.40-ort-1.24.1-by-2.49.0", "2.51.0-ort-1.31.1-by-2.50.0"
    two, one = "2.51.0-ort-1.31.1-by-2.49.0", "2.51.0-ort-1.24.1-by-2.49.0"

    def with_versions(versions: str, name: str, outcome: str) -> CaseRecord:
        case = f"suites/test_a.py::test_b[sim-htp-{versions}-{name}]"
        axes = {"backend": "htp", "qnn": versions.split("-")[0], "which": name}
        return attempt(f"{name} {outcome}", case=case, axes=axes)

    def wanted(**after: str) -> str:
        before = [with_versions(old, name, "passed") for name in after]
        records = [with_versions(versions, name, "failed") for name, versions in after.items()]
        (issue,) = searched(before, records)
        return case_of(issue)

    assert wanted(a=new, b=two, c=one) == wanted(c=one, a=new, b=two) == "c"
    assert wanted(a=new, b=two) == wanted(b=two, a=new) == "b"
    assert wanted(a=new) == "a"
    assert wanted(a=one, b=one) == "a", "of two as cheap, always the same one"


def test_nothing_in_it_is_more_than_text() -> None:
    (issue,) = followed([], "", "a failed message=<b>`x`_@all_[l](http://e)")
    text = issue_text(issue)
    assert text.splitlines()[2] == "State: open"
    lines = [line for line in text.splitlines() if "@all" in line]
    assert lines[0].startswith("# `` failed: ")
    assert not any(set(without_code(line)) & set("`<@(") for line in lines)


def test_a_tracker_takes_it_however_much_fails() -> None:
    many = ";".join(f"{'x' * 400}{number} failed message={'m' * 9000}" for number in range(300))
    (issue,) = followed([], "", many)
    assert (issue.count, len(issue.cases)) == (300, 200)
    assert issue_text(issue).endswith("\n- and 250 more\n")
    assert len(issue_text(issue)) < 60_000
    (fifty,) = followed([], "", ";".join(f"c{number} failed" for number in range(50)))
    assert issue_text(fifty).splitlines()[-1].endswith("c49]`"), "none is left out"


def test_one_of_more_cases_than_it_names_is_open_until_all_have_a_verdict() -> None:
    failed = ";".join(f"c{number} failed" for number in range(201))
    passed = ";".join(f"c{number} passed" for number in range(200))
    opened = followed([], "", failed)
    lost = followed(opened, failed, f"{passed};c200 error")
    assert [issue.state for issue in lost if issue.fault is None] == ["open"]
    issues = followed(opened, failed, f"{passed};c200 passed")
    assert [issue.state for issue in issues] == ["closed"]


def times(text: str, number: int) -> str:
    """An attempt and so many more."""
    return ";".join(f"{text} n={index}" for index in range(1, number + 1))


def test_an_issue_says_what_running_its_cases_again_came_to(snapshot: Snapshot) -> None:
    def seen_in(known: Sequence[Issue], before: str, after: str) -> Issue:
        (issue,) = followed(known, before, after, histories=histories_of(before, now=after))
        return issue

    def said(issue: Issue) -> list[str]:
        lines = [line.strip() for line in summary_of(issue) if "run again" in line]
        assert lines == [line for line in issue_text(issue).splitlines() if "run again" in line]
        return lines

    first = seen_in([], "a passed;b passed", f"{times('a failed', 7)};b failed")
    both = seen_in([], "a passed;b passed", f"{times('a failed', 7)};{times('b failed', 2)}")
    texts = said(first) + said(both)
    later = seen_in([first], f"{times('a failed', 7)};b failed", "a failed;b failed")
    assert said(later) == [], "of another night it says nothing"
    missing = seen_in(
        [first], "a failed;b failed", f"{times('a passed', 7)};{times('b passed', 7)}"
    )
    assert missing.state == "closed"
    assert [*texts, *said(missing)] == snapshot


def test_what_ended_otherwise_is_run_again_the_shortest_first_as_far_as_there_is_time() -> None:
    was = "a passed;b failed;c passed;d failed;e passed;f passed"
    now = "a failed;b passed;c passed;d failed;e error;f failed known=k"
    histories = histories_of(*[was] * 3, now=now)
    records = by_case(of_durations(now, {"a": 2.0, "b": 1.0} | dict.fromkeys("cdef", 0.0)))

    def again(room_s: float) -> dict[str, int]:
        counts = rerun_counts(histories, records, room_s)
        return {name[-2]: number for name, number in counts.items()}

    assert again(99) == {"b": AGAIN, "a": AGAIN}, "d fails as ever, e has no verdict"
    assert again(17.9) == {"b": AGAIN}
    assert again(5) == {}
    # a death between them: what was made again counts
    histories = histories_of(was, now=times("a failed", 3))
    assert list(rerun_counts(histories, records, 99).values()) == [AGAIN - 2]
    assert rerun_counts(histories_of(was, now=times("a failed", 7)), records, 99) == {}
    assert rerun_counts(histories_of(was, now="a failed;a passed n=2"), records, 99) == {}


def test_of_one_cause_only_so_many_cases_are_run_again() -> None:
    now = ";".join(f"c{number} failed" for number in range(50))
    records = by_case(records_of(now))
    assert len(rerun_counts(histories_of(now=now), records, 1e9)) == 20
    # what is not run again takes no time from others
    now += ";d failed message=other"
    records |= by_case([attempt("d failed message=other", duration_s=9)])
    cost = AGAIN * sum(sorted(record.duration_s for record in records.values())[:20])
    counts = rerun_counts(histories_of(now=now), records, cost + AGAIN * 9)
    assert (len(counts), next(reversed(counts))[-2]) == (21, "d")


def test_an_issue_of_a_flaky_case_stays_until_it_is_believed_to_be_over() -> None:
    issues: tuple[Issue, ...] = ()
    runs = ["a passed;z passed", "a failed;a passed n=2;z failed", *["a passed;z passed"] * 60]
    states: list[tuple[str, bool] | None] = []
    before = ""
    for number, now in enumerate(runs):
        histories = histories_of(*runs[max(0, number - 30) : number], now=now)
        comparison = compared(before, records_of(now), histories)
        assert comparison.cases("fixed") == [], "it is not fixed because it passed once"
        issues = followed(issues, before, now, str(number), histories)
        states += [(issue.state, bool(issue.flaky)) for issue in issues] or [None]
        before = now
    assert states[1:3] == [("open", False), ("open", True)], "at first z might always fail"
    finished = states.index(("closed", True))
    assert 12 < finished < 40
    assert states[finished:] == [states[finished]] * (len(runs) - finished), "never again"


def test_a_flake_that_came_with_a_version_is_bisected_as_one_and_another_one_is_not() -> None:
    def searched_after(before: str) -> Issue:
        histories = histories_of(*[before] * 3, now="a failed;a passed n=2")
        records = records_of("a failed;a passed n=2")
        comparison = compared(before, records, histories)
        assert comparison.cases("flaky") == [records[0].case]
        assert comparison.cases("new") == comparison.cases("changed") == []
        (issue,) = searched(before, records, histories)
        return issue

    issue = searched_after("a@2.50.40 passed")
    assert " ".join(issue.search.command).count("--repeat 7") == 1
    assert issue.search.cost_s == pytest.approx(5 * 7 * attempt("a failed").duration_s)
    same = searched_after("a passed")
    assert same.search is None
    assert same.flaky


def test_what_is_known_of_the_version_that_brought_it(snapshot: Snapshot) -> None:
    (issue,) = followed([], "", "a failed")
    texts = []
    for changed in (
        {},
        {"folder": "b"},
        {"folder": "b", "exit_code": 3},
        {"exit_code": 0, "answer": "2.51.0 has it"},
        {"exit_code": 1, "answer": "last good 1, first bad 2"},
        {"exit_code": 2},
    ):
        search = CauseSearch(command=("x",), case="a", cost_s=1, since="1", **changed)  # type: ignore[arg-type]
        bisected = issue.model_copy(update={"search": search})
        texts.append(bisection_text(bisected))
        lines = issue_text(bisected, "/my nights").splitlines()
        index = lines.index(f"- bisection: `{texts[-1]}`")
        assert lines[index + 1] == "  - `qnn-harness x`"
        assert ("  - `/my nights/b/report.md`" in lines) == ("folder" in changed)
    texts.append(bisection_text(issue.model_copy(update={"search": None, "hindrance": "h"})))
    assert texts == snapshot


WHERE = {"device": "one", "engine": "qnn", "backend": "htp", "ort": None, "compiler": "2.47.0"}
CHAIN = (
    ChainLink(code=1002, symbol="NO_PD", message="no room\nfor `it`", source="log"),
    ChainLink(code=1002, hex="0x3ea", message="failed", source="call"),
)


def ran_on_a_phone(**changed: Any) -> CaseRecord:
    record = attempt("a failed", device="one", **changed)
    phone = {"soc": "SM8650", "simulated": False, "target": "android-arm64", "os_build": "A14 one"}
    update = {
        "device": record.device.model_validate(record.device.model_dump() | phone),
        "placement": PlacementRecord(qnn="2.51.0", **WHERE),
        "runtime": RuntimeRecord(
            qnn="2.51.0", build_id="2.51.0.9", source="sdk", contexts_by="2.47.0"
        ),
        "logs": ("logs/a/probe.plan",),
    }
    return record.model_copy(update=update)


def test_all_that_a_tracker_asks_for_is_there(snapshot: Snapshot) -> None:
    error = ErrorRecord.of(message="failed", api="call", code=1002, chain=CHAIN)
    record = ran_on_a_phone(error=error)
    example = example_of(record, run="r", lab="my lab.yaml")
    assert (example.device, example.bundle) == ("one", None)
    assert list(example_lines(example)) == snapshot
    ids = {"run": "r", "lab": "l", "reports": "/my nights"}
    assert example_of(record, **ids).logs == "/my nights/r/logs/a"
    elsewhere = example.model_copy(update={"folder": "/a farm"})
    (line,) = (line for line in example_lines(elsewhere) if "/a farm" in line)
    assert shlex.split(line.split(": ", 1)[1].strip("`")) == list(example.command)


def test_a_case_of_a_file_is_packed_and_one_that_says_nothing_has_nothing(
    snapshot: Snapshot,
) -> None:
    files = {"m": {"bytes": 7}, "n": {"bytes": 5}}
    record = ran_on_a_phone(measurements={"context_files": files})
    assert example_of(record, run="r", lab="l").bundle is None
    record = record.model_copy(update={"case": "m.bin::test_contexts[one-m.bin]"})
    example = example_of(record, run="r", lab="l")
    assert example.bundle[3:] == (record.case, "--run", "reports/r")
    other = example_of(record, run="r", lab="l", reports="mine")
    assert other.bundle == (*example.bundle[:-1], "mine/r")
    bare = attempt("a failed", error=None).model_copy(update={"placement": None, "logs": ()})
    dumb = example_of(bare.model_copy(update={"device": None}), run="r", lab="l")
    assert (dumb.ran, dumb.log, dumb.device, dumb.logs) == ((), (), None, None)
    assert list(example_lines(dumb)) == snapshot
