"""A night finds its own run and state by stored names, not by clocks."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.history.comparison import compare
from harness.nightly.issues import follow_issues
from harness.nightly.night import STEPS, Night, lock_nights, nights
from harness.nightly.night_steps import PROBLEM, Chain
from harness.results.run_folder import RunFolder, new_run_id
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, briefs, run_folder
from tests.unit.nightly.nights import a_night

LAB = "schema: 1\ndevices: [{name: a, serial: s}]\n"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def night_at(moment: datetime) -> Night:
    return a_night(night=f"{new_run_id(moment)}-nightly", started=moment.isoformat(), until=0)


@pytest.mark.parametrize("step_s", [-30, 0, 30, -366 * 86400])
def test_the_run_of_a_night_is_found_whatever_the_clock_did(tmp_path: Path, step_s: int) -> None:
    chain = Chain(night_at(NOON), (), tmp_path)
    chain._save()
    moment = NOON + timedelta(seconds=step_s)
    for night in (night_at(NOON), chain.night, night_at(NOON)):
        words = ["pytest", "-o", f"qnn_problem_file={tmp_path / night.night / PROBLEM}"]
        run = RunFolder.create(
            tmp_path, command=words, lab={}, devices=[], run_id=new_run_id(moment)
        )
        if night == chain.night:
            mine = run.path
    found_run = chain._begun_run()
    assert found_run.path == mine


def at_its_last_step(reports: Path) -> Chain:
    run, lab = run_folder(reports, attempt("a passed")), reports / "devices.yaml"
    lab.write_text(LAB)
    completed = {"done": STEPS[:-1], "run": run.name, "run_exit_code": 0, "lab": str(lab)}
    night = night_at(NOON).model_copy(update=completed)
    chain = Chain(night, (), reports)
    chain._save()
    return chain


def test_a_disk_that_fails_in_a_step_is_told_with_the_step_and_the_file(tmp_path: Path) -> None:
    chain = at_its_last_step(tmp_path)
    with pytest.raises(InfraError) as raised, lock_nights(tmp_path):
        chain.go_on()
    file = chain.path / "comparison.md"
    assert str(file) in str(raised.value)
    file.write_bytes(b"told \xff\n")
    with lock_nights(tmp_path):
        assert chain.go_on().next_step is None
    assert (chain.path / "summary.md").read_text() == "told \ufffd\n"


@pytest.mark.parametrize("folder", ["/elsewhere", None])
def test_an_issue_names_its_files_as_from_the_folder_of_the_night(
    tmp_path: Path, folder: str | None
) -> None:
    chain = at_its_last_step(tmp_path / "mine")
    failed = attempt("a failed").model_copy(update={"logs": ("logs/a/x",)})
    fixed = attempt("b passed", fixed={"known_issues": ("k",), "fails": True})
    run = run_folder(tmp_path / "mine", failed, fixed)
    chain._save(run=run.name, done=STEPS[:2], folder=folder or str(tmp_path))
    assert any("qnn_strict_known" in reason for reason in chain.go_on().failed_on)
    reports = "mine" if folder is None else str(tmp_path / "mine")
    logs = f"`{reports}/{run.name}/logs/a`"
    (text,) = (chain.path / "issues").glob("*.md")
    assert logs in text.read_text()


def test_a_ci_system_that_cannot_be_told_is_a_note_of_the_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = at_its_last_step(tmp_path)
    (chain.path / "comparison.md").write_text("told\n")
    file = tmp_path / "no/such/folder"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    finished = chain.go_on()
    (notice,) = finished.warnings
    assert str(file) in notice
    assert finished.next_step is None


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".nightly.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InfraError), lock_nights(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("code", [3, 4, 5])
def test_a_night_that_was_refused_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    chain = Chain(night_at(NOON).model_copy(update={"done": STEPS[:1]}), (), tmp_path)
    chain._save()
    monkeypatch.setattr(chain, "_pytest_run", lambda *_, **__: code)
    with pytest.raises((ConfigError, InfraError)):
        chain.go_on()
    assert chain.path.exists() == (code == 3), "what the lab kept from it can be gone on with"


@pytest.mark.parametrize("same_lab", [True, False])
def test_a_night_that_people_wait_for_tells_that_it_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_lab: bool, snapshot: Snapshot
) -> None:
    """Else the last word of the night before, that nothing fails, would seem to be of tonight."""
    well = Chain(night_at(NOON).model_copy(update={"done": STEPS}), (), tmp_path)
    well._save()
    lab = well.night.lab if same_lab else str(tmp_path / "other.yaml")
    change = {"night": "20991126T010000Z-ab-nightly", "lab": lab, "done": STEPS[:1]}
    chain = Chain(well.night.model_copy(update=change), (), tmp_path)
    monkeypatch.setattr(chain, "_pytest_run", lambda *_, **__: 4)
    with pytest.raises(ConfigError):
        chain.go_on()
    assert chain.path.exists() == same_lab
    if same_lab:
        summary = (tmp_path / "latest-nightly/summary.md").read_text()
        assert summary == snapshot
    assert (chain.reports / well.night.night).is_dir()


def test_a_night_whose_run_was_removed_runs_its_tests_anew_and_names_plug_ins_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = at_its_last_step(tmp_path)
    missing = tmp_path / str(chain.night.run)
    shutil.rmtree(missing)

    def run_anew(*_: object) -> int:
        command = ("pytest", "-o", f"qnn_problem_file={chain.path / PROBLEM}")
        path = run_folder(tmp_path, attempt("a passed"), command=command)
        lacking = {"plugin_errors": ["plug-in acme: away"], "left_out": ["phone: no QNN"]}
        RunFolder.open(path).end({**lacking, "exit_code": 3})
        return 3

    monkeypatch.setattr(chain, "_pytest_run", run_anew)
    finished = chain.go_on()
    notice, *others = finished.warnings
    assert str(missing) in notice
    assert others == ["plug-in acme: away", "left out: phone: no QNN"]
    assert finished.exit_code == 3
    assert finished.next_step is None
    assert (tmp_path / finished.run).is_dir()
    assert finished.run != missing.name


def test_what_a_night_found_stays_if_its_tests_cannot_be_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = at_its_last_step(tmp_path)
    comparison = compare([], briefs("a passed"), infos=(None, {"finished": None}))
    (issue,) = follow_issues([], comparison, {}, run="r", started="1")
    chain._save(verdict="1 new", issues=(issue,))
    shutil.rmtree(tmp_path / str(chain.night.run))
    monkeypatch.setattr(chain, "_pytest_run", lambda *_: 4)
    for _ in range(2):
        with pytest.raises(ConfigError):
            chain.go_on()
    (night,) = nights(tmp_path)
    assert night.issues == (issue,)
    assert len(night.warnings) == 1, "that its run is gone"


@pytest.mark.parametrize("code", [2, 4, 5])
def test_what_pytest_refuses_is_said_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    lab = tmp_path / "devices.yaml"
    lab.write_text(LAB)
    chain = Chain(night_at(NOON).model_copy(update={"lab": str(lab)}), (), tmp_path)
    requests: list[str] = []

    def look(_: float, __: object, *words: str, stdout: int) -> int:
        requests.extend(words)
        return code

    monkeypatch.setattr(chain, "_pytest_run", look)
    monkeypatch.setattr(chain, "_lab", lambda _: pytest.fail("the devices are asked"))
    with pytest.raises(ConfigError):
        chain.go_on()
    assert requests == ["--collect-only", "-q"]
