"""A verified folder is found whole, found changed, or not found; it is never half there."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from harness.core import verified_folder
from harness.core.errors import InfraError
from harness.core.files import write_json
from harness.core.paths_inside import NotInsideError
from harness.core.verified_folder import (
    MANIFEST,
    FetchedFiles,
    FolderChangedError,
    find_damage,
    locked,
    make_file,
    open_verified,
    work_folder,
    write_manifest,
)
from tests.logged import Logged
from tests.properties import reached, reaches

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
    assert set(verified.files) == {"a.so", "deep/b.so"}
    assert verified.files["a.so"].size == 7
    assert verified.data == {"qnn_version": "2.51.0"}
    with pytest.raises(FolderChangedError):
        open_verified(folder, FACTS | {"wheel": "def"})


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def link_away(path: Path) -> None:
    path.symlink_to(path.rename(path.parents[1] / "elsewhere"))


def rename_in_manifest(folder: Path) -> None:
    content = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(content.replace("deep/b.so", "../elsewhere"))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda folder: flip(folder / "a.so"), "a.so"),
        (lambda folder: link_away(folder / "a.so"), "a.so"),
        (lambda folder: link_away(folder / MANIFEST), MANIFEST),
        (rename_in_manifest, MANIFEST),
        (lambda folder: (folder / "a.so").write_bytes(b"longer library"), "a.so has 14 "),
        (lambda folder: (folder / "deep/b.so").unlink(), "deep/b.so"),
        (lambda folder: (folder / MANIFEST).unlink(), MANIFEST),
        (lambda folder: (folder / MANIFEST).write_text("{"), MANIFEST),
        (lambda folder: (folder / MANIFEST).write_text('{"format": 0}'), "format"),
    ],
)
def test_damage_is_named(damage, name: str, folder: Path) -> None:  # type: ignore[no-untyped-def]
    damage(folder)
    with pytest.raises(FolderChangedError, match=name):
        open_verified(folder, FACTS)
    assert len(find_damage(folder)) == 1


def test_a_touched_file_is_hashed_once_and_then_trusted(folder: Path) -> None:
    os.utime(folder / "a.so", ns=(7, 7))
    assert open_verified(folder, FACTS) is not None
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["files"]["a.so"]["mtime_ns"] == 7


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InfraError), work_folder(tmp_path / "file/cache"):
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
        assert holder.stdout.readline() == "held\n"
        holder_text = f"process {holder.pid}"
        with pytest.raises(InfraError, match=holder_text), locked(lock, "fetching", timeout_s=1):
            pass
        (warning,) = logged.warnings
        assert holder_text in warning
        holder.kill()
        holder.wait()
        with locked(lock, "fetching", timeout_s=5):
            pass
        assert [file.name for file in lock.parent.iterdir()] in (["one.lock"], [])


def test_all_damage_is_named_though_sizes_and_times_are_as_they_were(folder: Path) -> None:
    assert find_damage(folder) == find_damage(folder.parent / "never made") == []
    for name in ("a.so", "deep/b.so"):
        path = folder / name
        before = path.stat()
        path.write_bytes(bytes(before.st_size))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [damage.split()[0] for damage in find_damage(folder)] == ["a.so", "deep/b.so"]
    (folder / "a.so").unlink()
    assert len(find_damage(folder)) == 2


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


NAME = "group/a-1.aar"


def files(root: Path) -> FetchedFiles:
    return FetchedFiles(root, timeout_s=60)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def kept(root: Path) -> set[str]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.name for path in files if path.parent.name != "ledgers"}


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@dataclass
class FakeServer:
    """Serves one file, and fails at a stage: "killed half"."""

    content: bytes = b"first"
    fails: str = ""
    requests: int = 0

    def bring(self, folder: Path) -> Path:
        self.requests += 1
        part = folder / "part"
        assert not part.exists()
        error, _, failing_stage = self.fails.partition(" ")
        for stage, size in (("begun", 0), ("half", len(self.content) // 2), ("whole", None)):
            part.write_bytes(self.content[:size])
            if stage == failing_stage:
                raise (KilledError if error == "killed" else InfraError)(stage)
        return part


FAILS = [
    f"{error} {moment}" for error in ("killed", "refused") for moment in ("begun", "half", "whole")
]
STEP = st.one_of(
    st.just(("get", "")),
    st.tuples(st.just("get"), st.sampled_from(["killed note", *FAILS])),
    st.tuples(st.just("serve"), st.sampled_from(["first", "other"])),
    st.tuples(st.sampled_from(["damage", "lose"]), st.sampled_from(["file", "note"])),
)


@reaches(0.3)
@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8), st.booleans())
def test_what_is_had_is_whole_whatever_happened(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], known: bool
) -> None:
    root = tmp_path_factory.mktemp("cache")
    server = FakeServer()
    expected = sha256(b"first") if known else None
    paths = {"file": root / NAME, "note": root / f"{NAME}.json"}
    for do, what in steps:
        if do == "serve":
            server.content = what.encode()
        elif do == "lose":
            paths[what].unlink(missing_ok=True)
        elif do == "damage":
            if paths[what].exists():
                paths[what].write_bytes(b"{} damaged")
        else:
            get(root, server, what, expected)
        if do == "get" and paths["file"].exists() and files(root).damage(NAME, expected) == []:
            assert paths["file"].read_bytes() in (b"first", b"other")
            server.fails, before = "refused begun", server.requests
            fetched = files(root).get(NAME, server.bring, title="it", expected=expected)
            assert (fetched.sha256, server.requests) == (sha256(fetched.path.read_bytes()), before)
    server.content, server.fails = b"first", ""
    last = files(root).get(NAME, server.bring, title="it", expected=expected)
    assert last.path.read_bytes() in ((b"first",) if known else (b"first", b"other"))
    assert kept(root) - {"part", "a-1.aar.json"} == {"a-1.aar"}


def get(root: Path, server: FakeServer, fails: str, expected: str | None) -> None:
    server.fails = fails

    def write_note(path: Path, content: Any) -> None:
        write_json(path, content)
        if fails == "killed note" and path.name == f"{Path(NAME).name}.json":
            raise KilledError

    with mock.patch.object(verified_folder, "write_json", write_note):
        try:
            fetched = files(root).get(NAME, server.bring, title="it", expected=expected)
        except (InfraError, KilledError):
            return
    reached()
    assert fetched.sha256 == sha256(fetched.path.read_bytes())
    assert expected in (None, fetched.sha256)


def test_another_file_or_name_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=f"expected {'0' * 64}"):
        files(tmp_path).get(NAME, FakeServer().bring, title="it", expected="0" * 64)
    with pytest.raises(NotInsideError):
        files(tmp_path).get("../a", FakeServer().bring, title="it")
    assert kept(tmp_path) == set()


def test_processes_that_want_the_same_fetch_it_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from harness.core.verified_folder import FetchedFiles\n"
        "def bring(folder):\n"
        "    print('asked'); time.sleep(0.3); (folder / 'x').write_bytes(b'it')\n"
        "    return folder / 'x'\n"
        "files = FetchedFiles(Path(sys.argv[1]), timeout_s=60)\n"
        "print(files.get('x', bring, title='it').sha256)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0].split() for process in running]
    assert sorted(words.count("asked") for words in outputs) == [0, 0, 1]
    assert {words[-1] for words in outputs} == {sha256(b"it")}
