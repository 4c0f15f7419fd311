"""Checks of this computer, and the amounts that are too little."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from harness.cli.doctor import lines_of
from harness.core.errors import ConfigError, NoLabError
from harness.core.outgoing_text import first_names
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.doctor import examine
from harness.doctor.check_results import (
    Checked,
    CheckGroup,
    CheckResult,
    Status,
    exit_code_of,
    one_line,
    report_of,
)
from harness.doctor.examine import (
    LabNeeds,
    file_check,
    free_space,
    host_checks,
    lab_needs,
    packages,
    probe_origin,
)
from harness.doctor.smoke import verdict_result
from harness.lab.device_config import AdbDeviceConfig
from harness.probe import build
from harness.probe.build import ProbeBuilder
from harness.transport.adb_server import AdbServer, adb_binary
from tests.snapshots import Snapshot

BARE = {"PATH": "/nonexistent"}
PHONE_AND_BOARD = LabNeeds(frozenset({"linux-arm64", "android-arm64"}), server=True)


def host(
    folder: Path, needs: LabNeeds = PHONE_AND_BOARD, environment: Mapping[str, str] = BARE
) -> dict[str, CheckResult]:
    checks = host_checks(folder / "cache", folder, needs, environment)
    return {each.name: CheckResult(each.status, each.found, each.advice) for each in checks}


@pytest.mark.parametrize(
    ("target", "needs", "status", "advice"),
    [
        ("linux-x64", LabNeeds(), "fail", "gcc"),
        ("linux-arm64", LabNeeds(), "not-applicable", ""),
        ("linux-arm64", PHONE_AND_BOARD, "fail", "gcc-aarch64-linux-gnu"),
        ("android-arm64", LabNeeds(), "not-applicable", ""),
        ("android-arm64", PHONE_AND_BOARD, "fail", "pip install ziglang"),
        ("android-arm64", LabNeeds(no_target=("a", "b")), "warn", "pip install ziglang"),
    ],
)
def test_a_compiler_is_missed_where_the_lab_needs_one(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    target: str,
    needs: LabNeeds,
    status: str,
    advice: str,
) -> None:
    monkeypatch.setattr(build, "find_zig", lambda: None)
    result = probe_origin(ProbeBuilder(tmp_path, BARE), target, needs)
    assert result.status == status
    assert advice in result.advice
    program(tmp_path / "cc")
    builder = ProbeBuilder(tmp_path, {"CC": str(tmp_path / "cc")})
    assert probe_origin(builder, "linux-x64", LabNeeds()) == ("ok", str(tmp_path / "cc"), "")


def program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_adb_server_is_everybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdbServer, "is_running", lambda *_, **__: True)
    assert host(tmp_path)["adb server"].status == "ok"
    monkeypatch.setattr(AdbServer, "is_running", lambda *_, **__: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"`{adb_binary()} start-server`" in host(tmp_path)["adb server"].advice
    program(tmp_path / "adb")
    assert "`adb start-server`" in host(tmp_path)["adb server"].advice
    assert host(tmp_path, LabNeeds())["adb server"].status == "not-applicable"


def test_an_adb_that_is_none_and_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "Android Debug Bridge version" in host(tmp_path)["adb"].found
    monkeypatch.setattr(examine, "adb_binary", lambda: program(tmp_path / "adb"))
    checks = host(tmp_path)
    assert (checks["adb"].status, checks["cache"].status) == ("fail", "fail")
    assert "QNN_HARNESS_CACHE" in checks["cache"].advice


@pytest.mark.parametrize(
    ("free", "status"),
    [(2_000_000_000, "ok"), (1_999_999_999, "warn"), (200_000_000, "warn"), (199_999_999, "fail")],
)
def test_how_much_is_too_little(
    free: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    result = free_space(tmp_path / "new/folder", 2.0, "A_VARIABLE")
    assert result.status == status
    assert result.found.startswith(f"{tmp_path}/new/folder: {free / 1e9:.1f} GB")
    assert ("A_VARIABLE" in result.advice) is (status != "ok")


def test_libraries(snapshot: Snapshot) -> None:
    results = [
        packages(["1", "2"], [], None),
        packages([], ["3", "4"], None),
        packages([], ["2.51.0"], "no network"),
        packages(["1"], ["3"], "no network"),
    ]
    assert [result.status for result in results] == ["ok", "ok", "fail", "warn"]
    assert ["PIP_FIND_LINKS" in result.advice for result in results] == [False, False, True, True]
    assert [result.found for result in results] == snapshot


def test_other_lines_of_the_lab() -> None:
    phone = AdbDeviceConfig(name="p", serial="1", target="android-arm64")
    far = AdbDeviceConfig(name="f", serial="2", host="lab-pc")
    needs = LabNeeds(frozenset({"android-arm64"}), no_target=("f",), server=True)
    assert lab_needs([phone, far]) == needs
    assert lab_needs([far]).server is False


def test_checks_that_were_not_made_for_one_reason_are_one_row(snapshot: Snapshot) -> None:
    checks = [
        Checked("device", "p", "reachable", "fail", "gone", "plug it in"),
        Checked("device", "p", "SELinux", "not-applicable", "a simulator"),
        Checked("device", "p", "target", "unknown", "gone"),
        Checked("device", "p", "DSP skel", "not-applicable", "a simulator"),
    ]
    assert lines_of(report_of(checks)) == snapshot


def error(api: str, code: int | None, message: str) -> ErrorRecord:
    return diagnosed("failed", ErrorRecord.of(api=api, code=code, message=message))


SKEL = error(
    "QnnDevice_create",
    14001,
    "Failed to load skel, error: 4000\nTransport layer setup failed: 14001",
)


VERDICTS: list[tuple[Verdict, Status]] = [
    (Verdict("passed"), "ok"),
    (Verdict("failed", "target", SKEL), "fail"),
    (Verdict("failed", "target", error("QnnBackend_create", 1006, "")), "fail"),
    (Verdict("failed", "target", error("x", 4000, "")), "fail"),
    (
        Verdict("unsupported", None, error("QnnBackend_create", 4000, "TuningMode")),
        "not-applicable",
    ),
    (Verdict("crashed", "target", error("dlopen", None, "the process was ended")), "fail"),
    (Verdict("error", "infra", error("", None, "2 events were damaged on the way")), "fail"),
    (Verdict("error", "infra", error("", None, "")), "fail"),
]


def test_what_came_of_an_inference(snapshot: Snapshot) -> None:
    """Of a message of several lines the first is shown."""
    results = [verdict_result(verdict, "desk", "done", Path("/logs")) for verdict, _ in VERDICTS]
    assert [result.status for result in results] == [status for _, status in VERDICTS]
    assert [f"{result.found} -> {result.advice}" for result in results] == snapshot


def check(status: Status, name: str = "x", group: CheckGroup = "device") -> Checked:
    return Checked(group, "desk", name, status, "found")


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([check("ok"), check("warn"), check("unknown"), check("not-applicable")], 0),
        ([check("ok", "reachable"), check("fail")], 1),
        ([check("fail", "reachable", "lab")], 1),
        ([check("fail", "reachable"), check("ok")], 3),
        ([check("ok", "devices.yaml", "lab"), check("fail", "reachable")], 3),
        ([check("fail", "reachable"), check("ok", "reachable")], 1),
        ([check("fail", "reachable"), check("fail", "reachable")], 3),
        ([check("fail", "devices.yaml", "lab"), check("fail", "reachable")], 2),
        ([check("fail", "Python", "host")], 1),
    ],
)
def test_exit_codes(checks: list[Checked], code: int) -> None:
    assert exit_code_of(checks) == code
    report = report_of(checks)
    sums = report.summary
    assert sums.exit_code == code
    assert sums.ok + sums.warn + sums.fail + sums.unknown + sums.not_applicable == len(checks)


@pytest.mark.parametrize(
    ("number", "text"), [(0, ""), (1, "1"), (4, "1, 2, 3, 4"), (5, "1, 2, 3, 4 and 1 more")]
)
def test_of_many_things_the_first_are_said(number: int, text: str) -> None:
    assert first_names(str(index) for index in range(1, number + 1)) == text


@given(st.text())
def test_whatever_was_said_is_one_line(text: str) -> None:
    line = one_line(text)
    assert len(line) <= 600
    assert line.isprintable()
    assert one_line("x" * 601) == "x" * 597 + "..."
    assert one_line(" a\tb\x1b\n c ") == "a b c"


def test_no_lab_is_wrong_only_for_who_asked_for_one() -> None:
    missing = NoLabError("no such file")
    for path, requests, status in (
        (Path("devices.yaml"), False, "not-applicable"),
        (Path("devices.yaml"), True, "fail"),
        (Path("other.yaml"), False, "fail"),
    ):
        check = file_check(path, missing, named=requests)
        assert check.status == status
        assert exit_code_of([check]) == (2 if status == "fail" else 0)
    assert file_check(Path("devices.yaml"), ConfigError("bad"), named=False).status == "fail"
