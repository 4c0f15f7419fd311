"""`qnn-harness runtimes`: what there is, what it is made of, and whether it is whole."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.runtimes.local_sources import FolderSource
from tests.integration.conftest import RuntimeFor
from tests.integration.in_process import qnn_harness
from tests.integration.runtimes.real_layouts import folder_of

LAB = """schema: 1
devices:
  - {name: a, serial: b}
runtimes:
  - {name: mine, kind: folder, path: libs}
"""


class Commands:
    """The command in a cache of its own, beside a lab with one folder of real libraries."""

    def __init__(self, folder: Path, runtime_for: RuntimeFor) -> None:
        self.libs = folder_of(folder / "libs", runtime_for("2.51.0").files)
        self.lab = folder / "devices.yaml"
        self.lab.write_text(LAB)
        self.environment = os.environ | {"QNN_HARNESS_CACHE": str(folder / "cache")}
        for variable in ("QAIRT_SDK_ROOT", "QNN_SDK_ROOT"):
            self.environment.pop(variable, None)

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        words = ("runtimes", *arguments, "--lab", self.lab)
        return qnn_harness(*words, environment=self.environment)

    def rows(self, *arguments: object) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self(*arguments, "--json").stdout)["runtimes"]
        return rows


@pytest.fixture
def runtimes(tmp_path: Path, runtime_for: RuntimeFor) -> Commands:
    return Commands(tmp_path, runtime_for)


def test_list(runtimes: Commands) -> None:
    rows = runtimes.rows("list")
    (mine,) = [row for row in rows if row["source"] == "mine"]
    assert mine["name"] == "mine:2.51.0.260929"
    assert (mine["target"], mine["cached"]) == ("linux-x64", True)
    assert {row["qnn"] for row in rows if row["source"] == "pypi"} >= {"2.47.0", "2.51.0"}
    assert {row["target"] for row in rows} == {"linux-x64", "linux-arm64"}


def test_a_source_that_is_not_there_hides_no_other(runtimes: Commands) -> None:
    runtimes.lab.write_text(LAB.replace("libs", "nowhere"))
    completed = runtimes("list")
    assert completed.returncode == 2
    assert "2.51.0" in completed.stdout
    assert "runtimes.mine.path" in completed.stderr


def test_show(runtimes: Commands) -> None:
    (row,) = runtimes.rows("show", "mine:latest", "--htp-arch", "73")
    assert row["build_id"] == "2.51.0.260929181845"
    files = {file["name"]: file for file in row["files"]}
    assert files["lib/libQnnHtp.so"]["pushed"]
    assert files["lib/libQnnHtp.so"]["kind"] == "backend-htp"
    assert not files["lib/libQnnGpu.so"]["pushed"]
    assert row["preflight"] == []


def test_show_names_what_is_missing(runtimes: Commands) -> None:
    next(runtimes.libs.glob("libc++-*")).unlink()
    shown = runtimes("show", runtimes.libs)
    assert shown.returncode == 1, shown.stderr
    assert "error needed-missing: libc++-" in shown.stdout


@pytest.mark.nightly
def test_verify_finds_one_flipped_byte(runtimes: Commands, runtime_for: RuntimeFor) -> None:
    assert runtimes("show", "mine:latest").returncode == 0
    assert runtimes("verify", "mine:latest").stdout.endswith(": intact\n")
    library = runtimes.libs / "libQnnSystem.so"
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    status = library.stat()
    library.unlink()  # it may be the same file as the cache's
    library.write_bytes(content)
    os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))
    completed = runtimes("verify", "mine:latest")
    assert completed.returncode == 1
    assert "lib/libQnnSystem.so " in completed.stdout
    completed = runtimes("verify")
    assert completed.returncode == 1
    assert FolderSource("mine", runtimes.libs, runtimes.libs).versions("linux-x64")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("fetch 1.2.3", "2.51.0"),
        ("show /no/such/place", "VERSION: /no/such/place "),
        ("show mine:9.9", "'9.9'"),
        ("verify 9.9 --target linux-x64", "valid: 2.47.0"),
        ("verify 2.48.40", "2.48.40"),
        ("show latest --target android-arm64", "for android-arm64;"),
    ],
)
def test_wrong_words(words: str, text: str, runtimes: Commands) -> None:
    completed = runtimes(*words.split())
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert text in completed.stderr


def test_versions_of_onnx_runtime_are_listed(runtimes: Commands) -> None:
    orts = json.loads(runtimes("list", "--json").stdout)["orts"]
    assert {"1.24.1", "1.26.0"} <= {row["ort"] for row in orts}
    assert {row["target"] for row in orts} == {"linux-x64", "linux-arm64"}
    completed = runtimes("fetch", "mine:latest", "--ort", "1.2.3")
    assert (completed.returncode, "1.2.3" in completed.stderr) == (2, True)
