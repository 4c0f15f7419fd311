"""Archives for others: without names and places, bounded, whole or not there."""

import json
import os
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from harness.cli.acceptance import acceptance
from harness.cli.doctor import lines_of
from harness.core.errors import ConfigError
from harness.doctor import acceptance_archive
from harness.doctor.acceptance_archive import (
    COLUMNS,
    check_writable,
    lab_words,
    markdown_row,
    private_words,
    read_archive,
    redact_words,
    write_archive,
)
from harness.doctor.check_results import Checked, DoctorReport, report_of
from harness.lab.inventory import Lab
from tests.properties import reached, reaches
from tests.snapshots import Snapshot

WORDS = dict.fromkeys(("R5CX12", "192.0.2.7", "192.0.2.7:5555"), "<serial>") | {"ann": "<user>"}
REPORT = report_of(
    [Checked("device", "desk", "reachable", "ok", "R5CX12 answers", "ask ann@example.com")]
)


def found(report: DoctorReport) -> list[str]:
    return [check.found for check in report.checks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R5CX12 answers, R5CX12.", "<serial> answers, <serial>."),
        ("192.0.2.7:5555 and 192.0.2.7", "<serial> and <serial>"),
        ("held by ann, process 7; annotated", "held by <user>, process 7; annotated"),
        ("at 3c:5a:b4:01:02:03", "at <mac>"),
        ("https://me:secret@maven.example.com/x", "https://***@maven.example.com/x"),
        ("XR5CX12", "XR5CX12"),
    ],
)
def test_what_is_taken_out(text: str, expected: str) -> None:
    assert redact_words(text, WORDS) == expected


@given(st.text(max_size=300))
def test_what_was_taken_out_stays_out(text: str) -> None:
    once = redact_words(f"{text} R5CX12 {text}", WORDS)
    assert redact_words(once, WORDS) == once
    assert " R5CX12 " not in once


def test_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "desk-pc")
    words = private_words({"R5CX12": "<serial>", "": "x", "a": "x"}, Path("/big/cache"), {})
    text = f"{tmp_path}/ann/x of ann at desk-pc: R5CX12 in /big/cache is a"
    assert redact_words(text, words) == "<home>/x of <user> at <host>: <serial> in <cache> is a"
    monkeypatch.setattr("getpass.getuser", lambda: "root")
    assert "root" not in private_words({}, Path("/c"), {})


