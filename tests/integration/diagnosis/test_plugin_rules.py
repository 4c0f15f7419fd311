"""Rules of a package outside of the tree, in `explain` and in the record of a case."""

from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.extend_page import run_with_plugin, shown_module

RULES = shown_module("failures of Acme's backend")
LINE = "AcmeNpu: license of tile 3 expired"
LOG = f"11-20 06:00:00.123  4711  4711 E acme: {LINE}\n"
SUITE = f"""
import pytest
from harness import held

@pytest.mark.device(backend="htp")
def test_acme(bench):
    bench.expect(held("session", False, "{LINE}"))
"""


def explain(plugin: str, folder: Path) -> tuple[int, str]:
    (folder / "acme.log").write_text(LOG)
    completed = run_with_plugin(plugin, folder, "harness.cli.main", "explain", "acme.log")
    return completed.returncode, completed.stdout


def test_explain_recognises_a_line_of_a_backend_by_a_rule_of_a_package(tmp_path: Path) -> None:
    code, text = explain(RULES, tmp_path)
    assert text.splitlines()[:3] == [
        "cause: acme-license (known): Acme's backend has no license for this device: that of tile "
        "3 expired",
        f"  line 1: acme: {LINE}",
        "  what helps: request one for its serial number, and push it to /data/local/tmp/acme.lic",
    ]
    assert "  see https://wiki.acme.example/npu/licenses\n" in text
    assert code == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_a_case_has_the_diagnosis_of_a_rule_of_a_package(
    lab: DeviceRuns, workers: tuple[str, ...]
) -> None:
    (lab.folder / "test_mine.py").write_text(SUITE)
    (lab.folder / "pytest.ini").write_text("[pytest]\n")
    words = ("pytest", "-m", "device", "--qnn=2.51.0", *workers)
    completed = run_with_plugin(RULES, lab.folder, *words, environment=lab.environment)
    (case,) = Finished(completed.returncode, completed.stdout, lab.reports).cases
    assert case["outcome"] == "failed"
    assert case["error"]["diagnosis"]["id"] == "acme-license"
    assert case["error"]["diagnosis"]["thread"] == "https://wiki.acme.example/npu/licenses"
    assert "acme-license (known): Acme's backend has no license" in completed.stdout
    assert "acme-license" in (lab.reports / "latest/report.html").read_text()


def test_a_wrong_rule_ends_a_run_before_its_first_case(lab: DeviceRuns) -> None:
    (lab.folder / "test_mine.py").write_text(SUITE)
    (lab.folder / "pytest.ini").write_text("[pytest]\n")
    wrong = RULES.replace("acme-license", "no-memory")
    words = ("pytest", "-m", "device", "--qnn=2.51.0", "-n2")
    completed = run_with_plugin(wrong, lab.folder, *words, environment=lab.environment)
    problem = "plug-in acme: qnn_diagnosis_rules: ValueError: a rule no-memory already exists"
    assert problem in completed.stdout
    assert completed.returncode == 2
    assert "1 failed" not in completed.stdout
