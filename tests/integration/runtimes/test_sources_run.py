"""Libraries from every kind of place run; a bad mix is named, and what it really does is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.runtimes.real_layouts import folder_of, qairt_tree

NIGHT = pytest.mark.nightly
CASE = ("-k", "context_count and tiny and resident-3")


@pytest.fixture
def runs(tmp_path: Path) -> DeviceRuns:
    (tmp_path / "lab").mkdir()
    return DeviceRuns(tmp_path / "lab")


def test_a_qairt_tree_runs(runs: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path) -> None:
    qairt_tree(tmp_path / "qairt", runtime_for("2.50.40"))
    runs.file.write_text(
        runs.file.read_text() + "runtimes:\n  - {name: sdk, kind: qairt, path: ../qairt}\n"
    )
    done = runs.run("--qnn", "sdk:latest", "--preflight", "strict", *CASE)
    assert done.code == 0, done.output
    (case,) = done.cases
    assert "sim-v73-htp-sdk:2.50.40" in case["case"]
    assert (case["axes"]["qnn"], case["axes"]["compiler"]) == ("2.50.40", "2.50.40")
    assert case["runtime"]["source"] == "sdk"
    assert case["runtime"]["build_id"].startswith("2.50.40.")
    assert (case["outcome"], case["preflight"]) == ("passed", [])


def without_cpp_runtime(runtime_for: RuntimeFor, folder: Path) -> Path:
    files = [file for file in runtime_for("2.51.0").files if ".libs/" not in file.name]
    return folder_of(folder, files)


@NIGHT
@pytest.mark.parametrize(("mode", "findings"), [("warn", 3), ("off", 0)])
def test_a_missing_cpp_runtime_is_named_and_what_happens_is_kept(
    mode: str, findings: int, runs: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    folder = without_cpp_runtime(runtime_for, tmp_path / "mixed")
    done = runs.run(f"--qnn={folder}", "--preflight", mode, *CASE)
    assert done.code == 1, done.output
    (case,) = done.cases
    assert [one["code"] for one in case["preflight"]] == ["needed-missing"] * findings
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    assert case["error"]["api"] == "dlopen"
    assert "cannot open shared object file" in case["error"]["message"]


def test_strict_runs_nothing_with_them(
    runs: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    folder = without_cpp_runtime(runtime_for, tmp_path / "mixed")
    done = runs.run(f"--qnn={folder}", "--preflight", "strict", *CASE)
    assert done.code == 2, done.output
    assert "error needed-missing: libc++" in done.output
    assert " passed" not in done.output
    assert "!!" not in done.output


def test_wrong_words(runs: DeviceRuns) -> None:
    done = runs.run("--qnn=/no/such/place", *CASE)
    assert done.code == 2, done.output
    assert "--qnn: /no/such/place does not exist" in done.output
    assert "Traceback" not in done.output


def test_a_range_of_versions_is_one_word(runs: DeviceRuns) -> None:
    done = runs.run("--qnn", ">=2.48,<2.51", "--collect-only", "-q", *CASE)
    assert done.code == 0, done.output
    for version in ("2.48.40", "2.49.40", "2.50.40"):
        assert f"htp-{version}-tiny" in done.output
    assert "2.47.0" not in done.output
    assert "2.51.0" not in done.output


@pytest.mark.nightly
def test_a_device_that_nobody_has_libraries_for_is_told(runs: DeviceRuns) -> None:
    phone = "  - {name: phone, serial: NOT-THERE, soc: SM8650, target: android-arm64}\n"
    runs.file.write_text(runs.file.read_text() + phone)
    done = runs.run(*CASE)
    assert done.code == 0, done.output
    why = "there is no source of QNN libraries"
    assert f"left out: phone: for android-arm64: --qnn: {why}" in done.output
    done = runs.run("--device", "phone", *CASE)
    assert done.code == 2, done.output
    assert "there is no source of QNN libraries for target 'android-arm64'" in done.output
