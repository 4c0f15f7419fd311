"""pytest in a folder without a devices.yaml, as whoever has just installed the package has it."""

from __future__ import annotations

import os
import re
from pathlib import Path

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


def run(folder: Path, *options: str) -> tuple[int, str]:
    words = ("pytest", "-p", "no:cacheprovider", *options)
    env = {**os.environ, "PYTEST_ADDOPTS": WITHOUT_HYPOTHESIS}
    completed = run_module(words, folder, env, 120)
    return completed.returncode, completed.stdout + completed.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_mine.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_plain_tests_run_and_device_tests_say_what_to_do(
    folder: Path, options: tuple[str, ...]
) -> None:
    code, output = run(folder, *options)
    assert code == 0, output
    assert "1 passed, 1 skipped" in output
    assert "\n1 device test is skipped: no devices.yaml here: --device sim-v73 runs it on" in output
    assert "1 device test is" not in run(folder, "-rs", *options)[1], "pytest tells of it"


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize("expression", ["not device", "not (device)", "not device and not slow"])
def test_who_wants_no_device_needs_no_lab(
    folder: Path, expression: str, workers: tuple[str, ...]
) -> None:
    code, output = run(folder, "-m", expression, *workers)
    assert code == 0, output
    assert "devices.yaml" not in output


@pytest.mark.parametrize("name", ["bench", "placement"])
def test_a_fixture_of_ones_own_may_be_called_as_ours(folder: Path, name: str) -> None:
    fixture = f"import pytest\n@pytest.fixture\ndef {name}():\n    return 5\n"
    (folder / "test_own.py").write_text(f"{fixture}def test_own({name}):\n    assert {name} == 5\n")
    code, output = run(folder, "--device", "sim-v73")
    assert code == 0, output
    assert "3 passed" in output


def test_tests_are_found(folder: Path) -> None:
    code, output = run(folder, "--collect-only", "-q")
    assert code == 0
    assert "test_mine.py::test_plain" in output
    assert "test_mine.py::test_device" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-m", "device"), "--device sim-v73 (or sim-v68"),
        (("-m", "device", "-n", "2"), "error: {folder}/devices.yaml: no such file"),
        (("-m", "slow or device"), "error: {folder}/devices.yaml: no such file"),
        (("--device", "mine"), "devices.yaml: no such file"),
        (("--lab", "other.yaml"), "other.yaml: no such file"),
    ],
)
def test_who_asks_for_devices_is_told(folder: Path, options: tuple[str, ...], message: str) -> None:
    code, output = run(folder, *options)
    assert code == 2
    message = message.format(folder=folder)
    assert output.count(message) == 1
    assert "!!" not in output, "the error is all"


def test_workers_that_cannot_begin_are_told_of_once(folder: Path) -> None:
    broken = ("-d", "--tx", "2*popen//python=/bin/false")
    code, output = run(folder, "-m", "device", "--device", "sim-v73", *broken)
    assert code == 3
    assert output.count("error: workers of pytest-xdist died as they were started: ") == 1
    assert "!!" not in output


def test_who_chooses_no_device_test_is_told_of_those_that_come_along(folder: Path) -> None:
    code, output = run(folder, "-m", "device", "-k", "nothing")
    assert code == 5
    assert "no device test was selected; those that come with qnn-harness: --pyargs" in output


