"""A row of docs/devices.md, made of an archive that somebody sent."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from harness.cli.doctor import doctor
from harness.core.errors import ConfigError
from harness.doctor.archive import COLUMNS, markdown_row, read_archive
from harness.doctor.check import Checked, report_of
from tests.properties import reached, reaches

CHECKS = (
    Checked("device", "<device>", "SoC", "ok", "SM8650, HTP v75"),
    Checked("device", "<device>", "system", "ok", "android-arm64: Android 15"),
    Checked("device", "<device>", "runtime", "ok", "QNN 2.51.0 for android-arm64"),
    Checked("acceptance", "<device>", "probe", "ok", "started"),
    Checked("acceptance", "<device>", "store, eviction", "ok", ""),
    Checked("acceptance", "<device>", "reboot", "not-applicable", "not asked for"),
    Checked("acceptance", "<device>", "backend htp", "fail", "14001 | skel"),
)


def packed(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.json", text)
    return path


def test_the_page_has_its_columns() -> None:
    page = (Path(__file__).parents[3] / "docs/devices.md").read_text()
    assert f"| {' | '.join(COLUMNS)} |" in page.splitlines()


def test_a_row(tmp_path: Path) -> None:
    file = packed(tmp_path / "a.zip", json.dumps(asdict(report_of(CHECKS))))
    completed = CliRunner().invoke(doctor, ["--read", str(file)])
    assert completed.output == (
        "| SM8650, HTP v75 | android-arm64: Android 15 | QNN 2.51.0 for android-arm64 "
        "| 2 steps: probe; store, eviction | backend htp: 14001 \\| skel |\n"
    )
    told = CliRunner().invoke(doctor, ["--read", str(file), "--json"])
    assert json.loads(told.output) == json.loads(json.dumps(asdict(report_of(CHECKS))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not one of `doctor`"),
        ("[", "is not one of `doctor`"),
        ('{"schema": 2, "checks": []}', "is of schema 2; this version reads schema 1: a newer"),
        (" " * (2 << 20), "is larger than"),
    ],
)
def test_what_is_no_report(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_archive(packed(tmp_path / "a.zip", text))


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\3\4")
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("other.json", "{}")
    for path, message in (
        (tmp_path / "a.zip", "is not an archive of"),
        (tmp_path / "b.zip", "it has no report.json$"),
        (tmp_path / "none", "none: cannot be read: No such file or directory$"),
        (tmp_path, "cannot be read: not a regular file$"),
        (tmp_path / "pipe", "cannot be read: not a regular file$"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_archive(path)


@reaches(0.5)
@given(st.lists(st.text(max_size=40), min_size=3, max_size=3))
def test_whatever_a_device_said_a_row_stays_a_row(texts: list[str]) -> None:
    names = ("SoC", "system", "runtime")
    checks = [
        Checked("device", "d", name, "ok", text) for name, text in zip(names, texts, strict=True)
    ]
    row = markdown_row(report_of(checks))
    if any(set(text) & set("|\n`<") for text in texts) or any(texts):
        reached()
    assert len(row.splitlines()) == 1
    assert row.replace("\\\\", "").replace("\\|", "").count("|") == len(COLUMNS) + 1
