"""Checks of this computer, and the amounts that are too little."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.doctor import examine
from harness.doctor.check import CheckResult
from harness.doctor.examine import LabNeeds, free_space, host_checks, packages, probe_origin
from harness.probe.build import ProbeBuilder
from harness.transport.adb_server import AdbServer

BARE = {"PATH": "/nonexistent"}
PHONE_AND_BOARD = LabNeeds(frozenset({"linux-arm64", "android-arm64"}), server=True)


def host(
    folder: Path, needs: LabNeeds = PHONE_AND_BOARD, environment: Mapping[str, str] = BARE
) -> dict[str, CheckResult]:
    checks = host_checks(folder / "cache", folder, needs, environment)
    return {each.name: CheckResult(each.status, each.found, each.advice) for each in checks}


@pytest.mark.parametrize(
    ("target", "needs", "status", "text", "advice"),
    [
        ("linux-x64", LabNeeds(), "fail", "none", "install gcc or clang"),
        ("linux-arm64", LabNeeds(), "not-applicable", "no device of the lab", ""),
        ("linux-arm64", PHONE_AND_BOARD, "fail", "none", "gcc-aarch64-linux-gnu"),
        ("android-arm64", LabNeeds(), "not-applicable", "no device of the lab", ""),
        ("android-arm64", PHONE_AND_BOARD, "fail", "none", "ANDROID_NDK_HOME"),
        ("android-arm64", LabNeeds(no_target=("a", "b")), "warn", "a, b may be a phone", "NDK"),
    ],
)
def test_a_compiler_is_missed_where_the_lab_needs_one(
    tmp_path: Path, target: str, needs: LabNeeds, status: str, text: str, advice: str
) -> None:
    result = probe_origin(ProbeBuilder(tmp_path, BARE), target, needs)
    assert result.status == status
    assert text in result.found
    assert advice in result.advice


def test_a_probe_that_can_be_built(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    builder = ProbeBuilder(tmp_path, {"CC": str(compiler)})
    assert probe_origin(builder, "linux-x64", LabNeeds()) == ("ok", str(compiler), "")


def test_the_adb_server_is_everybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdbServer, "is_running", lambda *_, **__: True)
    found = host(tmp_path)["adb server"].found
    assert found.endswith("; every account of this computer can use it and the devices on it")
    monkeypatch.setattr(AdbServer, "is_running", lambda *_, **__: False)
    assert "adb start-server" in host(tmp_path)["adb server"].advice
    assert host(tmp_path, LabNeeds())["adb server"].status == "not-applicable"


def test_adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Android Debug Bridge version" in host(tmp_path)["adb"].found
    broken = tmp_path / "adb"
    broken.write_text("#!/bin/sh\n")
    broken.chmod(0o755)
    monkeypatch.setattr(examine, "adb_binary", lambda: broken)
    assert host(tmp_path)["adb"][:2] == ("fail", f"{broken} does not run")


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    result = host(tmp_path)["cache"]
    assert result.status == "fail"
    assert "QNN_HARNESS_CACHE" in result.advice


@pytest.mark.parametrize(
    ("free", "status", "text"),
    [
        (2_000_000_000, "ok", "2.0 GB free"),
        (1_999_999_999, "warn", "2.0 GB free"),
        (200_000_000, "warn", "0.2 GB free"),
        (199_999_999, "fail", "0.2 GB free"),
    ],
)
def test_how_much_is_too_little(
    free: int, status: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    result = free_space(tmp_path / "new/folder", 2.0, "A_VARIABLE")
    assert (result.status, result.found) == (status, f"{tmp_path}/new/folder: {text}")
    assert ("A_VARIABLE" in result.advice) is (status != "ok")


@pytest.mark.parametrize(
    ("cached", "missing", "problem", "status", "text"),
    [
        (["1", "2"], [], None, "ok", "the newest is in the cache: 1, 2"),
        ([], ["3", "4"], None, "ok", "the newest is not in the cache; 3, 4 can be fetched"),
        ([], ["2.51.0"], "no network", "fail", "the newest is not in the cache; 2.51.0 cannot"),
        (
            ["1"],
            ["3"],
            "no network",
            "warn",
            "the newest is in the cache: 1; 3 cannot be fetched: no network",
        ),
    ],
)
def test_libraries(
    cached: list[str], missing: list[str], problem: str | None, status: str, text: str
) -> None:
    result = packages(cached, missing, problem)
    assert result.status == status
    assert result.found.startswith(text)
    assert ("PIP_FIND_LINKS" in result.advice) == (problem is not None)