@pytest.mark.parametrize(
    ("options", "written", "instead", "message"),
    [
        (
            (),
            "backend=",
            "backnd=",
            "backnd in the marker of test_device: unknown requirement of a",
        ),
        ((), "backend=", "", "the marker of test_device takes keywords, as in device("),
        (
            ("-n", "2", "-x"),
            ".device(",
            ".devcie(",
            "test_device takes the fixture `bench`: mark it,",
        ),
        (("-m", "device"), "@pytest", "# ", "test_device takes the fixture `bench`: mark it,"),
        ((), "(bench)", "()", "test_device is marked `device` and must take the"),
        (
            (),
            'device(backend="htp")\ndef test_device(bench)',
            "parametrize('n', [pytest.param(1, marks=pytest.mark.device)])\n"
            "def test_device(bench, n)",
            "test_device takes the fixture `bench`: mark it, its class or its module with",
        ),
        (
            (),
            'device(backend="htp")\ndef test_device(bench)',
            "device\n@pytest.mark.parametrize('qnn', [1])\ndef test_device(bench, qnn)",
            "test_device has the parameter 'qnn', called like an axis: rename it",
        ),
    ],
)
def test_a_slip_in_a_marker_is_an_error_of_its_test_and_names_its_place(
    folder: Path, options: tuple[str, ...], written: str, instead: str, message: str
) -> None:
    text = SUITE.replace(written, instead)
    (folder / "test_mine.py").write_text(text)
    code, output = run(folder, "--device", "sim-v73", *options)
    assert code == 2
    lines = text.splitlines()
    first = lines.index(next(line for line in lines if line.startswith(("@", "def test_device"))))
    assert output.count(f"\ntest_mine.py:{first + 1}: {message}") == 1, output
    assert re.search(r"^ERROR test_mine.py::test_device", output, re.MULTILINE), output
    others = 0 if "-m" in options else 1
    assert output.count("1 passed") == others, "tests beside it run"
    code, output = run(folder, "--device", "sim-v73", "--collect-only", "-q")
    assert code == 0, "an IDE finds all"
    assert output.count("test_mine.py::test_") == 2, output


@pytest.mark.parametrize("device", [(), ("--device", "sim-v73")], ids=["no-lab", "lab"])
@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('backend="htpp"', "backend in the marker of test_device: a device test cannot require"),
        ('htp_arch="v73"', "htp_arch in the marker of test_device: a device test cannot require"),
        ("qnn=2.51", "qnn in the marker of test_device: a device test cannot require 2.51, which"),
        ('bakend="htp"', "bakend in the marker of test_device: unknown requirement of a device"),
    ],
)
def test_a_wrong_value_in_a_marker_is_told_with_and_without_a_lab(
    folder: Path, marker: str, message: str, device: tuple[str, ...]
) -> None:
    (folder / "test_mine.py").write_text(SUITE.replace('backend="htp"', marker))
    code, output = run(folder, *device)
    assert code == 2
    assert output.count(f"\ntest_mine.py:8: {message}") == 1, output


def test_a_version_that_nobody_has_names_the_marker(folder: Path) -> None:
    (folder / "test_mine.py").write_text(SUITE.replace('backend="htp"', 'qnn="2.99"'))
    code, output = run(folder, "--device", "sim-v73")
    assert code == 2
    place = "\ntest_mine.py:8: qnn in the marker of test_device: unknown QNN version '2.99'"
    assert output.count(place) == 1, output


def test_a_test_that_no_device_fits_says_why_also_alone(folder: Path) -> None:
    (folder / "test_mine.py").write_text(SUITE.replace('backend="htp"', "htp_arch=75"))
    code, output = run(folder, "--device", "sim-v73")
    assert code == 0
    why = "no device of the lab fits: sim-v73: needs htp_arch 75, has 73"
    assert output.count(f"1 device test is skipped: {why}") == 1, output
    assert "device test is" not in run(folder, "--device", "sim-v73", "-rs")[1], "pytest tells"


def test_a_marker_of_ones_own_may_be_like_ours(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = devices(which): of my own\n")
    text = "import pytest\n@pytest.mark.devices('all')\ndef test_plain(): pass\n"
    (folder / "test_mine.py").write_text(text)
    code, output = run(folder)
    assert code == 0, output


def test_a_simulated_device_needs_no_lab(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --device sim-v73\n")
    code, output = run(folder)
    assert code == 0, output
    assert "1 of 1 case has a verdict: 1 passed" in output
    assert "2 passed" in output
