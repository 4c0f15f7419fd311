"""Folders that programs are run from are ours alone."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.core.state_folders import (
    cache_path,
    cache_problem,
    cache_root,
    lease_root,
    open_to_others,
    private_folder,
    quarantine_root,
    simulated_root,
)
from tests.snapshots import Snapshot

Root = Callable[[], Path]
ROOTS: list[tuple[str, Root]] = [
    ("QNN_HARNESS_CACHE", cache_root),
    ("QNN_HARNESS_SIMULATED", lambda: simulated_root(Path("/nowhere"))),
    ("QNN_HARNESS_QUARANTINE", lambda: quarantine_root(Path("/nowhere"))),
]
IN_HOME = {
    f"QNN_HARNESS_{name.upper()}": name for name in ("cache", "simulated", "quarantine", "leases")
}


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("variable", "root"), ROOTS, ids=[name for name, _ in ROOTS])
def test_a_chosen_folder(
    variable: str, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "chosen"
    monkeypatch.setenv(variable, str(folder))
    assert root() == folder
    assert mode_of(folder) == 0o700
    folder.chmod(0o755)  # who wants others to read it says so
    assert root() == folder
    assert mode_of(folder) == 0o755
    for mode in (0o775, 0o757, 0o1777):
        folder.chmod(mode)
        with pytest.raises(ConfigError, match=f"{variable}.*chmod go-w {folder}"):
            root()


@pytest.mark.parametrize(("variable", "root"), [*ROOTS, ("QNN_HARNESS_LEASES", lease_root)])
def test_one_variable_moves_all_and_one_of_a_folder_wins(
    variable: str, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("QNN_HARNESS_HOME", str(home))
    for name in IN_HOME:
        monkeypatch.delenv(name, raising=False)
    assert root() == home / IN_HOME[variable]
    if variable != "QNN_HARNESS_LEASES":  # Leases make theirs, for all users
        assert mode_of(root()) == 0o700
        root().chmod(0o777)
        with pytest.raises(ConfigError, match=f"QNN_HARNESS_HOME.*chmod go-w {home}"):
            root()
    assert cache_path() == home / "cache"
    monkeypatch.setenv(variable, str(tmp_path / "chosen"))
    assert root() == tmp_path / "chosen"


def test_the_default_folder_is_private_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("QNN_HARNESS_HOME", *IN_HOME):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "qnn-harness"
    assert cache_root() == folder
    assert mode_of(folder) == 0o700
    folder.chmod(0o775)
    with pytest.raises(ConfigError, match=f"`chmod go-w {folder}`"):
        cache_root()
    assert simulated_root(folder) == folder / "simulated"


@pytest.mark.needs("root")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to user 65534"):
        private_folder(folder)


def test_a_folder_that_cannot_be_made_is_for_its_writer_to_tell(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    file.chmod(0o644)
    assert private_folder(file / "below") == file / "below"
    assert open_to_others(file / "below") is None


def test_who_cannot_write_to_the_cache_is_told_how_to_name_another(snapshot: Snapshot) -> None:
    denied = cache_problem(PermissionError(13, "Permission denied", "/cache/x"))
    assert [denied, cache_problem(OSError("full"), "cannot copy")] == snapshot
