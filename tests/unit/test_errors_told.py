"""Errors for users whose computer has something in the way, missing, full or odd."""

import errno
import fcntl
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.bisect.folder import BisectFolder
from harness.core.archive import names_of
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.guarded_process import spawn_guarded
from harness.doctor.examine import index_problem
from harness.history.database import open_database
from harness.lab.lease import Leases
from harness.nightly.night import lock_nights
from harness.probe.build import ProbeBuilder, read_sources
from harness.runtimes.catalog import Catalog
from harness.runtimes.download import Bounds, download
from harness.runtimes.pypi import require_compiling_host
from harness.simulator.private_server import harness_key
from harness.transport.adb_server import adb_binary

BOUNDS = Bounds(1000, 5)


def in_the_way(folder: Path) -> Path:
    path = folder / "file"
    path.write_text("x")
    return path / "below"


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        (lambda folder: harness_key(in_the_way(folder)), InfraError),
        (lambda folder: BisectFolder.newest(folder), ConfigError),
        (lambda _: read_sources("*.none"), ConfigError),
        (lambda folder: names_of(in_the_way(folder).parent), InfraError),
        (lambda folder: spawn_guarded(["x"], cwd=folder / "gone"), InfraError),
        (lambda folder: download("http://[::1/x", folder, BOUNDS), InfraError),
        (lambda folder: download(f"http://{'a' * 64}.example/x", folder, BOUNDS), InfraError),
        (lambda folder: Catalog(folder).add(Catalog(folder).sources[0]), ConfigError),
    ],
)
def test_what_stands_in_the_way_is_an_error(
    tmp_path: Path, does: Callable[[Path], object], kind: type[HarnessError]
) -> None:
    with pytest.raises(kind):
        does(tmp_path)


def test_a_full_disk_keeps_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    leases = Leases(tmp_path / "leases", purpose="a test")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InfraError, match="No space left on device"):
        leases.acquire("local:x", "phone")
    monkeypatch.undo()
    leases.acquire("local:x", "phone")
    leases.close()


def test_an_adb_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "adb"))
    with pytest.raises(ConfigError, match="ADBUTILS_ADB_PATH: "):
        adb_binary()
    monkeypatch.setenv("ADBUTILS_ADB_PATH", "/bin/false")
    with pytest.raises(InfraError, match=r"adb keygen .*\(1\)"):
        harness_key(tmp_path)


def test_postgres_wants_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match="pip install"):
        open_database("postgresql://somewhere/db")


def test_a_folder_on_a_file_system_without_locks_keeps_no_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    refused = pytest.raises(InfraError, match="No locks available")
    with refused, lock_nights(tmp_path):
        pass


def test_where_nothing_is_compiled_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    require_compiling_host()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(InfraError, match="aarch64"):
        require_compiling_host()


def test_the_compiler_of_the_executorch_runner(tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path)}
    with pytest.raises(ConfigError, match="CXX"):
        ProbeBuilder(tmp_path, empty).cxx_compiler()
    for name in ("clang++", "g++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert ProbeBuilder(tmp_path, empty).cxx_compiler() == (str(tmp_path / name),)
    chosen = empty | {"CXX": f" {tmp_path / 'clang++'} -O2 "}
    assert ProbeBuilder(tmp_path, chosen).cxx_compiler() == (str(tmp_path / "clang++"), "-O2")


def test_why_pip_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert "No matching distribution found for nothing" in (
        index_problem("nothing", timeout_s=60) or ""
    )
    assert "0.01 s" in (index_problem("nothing", timeout_s=0.01) or "")
