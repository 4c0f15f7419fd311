"""Run folders: ids, slugs, run.json, latest, and the reports made from the journal."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.report.report_files import finish, project
from harness.results.run_folder import UNSEEN, RunFolder, case_slug, new_run_id
from tests.snapshots import Snapshot
from tests.unit.results.records import record
from tests.waiting import wait_for

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1))


def create(reports: Path) -> RunFolder:
    return RunFolder.create(
        reports, command=["pytest", "-k", "a b"], lab={"schema": 1}, devices=["sim-v73"]
    )


def test_a_bare_name_is_a_run_of_the_reports_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create(tmp_path / "reports")
    monkeypatch.chdir(tmp_path)
    assert RunFolder.open(Path(folder.run_id)).path == folder.path
    assert RunFolder.open(Path("latest")).path == folder.path
    assert RunFolder.open(folder.path / "results.jsonl").path == folder.path


def test_places_that_are_no_run_and_no_reports(tmp_path: Path, snapshot: Snapshot) -> None:
    folder = create(tmp_path / "reports")
    snapshot.hide(folder.run_id, "RUN")
    for path in (tmp_path / "none", tmp_path / "reports", tmp_path):
        with snapshot.raises(ConfigError):
            RunFolder.open(path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "taken/latest").mkdir(parents=True)
    for name in ("file", "taken"):
        with snapshot.raises(ConfigError):
            create(tmp_path / name)


def test_a_run_from_beginning_to_end(tmp_path: Path) -> None:
    reports = tmp_path / "deep" / "reports"
    folder = create(reports)
    assert folder.path.parent == reports.resolve()
    assert (reports / "latest").resolve() == folder.path
    assert os.readlink(reports / "latest") == folder.run_id
    written = sorted(path.name for path in folder.path.iterdir())
    assert written == ["results.jsonl", "run.json"]
    info = folder.info()
    assert info["command_line"] == "pytest -k 'a b'"
    assert (info["finished"], info["exit_code"]) == (None, None)
    assert info["lab"] == {"schema": 1}
    assert info["devices"] == ["sim-v73"]
    assert info["versions"]["python"]

    folder.journal.append(record(case="a"))
    folder.journal.append(record(case="b", outcome="failed"))
    finish(folder, exit_code=1, problem=None)
    assert [item.case for item in folder.contents().records] == ["a", "b"]
    assert folder.info()["exit_code"] == 1
    assert folder.info()["started"] == info["started"]
    names = sorted(path.name for path in folder.path.iterdir())
    file_names = {"junit.xml", "report.html"}
    assert set(names) == file_names | {"results.jsonl", "run.json"}


def test_reports_can_be_made_again(tmp_path: Path) -> None:
    folder = create(tmp_path)
    folder.journal.append(record())
    finish(folder, exit_code=0)
    before = (folder.path / "junit.xml").read_bytes()
    (folder.path / "junit.xml").unlink()
    again = RunFolder.open(tmp_path / "latest")
    assert again.path == folder.path
    project(again)
    assert (folder.path / "junit.xml").read_bytes() == before
    (folder.path / "run.json").unlink()
    project(again)
    assert again.coverage().selected is None
    assert again.info() == {}
    os.mkfifo(folder.path / "run.json")
    with pytest.raises(ConfigError):
        again.info()  # it does not wait for a writer


def test_secrets_of_a_command_are_not_kept(tmp_path: Path) -> None:
    url = "https://user:s3cret@host/x"
    lab = {"runtimes": [{"repository": url}]}
    folder = RunFolder.create(tmp_path, command=["pytest", f"--x={url}"], lab=lab, devices=[])
    folder.close()
    again = RunFolder.reopen(folder.path)
    again.resume(["pytest", url])
    again.close()
    finish(folder, exit_code=2, problem=f"{url} is gone")
    text = (folder.path / "run.json").read_text()
    assert "s3cret" not in text
    assert text.count("https://***@host/x") == 5


@pytest.mark.parametrize("name", ["results.jsonl", "logs", "logs/a", "logs/a/probe.jsonl"])
def test_a_run_with_links_is_not_gone_on_with(tmp_path: Path, name: str) -> None:
    """Its files would be written where the links lead to."""
    folder = create(tmp_path)
    folder.journal.append(record())
    folder.journal.close()
    (folder.path / "logs/a").mkdir(parents=True)
    (folder.path / "logs/a/probe.jsonl").touch()
    secret = (folder.path / name).rename(tmp_path / "secret")
    (folder.path / name).symlink_to(secret)
    before = (folder.path / "run.json").read_bytes()
    with pytest.raises(ConfigError, match=f"{name}: is a link"):
        RunFolder.reopen(folder.path)
    assert (folder.path / "run.json").read_bytes() == before


def test_what_a_newer_harness_went_on_with_is_not_resumed(tmp_path: Path) -> None:
    folder = create(tmp_path)
    folder.journal.append(record())
    folder.journal.close()
    journal = folder.path / "results.jsonl"
    line = journal.read_bytes()
    journal.write_bytes(line + line.replace(b'{"schema":2,', b'{"schema":3,'))
    before = journal.read_bytes(), (folder.path / "run.json").read_bytes()
    assert len(RunFolder.open(folder.path).contents().records) == 1
    with pytest.raises(ConfigError, match="jsonl:2: is of schema 3"):
        RunFolder.reopen(folder.path)
    assert (journal.read_bytes(), (folder.path / "run.json").read_bytes()) == before


def test_what_is_removed_leaves_what_was_before_it(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    first, second = create(reports), create(reports)
    second.remove()
    assert RunFolder.open(reports / "latest").run_id == first.run_id
    first.remove()
    assert {path.name for path in reports.iterdir()} == {".number", UNSEEN}


def test_a_folder_for_reports_that_is_made_is_out_of_gits_sight(tmp_path: Path) -> None:
    new, mine = tmp_path / "made", tmp_path / "mine"
    mine.mkdir()
    for reports in (new, mine):
        create(reports)
    assert (new / UNSEEN).read_text() == "*\n"
    assert not (mine / UNSEEN).exists()


@pytest.mark.parametrize(
    ("message", "cases"),
    [
        ('{"schema": 1, "cases": ["a","b"]}', {"a", "b"}),
        ('{"schema": 2, "cases": ["a","b"]}', None),
        ("[" + '"",' * 500_000 + '""]', None),
        ('{"a": 1}', None),
    ],
)
def test_the_cases_that_a_run_says_it_had(
    tmp_path: Path, message: str, cases: set[str] | None
) -> None:
    run = create(tmp_path)
    (run.path / "cases.json").write_text(message)
    assert run.selected_cases() == cases


def test_json_of_strange_values(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, command=["x\udc80"], lab={}, devices=[])
    assert json.loads((folder.path / "run.json").read_text("utf-8"))["command"] == ["x?"]


@pytest.mark.parametrize(
    ("node_id", "readable"),
    [
        ("suites/test_x.py::test_y[66-resident]", "test_x--test_y-66-resident-"),
        ("a/../c.py::t[ä ö/../ü:*?]", "c--t-"),
    ],
)
def test_slugs_can_be_read(node_id: str, readable: str) -> None:
    assert re.fullmatch(re.escape(readable) + "[0-9a-f]{10}", case_slug(node_id))


@given(st.text(max_size=300), st.text(max_size=300))
def test_slugs_are_safe_and_never_shared(first_name: str, other: str) -> None:
    first, second = case_slug(first_name), case_slug(other)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,90}", first)
    assert (first == second) is (first_name == other)


@given(MOMENTS, st.timedeltas(timedelta(seconds=1), timedelta(days=4000)))
def test_run_ids_sort_by_time(moment: datetime, later: timedelta) -> None:
    first = moment.replace(tzinfo=UTC)
    assert new_run_id(first, "ffff") < new_run_id(first + later, "0000")
    assert re.fullmatch(r"\d{8}-\d{6}-ffff", new_run_id(first, "ffff"))


def test_a_run_that_is_alive_is_not_gone_on_with(tmp_path: Path) -> None:
    """Of any number of processes one has it, and nobody when that is killed."""
    script = (
        "import sys, time; from pathlib import Path\n"
        "from harness.core.errors import ConfigError\n"
        "from harness.results.run_folder import RunFolder\n"
        "try:\n"
        "    held = RunFolder.reopen(Path(sys.argv[1]))\n"
        "    held.resume(['pytest'])\n"
        "except ConfigError as error:\n"
        "    sys.exit(str(error))\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    folder = create(tmp_path)
    with pytest.raises(ConfigError, match=rf"process {os.getpid()}$"):
        RunFolder.reopen(folder.path)
    folder.close()
    words = [sys.executable, "-c", script, str(folder.path)]
    for _ in range(2):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        racing = [subprocess.Popen(words, **pipes) for _ in range(4)]  # type: ignore[call-overload]
        wait_for(
            lambda racing=racing: [one.poll() for one in racing].count(None) == 1, "one is left"
        )
        (holder,) = (process for process in racing if process.poll() is None)
        assert holder.stdout.readline() == "held\n"
        others = [process.communicate()[1] for process in racing if process is not holder]
        assert all(message.startswith(f"{folder.path}: ") for message in others)
        with pytest.raises(ConfigError, match=rf"process {holder.pid}$"):
            RunFolder.reopen(folder.path)
        holder.kill()
        holder.communicate()
    RunFolder.reopen(folder.path).close()
