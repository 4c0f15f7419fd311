"""A file that is fetched is whole, what it should be, or not there, whatever happened before."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.core import verified_folder
from harness.core.errors import InfraError
from harness.core.names_inside import NotInsideError
from harness.core.verified_folder import FetchedFiles
from tests.logged import Logged
from tests.properties import reached, reaches

NAME = "group/a-1.aar"


def files(root: Path) -> FetchedFiles:
    """As another process opens them, which has looked at nothing yet."""
    return FetchedFiles(root, timeout_s=60)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def kept(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"}


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@dataclass
class FakeServer:
    """Serves one file, and dies on the way where it is told to."""

    content: bytes = b"first"
    fails: str = ""
    asked: int = 0
    continued: list[bytes] = field(default_factory=list)

    def bring(self, folder: Path) -> tuple[Path, dict[str, str]]:
        self.asked += 1
        part = folder / "part"
        if part.exists():
            self.continued.append(part.read_bytes())
        self._at("begun")
        part.write_bytes(self.content[: len(self.content) // 2])
        self._at("half")
        part.write_bytes(self.content)
        self._at("whole")
        return part, {"trust": "first use"}

    def _at(self, stage: str) -> None:
        error, _, moment = self.fails.partition(" ")
        if moment == stage:
            raise (KilledError if error == "killed" else InfraError)(stage)


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
@settings(max_examples=300, deadline=None)
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
            # whole: it is had without anybody to ask
            server.fails, before = "refused begun", server.asked
            fetched = files(root).get(NAME, server.bring, title="it", expected=expected)
            assert (fetched.sha256, server.asked) == (sha256(fetched.path.read_bytes()), before)
    server.content, server.fails = b"first", ""
    last = files(root).get(NAME, server.bring, title="it", expected=expected)
    assert last.path.read_bytes() in ((b"first",) if known else (b"first", b"other"))
    assert kept(root) == {"a-1.aar", "a-1.aar.json"} | kept(root / verified_folder.INCOMING)


def get(root: Path, server: FakeServer, fails: str, expected: str | None) -> None:
    server.fails = fails
    with pytest.MonkeyPatch.context() as patch:
        if fails == "killed note":
            patch.setattr(Path, "replace", replaced_but_for(root / NAME))
        try:
            fetched = files(root).get(NAME, server.bring, title="it", expected=expected)
        except (InfraError, KilledError):
            return
    reached()
    assert fetched.sha256 == sha256(fetched.path.read_bytes())
    assert expected in (None, fetched.sha256)


def replaced_but_for(path: Path):  # type: ignore[no-untyped-def]
    """`Path.replace`, in a process that ends before it gives a file this name."""
    replace = Path.replace

    def instead(self: Path, target: Path) -> Path:
        if target == path:
            raise KilledError
        return replace(self, target)

    return instead


def test_it_is_fetched_once_and_hashed_once(tmp_path: Path, logged: Logged) -> None:
    server, opened = FakeServer(), files(tmp_path)
    assert not opened.is_cached(NAME)
    fetched = opened.get(NAME, server.bring, title="it")
    fetched.path.write_bytes(b"changed behind our back")
    assert opened.get(NAME, server.bring, title="it") == fetched
    assert (server.asked, opened.is_cached(NAME)) == (1, True)
    assert logged.progress[0] == "fetching it"
    assert kept(tmp_path) == {"a-1.aar", "a-1.aar.json"}


def test_only_a_file_that_is_not_as_its_note_says_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer()
    fetched = files(tmp_path).get(NAME, server.bring, title="it")
    hashed: list[Path] = []
    monkeypatch.setattr(
        verified_folder, "sha256_of", lambda path: hashed.append(path) or sha256(path.read_bytes())
    )
    assert files(tmp_path).get(NAME, server.bring, title="it", expected=fetched.sha256) == fetched
    assert hashed == []
    os.utime(fetched.path, ns=(1, 1))
    for _ in range(2):
        assert files(tmp_path).get(NAME, server.bring, title="it") == fetched
    assert (hashed, server.asked) == ([fetched.path], 1)


def test_damage_is_named_and_fetched_again(tmp_path: Path, logged: Logged) -> None:
    server = FakeServer()
    assert files(tmp_path).damage(NAME) == []
    fetched = files(tmp_path).get(NAME, server.bring, title="it")
    fetched.path.write_bytes(b"")
    (damage,) = files(tmp_path).damage(NAME)
    assert damage.startswith("a-1.aar: sha256 ")
    assert damage.endswith(f"expected {fetched.sha256}")
    server.fails = "refused begun"
    with pytest.raises(InfraError, match=r"is damaged .* could not be fetched again: begun"):
        files(tmp_path).get(NAME, server.bring, title="it")
    assert logged.warnings == []
    server.fails = ""
    assert files(tmp_path).get(NAME, server.bring, title="it") == fetched
    assert logged.warnings == [f"cached a-1.aar was damaged: {damage[9:]}; it was fetched again"]


def test_another_file_than_the_known_one_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=f"expected {'0' * 64}; it was not kept"):
        files(tmp_path).get(NAME, FakeServer().bring, title="it", expected="0" * 64)
    assert kept(tmp_path) == set()


def test_what_a_killed_process_left_is_not_there_for_the_next(tmp_path: Path) -> None:
    leftover = tmp_path / verified_folder.INCOMING / sha256(NAME.encode())[:32] / "part"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"fi")
    server = FakeServer()
    files(tmp_path).get(NAME, server.bring, title="it")
    assert server.continued == []


def test_anew_takes_what_is_served_now(tmp_path: Path) -> None:
    server, opened = FakeServer(), files(tmp_path)
    opened.get(NAME, server.bring, title="it")
    server.content = b"other"
    assert opened.get(NAME, server.bring, title="it").sha256 == sha256(b"first")
    assert opened.get(NAME, server.bring, title="it", anew=True).sha256 == sha256(b"other")


def test_a_name_stays_inside(tmp_path: Path) -> None:
    with pytest.raises(NotInsideError):
        files(tmp_path).get("../a", FakeServer().bring, title="it")


def test_processes_that_want_the_same_fetch_it_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from harness.core.verified_folder import FetchedFiles\n"
        "def bring(folder):\n"
        "    print('asked'); time.sleep(0.3); (folder / 'x').write_bytes(b'it')\n"
        "    return folder / 'x', {}\n"
        "files = FetchedFiles(Path(sys.argv[1]), timeout_s=60)\n"
        "print(files.get('x', bring, title='it').sha256)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0].split() for process in running]
    assert sorted(words.count("asked") for words in outputs) == [0, 0, 1]
    assert {words[-1] for words in outputs} == {sha256(b"it")}
