"""Bisections on the disk: their order, and which of them is gone on with."""

import contextlib
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bisect.folder import LOG, Answered, BisectFolder, Concluded
from harness.bisect.search_loop import pytest_arguments_to_resume
from harness.cli.bisect import bisect
from harness.core.errors import ConfigError
from harness.core.linux_processes import is_free
from harness.results.run_folder import number_folder
from tests.snapshots import Snapshot
from tests.unit.bisect.histories import axis, task

TASK = task(axis(2))
OVER = Concluded(text="no change")


def new(reports: Path, *, is_over: bool = False) -> BisectFolder:
    folder = BisectFolder.create(reports, TASK)
    if is_over:
        folder.append(OVER)
    folder.close()
    return folder


def test_the_last_of_a_case_is_looked_for_since_a_night_whatever_clocks_said(
    tmp_path: Path,
) -> None:
    mine = task(axis(2), case="x")
    before = BisectFolder.create(tmp_path, mine)
    before.close()
    night = tmp_path / "30261121T060000Z-00ff-nightly"
    night.mkdir()
    number_folder(night, "nightly")
    assert BisectFolder.last_of(tmp_path, "x", night.name) is None
    after = BisectFolder.create(tmp_path, mine)
    after.close()
    new(tmp_path)
    last = BisectFolder.last_of(tmp_path, "x", night.name)
    assert last.path == after.path
    assert BisectFolder.last_of(tmp_path, "x", "20261121T060000Z-00ff-nightly") is None


SECRET = "s3cr3t-can4ry"
WORDS = ["-q", f"--index=https://me:{SECRET}@host/x"]
KEPT = ["-q", "--index=https://***@host/x"]


def test_what_goes_to_pytest_has_its_secrets_in_no_file(tmp_path: Path) -> None:
    secret_task = task(axis(2), pytest_arguments=WORDS)
    with contextlib.closing(BisectFolder.create(tmp_path, secret_task)) as folder:
        assert folder.read().spec == secret_task, "its runs are to be as asked"
        assert SECRET not in (folder.path / LOG).read_text()
        assert BisectFolder.open(folder.path).read().spec.pytest_arguments == tuple(KEPT)


@pytest.mark.parametrize(
    ("stored", "arguments", "is_refused"),
    [
        (["-q"], [], False),
        (["-q"], ["-q"], False),
        ([], [], False),
        (KEPT, WORDS, False),
        (KEPT, [], True),
        (["-q"], ["-x"], True),
        (KEPT, ["-q"], True),
    ],
)
def test_what_is_gone_on_with_is_as_it_was_asked(
    stored: list[str], arguments: list[str], is_refused: bool
) -> None:
    if not is_refused:
        assert pytest_arguments_to_resume(stored, arguments) == tuple(arguments or stored)
        return
    with pytest.raises(ConfigError) as error:
        pytest_arguments_to_resume(stored, arguments)
    assert error.value.field == "-- PYTEST_ARGS"


def test_a_bisection_whose_words_had_a_secret_is_gone_on_with_where_they_are_named(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    paths = {"lab": tmp_path / "no.yaml", "folder": tmp_path}
    secret_task = task(axis(2), pytest_arguments=WORDS, **paths)
    with contextlib.closing(BisectFolder.create(tmp_path, secret_task)) as folder:
        file = folder.path / LOG
    for words in (
        ["--resume"],
        ["--resume", "--", "-q"],
        ["--resume", "--", *WORDS],
        ["replay", str(file)],
    ):
        completed = CliRunner().invoke(bisect, ["--reports", str(tmp_path), *words])
        assert isinstance(completed.exception, ConfigError), completed.output
        assert str(completed.exception) == snapshot
        assert SECRET not in completed.output + str(completed.exception)
    assert SECRET not in file.read_text()


def test_one_that_was_moved_elsewhere_is_still_one(tmp_path: Path) -> None:
    moved = new(tmp_path / "reports").path.rename(tmp_path / "mine")
    assert BisectFolder.open(moved).read().spec == TASK


def test_what_is_gone_on_with_is_the_newest_that_is_not_over(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        BisectFolder.newest_open(tmp_path)
    first, open_one, last = (new(tmp_path, is_over=is_over) for is_over in (True, False, True))
    assert BisectFolder.newest_open(tmp_path).path == open_one.path
    open_one.lock()
    open_one.append(OVER)
    open_one.close()
    assert BisectFolder.newest_open(tmp_path).path == last.path
    first.lock()
    first.append(Answered(at=("2.10",), answer="good"))
    first.close()
    assert BisectFolder.newest_open(tmp_path).path == first.path, "an edited log is open again"


def test_a_log_that_cannot_be_read_does_not_hide_others(tmp_path: Path) -> None:
    good, damaged = new(tmp_path), new(tmp_path)
    (damaged.path / LOG).write_text("nonsense\n")
    assert BisectFolder.newest_open(tmp_path).path == good.path
    good.lock()
    good.append(OVER)
    good.close()
    with pytest.raises(ConfigError, match=damaged.path.name):
        BisectFolder.newest_open(tmp_path).read()


def test_what_was_never_answered_can_be_discarded(tmp_path: Path) -> None:
    folder = BisectFolder.create(tmp_path, TASK)
    assert not folder.read().answers()
    folder.append(Answered(at=("2.10",), answer="unknown"))
    assert folder.read().answers()
    folder.discard()
    assert not folder.path.exists()


def test_reports_that_are_a_file_are_named(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "reports").write_text("")
    with snapshot.raises(ConfigError):
        BisectFolder.create(tmp_path / "reports", TASK)


def test_a_log_that_leads_elsewhere_is_not_gone_on_with(tmp_path: Path) -> None:
    """It would be cut behind its last line, and appended to."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"a line\nand a part")
    folder = tmp_path / "20260101T000000Z-0-bisect"
    folder.mkdir()
    (folder / "log.jsonl").symlink_to(secret)
    with pytest.raises(ConfigError):
        BisectFolder.open(folder).lock()
    assert secret.read_bytes() == b"a line\nand a part"


def test_what_another_process_is_at_is_waited_for(tmp_path: Path) -> None:
    locked = new(tmp_path)
    locked.lock()
    other = BisectFolder.open(locked.path)
    assert not is_free(other.path / LOG, 0.0)
    ends = threading.Timer(0.2, locked.close)
    ends.start()
    assert is_free(other.path / LOG, 60.0)
    ends.join()
    other.lock()
    other.close()
