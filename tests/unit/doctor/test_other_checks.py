"""Lab, smoke and the sums: what facts mean, case by case."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError, NoLabError
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.doctor.check import (
    Checked,
    CheckGroup,
    Status,
    exit_code_of,
    listed,
    one_line,
    report_of,
)
from harness.doctor.examine import (
    LabNeeds,
    file_check,
    lab_needs,
)
from harness.doctor.smoke import error_text, hint, verdict_result
from harness.lab.devices import AdbDeviceConfig


def test_other_lines_of_the_lab() -> None:
    phone = AdbDeviceConfig(name="p", serial="1", target="android-arm64")
    far = AdbDeviceConfig(name="f", serial="2", host="lab-pc")
    needs = LabNeeds(frozenset({"android-arm64"}), no_target=("f",), server=True)
    assert lab_needs([phone, far]) == needs
    assert lab_needs([far]).server is False


def error(api: str, code: int | None, message: str) -> ErrorRecord:
    return diagnosed("failed", ErrorRecord.of(api=api, code=code, message=message))


SKEL = error(
    "QnnDevice_create",
    14001,
    "Failed to load skel, error: 4000\nTransport layer setup failed: 14001",
)


@pytest.mark.parametrize(
    ("verdict", "status", "text", "advice"),
    [
        (Verdict("passed"), "ok", "done", ""),
        (
            Verdict("failed", "target", SKEL),
            "fail",
            "QnnDevice_create 14001 QNN_DEVICE_ERROR_INVALID_CONFIG: Failed to load skel",
            "pack stub and skel of this arch with the backend",
        ),
        (
            Verdict("failed", "target", error("QnnBackend_create", 1006, "")),
            "fail",
            "QnnBackend_create 1006",
            "finds no OpenCL driver",
        ),
        (
            Verdict("unsupported", None, error("QnnBackend_create", 4000, "TuningMode")),
            "not-applicable",
            "not on this target",
            "",
        ),
        (
            Verdict("crashed", "target", error("dlopen", None, "the process was ended")),
            "fail",
            "crashed: dlopen: the process was ended",
            "/logs",
        ),
        (
            Verdict("error", "infra", error("", None, "2 events were damaged on the way")),
            "fail",
            "2 events were damaged",
            "the lab failed, not the target: `qnn-harness devices heal desk`",
        ),
    ],
)
def test_what_came_of_an_inference(verdict: Verdict, status: str, text: str, advice: str) -> None:
    check = verdict_result(verdict, "desk", "done", Path("/logs"))
    assert check.status == status
    assert text in check.found
    assert advice in check.advice
    assert "Transport layer" not in check.found


def test_hints_and_texts() -> None:
    assert "skel" in hint(SKEL)
    assert "see the lines above" in hint(SKEL)
    assert "--qnn" in hint(error("x", 4000, ""))
    assert error_text(error("", None, "")) == "the probe"


def check(status: Status, name: str = "x", group: CheckGroup = "device") -> Checked:
    return Checked(group, "desk", name, status, "found")


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([], 0),
        ([check("ok"), check("warn"), check("unknown"), check("not-applicable")], 0),
        ([check("ok", "reachable"), check("fail")], 1),
        ([check("fail")], 1),
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


def test_a_report_counts_what_came_of_each_check() -> None:
    statuses: list[Status] = ["ok", "warn", "fail", "unknown", "not-applicable"]
    checks = [check(status) for number, status in enumerate(statuses, 1) for _ in range(number)]
    text = asdict(report_of(checks))
    assert text["schema"] == 1
    assert text["checks"][0] == {
        "group": "device",
        "subject": "desk",
        "name": "x",
        "status": "ok",
        "found": "found",
        "advice": "",
    }
    assert len(text["checks"]) == 15
    assert list(text["summary"].values()) == [1, 2, 3, 4, 5, 1]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, ""), (1, "1"), (4, "1, 2, 3, 4"), (5, "1, 2, 3, 4 and 1 more")],
)
def test_of_many_things_the_first_are_said(number: int, text: str) -> None:
    assert listed(str(index) for index in range(1, number + 1)) == text


def test_a_long_text_is_cut() -> None:
    assert one_line("x" * 600) == "x" * 600
    assert one_line("x" * 601) == "x" * 597 + "..."
    assert one_line(" a\tb\x1b\n c ") == "a b c"


@given(st.text())
def test_whatever_was_said_is_one_line(text: str) -> None:
    line = one_line(text)
    assert len(line) <= 600
    assert line.isprintable()


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