def test_it_is_there_whole_and_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    (logs / "crash").mkdir(parents=True)
    (logs / "crash/logcat.txt").write_bytes(b"serial R5CX12 \x1b[31m\n" * 10)
    (logs / "large.txt").write_bytes(b"line of ann\n" * 100_000)
    (logs / "empty.txt").touch()
    path = tmp_path / "out.zip"
    path.write_bytes(b"an older one")
    write_archive(path, REPORT, found, logs, WORDS)
    with zipfile.ZipFile(path) as packed:
        assert packed.testzip() is None
        texts = {name: packed.read(name).decode() for name in packed.namelist()}
    assert list(texts) == [
        *("README.txt", "report.txt", "report.json"),
        *("logs/crash/logcat.txt", "logs/large.txt"),
    ]
    whole = "\n".join(texts.values())
    assert "R5CX12" not in whole
    assert " ann\n" not in whole
    assert "\x1b" not in whole
    assert json.loads(texts["report.json"])["checks"][0]["advice"] == "ask <email>"
    assert len(texts["logs/large.txt"]) <= 1 << 20
    assert texts["logs/large.txt"].startswith("[cut: ")
    monkeypatch.setattr(acceptance_archive, "_TOTAL_BYTES", 10)
    write_archive(path, REPORT, found, logs, WORDS)
    with zipfile.ZipFile(path) as packed:
        assert [name for name in packed.namelist() if name.startswith("logs/")] == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["logs", "out.zip"]


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    for place, why in ((tmp_path / "none/out.zip", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=why):
            write_archive(place, REPORT, found, tmp_path / "logs", {})
        with pytest.raises(ConfigError, match=why):
            check_writable(place)
    check_writable(tmp_path / "out.zip")
    assert not list(tmp_path.iterdir())


def test_a_lab_tells_nothing_of_whom_it_belongs_to() -> None:
    devices = [{"name": "desk", "serial": "192.0.2.7:5555", "host": "far"}]
    devices.append({"name": "other", "serial": "R5CX99"})
    nexus = "https://nexus.example.com/ours"
    maven = {"name": "m", "kind": "maven", "coordinates": "com.qualcomm.qti:qnn-runtime"}
    qairt = {"name": "q", "kind": "qairt", "path": "/ours/qairt"}
    runtimes, hosts = [maven | {"repository": nexus}, qairt], [{"name": "far", "host": "lab-7"}]
    lab = {"schema": 1, "devices": devices, "runtimes": runtimes, "hosts": hosts}
    environment = {"QAIRT_SDK_ROOT": "/ours/sdk"}
    words = private_words(lab_words(Lab.model_validate(lab)), Path("/c"), environment)
    for text, expected in {
        "192.0.2.7:5555 and 192.0.2.7": "<serial> and <serial>",
        "it sees R5CX99 (device)": "it sees <serial> (device)",
        "answers at lab-7:5037": "answers at <adb host>:5037",
        f"{nexus}/x, nexus.example.com": "<source>/x, <source>",
        "/ours/qairt/lib, com.qualcomm.qti:qnn": "<source>/lib, com.qualcomm.qti:qnn",
        "24 in /ours/sdk, API 24": "24 in <QAIRT_SDK_ROOT>, API 24",
        f"{sys.prefix}/bin/adb": "<Python>/bin/adb",
    }.items():
        assert redact_words(text, words) == expected


def test_no_link_and_no_name_that_leads_out_gets_in(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "case").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (logs / "case/good.txt").write_text("good")
    (logs / "case/link.txt").symlink_to(tmp_path / "secret")
    (logs / "linked").symlink_to(tmp_path)
    for name in ("..\\..\\x.txt", "C:x.txt", "a\nb.txt"):
        (logs / name).write_text("x")
    os.mkfifo(logs / "fifo")
    # words are taken out before lines are broken
    folder = f"/ours and {'x' * 90} theirs"
    report = report_of([Checked("host", "host", "adb", "ok", f"in {folder}/adb")])
    write_archive(tmp_path / "x.zip", report, lines_of, logs, {folder: "<folder>"})
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert [name for name in archive.namelist() if "/" in name] == ["logs/case/good.txt"]
        assert "adb  in <folder>/adb" in archive.read("report.txt").decode()


CHECKS = (
    Checked("device", "<device>", "SoC", "ok", "SM8650, HTP v75"),
    Checked("device", "<device>", "system", "ok", "android-arm64: Android 15"),
    Checked("device", "<device>", "runtime", "ok", "QNN 2.51.0 for android-arm64"),
    Checked("acceptance", "<device>", "probe", "ok", "started"),
    Checked("acceptance", "<device>", "store, eviction", "ok", ""),
    Checked("acceptance", "<device>", "reboot", "not-applicable", "only with --reboot"),
    Checked("acceptance", "<device>", "backend htp", "fail", "14001 | skel"),
)


def packed(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.json", text)
    return path


def test_a_row(tmp_path: Path, snapshot: Snapshot) -> None:
    file = packed(tmp_path / "a.zip", json.dumps(asdict(report_of(CHECKS))))
    page = (Path(__file__).parents[3] / "docs/tutorial/phone.md").read_text()
    assert f"| {' | '.join(COLUMNS)} |" in page.splitlines()
    completed = CliRunner().invoke(acceptance, ["show", str(file)])
    assert completed.output == snapshot
    completed = CliRunner().invoke(acceptance, ["show", str(file), "--json"])
    assert json.loads(completed.output) == json.loads(json.dumps(asdict(report_of(CHECKS))))


def test_what_is_no_archive_of_the_doctor(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "damaged.zip").write_bytes(b"PK\3\4")
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("other.json", "{}")
    no_json = (packed(tmp_path / f"{len(text)}.zip", text) for text in ("{}", "["))
    for path in (*no_json, tmp_path / "none"):
        with pytest.raises(ConfigError):
            read_archive(path)
    errors = []
    texts = ('{"schema": 2, "checks": []}', " " * (2 << 20))
    for path in (
        *(packed(tmp_path / f"{number}.zip", text) for number, text in enumerate(texts)),
        *(tmp_path / name for name in ("damaged.zip", "other.zip", "pipe", ".")),
    ):
        with pytest.raises(ConfigError) as caught:
            read_archive(path)
        errors.append(caught.value)
    assert errors == snapshot


@reaches(0.5)
@given(st.lists(st.text(max_size=40), min_size=3, max_size=3))
def test_whatever_a_device_said_a_row_stays_a_row(texts: list[str]) -> None:
    names = ("SoC", "system", "runtime")
    checks = [
        Checked("device", "d", name, "ok", text) for name, text in zip(names, texts, strict=True)
    ]
    row = markdown_row(report_of(checks))
    if any(texts):
        reached()
    assert len(row.splitlines()) == 1
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == len(COLUMNS) + 1
