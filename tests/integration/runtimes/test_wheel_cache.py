"""The wheel cache with pip itself, on small wheels in a folder or on a server of the test's own."""

import base64
import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.runtimes.pypi import WheelCache, WheelRequest
from tests.integration.runtimes.maven_server import MavenServer
from tests.logged import Logged

REQUEST = WheelRequest("harness-sample", "1.0", "manylinux_2_35_x86_64", "3.12", "cp312")
NAME = "harness_sample-1.0-cp312-cp312-manylinux_2_35_x86_64.whl"
FILES = {"harness_sample/lib.so": b"\x7fELF" + bytes(range(256)) * 40, "harness_sample/x.py": b""}


def make_wheel(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = "harness_sample-1.0.dist-info"
    content = FILES | {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: harness-sample\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        b"Tag: cp312-cp312-manylinux_2_35_x86_64\n",
    }
    rows = []
    for name, data in content.items():
        digest = hashlib.sha256(data).digest()
        encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        rows.append(f"{name},sha256={encoded},{len(data)}")
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = folder / NAME
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in content.items():
            wheel.writestr(zipfile.ZipInfo(name), data)
    return path


def wheels(root: Path, timeout_s: float = 60) -> WheelCache:
    return WheelCache(root, known={}, timeout_s=timeout_s)


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the wheel, which is all that pip may look at."""
    make_wheel(tmp_path / "links")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    return tmp_path / "links"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def cached_files(root: Path) -> set[str]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.name for path in files if path.parent.name != "ledgers"}


def test_a_wheel_is_fetched_once(links: Path, root: Path, logged: Logged) -> None:
    cache = wheels(root)
    assert not cache.is_cached(REQUEST)
    wheel = cache.fetch(REQUEST)
    assert wheel.path == root / "wheels" / NAME
    assert wheel.sha256 == hashlib.sha256((links / NAME).read_bytes()).hexdigest()
    assert wheel.path.stat().st_size == (links / NAME).stat().st_size
    assert cached_files(root) == {NAME, f"{NAME}.json"}
    assert logged.progress[0] == "fetching harness-sample 1.0 (manylinux_2_35_x86_64)"
    (links / NAME).unlink()
    logged.progress.clear()
    again = wheels(root)
    assert again.is_cached(REQUEST)
    assert again.fetch(REQUEST) == wheel
    assert logged == Logged()


def test_an_index_that_is_not_there_stays_unnamed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://someone:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(InfraError) as caught:
        wheels(root).fetch(REQUEST)
    text = str(caught.value)
    assert "secret" not in text
    assert "127.0.0.1" not in text


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    """A package index on the loopback that breaks off the first download."""
    server = MavenServer()
    server.files["simple/harness-sample/"] = f'<a href="../../{NAME}">{NAME}</a>'.encode()
    server.files[NAME] = make_wheel(tmp_path / "served").read_bytes()
    server.cuts[NAME] = [len(server.files[NAME]) // 2]
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name in ("PIP_RETRIES", "PIP_RESUME_RETRIES"):
        monkeypatch.setenv(name, "0")
    yield server
    server.stop()


def test_a_download_that_breaks_off_leaves_nothing(index: MavenServer, root: Path) -> None:
    with pytest.raises(InfraError, match="harness-sample"):
        wheels(root).fetch(REQUEST)
    assert index.cuts[NAME] == []
    assert cached_files(root) == set()
    assert wheels(root).fetch(REQUEST).path.stat().st_size > 0


@pytest.mark.slow
def test_pip_that_takes_too_long_is_ended(index: MavenServer, root: Path) -> None:
    index.stall_s = 30.0
    with pytest.raises(InfraError, match="within 3 s"):
        wheels(root, timeout_s=3).fetch(REQUEST)
    assert cached_files(root) == set()


def is_library(name: str) -> bool:
    return name.endswith(".so")


def test_a_wheel_is_unpacked_as_far_as_wanted_and_a_changed_file_again(
    links: Path, root: Path, logged: Logged
) -> None:
    folder = wheels(root).folder(REQUEST, is_library)
    (library,) = folder.files.values()
    assert library.path.read_bytes() == FILES["harness_sample/lib.so"]
    assert library.sha256 == hashlib.sha256(FILES["harness_sample/lib.so"]).hexdigest()
    assert cached_files(folder.path) == {"lib.so", "manifest.json"}
    library.path.write_bytes(library.path.read_bytes()[::-1])
    os.utime(library.path, ns=(1, 1))
    assert wheels(root).folder(REQUEST, is_library).files == folder.files
    assert library.path.read_bytes() == FILES["harness_sample/lib.so"]
    (line,) = logged.warnings
    assert "harness_sample/lib.so has sha256" in line
    assert line.endswith(f"; unpacking {REQUEST} again")
