"""Cases that can be reduced, and their records in runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.containers.manifest import Expects
from harness.core.errors import ConfigError
from harness.lab.inventory import SIMULATED_LAB, load_lab
from harness.models.artefact_sources import NO_OPTIONS
from harness.reduce.subject import expected_of, find_record, find_subject
from harness.report.projections import finish
from harness.results.run_folder import RunFolder
from harness.runtimes.catalog import Catalog
from tests.unit.containers.made import epcontext
from tests.unit.results.records import error, record

CASE = "model.pte::test_contexts[sim-v73-htp-2.51.0-model.pte-resident-66]"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("model.pte", "is no test of contexts in a file"),
        ("suites/test_limit.py::test_limit[sim-v73-htp-2.51.0]", "test_limit. is no test of"),
        (
            "model.pte::test_program[sim-v73-htp-2.49.40-model.pte]",
            "that engine loads a file as it is",
        ),
        (CASE, "there is no file model.pte here"),
        ("made.onnx::test_contexts", "is compiled here"),
    ],
)
def test_what_cannot_be_taken_apart(
    case: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made.onnx").write_bytes(epcontext([], others=1))
    monkeypatch.chdir(tmp_path)
    lab = load_lab(SIMULATED_LAB)
    catalog = Catalog.of(lab, os.environ, tmp_path / "cache")
    with pytest.raises(ConfigError, match=message):
        find_subject(case, SIMULATED_LAB, lab, catalog, NO_OPTIONS)


def test_a_case_in_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run has model"):
        find_record(CASE, None, tmp_path)
    folder = RunFolder.create(tmp_path, command=[], lab={}, devices=[])
    other = CASE.replace("66", "3")
    for case in (CASE, other, "suites/test_a.py::test_b[1]", "one.bin::test_contexts[1]"):
        folder.journal.append(record(case=case, outcome="failed"))
    finish(folder, exit_code=1)
    found_record = find_record(CASE, None, tmp_path)
    assert found_record.case == CASE
    short = find_record("one.bin::test_contexts", folder.path, tmp_path)
    assert short.case == "one.bin::test_contexts[1]"
    with pytest.raises(ConfigError, match="has no case none") as raised:
        find_record("none.bin::test_contexts", folder.path, tmp_path)
    assert raised.value.choices == [CASE, other, "one.bin::test_contexts[1]"]
    with pytest.raises(ConfigError, match="no run has model") as raised:
        find_record(CASE.replace("66", "5"), None, tmp_path)
    assert raised.value.choices == [CASE, other]
    with pytest.raises(ConfigError, match="several cases have this name") as raised:
        find_record("model.pte::test_contexts", None, tmp_path)
    assert raised.value.choices == [CASE, other]
    with pytest.raises(ConfigError, match="is no run's folder"):
        find_record(CASE, tmp_path / "none", tmp_path)


def test_only_a_verdict_is_expected_again() -> None:
    assert expected_of(record()) == Expects(outcome="passed", signature=None)
    failed = Expects(outcome="failed", signature=error().signature)
    assert expected_of(record(outcome="failed")) == failed
    assert expected_of(record(outcome="error", cause="infra")) is None
    assert expected_of(record(outcome="unsupported")) is None
