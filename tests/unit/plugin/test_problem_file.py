"""The problem file of a run that never got to its case."""

from pathlib import Path

import pytest

from harness.core.errors import ConfigError, HarnessError, InfraError, InternalError, VersionError
from harness.core.versions import QNN_WHEELS
from harness.lab.device_config import DeviceConfig
from harness.plugin.axes import device_runtimes
from harness.plugin.problem_file import Problem, read_problem, write_problem
from harness.runtimes.catalog import Catalog
from harness.runtimes.ort import ort_library_of
from harness.runtimes.runtime import LibraryMissing, NotOffered, Runtime

NEWEST = list(QNN_WHEELS)[-1]


@pytest.mark.parametrize(
    ("error", "about"),
    [
        (VersionError("x", field="--qnn"), "versions"),
        (NotOffered("x", field="ort"), "versions"),
        (LibraryMissing("x"), "versions"),
        (ConfigError("x", field="qnn_only_case"), "case"),
        (ConfigError("x", file="devices.yaml", line=2), "input"),
        (ConfigError("x", field="--qnn"), "input"),
        (InfraError("x"), "lab"),
        (InternalError("x"), "lab"),
    ],
)
def test_the_kind_of_error_tells_what_it_is_about(
    error: HarnessError, about: str, tmp_path: Path
) -> None:
    problem = Problem.of(error)
    assert (problem.about, problem.text) == (about, str(error))
    write_problem(tmp_path / "problem.json", problem)
    assert read_problem(tmp_path / "problem.json") == problem


def test_any_text_can_be_told_and_what_is_no_problem_is_none(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    write_problem(file, Problem.of(ConfigError("\udc80" * 9000)))
    problem = read_problem(file)
    assert len(problem.text) == 4000
    for text in ("", "nonsense", "[]", '{"about": "moon", "text": "x"}', "x" * 100_000):
        file.write_text(text)
        assert read_problem(file) is None
    assert read_problem(tmp_path / "none") is None
    write_problem(tmp_path / "no" / "folder", Problem.of(ConfigError("x")))  # harms nobody


def test_errors_of_versions_are_of_that_kind(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "cache")
    device = DeviceConfig.model_validate(
        {"name": "a", "simulated": True, "soc": "QCS8550", "target": "linux-x64"}
    )

    def resolved(qnn: str, compiler: str, ort: str) -> None:
        device_runtimes(catalog, [device], {"qnn": [qnn], "compiler": [compiler], "ort": [ort]})

    for versions in (
        ("1.2.3", NEWEST, "1.31.1"),
        (NEWEST, "9.9", "1.31.1"),
        (NEWEST, NEWEST, "9.9.9"),
    ):
        with pytest.raises(VersionError):
            resolved(*versions)
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "gone", tmp_path / "empty"):
        with pytest.raises(ConfigError) as raised:
            resolved(str(place), NEWEST, "1.31.1")
        assert not isinstance(raised.value, VersionError), "a place that went away is the lab's"
    none = Runtime("1", "linux-x64", tmp_path, ())
    with pytest.raises(VersionError):
        ort_library_of(none)
