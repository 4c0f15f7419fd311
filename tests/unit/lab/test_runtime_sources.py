"""`runtimes:` in devices.yaml: what is read, and each mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.lab.inventory import load_lab

LAB = """schema: 1
devices:
  - name: phone
    serial: ABC
runtimes:
"""


def lab_with(folder: Path, text: str) -> Path:
    path = folder / "devices.yaml"
    path.write_text(LAB + text)
    return path


def test_all_kinds(tmp_path: Path) -> None:
    text = """  - {name: sdk, kind: qairt, path: ../sdk, toolchain: aarch64-oe-linux-gcc9.3}
  - {name: mine, kind: folder, path: /libs, version: 2.31.0, target: linux-arm64}
  - {name: app, kind: aar, path: app.aar}
  - {name: maven, kind: maven, coordinates: "com.qualcomm.qti:qnn-runtime", repository: m2}
  - {name: web, kind: maven, coordinates: "a:b", repository: "https://maven.example.com/x"}
"""
    lab = load_lab(lab_with(tmp_path, text))
    assert [(one.name, one.kind) for one in lab.runtimes] == [
        ("sdk", "qairt"),
        ("mine", "folder"),
        ("app", "aar"),
        ("maven", "maven"),
        ("web", "maven"),
    ]
    assert lab.runtimes[0].located(lab.folder) == tmp_path / "../sdk"
    assert lab.runtimes[1].located(lab.folder) == Path("/libs")
    assert lab.runtimes[3].located(lab.folder) == tmp_path / "m2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("  - {name: pypi, kind: aar, path: a}\n", "6: runtimes[0].name: is the name of a source"),
        ("  - {name: a, kind: zip, path: a}\n", "6: runtimes[0].kind: unknown value 'zip'"),
        ("  - {name: a, kind: qairt}\n", "6: runtimes[0].path: is missing: a source of kind qairt"),
        ("  - {name: a, kind: maven, repository: m}\n", "runtimes[0].coordinates: is missing"),
        (
            "  - {name: a, kind: aar, path: x, toolchain: y}\n",
            "runtimes[0].toolchain: a source of kind aar has none (valid: path, target, version)",
        ),
        (
            "  - {name: a, kind: aar, path: x}\n  - {name: a, kind: aar, path: y}\n",
            "7: runtimes[1].name: 'a' is taken already by line 6",
        ),
        (
            '  - {name: a, kind: maven, coordinates: "g:a", repository: "ftp://x"}\n',
            "runtimes[0].repository: must be a folder, or an http or https URL",
        ),
        ("  - {name: a, kind: folder, path: x, target: mars}\n", "linux-arm64, linux-x64"),
    ],
)
def test_mistakes(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_lab(lab_with(tmp_path, text))
    assert told in str(caught.value)
    assert str(caught.value).count("\n") == 0
