"""/data/local/tmp and /sdcard on the simulated device: for files, for commands, for every user."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.simulator import fixed_paths
from tests.integration.simulator.conftest import OnDevice

SOMEBODY = "54321"
SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
import fixed_paths
root = os.getcwd()
print(fixed_paths.enter_namespace(fixed_paths.map_fixed_paths(root), root + "/base"), flush=True)
os.chdir(root)
os.execv("/bin/sh", ["sh", "-c", sys.argv[2]])
"""
LOOK = 'id -u; echo text >/data/local/tmp/file && cat "$PWD/data/local/tmp/file"; ls -A base /data'


def test_one_file_by_all_its_names(shared: OnDevice, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content\n")
    for path, folder in (("/data/local/tmp", "data/local/tmp"), ("/sdcard", "sdcard")):
        assert shared("push", tmp_path / "file", f"{path}/sub/file").returncode == 0
        real = shared.storage / folder / "sub/file"
        assert real.read_text() == "content\n"
        assert shared.text(f"cat {path}/sub/file {real}") == "content\ncontent"
        assert shared.text(f"cd {path} && echo more >>sub/file && ls") == "sub"
        assert shared("pull", f"{path}/sub", tmp_path / "back").returncode == 0
        assert (tmp_path / "back/file").read_text() == "content\nmore\n"
        shutil.rmtree(tmp_path / "back")
        assert b"sub" in shared("shell", f"ls {path}").stdout
        shared.text(f"rm -r {path}/sub")


def test_the_rest_of_the_root_is_this_computers(shared: OnDevice, tmp_path: Path) -> None:
    assert shared.text(f"echo x >{tmp_path}/file; cat {tmp_path}/file") == "x"
    assert (tmp_path / "file").read_text() == "x\n"
    names = set(shared.text("ls -A /").splitlines())
    assert names == set(os.listdir("/")) | {"data", "sdcard"}
    assert shared("shell", "mkdir /data/other").returncode != 0
    refused = shared("push", tmp_path / "file", "/data/other")
    assert b"Permission denied" in refused.stdout + refused.stderr
    assert shared.text("id -u") == str(os.getuid())


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user reaches, with the module and a storage of nobody's in it."""
    with tempfile.TemporaryDirectory(prefix="fixed-") as folder:
        place = Path(folder)
        shutil.copy(fixed_paths.__file__, place)
        for name in ("data/local/tmp", "sdcard", "base"):
            (place / "storage" / name).mkdir(parents=True)
        for path in (place, *place.rglob("*")):
            path.chmod(0o777)
        yield place


def look(place: Path, *user: str) -> list[str]:
    command = [*user, "/usr/bin/python3", "-I", "-S", "-c", SCRIPT, str(place), LOOK]
    completed = subprocess.run(
        command, cwd=place / "storage", capture_output=True, text=True, timeout=60, check=False
    )
    return completed.stdout.splitlines() or [completed.stderr]


@pytest.mark.needs("root")
@pytest.mark.needs("setpriv")
def test_another_user_needs_no_root(place: Path) -> None:
    user = ("setpriv", "--reuid", SOMEBODY, "--regid", SOMEBODY, "--clear-groups")
    assert look(place, *user) == ["None", SOMEBODY, "text", "/data:", "local", "", "base:"]


@pytest.mark.needs("unshare")
@pytest.mark.needs("setpriv")
def test_where_it_cannot_be_had_that_is_said(place: Path) -> None:
    """Without the right to make namespaces everything stays as it was."""
    none = 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all "$@"'
    result = look(place, "unshare", "--user", "--map-root-user", "sh", "-c", none, "sh")
    assert "No space left on device" in result[0]
    assert result[1] == "0"
    assert "text" not in result
