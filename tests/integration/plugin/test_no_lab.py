"""pytest in a folder without a devices.yaml, as whoever has just installed the package has it."""

import os
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.integration.device_runs import WITHOUT_HYPOTHESIS
from tests.integration.forked import run_module

SUITE = """import pytest


def test_plain():
    pass


@pytest.mark.device(backend="htp")
def test_device(bench):
    bench.measure(noted=1)
"""


OWN = """import pytest


@pytest.fixture
def bench():
    return 5


@pytest.mark.devices("all")
def test_own(bench):
    assert bench == 5
"""
SKIPPED = "1 device test is skipped: "


def run_apart(folder: Path, *options: str) -> CompletedProcess[str]:
    words = ("pytest", "-p", "no:cacheprovider", *options)
    env = {**os.environ, "PYTEST_ADDOPTS": WITHOUT_HYPOTHESIS}
    return run_module(words, folder, env, 120)


def run(folder: Path, *options: str) -> tuple[int, str]:
    completed = run_apart(folder, *options)
    return completed.returncode, completed.stdout + completed.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_mine.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_plain_tests_run_and_device_tests_say_what_to_do(
    folder: Path, options: tuple[str, ...]
) -> None:
    code, output = run(folder, *options)
    assert code == 0, output
    assert "1 passed, 1 skipped" in output
    assert output.count(f"\n{SKIPPED}no devices.yaml here; ") == 1
    assert SKIPPED not in run(folder, "-rs", *options)[1], "pytest tells of it"


@pytest.mark.slow
def test_who_wants_no_device_needs_no_lab(folder: Path) -> None:
    code, output = run(folder, "-m", "not device", "-n", "2")
    assert code == 0, output
    assert "devices.yaml" not in output


def test_names_of_ones_own_may_be_like_ours(folder: Path) -> None:
    (folder / "test_own.py").write_text(OWN)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers = devices(which): mine\n"
        "addopts = --device sim-v73\nfilterwarnings = error\n"
    )
    code, output = run(folder)
    assert code == 0, output
    assert "3 passed" in output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("-m device", "devices.yaml: does not exist"),
        ("-m device -n 2", "devices.yaml: does not exist"),
        ("-m slow%or%device", "devices.yaml: does not exist"),
        ("--device mine", "device 'mine' is not attached: "),
        ("--lab other.yaml", "other.yaml: does not exist"),
        ("--device sim-v73 --limit min-sqnr=30", "--limit: no selected test runs a file; "),
        ("--device sim-v73 --model other.bin", "--model: no selected test runs a file; "),
    ],
)
def test_who_asks_for_devices_is_told(folder: Path, options: str, problem: str) -> None:
    completed = run_apart(folder, *(word.replace("%", " ") for word in options.split()))
    assert completed.returncode == 2
    (error,) = completed.stderr.splitlines()
    assert error.startswith("error: ")
    assert problem in error
    assert "!!" not in completed.stdout, "the error is all"
    assert problem not in completed.stdout


def test_workers_that_cannot_begin_are_told_of_once(folder: Path) -> None:
    broken = ("-d", "--tx", "2*popen//python=/bin/false")
    code, output = run(folder, "-m", "device", "--device", "sim-v73", *broken)
    assert code == 3
    assert output.count("error: pytest-xdist could not start its workers") == 1
    assert "!!" not in output


