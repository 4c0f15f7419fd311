"""A run's own storage of simulated devices: what it begins with, what stays of it, what is left."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.deploy.simulated_storage import Instances

WORK = "data/local/tmp/qnn-harness"
HOLD = """
import sys, time
from pathlib import Path
from harness.deploy.simulated_storage import Instances
print(Instances(Path(sys.argv[1]), "killed").storage("sim"), flush=True)
time.sleep(600)
"""


def add_set(storage: Path, name: str, content: str, end: str = "e1") -> str:
    """A set of one file, made as the store's scripts make it; its name with its random end."""
    work = storage / WORK
    for folder in ("store", f"sets/{name}.{end}", "listed", "inuse"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / ".links").write_text("hard\n")
    entry = f"{content * 64}.{end}"
    (work / "store" / entry).write_text(content)
    os.link(work / "store" / entry, work / f"sets/{name}.{end}/file")
    (work / f"listed/{name}.{end}").write_text(f"{entry}\n")
    return f"{name}.{end}"


def inodes(storage: Path) -> dict[str, int]:
    """The inodes of all contents of the store."""
    return {
        file.name: file.lstat().st_ino
        for file in (storage / WORK / "store").glob("*")
        if file.is_file()
    }


def run_folders(root: Path) -> list[str]:
    return [path.name for path in (root / ".runs").iterdir()]


def test_an_instance_begins_with_the_contents_and_shares_nothing_else(tmp_path: Path) -> None:
    add_set(tmp_path / "sim", "qnn", "a")
    for name in ("badge", "inuse/mark", "scratch"):
        (tmp_path / "sim" / WORK / name).write_text("private")
    first, two = Instances(tmp_path, "one"), Instances(tmp_path, "two")
    storages = [first.storage("sim"), two.storage("sim")]
    assert len({tmp_path / "sim", *storages}) == 3
    for storage in storages:
        assert inodes(storage) == inodes(tmp_path / "sim")
        files = {file.name for file in (storage / WORK).rglob("*")}
        assert not files & {"badge", "mark", "scratch"}
    (storages[0] / WORK / "store" / f"{'a' * 64}.e1").unlink()
    assert inodes(storages[1]) == inodes(tmp_path / "sim")
    first.close()
    first.close()
    two.close()
    assert run_folders(tmp_path) == []


def test_what_two_runs_bring_is_there_for_the_third(tmp_path: Path) -> None:
    runs = [Instances(tmp_path, f"{number}") for number in range(2)]
    add_set(runs[0].storage("sim"), "qnn", "a", "e0")
    add_set(runs[0].storage("sim"), "first", "b", "e0")
    add_set(runs[1].storage("sim"), "qnn", "a", "e1")
    add_set(runs[1].storage("sim"), "second", "c", "e1")
    for run in runs:
        run.close()
    third = Instances(tmp_path)
    names = set(inodes(third.storage("sim")))
    assert names == {f"{'a' * 64}.e0", f"{'b' * 64}.e0", f"{'c' * 64}.e1"}
    assert inodes(third.storage("sim")) == inodes(tmp_path / "sim")


def test_what_a_run_removed_goes_unless_somebody_uses_it(tmp_path: Path) -> None:
    add_set(tmp_path / "sim", "old", "a")
    add_set(tmp_path / "sim", "new", "b")
    mark = tmp_path / "sim" / WORK / "inuse/host-1"
    for used in (True, False):
        run = Instances(tmp_path)
        work = run.storage("sim") / WORK
        (work / "store" / f"{'a' * 64}.e1").unlink()
        mark.write_text("") if used else mark.unlink()
        run.close()
        assert (f"{'a' * 64}.e1" in inodes(tmp_path / "sim")) == used
        assert f"{'b' * 64}.e1" in inodes(tmp_path / "sim")


