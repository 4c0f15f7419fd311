"""The driver on scripted runs: bounds, trouble, death at any moment, edited logs."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.bisect import search_loop
from harness.bisect.bad_condition import ANY_FAILURE, Point, Question, Stopped
from harness.bisect.folder import LOG, Answered, BisectFolder
from harness.bisect.request import replay_log
from harness.bisect.result import AxisFinding, CornersFinding
from harness.bisect.search import AxisSpec, CornerSpec
from harness.bisect.search_loop import RunEnd, _wait_for_end, judge, with_earlier_options
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.matrix_axes import AxisName
from harness.plugin.problem_file import Problem
from tests.logged import Logged
from tests.snapshots import Snapshot
from tests.unit.bisect.scripted_runs import (
    NO_RECORD,
    PROBLEMS,
    ScriptedRuns,
    new_bisection,
    record,
    reopened,
)
from tests.unit.history.runs import attempt, run_folder

VERSIONS = tuple(f"2.{number}.0" for number in range(40, 56))


class Killed(BaseException):
    """The process is gone."""


def killed_at(number: int) -> Callable[[str], None]:
    """Return a function that raises when it is called for the given time."""
    remaining = [number]

    def dies(moment: str) -> None:
        remaining[0] -= 1
        if remaining[0] == 0:
            raise Killed(moment)

    return dies


def broke_at(version: str) -> ScriptedRuns:
    return ScriptedRuns(lambda point, _: "failed" if point[0] >= version else "passed")


def spec(**more: object) -> AxisSpec:
    return AxisSpec.model_validate({"axis": "qnn", "candidates": VERSIONS} | more)


CORNERS = CornerSpec(
    axes=("ort", "qnn"),
    candidates=(("1", "2", "3"), VERSIONS[:5]),
    good=("1", VERSIONS[0]),
    bad=("3", VERSIONS[4]),
)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("axes", [1, 2])
def test_killed_at_any_moment_it_goes_on_and_repeats_nothing(
    tmp_path: Path, seed: int, axes: int
) -> None:
    dice = random.Random(seed)
    version = dice.choice(VERSIONS[1:5])
    runs = ScriptedRuns(lambda point, _: "failed" if point[-1] >= version else "passed")
    runs.dies = killed_at(dice.randrange(1, 12))
    bisection = new_bisection(tmp_path, spec() if axes == 1 else CORNERS, runs)
    deaths: list[str] = []
    finding = None
    while finding is None:
        try:
            with reopened(bisection, runs) as again:
                finding = again.run()
        except Killed as death:
            deaths.append(str(death))
            runs.dies = killed_at(dice.randrange(1, 12))
            if dice.random() < 0.5:
                log = bisection.folder.path / LOG
                whole = log.read_bytes()
                log.write_bytes(whole + b'{"schema":1,"kind":"answ')  # died within a line
    if isinstance(finding, CornersFinding):
        (search,) = finding.searches
        assert (finding.fails_with, search.answer.first_bad) == ("qnn", version)
    else:
        assert finding.first_bad == version
    assert (bisection.folder.path / LOG).read_text().count('"concluded"') == 1
    again_made = Counter(runs.points)
    # only the run that was under way is made again
    assert sum(count - 1 for count in again_made.values()) <= len(deaths)


def test_lab_trouble_is_asked_again_on_the_next_device_and_stops_in_the_end(tmp_path: Path) -> None:
    runs = ScriptedRuns(lambda point, device: "lab" if device == "a" else "passed")
    bisection = new_bisection(tmp_path, spec(), runs, devices=("a", "b"))
    completed = bisection.run()
    assert completed.kind == "no-change"
    assert runs.devices == ["a", *["b"] * (len(runs.devices) - 1)]
    dead = ScriptedRuns(lambda point, _: "error")
    bisection = new_bisection(tmp_path, spec(), dead, devices=("a", "b"))
    stopped = bisection.run()
    assert isinstance(stopped, Stopped)
    assert dead.devices == ["a", "b", "a"]
    assert dead.waited == [15.0], "the first try goes on at once, on the next device"
    healed = broke_at(VERSIONS[4])
    with reopened(bisection, healed) as again:
        completed = again.run()
    assert completed.first_bad == VERSIONS[4]


@pytest.mark.slow
def test_no_wait_is_longer_than_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_loop, "WAITS_S", (100.0,))
    runs = ScriptedRuns(lambda point, _: "lab", sleeps=time.sleep)
    bisection = new_bisection(tmp_path, spec(), runs, stop_at=time.monotonic() + 2)
    assert bisection.run() is None
    assert len(runs.points) == len(runs.waited) == 1
    assert 0 < runs.waited[0] <= 2


@pytest.mark.parametrize("kind", ["wrong", "usage", "nothing"])
@pytest.mark.parametrize("after", [0, 2])
def test_wrong_input_is_no_answer_and_can_be_mended(tmp_path: Path, kind: str, after: int) -> None:
    mended = broke_at(VERSIONS[5])
    runs = ScriptedRuns(
        lambda point, device: kind if len(runs.points) > after else mended.outcome_at(point, device)
    )
    bisection = new_bisection(tmp_path, spec(), runs)
    with pytest.raises(ConfigError):
        bisection.run()
    assert len(bisection.folder.read().evidence().tallies) == after
    with reopened(bisection, mended) as again:
        finding = again.run()
    assert finding.first_bad == VERSIONS[5]
    assert not set(mended.points) & set(runs.points[:after])


def test_a_version_that_is_held_and_cannot_be_had_is_wrong_input(tmp_path: Path) -> None:
    runs = ScriptedRuns(lambda point, _: "refused")
    search_spec = AxisSpec(axis="compiler", candidates=VERSIONS)
    with pytest.raises(ConfigError):
        new_bisection(tmp_path, search_spec, runs, held={"qnn": "2.47.0"}).run()
    assert len(runs.points) == 1


@pytest.mark.parametrize(("axis", "without"), [("ort", {"ort": None}), ("compiler", {"by": None})])
def test_an_axis_that_the_case_does_not_have_is_refused(
    tmp_path: Path, axis: AxisName, without: dict[str, Any], snapshot: Snapshot
) -> None:
    runs = ScriptedRuns(lambda point, _: "passed", **without)
    search_spec = AxisSpec(axis=axis, candidates=("1", "2", "3"))
    with snapshot.raises(ConfigError):
        new_bisection(tmp_path / "one", search_spec, runs).run()
    two = (("1", "2"), ("1", "2"))
    both = CornerSpec(axes=("qnn", axis), candidates=two, good=("1", "1"), bad=("2", "2"))
    with pytest.raises(ConfigError) as error:
        new_bisection(tmp_path / "two", both, runs).run()
    assert error.value.field == "--axis"
    assert len(runs.points) == 2


def test_a_case_that_fails_early_may_still_take_contexts(tmp_path: Path) -> None:
    runs = ScriptedRuns(lambda point, _: "failed", by=None)
    finding = new_bisection(tmp_path, AxisSpec(axis="compiler", candidates=("1", "2")), runs).run()
    assert isinstance(finding, AxisFinding)


DRIFT = {"match": "drift:2"}


def drifting(first: str) -> ScriptedRuns:
    """Runs whose output is three steps more from a version on."""
    return ScriptedRuns(
        lambda point, _: "passed", output=lambda point: bytes([10 + 3 * (point[0] >= first)])
    )


def test_what_outputs_are_compared_with_is_found_again(tmp_path: Path) -> None:
    runs = drifting(VERSIONS[9])
    search_spec = spec(good=VERSIONS[0])
    bisection = new_bisection(tmp_path, search_spec, runs, **DRIFT)
    runs.dies = killed_at(4)  # as the second run begins
    with pytest.raises(Killed):
        bisection.run()
    with reopened(bisection, runs) as again:
        finding = again.run()
    assert finding.first_bad == VERSIONS[9]
    assert Counter(runs.points)[VERSIONS[0],] == 1


def test_outputs_that_cannot_be_compared_end_the_search(tmp_path: Path, snapshot: Snapshot) -> None:
    search_spec = spec(good=VERSIONS[0])
    nothing = ScriptedRuns(lambda point, _: "passed")
    with snapshot.raises(ConfigError):
        new_bisection(tmp_path / "a", search_spec, nothing, **DRIFT).run()
    runs = drifting(VERSIONS[9])
    runs.outcome_at = lambda point, _: (
        setattr(runs, "context", point[0]) or "passed"
    )  # compiled by each
    with snapshot.raises(ConfigError):
        new_bisection(tmp_path / "b", search_spec, runs, **DRIFT).run()
    assert len(runs.points) == 2


@pytest.mark.parametrize("match", ["drift:2", "measurement took_us > 2 * good"])
def test_a_good_end_that_tells_nothing_is_not_asked_again(
    tmp_path: Path, match: str, snapshot: Snapshot
) -> None:
    runs = ScriptedRuns(lambda point, _: "unsupported" if point[0] == VERSIONS[0] else "passed")
    search_spec = spec(good=VERSIONS[0])
    bisection = new_bisection(tmp_path, search_spec, runs, match=match)
    with snapshot.raises(ConfigError):
        bisection.run()
    assert runs.points == [(VERSIONS[0],)]


def test_an_edited_log_is_replayed_without_running_again_what_it_says(tmp_path: Path) -> None:
    runs = broke_at(VERSIONS[9])
    bisection = new_bisection(tmp_path, spec(), runs)
    bisection.run()
    file = bisection.folder.path / LOG
    lines = file.read_text().splitlines(keepends=True)
    point: Point = (VERSIONS[9],)
    edited = [
        line.replace('"answer":"bad"', '"answer":"untestable"') if VERSIONS[9] in line else line
        for line in lines[1:]
    ]
    (tmp_path / "edited.jsonl").write_text("".join([lines[0], *edited]))
    answered = [entry for entry in bisection.folder.read().entries if isinstance(entry, Answered)]
    (tmp_path / answered[0].run).mkdir(parents=True)
    copy = replay_log(tmp_path / "edited.jsonl", tmp_path)
    assert copy.read().spec == bisection.task
    runs_kept = [entry.run for entry in copy.read().entries if isinstance(entry, Answered)]
    assert (copy.path / str(runs_kept[0])).samefile(tmp_path / answered[0].run)
    assert not any(runs_kept[1:]), "a run that is not there"
    again = broke_at(VERSIONS[9])
    copy.close()
    bisection.folder = copy
    with reopened(bisection, again) as replay:
        finding = replay.run()
    assert finding.kind == "range"
    assert point not in again.points
    assert not {entry.at for entry in copy.read().entries if isinstance(entry, Question)} & {
        entry.at for entry in bisection.folder.read().entries if isinstance(entry, Answered)
    } - set(again.points)


def test_two_processes_do_not_go_on_with_the_same(tmp_path: Path) -> None:
    bisection = new_bisection(tmp_path, spec(), broke_at(VERSIONS[3]))
    other = BisectFolder.open(bisection.folder.path)
    with pytest.raises(ConfigError):
        other.lock()
    assert BisectFolder.newest(tmp_path).path == bisection.folder.path
    with pytest.raises(ConfigError):
        BisectFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("refused", "untestable"),
        ("lab", "unknown"),
        ("late", "unknown"),
        ("interrupted", "unknown"),
    ],
)
def test_runs_without_a_record(kind: str, answer: str) -> None:
    stopped = Problem.of(PROBLEMS[kind]) if kind in PROBLEMS else None
    end = RunEnd(NO_RECORD[kind], None, None, "why", 1.0, stopped)
    assert judge(end, ANY_FAILURE, None).answer == answer


def test_a_case_whose_own_input_is_wrong_says_nothing_about_versions() -> None:
    config_record = record("error", cause="config")
    about = {kind: Problem.of(error) for kind, error in PROBLEMS.items()}
    with pytest.raises(ConfigError):
        judge(RunEnd(2, config_record, None, "", 1.0, about["wrong"]), ANY_FAILURE, None)
    for stopped in (about["refused"], None):
        judged = judge(RunEnd(2, config_record, None, "", 1.0, stopped), ANY_FAILURE, None)
        assert judged.answer == "untestable"
    passed = RunEnd(0, record("passed"), None, "", 1.0, about["wrong"])
    assert judge(passed, ANY_FAILURE, None).answer == "good"


def test_a_record_is_what_counts_whatever_the_exit_code() -> None:
    for code in (0, 1, 2, 3, None):
        end = RunEnd(code, record("failed"), None, "", 1.0)
        assert judge(end, ANY_FAILURE, None).answer == "bad"


@pytest.mark.parametrize("axes", [1, 2])
def test_the_median_of_the_runs_of_a_version_counts(tmp_path: Path, axes: int) -> None:
    """Every first run of a version takes twice as long."""
    runs_at = Counter[Point]()

    def us_at(point: Point) -> float:
        runs_at[point] += 1
        return (1000 if point[-1] < VERSIONS[3] else 1250) * (1 + (runs_at[point] == 1))

    runs = ScriptedRuns(lambda point, _: "passed", value=us_at)
    search = spec(good=VERSIONS[0]) if axes == 1 else CORNERS
    search = search.model_copy(update={"repeat": 3})
    match = "measurement took_us > 1.1 * good"
    bisection = new_bisection(tmp_path, search, runs, match=match)
    finding = bisection.run()
    answer = finding if isinstance(finding, AxisFinding) else finding.searches[0].answer
    assert (finding.kind, answer.first_bad) == ("change", VERSIONS[3])
    assert finding.flaky == ()
    assert {*Counter(runs.points).values()} == {3}
    answers = [entry.answer for entry in bisection.folder.read().answers()]
    assert answers[:3] == ["unsure", "unsure", "good"]


WAITS = b"warning: waiting up to 600 s for device phone: held by ann\n"


class MockProcess:
    """One that writes each of these pieces while it is waited for, and then ends with 0."""

    def __init__(self, output: Path, pieces: list[bytes]) -> None:
        self._output, self._pieces = output, pieces
        output.touch()

    def wait(self, deadline: Deadline) -> int | None:
        if not self._pieces:
            return 0
        with self._output.open("ab") as stream:
            stream.write(self._pieces.pop(0))
        return None


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([WAITS], 1),
        ([WAITS[:20], WAITS[20:]], 1),
        ([b"10 %\r20 %\r30 %\n" + WAITS], 1),
        ([WAITS + b"half a line", b"\n" + WAITS], 2),
        ([b"no " + WAITS], 0),
    ],
)
def test_each_whole_line_that_tells_of_waiting_is_passed_on_once(
    tmp_path: Path, logged: Logged, pieces: list[bytes], expected: int
) -> None:
    process = MockProcess(tmp_path / "output.txt", pieces)
    assert _wait_for_end(process, tmp_path / "output.txt", 60.0) == 0  # type: ignore[arg-type]
    text = "waiting up to 600 s for device phone: held by ann"
    assert logged.warnings == [text] * expected


@pytest.mark.parametrize(("left_s", "code"), [(3.0, None), (4.0, 0)])
def test_what_is_spent_with_waiting_for_a_device_does_not_count(
    tmp_path: Path, left_s: float, code: int | None
) -> None:
    acquired = b"warning: no longer waiting for device phone, after 4 s\n"
    process = MockProcess(tmp_path / "output.txt", [WAITS, b"", b"", b"", acquired, b"", b""])
    assert _wait_for_end(process, tmp_path / "output.txt", left_s) == code  # type: ignore[arg-type]


def test_a_case_of_a_file_is_asked_what_it_was_when_it_failed(tmp_path: Path) -> None:
    case = "m.onnx::test_contexts[a]"
    failed = attempt("a failed id=x").model_copy(update={"case": case, "test": case})
    command = ("qnn-harness", "run", "m.onnx", "--inputs", "in", "--limit=max-error=1")
    run_folder(tmp_path, failed, command=command)
    passed = failed.model_copy(update={"outcome": "passed", "error": None, "cause": None})
    run_folder(tmp_path, passed, command=command[:3])
    words = with_earlier_options(case, tmp_path, ("-x",))
    assert words == ("-x", "--qnn-inputs=in", "--qnn-limit=max-error=1")
    named = ("--inputs=other",)
    assert with_earlier_options(case, tmp_path, named) == named, "what is named stands alone"
    assert with_earlier_options("suites/test_a.py::test_a[x]", tmp_path, ()) == ()