def test_who_chooses_no_device_test_is_told_of_those_that_come_along(folder: Path) -> None:
    code, output = run(folder, "-m", "device", "-k", "nothing")
    assert code == 5
    assert "--pyargs" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "written", "instead", "line", "named"),
    [
        ("", "backend=", "backnd=", 8, "backnd in the marker of test_device: "),
        ("", "backend=", "", 8, "the marker of test_device "),
        ("", 'backend="htp"', 'qnn="2.99"', 8, "qnn in the marker of test_device: "),
        ("-n 2 -x", ".device(", ".devcie(", 8, "test_device uses "),
        ("-m device", "@pytest", "# ", 9, "test_device uses "),
        ("", "(bench)", "()", 8, "test_device is marked "),
        (
            "",
            'device(backend="htp")\ndef test_device(bench)',
            "parametrize('n', [pytest.param(1, marks=pytest.mark.device)])\n"
            "def test_device(bench, n)",
            8,
            "test_device uses ",
        ),
        (
            "",
            'device(backend="htp")\ndef test_device(bench)',
            "device\n@pytest.mark.parametrize('qnn', [1])\ndef test_device(bench, qnn)",
            8,
            "test_device has a parameter with the reserved name 'qnn'",
        ),
    ],
    ids=["key", "no key", "value", "name", "none", "bench", "parameter", "axis"],
)
def test_a_slip_in_a_marker_is_an_error_of_its_test_and_names_its_place(
    folder: Path, options: str, written: str, instead: str, line: int, named: str
) -> None:
    (folder / "test_mine.py").write_text(SUITE.replace(written, instead))
    code, output = run(folder, "--device", "sim-v73", *options.split())
    assert code == 2
    assert output.count(f"\ntest_mine.py:{line}: {named}") == 1, output
    assert re.search(r"^ERROR test_mine.py::test_device", output, re.MULTILINE), output
    others = 0 if "-m" in options else 1
    assert output.count("1 passed") == others, "tests beside it run"
    code, output = run(folder, "--device", "sim-v73", "--collect-only", "-q")
    assert code == 0, "an IDE finds all"
    assert output.count("test_mine.py::test_") == 2, output


def test_a_wrong_value_in_a_marker_is_told_without_a_lab(folder: Path) -> None:
    (folder / "test_mine.py").write_text(SUITE.replace('backend="htp"', 'htp_arch="v73"'))
    code, output = run(folder)
    place = "\ntest_mine.py:8: htp_arch in the marker of test_device: "
    assert (code, output.count(place)) == (2, 1), output


def test_a_test_that_no_device_fits_says_why_also_alone(folder: Path) -> None:
    (folder / "test_mine.py").write_text(SUITE.replace('backend="htp"', "htp_arch=75"))
    code, output = run(folder, "--device", "sim-v73")
    assert code == 0
    assert output.count(f"{SKIPPED}no device of the lab fits: sim-v73: ") == 1, output
    assert SKIPPED not in run(folder, "--device", "sim-v73", "-rs")[1], "pytest tells"


PLANTED = """
from harness.plugin import device_run, plugin
from harness.core.errors import ConfigError, InfraError

def fails(*_, **__):
    raise {error}

{name} = fails
"""
FOREIGN = "def pytest_sessionfinish():\n    raise ValueError('a plug-in of others')\n"


def ended(folder: Path, conftest: str, *words: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_plain.py").write_text("def test_plain(): pass\n")
    return run(folder, *words, "test_plain.py")


@pytest.mark.parametrize(
    ("name", "error", "code", "line"),
    [
        ("plugin.end_session", "ValueError('x')", 3, "error: internal error: ValueError: x; "),
        ("device_run.Records.release", "InfraError('a disk')", 3, "error: a disk"),
        ("device_run.Run.close", "ConfigError('a file')", 2, "error: a file"),
    ],
)
def test_a_fault_of_ours_at_the_end_is_no_failure_of_a_test(
    folder: Path, name: str, error: str, code: int, line: str
) -> None:
    ended_with, output = ended(folder, PLANTED.format(name=name, error=error))
    assert (ended_with, "Traceback" in output, line in output) == (code, False, True), output
    assert line in output.splitlines()[-1], "stderr follows"
    _, output = ended(folder, PLANTED.format(name=name, error=error), "-v")
    assert ("in fails" in output) == ("internal" in line), "where it was, if asked for"


def test_faults_of_other_plug_ins_stay_theirs(folder: Path) -> None:
    code, output = ended(folder, FOREIGN)
    assert (code, "internal error" in output) == (1, False)
