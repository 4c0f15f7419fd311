"""Libraries from every kind of place run; a bad mix is named, and what it really does is kept."""

from pathlib import Path

import pytest

from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.runtimes.real_layouts import folder_of, qairt_tree

CASE = ("-k", "context_count and tiny and resident-3")


@pytest.mark.slow
def test_a_qairt_tree_runs(lab: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path) -> None:
    qairt_tree(tmp_path / "qairt", runtime_for("2.50.40"))
    lab.file.write_text(
        lab.file.read_text() + "runtimes:\n  - {name: sdk, kind: qairt, path: qairt}\n"
    )
    finished = lab.run("--qnn", "sdk:latest", "-o", "qnn_preflight=strict", *CASE, code=0)
    (case,) = finished.cases
    assert "sim-v73-htp-sdk:2.50.40" in case["case"]
    assert (case["axes"]["qnn"], case["axes"]["compiler"]) == ("2.50.40", "2.50.40")
    assert case["runtime"]["source"] == "sdk"
    assert case["runtime"]["build_id"].startswith("2.50.40.")
    assert (case["outcome"], case["preflight"]) == ("passed", [])


def without_cpp_runtime(runtime_for: RuntimeFor, folder: Path) -> Path:
    files = [file for file in runtime_for("2.51.0").files if ".libs/" not in file.name]
    return folder_of(folder, files)


@pytest.mark.nightly
def test_a_missing_cpp_runtime_is_named_and_what_happens_is_kept(
    lab: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    folder = without_cpp_runtime(runtime_for, tmp_path / "mixed")
    finished = lab.run(f"--qnn={folder}", "-o", "qnn_preflight=warn", *CASE, code=1)
    (case,) = finished.cases
    assert [finding["code"] for finding in case["preflight"]] == ["needed-missing"] * 3
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    assert case["error"]["api"] == "dlopen"
    assert "cannot open shared object file" in case["error"]["message"]


def test_strict_runs_nothing_with_them(
    lab: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    folder = without_cpp_runtime(runtime_for, tmp_path / "mixed")
    finished = lab.run(f"--qnn={folder}", "-o", "qnn_preflight=strict", *CASE, code=2)
    assert "error needed-missing: libc++" in finished.output
    assert " passed" not in finished.output


@pytest.mark.nightly
def test_a_device_that_nobody_has_libraries_for_is_left_out(lab: DeviceRuns) -> None:
    phone = "  - {name: phone, serial: NOT-THERE, soc: SM8650, target: android-arm64}\n"
    lab.file.write_text(lab.file.read_text() + phone)
    finished = lab.run(*CASE, code=0)
    reason = "phone: for android-arm64: "
    assert f"left out: {reason}" in finished.output
    assert f"left out: {reason}" in (lab.reports / "latest/report.html").read_text()
    assert lab.run("--device", "phone", *CASE).code == 2