def test_a_name_means_one_device_within_a_run(tmp_path: Path) -> None:
    first, other = Instances(tmp_path, "run"), Instances(tmp_path, "run")
    storage = first.storage("sim")
    add_set(storage, "qnn", "a")
    assert other.storage("sim") == storage
    first.close()
    assert inodes(storage)
    other.close()
    assert run_folders(tmp_path) == []
    assert f"{'a' * 64}.e1" in inodes(tmp_path / "sim")


def test_the_next_run_keeps_what_a_killed_one_brought(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        storage = Path(killed.stdout.readline().strip())
        add_set(storage, "qnn", "a")
        running = Instances(tmp_path)
        running.storage("sim")
        assert storage.is_dir()
        killed.kill()
    running.close()
    after = Instances(tmp_path)
    assert f"{'a' * 64}.e1" in inodes(after.storage("sim"))
    assert not storage.exists()


@pytest.mark.parametrize("links", ["soft", "copy"])
def test_a_store_without_hard_links_is_not_begun_with(links: str, tmp_path: Path) -> None:
    add_set(tmp_path / "sim", "qnn", "a")
    (tmp_path / "sim" / WORK / ".links").write_text(f"{links}\n")
    assert inodes(Instances(tmp_path).storage("sim")) == {}


@pytest.mark.parametrize("place", ["sets", "store", "listed", "..", "store/content"])
@pytest.mark.parametrize("ends", [True, False])
def test_a_link_that_a_device_put_into_its_storage_is_not_followed(
    place: str, ends: bool, tmp_path: Path
) -> None:
    """Files behind it get into no other storage, and nothing is put or removed there."""
    root, outside = tmp_path / "sims", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of the host")
    run = Instances(root, "run")
    bad = run.storage("sim") if ends else root / "sim"
    add_set(bad, "bad", "a")
    link = Path(os.path.normpath(bad / WORK / place))
    if place == "store/content":
        link = link.with_name(f"{'a' * 64}.e1")
        link.unlink()
        link.symlink_to(outside / "secret")
    else:
        link.rename(outside / "was")
        link.symlink_to(outside / "was")
    before = sorted(outside.rglob("*"))
    if ends:
        run.close()
    else:
        with contextlib.suppress(InfraError):
            run.storage("sim")
    other = root / "sim" if ends else next((root / ".runs").iterdir()) / "sim"
    assert inodes(other) == {}
    assert not any(file.is_symlink() for file in other.rglob("*"))
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("ends", [True, False])
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(ends: bool, tmp_path: Path) -> None:
    run = Instances(tmp_path, "run")
    bad = run.storage("sim") if ends else tmp_path / "sim"
    add_set(bad, "bad", "a")
    (bad / WORK / ".links").unlink()
    os.mkfifo(bad / WORK / ".links")
    run.close() if ends else run.storage("sim")
    assert inodes(Instances(tmp_path).storage("sim")) == {}


def test_a_child_that_another_thread_has_just_forked_keeps_nothing(tmp_path: Path) -> None:
    instances = Instances(tmp_path, "mine")
    storage = instances.storage("sim")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        instances.close()
        assert not storage.parent.exists()
    finally:
        os.close(read)
        os.close(write)
        os.waitpid(child, 0)


def test_closed_by_another_thread_it_leaves_nothing_and_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command is interrupted while a thread of it begins a device."""
    instances, is_made, goes_on = Instances(tmp_path, "one"), threading.Event(), threading.Event()
    begin = Instances._begin

    def slow(self: Instances, name: str) -> None:
        is_made.set()
        assert goes_on.wait(60)
        begin(self, name)

    monkeypatch.setattr(Instances, "_begin", slow)
    beginning = threading.Thread(target=instances.storage, args=("sim",))
    beginning.start()
    assert is_made.wait(60)
    closing = threading.Thread(target=instances.close)
    closing.start()
    goes_on.set()
    for thread in (beginning, closing):
        thread.join(60)
    assert run_folders(tmp_path) == []
    with pytest.raises(InfraError):
        instances.storage("sim")
    assert run_folders(tmp_path) == []
