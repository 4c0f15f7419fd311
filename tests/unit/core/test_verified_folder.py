"""A verified folder is found whole, found changed, or not found; it is never half there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.core.verified_folder import (
    MANIFEST,
    FolderChangedError,
    find_damage,
    locked,
    make_file,
    open_verified,
    publish,
    work_folder,
    write_manifest,
)
from tests.logged import Logged

FACTS = {"wheel": "abc", "names": ["a"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder_path = tmp_path / "made"
    (folder_path / "deep").mkdir(parents=True)
    (folder_path / "a.so").write_bytes(b"library")
    (folder_path / "deep/b.so").write_bytes(b"other")
    write_manifest(folder_path, FACTS, {"qnn_version": "2.51.0"})
    return folder_path


def test_what_was_made_is_found(folder: Path) -> None:
    verified = open_verified(folder, FACTS)
    assert verified is not None
    assert set(verified.files) == {"a.so", "deep/b.so"}
    assert verified.files["a.so"].size == 7
    assert verified.data == {"qnn_version": "2.51.0"}


def test_nothing_there(tmp_path: Path) -> None:
    assert open_verified(tmp_path / "absent", FACTS) is None


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda folder: flip(folder / "a.so"), "a.so has sha256"),
        (lambda folder: (folder / "a.so").write_bytes(b"longer library"), "a.so has 14 bytes"),
        (lambda folder: (folder / "deep/b.so").unlink(), "deep/b.so: No such file"),
        (lambda folder: (folder / MANIFEST).unlink(), "manifest.json is missing"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "is damaged"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "is damaged"),
        (lambda folder: (folder / MANIFEST).write_text('{"format": 0}'), "another format"),
        (lambda folder: (folder / MANIFEST).write_bytes(b"\xff\xfe"), "is damaged"),
    ],
)
def test_damage_is_named(damage, text: str, folder: Path) -> None:  # type: ignore[no-untyped-def]
    damage(folder)
    with pytest.raises(FolderChangedError, match=text):
        open_verified(folder, FACTS)


def test_a_link_in_place_of_a_file(folder: Path, tmp_path: Path) -> None:
    (folder / "a.so").rename(tmp_path / "elsewhere")
    (folder / "a.so").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FolderChangedError, match=r"a\.so"):
        open_verified(folder, FACTS)


def test_a_link_in_place_of_the_manifest(folder: Path, tmp_path: Path) -> None:
    (folder / MANIFEST).rename(tmp_path / "elsewhere.json")
    (folder / MANIFEST).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(FolderChangedError, match="links in a folder are not followed"):
        open_verified(folder, FACTS)
    (damage,) = find_damage(folder)
    assert "links in a folder are not followed" in damage


def test_a_manifest_cannot_name_files_elsewhere(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["../outside"] = manifest["files"]["a.so"]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(FolderChangedError, match="damaged"):
        open_verified(folder, FACTS)


def test_made_from_something_else(folder: Path) -> None:
    with pytest.raises(FolderChangedError, match="something else"):
        open_verified(folder, FACTS | {"wheel": "def"})


def test_a_touched_file_is_hashed_once_and_then_trusted(folder: Path) -> None:
    os.utime(folder / "a.so", ns=(7, 7))
    assert open_verified(folder, FACTS) is not None
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["files"]["a.so"]["mtime_ns"] == 7


def test_work_is_gone_unless_published(tmp_path: Path) -> None:
    def interrupted() -> None:
        with work_folder(tmp_path / "cache") as work:
            (work / "half").write_bytes(b"made")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any((tmp_path / "cache").iterdir())


def test_publishing_replaces_what_was_there(tmp_path: Path) -> None:
    final = tmp_path / "cache/entry"
    for content in ("old", "new"):
        with work_folder(final.parent) as work:
            (work / "made").mkdir()
            (work / "made/file").write_text(content)
            publish(work / "made", final)
    assert (final / "file").read_text() == "new"
    assert [path.name for path in final.parent.iterdir()] == ["entry"]


def test_the_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "qnn-harness-tmp-old", tmp_path / "qnn-harness-tmp-new"
    old.mkdir()
    new.mkdir()
    earlier = time.time() - 100
    os.utime(old, (earlier, earlier))
    with work_folder(tmp_path):
        pass
    assert not old.exists()
    assert new.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(InfraError, match="cannot write to the cache"),
        work_folder(tmp_path / "file/cache"),
    ):
        pass


def test_a_lock_is_waited_for_and_free_once_its_holder_is_dead(
    tmp_path: Path, logged: Logged
) -> None:
    lock = tmp_path / "locks/one.lock"
    code = (
        "import sys, time; from pathlib import Path\n"
        "from harness.core.verified_folder import locked\n"
        "with locked(Path(sys.argv[1]), 'it', timeout_s=5):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder_text = f"process {holder.pid}"
        with (
            pytest.raises(
                InfraError, match=f"{holder_text} is at fetching and did not finish within 1 s"
            ),
            locked(lock, "fetching", timeout_s=1),
        ):
            pass
        (warning,) = logged.warnings
        assert re.fullmatch(f"waiting for {holder_text}, at fetching", warning)
        holder.kill()
        holder.wait()
        with locked(lock, "fetching", timeout_s=5):
            pass
        assert [file.name for file in lock.parent.iterdir()] in (["one.lock"], [])


def test_all_damage_is_named_though_sizes_and_times_are_as_they_were(folder: Path) -> None:
    assert find_damage(folder) == []
    for name in ("a.so", "deep/b.so"):
        path = folder / name
        before = path.stat()
        path.write_bytes(bytes(before.st_size))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    damage = find_damage(folder)
    assert [name for name in ("a.so", "deep/b.so") if any(name in damage for damage in damage)] == [
        "a.so",
        "deep/b.so",
    ]
    (folder / "a.so").unlink()
    assert len(find_damage(folder)) == 2


def test_a_folder_that_is_not_there_is_not_damaged_and_one_without_manifest_is(
    folder: Path,
) -> None:
    assert find_damage(folder.parent / "never made") == []
    (folder / MANIFEST).write_text("{}")
    assert len(find_damage(folder)) == 1
    (folder / MANIFEST).unlink()
    assert find_damage(folder) == [f"{MANIFEST} is missing"]


def test_a_file_is_made_once_and_never_half(tmp_path: Path) -> None:
    folders: list[Path] = []

    def make(folder: Path, *, ends: bool = True) -> Path:
        assert not any(folder.iterdir())
        (folder / "new").write_bytes(b"half")
        if not ends:
            raise KeyboardInterrupt
        (folder / "new").write_bytes(b"whole")
        folders.append(folder)
        return folder / "new"

    file = tmp_path / "cache/it"
    with pytest.raises(KeyboardInterrupt):
        make_file(file, lambda folder: make(folder, ends=False), doing="it", timeout_s=5)
    assert not file.exists()
    for _ in range(2):
        assert make_file(file, make, doing="it", timeout_s=5).read_bytes() == b"whole"
    assert len(folders) == 1
    assert {path.name for path in file.parent.iterdir()} == {"it", "it.lock"}


def test_processes_that_want_the_same_file_make_it_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from harness.core.verified_folder import make_file\n"
        "def make(folder):\n"
        "    print('made'); time.sleep(0.3); (folder / 'x').write_text('it'); return folder / 'x'\n"
        "make_file(Path(sys.argv[1]), make, doing='it', timeout_s=60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "it")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(process.communicate(timeout=60)[0] for process in running) == ["", "", "made\n"]
