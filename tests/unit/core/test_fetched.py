"""A file that is fetched is whole, what it should be, or not there, whatever happened before."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

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
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.name for path in files if path.parent.name != "ledgers"}


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


@dataclass
class FakeServer:
    """Serves one file, and dies on the way where it is told to."""

    content: bytes = b"first"
    fails: str = ""
    asked: int = 0

    def bring(self, folder: Path) -> Path:
        self.asked += 1
        part = folder / "part"
        assert not part.exists()
        self._at("begun")
        part.write_bytes(self.content[: len(self.content) // 2])
        self._at("half")
        part.write_bytes(self.content)
        self._at("whole")
        return part

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
    assert kept(root) - {"part", "a-1.aar.json"} == {"a-1.aar"}


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


def test_it_is_fetched_once(tmp_path: Path, logged: Logged) -> None:
    server = FakeServer()
    assert not files(tmp_path).is_cached(NAME)
    fetched = files(tmp_path).get(NAME, server.bring, title="it")
    assert files(tmp_path).get(NAME, server.bring, title="it") == fetched
    assert (server.asked, files(tmp_path).is_cached(NAME)) == (1, True)
    assert logged.progress[0] == "fetching it"
    assert kept(tmp_path) == {"a-1.aar", "a-1.aar.json"}


def test_damage_is_named_and_fetched_again(tmp_path: Path, logged: Logged) -> None:
    server = FakeServer()
    assert files(tmp_path).damage(NAME) == []
    fetched = files(tmp_path).get(NAME, server.bring, title="it")
    fetched.path.write_bytes(b"")
    (damage,) = files(tmp_path).damage(NAME)
    assert damage.startswith("a-1.aar has sha256 ")
    assert damage.endswith(f"expected {fetched.sha256}")
    server.fails = "refused begun"
    with pytest.raises(InfraError, match="begun"):
        files(tmp_path).get(NAME, server.bring, title="it")
    server.fails = ""
    assert files(tmp_path).get(NAME, server.bring, title="it") == fetched
    assert logged.warnings == [f"damaged in the cache: {damage}; fetching it again"] * 2


def test_another_file_than_the_known_one_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=f"expected {'0' * 64}; it was not kept"):
        files(tmp_path).get(NAME, FakeServer().bring, title="it", expected="0" * 64)
    assert kept(tmp_path) == set()


def test_a_name_stays_inside(tmp_path: Path) -> None:
    with pytest.raises(NotInsideError):
        files(tmp_path).get("../a", FakeServer().bring, title="it")


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
