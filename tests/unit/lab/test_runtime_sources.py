"""`runtimes:` in devices.yaml: what is read, and each mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.lab.inventory import load_lab
from harness.runtimes.catalog import Catalog

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
    assert [(source.name, source.kind) for source in lab.runtimes] == [
        ("sdk", "qairt"),
        ("mine", "folder"),
        ("app", "aar"),
        ("maven", "maven"),
        ("web", "maven"),
    ]
    origins = [source.origin for source in Catalog.of(lab, {}, tmp_path / "cache").sources]
    assert origins[:3] == [str(tmp_path / "../sdk"), "/libs", str(tmp_path / "app.aar")]
    assert origins[3] == f"com.qualcomm.qti:qnn-runtime in {tmp_path / 'm2'}"


def test_an_ort_is_no_source(tmp_path: Path) -> None:
    text = (
        "  - {name: ort, kind: maven, repository: m2, coordinates: 'a:onnxruntime-android-qnn'}\n"
    )
    lab = load_lab(lab_with(tmp_path, text))
    with pytest.raises(ConfigError, match=r"name an ORT by --ort=FILE\.aar \(valid: com\.qualcomm"):
        Catalog.of(lab, {}, tmp_path / "cache")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("  - {name: pypi, kind: aar, path: a}\n", "6: runtimes[0].name: is the name of a source"),
        (
            "  - {name: a, kind: foldr, path: a}\n",
            "6: runtimes[0].kind: unknown value 'foldr', did you mean 'folder'? (valid: qairt, ",
        ),
        ("  - {name: a, path: a}\n", "6: runtimes[0].kind: is missing"),
        ("  - sdk\n", "6: runtimes[0]: must be a mapping of keys to values"),
        ("  - {name: a, kind: qairt}\n", "6: runtimes[0].path: is missing"),
        ("  - {name: a, kind: maven, repository: m}\n", "runtimes[0].coordinates: is missing"),
        (
            "  - {name: a, kind: aar, path: x, toolchain: y}\n",
            "runtimes[0].toolchain: is a key of `kind: qairt` only (valid: name, kind, path)",
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
def test_mistakes(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_lab(lab_with(tmp_path, text))
    assert problem in str(caught.value)
    assert str(caught.value).count("\n") == 0
