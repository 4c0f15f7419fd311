"""Checks of this computer, word by word, and the amounts that are too little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.doctor.check import Checked
from harness.doctor.examine import LabNeeds, host_checks, packages
from tests.unit.doctor.test_other_checks import EVERYTHING, GOOD, NDK

EVERYBODY = "every account of this computer can use it and the devices on it"


def host_check(name: str, changes: dict[str, Any], needs: LabNeeds) -> Checked:
    facts = replace(GOOD, **changes)
    (check,) = (check for check in host_checks(facts, needs) if check.name == name)
    return check


@pytest.mark.parametrize(
    ("name", "changes", "needs", "status", "text"),
    [
        ("Python", {}, LabNeeds(), "ok", "3.12.1 on x86_64"),
        ("C compiler", {}, LabNeeds(), "ok", "/usr/bin/cc"),
        ("C compiler", {"compilers": {}}, LabNeeds(), "fail", "not looked for"),
        (
            "C compiler",
            {"compilers": {}, "compiler_problems": {"linux-x64": "no cc"}},
            LabNeeds(),
            "fail",
            "no cc",
        ),
        ("cross compiler", {"compilers": {"linux-arm64": "zig"}}, LabNeeds(), "ok", "zig"),
        ("cross compiler", {}, EVERYTHING, "fail", "none for linux-arm64"),
        (
            "Android NDK",
            {"compilers": {"android-arm64": "/probes"}},
            EVERYTHING,
            "ok",
            "none; /probes",
        ),
        ("Android NDK", {}, EVERYTHING, "fail", "none"),
        ("Android NDK", {}, replace(EVERYTHING, no_target=("desk",)), "fail", "none"),
        (
            "Android NDK",
            {},
            LabNeeds(no_target=("a", "b")),
            "warn",
            "none; a, b may be a phone: devices.yaml has no `target`",
        ),
        ("Android NDK", {"ndk": NDK}, LabNeeds(), "ok", "27.2 in /ndk, API 21 to 35"),
        (
            "Android NDK",
            {"ndk": replace(NDK, revision=None, compilers={30: Path("a")})},
            LabNeeds(),
            "ok",
            "in /ndk, API 30 to 30",
        ),
        ("qemu", {"qemu": "/usr/bin/qemu"}, LabNeeds(), "ok", "/usr/bin/qemu"),
        ("adb", {}, LabNeeds(), "ok", "/venv/adb: Android Debug Bridge version 1.0.41"),
        (
            "adb",
            {"path_adb": "/usr/bin/adb"},
            LabNeeds(),
            "ok",
            "/venv/adb: Android Debug Bridge version 1.0.41; PATH has /usr/bin/adb",
        ),
        ("adb", {"adb": None}, LabNeeds(), "fail", "none"),
        ("adb", {"adb": None, "adb_problem": "not there"}, LabNeeds(), "fail", "not there"),
        ("adb", {"adb_version": None}, LabNeeds(), "fail", "/venv/adb does not run"),
        ("cache", {"cache_problem": "Read-only"}, LabNeeds(), "fail", "/cache: Read-only"),
        ("cache", {"cache_free_bytes": None}, LabNeeds(), "unknown", "/cache: free space not told"),
        ("memory", {"memory_bytes": None}, LabNeeds(), "unknown", "not told"),
    ],
)
def test_what_is_said(
    name: str, changes: dict[str, Any], needs: LabNeeds, status: str, text: str
) -> None:
    check = host_check(name, changes, needs)
    assert (check.status, check.found) == (status, text)


def test_the_adb_server_is_everybodys() -> None:
    text = host_check("adb server", {"server_running": True}, LabNeeds()).found
    assert text == f"answers at 127.0.0.1:5037; {EVERYBODY}"


@pytest.mark.parametrize(
    ("name", "field", "free", "status", "text"),
    [
        ("cache", "cache_free_bytes", 2_000_000_000, "ok", "/cache: 2.0 GB free"),
        ("cache", "cache_free_bytes", 1_999_999_999, "warn", "/cache: 2.0 GB free"),
        ("cache", "cache_free_bytes", 200_000_000, "warn", "/cache: 0.2 GB free"),
        ("cache", "cache_free_bytes", 199_999_999, "fail", "/cache: 0.2 GB free"),
        ("reports", "reports_free_bytes", 500_000_000, "ok", "/reports: 0.5 GB free"),
        ("reports", "reports_free_bytes", 499_999_999, "warn", "/reports: 0.5 GB free"),
        ("reports", "reports_free_bytes", 49_999_999, "fail", "/reports: 0.0 GB free"),
        ("memory", "memory_bytes", 2_000_000_000, "ok", "2.0 GB available"),
        ("memory", "memory_bytes", 1_940_000_000, "warn", "1.9 GB available"),
    ],
)
def test_how_much_is_too_little(name: str, field: str, free: int, status: str, text: str) -> None:
    check = host_check(name, {field: free}, LabNeeds())
    assert (check.status, check.found) == (status, text)


@pytest.mark.parametrize(
    ("cached", "missing", "problem", "text"),
    [
        (["1", "2"], [], None, "the newest is in the cache: 1, 2"),
        ([], ["3", "4"], None, "the newest is not in the cache; 3, 4 can be fetched"),
        (
            ["1"],
            ["3"],
            "no network",
            "the newest is in the cache: 1; 3 cannot be fetched: no network",
        ),
    ],
)
def test_what_is_said_of_libraries(
    cached: list[str], missing: list[str], problem: str | None, text: str
) -> None:
    answer = packages(cached, missing, problem)
    assert answer.found == text
    assert ("PIP_FIND_LINKS" in answer.advice) == (problem is not None)
