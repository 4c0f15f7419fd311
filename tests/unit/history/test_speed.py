"""Speed and memory between runs: which figures are judged, with which runs, in which words."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from harness.cli.main import commands
from harness.cli.schema import schemas
from harness.history.attempts import Attempt
from harness.history.comparison import Bisectable, Comparison, FailOn, compare
from harness.history.comparison_text import lines, markdown, page, report_of, view_of
from harness.history.previous_run import runs_around
from harness.history.speed_changes import SpeedCompared
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder, run_folders
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder, with_speed

USUAL = [1000, 1004, 997, 1001, 999, 1003]


def run(
    us: float, *, qnn: str = "2.51.0", words: str = "a passed", device: str = "sim", **more: Any
) -> CaseRecord:
    """A case whose executions took so long, and another one that never changes."""
    figures = {"execute_us": [us - 1, us, us + 90], "load_us": [500], "loaded": 1} | more
    return attempt(words, qnn=qnn, device=device, measurements=figures)


def judged(
    *durations_us: float, new: int = 1, late: bool = False, effect: float = 0.1
) -> Comparison:
    """The runs, of which the last are NEW and those between, one before that BASE."""
    runs = [[Attempt.of(run(us))] for us in durations_us]
    index = len(runs) - new
    comparison = compare(runs[index - 1], runs[-1])
    return with_speed(comparison, runs[: index - 1], runs[index:-1], effect=effect, late=late)


def speed_of(comparison: Comparison) -> SpeedCompared:
    assert comparison.speed is not None
    return comparison.speed


def figures(speed: SpeedCompared) -> int:
    """Return how many figures were judged; a suspect and a hidden one are unsure."""
    return speed.same + speed.unsure + len(speed.slower) + len(speed.faster)


def test_slower_is_told_where_a_rerun_confirms_it() -> None:
    comparison = judged(*USUAL, 1200, 1201, new=2)
    (change,) = speed_of(comparison).slower
    assert (change.figure, change.device) == ("execute_us", "sim")
    assert FailOn.parse("perf:10%").reasons(comparison) == ["perf:10%"]
    assert FailOn.parse("new").reasons(comparison) == []
    quicker = judged(*USUAL, 800, 801, new=2)
    assert FailOn.parse("perf:10%").reasons(quicker) == []
    assert len(speed_of(quicker).faster) == 1


COOL = {
    "hottest_c": 40.0,
    "seen_s": 2.0,
    "log_level": "warn",
    "cases_before": 1,
    "power": "burst",
}
HOT = COOL | {"hottest_c": 52.0, "log_level": "verbose", "power": "burst (dcvs refused)"}


def surrounded(*, new: int = 2, late: bool = False, cases: int = 1) -> Comparison:
    """Two slow runs on a hot device after others; of several cases as many on a cool one, too."""
    cool = [
        Attempt.of(run(1000, words=f"b{number} passed", surroundings=COOL, device="cool"))
        for number in range(cases if cases > 1 else 0)
    ]
    runs = [
        [
            Attempt.of(run(us, words=f"a{number} passed", surroundings=HOT if us > 1100 else COOL))
            for number in range(cases)
        ]
        + cool
        for us in (*USUAL, 1200, 1201)
    ]
    base = len(runs) - new - 1
    comparison = compare(runs[base], runs[-1])
    return with_speed(comparison, runs[:base], runs[base + 1 : -1], late=late)


@pytest.mark.parametrize("cases", [1, 9])
@pytest.mark.parametrize("late", [{}, {"new": 1, "late": True}])
def test_what_was_around_a_change_is_told(late: dict[str, Any], cases: int) -> None:
    comparison = surrounded(**late, cases=cases)
    text = (
        "12 C hotter",
        "log level verbose (was warn)",
        "power profile burst (dcvs refused) (was burst)",
    )
    view = view_of(comparison, [], base="a", run="b")
    for words in ("\n".join(lines(view)), markdown(view), page(view)):
        (slower,) = [line for line in words.splitlines() if "slower: execute_us" in line]
        assert ", ".join(text) in slower
    report = report_of(view, lambda *_: Bisectable())
    assert report.speed is not None
    (row,) = report.speed.slower
    assert (row.case is None, row.surroundings) == (cases > 1, text)
    document = report.model_dump(mode="json")
    Draft202012Validator(json.loads(schemas()["compare.schema.json"])).validate(document)


def test_a_suspect_has_its_surroundings_too() -> None:
    runs = [[Attempt.of(run(us, surroundings=COOL))] for us in USUAL]
    new = [Attempt.of(run(1200, surroundings=HOT))]
    comparison = with_speed(compare(runs[-1], new), runs[:-1])
    (change,) = speed_of(comparison).suspects
    assert change.surroundings
    for odd in ("hot", [], None, 7):
        other = [Attempt.of(run(1200, surroundings=odd))]
        comparison = with_speed(compare(runs[-1], other), runs[:-1])
        assert not any(item.surroundings for item in speed_of(comparison).suspects)


def warmer(*durations: float | None) -> list[list[Attempt]]:
    """A run each, None where nothing was measured; each 10 degrees hotter than the one before."""
    return [
        [Attempt.of(run(us or 1, surroundings={"hottest_c": 10.0 * index, "seen_s": 1}))]
        if us is not None
        else [Attempt.of(attempt("a passed"))]
        for index, us in enumerate(durations)
    ]


@pytest.mark.parametrize(
    ("durations", "hotter"),
    [
        ((*USUAL, 1200, 1201), 20),  # it came with BASE
        ((*USUAL, 1200, 1001, 1201), 30),  # with the run before that, which BASE did not bear out
        ((*USUAL, 1200, None, 1201), 30),
        ((*USUAL, 1200, None, None, 1201), None),  # too long ago
        ((*USUAL, 1200, 1201, 1202), None),  # told before
        ((*USUAL, 1200, 1201, 1001), None),
        ((*USUAL, 1200), None),
        ((1000, 1200, 1201), None),
        ((1200, 1201), None),
    ],
)
def test_a_change_that_came_before_new_is_told_once_new_bears_it_out(
    durations: tuple[float | None, ...], hotter: int | None
) -> None:
    runs = warmer(*durations)
    comparison = compare(runs[-2], runs[-1])
    late = speed_of(with_speed(comparison, runs[:-2], late=True))
    texts = [change.surroundings for change in late.slower]
    assert texts == ([] if hotter is None else [(f"{hotter} C hotter",)])
    plain = speed_of(with_speed(comparison, runs[:-2]))
    assert not plain.slower
    listed = (*late.slower, *late.faster, *late.suspects, *plain.suspects)
    assert {change.figure for change in listed} <= {"execute_us"}, "the load did not change"
    assert figures(late) == figures(plain)


def test_what_is_told_of_new_stays_as_it_is_beside_what_came_before() -> None:
    """The load grew with BASE, and the execution with the run between; a third did nothing."""
    durations = [(500, us) for us in USUAL] + [(900, 1000), (901, 1200), (902, 1201)]
    runs = [
        [Attempt.of(run(us, load_us=[load], create_us=[us])) for us in [us]]
        for load, us in durations
    ]
    comparison = with_speed(compare(runs[-3], runs[-1]), runs[:-3], runs[-2:-1], late=True)
    changes = {item.figure: item for item in speed_of(comparison).slower}
    assert set(changes) == {"execute_us", "create_us"}, "the load was told in the run between"
    assert changes["execute_us"].ratio == pytest.approx(1.2, rel=0.01)


def test_a_device_that_became_slower_is_told_once_and_its_cases_are_not() -> None:
    def device(factor: float, number: int = 9) -> list[Attempt]:
        return [
            Attempt.of(run(factor * us, words=f"a{index} passed", load_us=[]))
            for index, us in enumerate(USUAL + USUAL[: number - 6])
        ]

    runs = [*(device(1 + wobble / 1000) for wobble in (0, 1, -1, 0, 2, 0)), device(1.2)]
    perhaps = with_speed(compare(runs[-2], runs[-1]), runs[:-2], late=True)
    assert not speed_of(perhaps).slower
    runs.append(device(1.201))
    late = speed_of(with_speed(compare(runs[-2], runs[-1]), runs[:-2], late=True))
    (change,) = late.slower
    assert (change.case, change.device, change.figure) == (None, "sim", "execute_us")
    runs.append(device(1.199))
    again = speed_of(with_speed(compare(runs[-2], runs[-1]), runs[:-2], late=True))
    assert not again.slower
    # and one that becomes slower still is told by how much it is so now
    runs += [device(1.5), device(1.502)]
    new = speed_of(with_speed(compare(runs[-3], runs[-1]), runs[:-3], runs[-2:-1], late=True))
    (change,) = new.slower
    assert change.ratio == pytest.approx(1.25, rel=0.01)


def test_a_figure_needs_a_value_on_either_side() -> None:
    runs = [[Attempt.of(run(us))] for us in USUAL]
    other = [Attempt.of(attempt("a passed", measurements={"execute_us": [1], "run_us": 3}))]
    speed = speed_of(with_speed(compare(runs[-1], other), runs[:-1]))
    assert figures(speed) == 1
    assert (speed.base_runs, speed.new_runs, speed.effect) == (6, 1, 0.1)
    nowhere = [replace(other[0], device=None)]
    speed = speed_of(with_speed(compare(nowhere, nowhere)))
    assert figures(speed) == 2


def test_a_run_that_lacks_a_case_tells_nothing_of_it() -> None:
    runs = [[Attempt.of(run(us))] for us in (*USUAL, 1200, 1201)]
    comparison = compare(runs[5], runs[7])
    other = [Attempt.of(run(1, words="other passed"))]
    without = speed_of(with_speed(comparison, [[], *runs[:5]], [other, runs[6]]))
    (item,), (same,) = (
        speed.slower for speed in (without, speed_of(with_speed(comparison, runs[:5], [runs[6]])))
    )
    assert item == same


def test_the_furthest_is_first_and_what_all_cases_have_in_common_before_it() -> None:
    sizes = {"load_us": [700], "create_us": [2000], "run_us": [1500]}
    usual: dict[str, Any] = {name: [1000] for name in sizes}
    runs = [[Attempt.of(run(us, **usual))] for us in USUAL]
    runs += [[Attempt.of(run(1800, **sizes))] for _ in range(2)]
    speed = speed_of(with_speed(compare(runs[5], runs[7]), runs[:5], runs[6:7]))
    assert [change.figure for change in speed.slower] == ["create_us", "execute_us", "run_us"]
    assert [change.figure for change in speed.faster] == ["load_us"]


def test_only_what_passed_counts() -> None:
    base = [Attempt.of(run(us)) for us in USUAL]
    odd = [Attempt.of(run(1200, words="a failed"))]
    comparison = compare([base[-1]], [Attempt.of(run(1200))])
    judged_ = with_speed(comparison, [[comparison] for comparison in base[:-1]], [odd])
    assert not speed_of(judged_).slower  # the run between failed: it confirms nothing
    failing = with_speed(compare([base[0]], odd))
    assert not figures(speed_of(failing))


def test_a_case_goes_on_from_version_to_version() -> None:
    old = [[Attempt.of(run(us, qnn="2.50.40"))] for us in USUAL]
    new = [[Attempt.of(run(us, qnn="2.51.0"))] for us in (1200, 1201)]
    comparison = with_speed(compare(old[-1], new[-1]), old[:-1], new[:1])
    (change,) = speed_of(comparison).slower
    assert "2.51.0" in (change.case or "")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    for us in USUAL:
        run_folder(tmp_path, run(us))
    return tmp_path


def test_which_other_runs_tell_of_noise(reports: Path) -> None:
    names = sorted(report.name for report in reports.glob("2*"))
    run_folder(reports, run(1), command=("pytest", "-k", "tiny"))
    base, new = RunFolder.open(reports / names[2]), RunFolder.open(reports / names[5])
    ids = [[item.run_id for item in side] for side in runs_around(base, new)]
    started = sorted(names, key=lambda name: RunFolder.open(reports / name).info()["started"])
    index, until = started.index(names[2]), started.index(names[5])
    assert ids == [started[:index], started[index + 1 : until]]


def compared(reports: Path, *options: str) -> tuple[int, str]:
    completed = CliRunner().invoke(
        commands,
        ["compare", "--previous", str(reports / "latest"), *options],
        standalone_mode=False,
    )
    assert completed.exception is None, completed.exception
    return completed.return_value, completed.output


def test_a_night_job_ends_with_1_exactly_then(reports: Path) -> None:
    # an earlier run that cannot be read tells nothing
    journal = run_folders(reports)[0] / "results.jsonl"
    journal.write_text(journal.read_text().replace('"schema":2', '"schema":3'))
    run_folder(reports, run(1200))
    code, texts = compared(reports, "--fail-on", "perf:10%")
    assert code == 0
    assert "perhaps slower: execute_us" in texts
    run_folder(reports, run(1201))
    code, texts = compared(reports, "--fail-on", "perf:10%")
    assert code == 1
    assert "perf:10%" in texts
    assert f"{journal}:1: is of schema 3" in texts
    assert compared(reports, "--fail-on", "perf:30%")[0] == 0
    assert compared(reports)[0] == 0
    _, texts = compared(reports, "--json", "--fail-on", "new")
    (figure,) = json.loads(texts[texts.index("{") :])["speed"]["slower"]
    assert figure["figure"] == "execute_us"
    assert figure["ratio"] == pytest.approx(1.2, rel=0.01)


LOADED = [1000, 2600, 900, 2500, 1100, 2700, 950]


def test_a_slowdown_that_noise_hides_is_no_difference_that_is_not_there(snapshot: Snapshot) -> None:
    """Three times as slow on a computer that something else works on, too."""
    comparison = judged(*LOADED, 4600, 4700, new=2)
    assert speed_of(comparison).hidden == 1
    view = view_of(comparison, (), base="a", run="b")
    assert view.verdict == snapshot
    assert "too noisy" in markdown(view)


def test_what_is_quiet_or_not_far_off_is_not_called_too_noisy() -> None:
    for durations in ((*USUAL, 1001), (*USUAL, 1400, 1405), (*LOADED, 1000)):
        comparison = judged(*durations)
        assert not speed_of(comparison).hidden
        texts = view_of(comparison, (), base="a", run="b")
        assert "noisy" not in texts.verdict
