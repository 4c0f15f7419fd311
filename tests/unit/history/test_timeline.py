"""Cases, kinds of failures and changes over hand-made nights."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from harness.bisect.new_failures import NewFailure
from harness.cli.schema import schemas
from harness.history.attempts import Attempt, attempts_by_name, cause_id, short_hash
from harness.history.case_states import CaseState
from harness.history.comparison import Bisectable, Pair
from harness.history.timeline import (
    CaseLine,
    CauseFacts,
    DeviceResult,
    Filter,
    HistoryReport,
    LackingRun,
    NightChange,
    StoredRun,
    case_row,
    changes_of,
    history_of,
    lines,
    lines_of,
)
from harness.runtimes.runtime import version_key
from tests.integration.hostile_words import CANARY, steering
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt
from tests.unit.results.records import record


def history_of_runs(
    runs: Sequence[tuple[str, Sequence[Attempt]]],
    bisectable: Callable[[Pair, CaseState | None], Bisectable] = lambda *_: Bisectable(),
    diagnosis: str = "",
    facts: Mapping[str, CauseFacts] = MappingProxyType({}),
) -> HistoryReport:
    """Of runs in their order."""
    stored = [StoredRun(run, "", 0, "") for run, _ in runs]
    attempts = [
        (short_hash(attempt.case_group), run, attempt) for run, briefs in runs for attempt in briefs
    ]
    attempts.sort(key=lambda entry: entry[:2])
    return history_of(attempts, stored, bisectable, Filter(diagnosis=diagnosis), facts.get)


def at_night(*runs: str) -> list[tuple[str, list[Attempt]]]:
    """A run a night, from 2026-11-01 on; ids that do not sort as they were begun."""
    nights_run = []
    for day, words in enumerate(runs, start=1):
        started = f"2026-11-{day:02}T20:00:00Z"
        records = [attempt(word, started=started) for word in words.split(";") if word.strip()]
        nights_run.append((f"run-{99 - day}", [Attempt.of(record) for record in records]))
    return nights_run


def nights(*runs: str, diagnosis: str = "") -> HistoryReport:
    return history_of_runs(at_night(*runs), diagnosis=diagnosis)


def lines_of_nights(*runs: str) -> list[CaseLine]:
    """The lines of cases that are one but for their versions."""
    return lines_of(attempts_by_name(briefs) for _, briefs in at_night(*runs))


def marks(line: CaseLine) -> str:
    return case_row(line, lambda *_: Bisectable()).recent


@pytest.mark.parametrize(
    ("runs", "recent", "fails", "edge"),
    [
        (("a passed",) * 4, "....", False, False),
        (("a failed",) * 2, "FF", True, False),
        (("a failed", "a passed"), "F.", False, False),
        (("a passed", "a failed known=k"), ".x", True, True),
        (("a passed", "a error", "a skipped", "a failed"), ".?-F", True, True),
        (("a error", "a skipped"), "?-", False, False),
        (("a passed", "", "a failed;a passed n=2"), ".~", False, False),
        (("a passed", "a failed", "a passed"), ".F.", False, False),
    ],
)
def test_the_last_runs_of_a_case(
    runs: tuple[str, ...], recent: str, fails: bool, edge: bool
) -> None:
    (line,) = lines_of_nights(*runs)
    assert (marks(line), line.fails, line.edge is not None) == (recent, fails, edge)


def test_each_run_counts_once_in_what_is_counted_of_it() -> None:
    (row,) = nights(
        *("a passed", "a failed;a passed n=2", "a failed id=x", "a failed id=x known=k"),
        *("a failed known=k", "a error", "a error", "a skipped"),
    ).cases
    assert (row.runs, row.passed, row.failed, row.expected) == (8, 2, 3, 2)
    assert (row.no_verdict, row.flaky_runs) == (3, 1)
    assert row.kinds == ("x", "call|1002|it broke")
    assert (row.pass_rate, row.lost, row.since[:10]) == (0.4, None, "2026-11-03")
    assert (row.first_bad_at or "")[:10] == "2026-11-03"
    (lost,) = nights("a passed", "a error").cases
    assert (lost.lost, lost.fails, lost.pass_rate) == ("lab", False, 1)
    (never,) = nights("a error").cases
    assert (never.pass_rate, never.state, never.first_bad, never.since) == (None, None, None, "")


def test_the_last_thirty_runs_are_shown() -> None:
    runs = [Attempt.of(attempt(name)) for name in ("a failed", "a failed", *["a passed"] * 29)]
    (line,) = lines_of(attempts_by_name([run]) for run in runs)
    assert marks(line) == "F" + 29 * "."
    assert len(line.runs) == 31


def told_of(*runs: str) -> dict[str, tuple[str, list[str]]]:
    """By the version in its name: the marks of a case, and where its bisection begins and ends."""

    def between(line: CaseLine) -> list[str]:
        words = (NewFailure.of(line.edge).command("l", "r") if line.edge else None) or []
        return [word for word, option in zip(words[1:], words, strict=False) if "--" in option][2:4]

    return {
        str(line.last.axis("qnn")): (marks(line), between(line)) for line in lines_of_nights(*runs)
    }


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # a night goes on with newer versions, and its case with them
        (
            ("a@2.47.0 passed", "a@2.48.40 failed", "a@2.49.40 failed"),
            {"2.49.40": (".FF", ["2.47.0", "2.48.40"])},
        ),
        # a third version is beside two, as are two beside one; so is another engine
        (
            ("a@2.50.40 passed;a@2.51.0 failed", "a@2.52.0 passed", "a@2.52.0 failed"),
            {"2.50.40": (".", []), "2.51.0": ("F", ["2.50.40", "2.51.0"]), "2.52.0": (".F", [])},
        ),
        # versions tried one after the other by hand are no story of one case
        (
            ("a@2.51.0 passed", "a@2.47.0 failed", "a@2.48.40 failed"),
            {
                "2.51.0": (".", []),
                "2.47.0": ("F", ["2.51.0", "2.47.0"]),
                "2.48.40": ("F", ["2.51.0", "2.48.40"]),
            },
        ),
        # one that comes again was beside the other: it does not fail since the other one passed
        (
            ("a@2.47.0 failed", "a@2.51.0 passed", "a@2.47.0 failed"),
            {"2.47.0": ("FF", ["2.51.0", "2.47.0"]), "2.51.0": (".", [])},
        ),
        # in one run both are there, and what passes beside it says where to begin
        (
            ("a@2.47.0 failed;a@2.51.0 passed",),
            {"2.47.0": ("F", ["2.51.0", "2.47.0"]), "2.51.0": (".", [])},
        ),
        # a pass of its own is nearer, and one that fails now bears nothing out
        (
            ("a@2.47.0 passed;a@2.51.0 passed", "a@2.47.0 failed;a@2.51.0 passed"),
            {"2.47.0": (".F", []), "2.51.0": ("..", [])},
        ),
        (
            ("a@2.47.0 failed;a@2.51.0 passed", "a@2.47.0 failed;a@2.51.0 failed"),
            {"2.47.0": ("FF", []), "2.51.0": (".F", [])},
        ),
        # nor does another engine
        (
            ("a@2.47.0 failed;a@2.51.0 passed engine=ort",),
            {"2.47.0": ("F", []), "2.51.0": (".", [])},
        ),
    ],
)
def test_a_row_is_one_case(
    runs: tuple[str, ...], expected: Mapping[str, tuple[str, list[str]]]
) -> None:
    assert told_of(*runs) == expected


@given(st.lists(st.sets(st.sampled_from(["2.47.0", "2.48.40", "2.51.0"]), min_size=1), max_size=6))
def test_no_name_is_in_two_rows_and_none_goes_back(runs: list[set[str]]) -> None:
    words = [";".join(f"a@{version} passed" for version in sorted(versions)) for versions in runs]
    of_line = [[run.last.axis("qnn") for run in line.runs] for line in lines_of_nights(*words)]
    assert sum(map(len, of_line)) == sum(map(len, runs)), "each attempt is in one"
    assert sum(len(set(of)) for of in of_line) == len({name for of in of_line for name in of})
    assert of_line == [sorted(of, key=lambda name: version_key(str(name))) for of in of_line]


def test_a_case_that_was_run_again_fails_since_it_first_did() -> None:
    started = [f"2026-11-02T{hour}:00:00.000000Z" for hour in ("20", "21", "22")]
    records = [
        attempt(f"a failed n={index}", started=start) for index, start in enumerate(started, 1)
    ]
    first = Attempt.of(attempt("a passed", started="2026-11-01T20:00:00Z"))
    report = history_of_runs(
        [("r1", [first]), ("r2", [Attempt.of(record) for record in records])], advised
    )
    (row,) = report.cases
    (kind,) = report.kinds
    assert (row.attempts, row.failed_attempts) == (4, 3)
    assert (row.since, row.first_bad_at, kind.first) == (started[0],) * 3
    (line,) = lines_of([attempts_by_name([Attempt.of(record) for record in reversed(records)])])
    assert line.since == started[0], "in whatever order they stand"


def test_a_kind_names_its_versions_and_a_device_if_there_is_one() -> None:
    brief = Attempt.of(attempt("a failed id=x", started="2026-11-01T20:00:00Z"))
    axes = {"qnn": "2.51.0", "ort": 1.27, "compiler": None}
    (kind,) = history_of_runs([("r", [replace(brief, axes=axes, device=None)])]).kinds
    assert (kind.devices, kind.versions) == (("?",), ("qnn 2.51.0, ort 1.27",))
    (kind,) = nights("a failed engine=executorch").kinds
    assert kind.versions == ("qnn 2.51.0, engine executorch",)


def test_a_kind_has_the_facts_of_its_cause_as_long_as_a_case_fails_so() -> None:
    nights = at_night("a passed;b failed message=two", "a failed id=x;b failed message=two")
    causes = [cause_id(brief) for brief in nights[1][1]]
    devices = (DeviceResult(device="sim", soc="S", result="affected"),)
    facts = {
        cause: CauseFacts(shows="fails", devices=devices, since="2026-11-02", since_run="r")
        for cause in causes
    }
    report = history_of_runs(nights, facts=facts)
    assert {kind.kind: kind.facts for kind in report.kinds} == {
        "x": facts[causes[0]],
        "call|1002|two": facts[causes[1]],
    }
    missing = [*nights, *at_night("", "", "a passed;b failed message=two")[2:]]
    assert {kind.kind: kind.facts for kind in history_of_runs(missing, facts=facts).kinds} == {
        "x": None,
        "call|1002|two": facts[causes[1]],
    }


def test_kinds_are_diagnoses_or_else_signatures() -> None:
    report = nights(
        "a failed id=x;b failed message=one",
        "a passed;b failed message=one",
        "a@2.52.0 failed id=x;c crashed id=x;d error",
    )
    kinds = {kind.kind: kind for kind in report.kinds}
    assert set(kinds) == {"x", "call|1002|one"}
    kind_x = kinds["x"]
    assert (kind_x.failures, kind_x.first[:10], kind_x.last[:10]) == (3, "2026-11-01", "2026-11-03")
    assert kind_x.cases == 2, "another version is not another case"
    (often,) = nights("a failed id=x", "a failed id=x", "a failed id=x").kinds
    assert (often.runs, often.cases, often.failures) == (3, 1, 3)
    assert (kind_x.devices, kind_x.versions) == (("sim",), ("qnn 2.51.0", "qnn 2.52.0"))
    of_diagnosis = nights("a failed id=x;b failed", diagnosis="x")
    assert [kind.kind for kind in of_diagnosis.kinds] == ["x"]
    only = nights("a failed id=x;b failed", "a passed;b failed", diagnosis="x")
    assert [case.recent for case in only.cases] == ["F."]


def advised(_: Pair, __: CaseState | None) -> Bisectable:
    return Bisectable(changed=("qnn",), bisect=("do", "this one"))


def bisected(pair: Pair, state: CaseState | None) -> Bisectable:
    return NewFailure.of(pair, state).bisectable("lab.yaml", "reports")


def test_lines_of_a_history(snapshot: Snapshot) -> None:
    stored = at_night(
        "a@2.50.40 passed;b passed;c failed id=x;d failed;e passed;f unsupported",
        "a@2.51.0 failed id=x;b passed;c failed id=y;d error;e error cause=config;f skipped",
    )
    report = history_of_runs(stored, advised)
    assert list(lines(report)) == snapshot
    assert report.cases[-1].case.endswith("-f]"), "what was never judged comes last"
    assert list(lines(nights())) == snapshot
    assert list(lines(nights("b failed")))[-1] == snapshot


@pytest.mark.parametrize("later", ["", "a@2.50.40 passed;a@2.51.0 failed"])
def test_what_passed_beside_a_failure_was_not_before_it(later: str, snapshot: Snapshot) -> None:
    nights = at_night("a@2.50.40 passed;a@2.51.0 failed", *filter(None, [later]))
    (text,) = (line for line in lines(history_of_runs(nights, advised)) if "2.50.40)" in line)
    assert text == snapshot


def test_a_flaky_case_is_told_with_its_rate_and_is_not_bisected(snapshot: Snapshot) -> None:
    report = history_of_runs(
        at_night("a passed", "a failed", "a passed", "a@2.52.0 failed"), bisected
    )
    (row,) = report.cases
    assert (row.state, row.bisect) == ("flaky", None)
    assert list(lines(report))[4:] == snapshot
    became = at_night(*["a passed"] * 4, "a@2.52.0 passed n=1;a@2.52.0 failed n=2")
    (row,) = history_of_runs(became, bisected).cases
    assert " ".join(row.bisect).count("--good 2.51.0 --bad 2.52.0 --repeat 7") == 1


def test_json_keeps_to_its_schema() -> None:
    hostile = f"{CANARY}<script>`|"
    records = [attempt("a passed"), attempt("b failed message=x", file=f"{hostile}.py")]
    attempts = list(map(Attempt.of, records))
    report = history_of_runs([("r", attempts), ("s", attempts)])
    lacking = LackingRun(run="r", started="s", not_run=None)
    whole = report.model_copy(update={"lacking": (lacking,)})
    schema = json.loads(schemas()["history.schema.json"])
    Draft202012Validator(schema).validate(whole.model_dump(mode="json", by_alias=True))
    assert steering("\n".join(lines(report)).encode()), "the commands make it harmless"


def test_the_kin_of_a_case_is_itself_of_other_versions() -> None:
    def group(name: str, file: str = "test_a.py") -> str:
        attempt = Attempt.of(record(case=f"{file}::test[{name}]", axes={}))
        return short_hash(attempt.case_group)

    kin = group("sim-htp-2.50.40-a")
    assert kin == group("sim-htp-2.51.0-a") == group("sim-htp-2.50.40-ort-1.27.0-by-2.47.0-a")
    others = ("sim-gpu-2.50.40-a", "farm-htp-2.50.40-a", "sim-htp-2.50.40-b")
    assert kin not in {*map(group, others), group("sim-htp-2.50.40-a", "test_b.py")}


def became(*runs: str, first: int = 0) -> list[NightChange]:
    """Of nights with one case each."""
    runs_by_name = (
        attempts_by_name(briefs, index) for index, (_, briefs) in enumerate(at_night(*runs))
    )
    return [change for line in lines_of(runs_by_name) for change in changes_of(line, first)]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (("a passed", "a passed"), []),
        (("a passed", "a failed"), [(1, "new", 1)]),
        (("a passed", "a failed", "a failed"), [(1, "new", 1), (2, "still", 1)]),
        (("a@1.0 passed", "a@2.0 failed", "a@3.0 passed"), [(1, "new", 1), (2, "fixed", 2)]),
        (("a passed", "a failed known=x"), [(1, "known", 1)]),
        (("a passed", "a error", "a error", "a passed"), [(1, "lost", 1), (2, "lost", 1)]),
        (("a passed; a failed n=2",), [(0, "flaky", 0)]),
        (("a passed", "a failed", "a passed"), [(1, "new", 1), (2, "flaky", 2)]),
        (("a passed", "a skipped", "a unsupported"), []),
    ],
)
def test_what_became_of_a_case(runs: tuple[str, ...], expected: list[tuple[int, str, int]]) -> None:
    assert [(change.run_index, change.became, change.since) for change in became(*runs)] == expected


def test_only_what_is_asked_for_is_told() -> None:
    (only,) = became("a passed", "a failed", "a failed", first=2)
    assert (only.run_index, only.since) == (2, 1)


def test_the_versions_that_changed_with_it_are_told() -> None:
    (_, still) = became("a@2.50.0 passed", "a@2.50.40 failed", "a@2.50.40 failed")
    assert (still.changed, still.versions) == ("qnn 2.50.0 to 2.50.40", "qnn 2.50.40")


def test_what_is_fixed_and_what_is_flaky_name_the_failure() -> None:
    new, fixed = became("a@1.0 passed", "a@2.0 crashed id=x", "a@3.0 passed")
    assert (fixed.cause, fixed.kind, fixed.outcome) == (new.cause, "x", "crashed")
    *_, flaky = became("a passed", "a crashed id=x", "a passed")
    assert (flaky.became, flaky.kind) == ("flaky", "x")
