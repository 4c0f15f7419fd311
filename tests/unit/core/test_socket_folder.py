"""The folder of the adb server's socket: ours alone, short enough, and swept after accidents."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.core.socket_folder import MAX_SOCKET_PATH_BYTES, new_socket_path


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Shorter than pytest's own, so that a socket's path fits below it, on workers too."""
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as XDG_RUNTIME_DIR names it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


def test_the_folder_is_new_and_ours_alone(runtime: Path) -> None:
    before = os.umask(0)
    try:
        first, second = new_socket_path(), new_socket_path()
    finally:
        os.umask(before)
    assert first.parent != second.parent
    for path in (first, second):
        assert path.parent.parent == runtime
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert not path.exists()


def test_a_runtime_folder_that_others_can_enter_is_not_used(runtime: Path, temporary: Path) -> None:
    runtime.chmod(0o711)
    assert new_socket_path().parent.parent == temporary


@pytest.mark.needs("root")
def test_a_runtime_folder_of_somebody_else_is_not_used(runtime: Path, temporary: Path) -> None:
    os.chown(runtime, 65534, 65534)
    assert new_socket_path().parent.parent == temporary


def test_a_path_that_does_not_fit_is_not_used(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert new_socket_path().parent.parent == temporary
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    path = new_socket_path()
    assert path.parent.parent == Path("/tmp")
    assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    path.parent.rmdir()


def test_where_others_could_rename_it_no_folder_is_made(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    temporary.chmod(0o777)
    path = new_socket_path()
    assert path.parent.parent == Path("/tmp")
    path.parent.rmdir()
    temporary.chmod(0o1777)
    assert new_socket_path().parent.parent == temporary
    temporary.chmod(0o777)
    monkeypatch.setattr("harness.core.socket_folder._LAST_RESORT", temporary)
    with pytest.raises(InfraError):
        new_socket_path()


def test_what_dead_servers_left_is_swept(runtime: Path) -> None:
    never, dead, alive, young = (new_socket_path() for _ in range(4))
    listen(dead).close()
    listen(young).close()
    with listen(alive):
        elsewhere = runtime / "other"
        elsewhere.mkdir()
        link = runtime / "qnn-harness-adb-link"
        link.symlink_to(elsewhere)
        for folder in (never.parent, dead.parent, alive.parent, elsewhere):
            os.utime(folder, (0, 0))
        fresh = new_socket_path()
    names = {path.name for path in runtime.iterdir()}
    kept = {alive.parent.name, young.parent.name, fresh.parent.name, "other", link.name}
    assert names == kept
