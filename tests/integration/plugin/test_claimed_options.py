"""Plug-ins that have options of the names that ours have: all start, and each keeps its own."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.integration.device_runs import WITHOUT_HYPOTHESIS
from tests.integration.forked import run_module

STAND_INS = """
def pytest_addoption(parser):
    group = parser.getgroup("stand-ins", "as three plug-ins register them")
    group.addoption("--device", default=None, action="store")  # pytest-playwright
    group.addoption("--profile", action="store_true")  # pytest-profiling
"""
SUITE = """
import pytest

def test_plain(request):
    found = {name: request.config.getoption(name) for name in ("device", "profile")}
    assert found == {"device": "iPhone 13", "profile": True}
    assert request.config.getoption("--qnn-profile") is None

@pytest.mark.device
def test_device(bench):
    bench.measure(noted=1)
"""
THEIRS = ("--device", "iPhone 13", "--profile", "--full-trace")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_mine.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "stand_ins.py").write_text(STAND_INS)
    return tmp_path


def run(folder: Path, *options: str) -> tuple[int, str]:
    words = ("pytest", "-p", "no:cacheprovider", "-o", "console_output_style=classic", *options)
    env = {**os.environ, "PYTEST_ADDOPTS": WITHOUT_HYPOTHESIS, "PYTHONPATH": str(folder)}
    completed = run_module(words, folder, env, 120)
    return completed.returncode, completed.stdout + completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "workers"), [("-p", ("-n", "2")), ("entry point", ()), ("conftest", ())]
)
def test_all_three_beside_us(folder: Path, way: str, workers: tuple[str, ...]) -> None:
    words = ("-p", "stand_ins") if way == "-p" else ()
    if way == "entry point":
        info = folder / "stand-ins-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-ins\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[pytest11]\nstand-ins = stand_ins\n")
    elif way == "conftest":
        (folder / "conftest.py").write_text('pytest_plugins = ["stand_ins"]\n')
    code, output = run(folder, *words, *THEIRS, *workers)
    assert code == 0, output
    assert "1 passed, 1 skipped" in output
    assert " --qnn-device sim-v73 " in output

    code, output = run(folder, *words, *THEIRS, *workers, "--qnn-device=sim-v73", "--reports=r")
    assert code == 0, output
    assert "2 passed" in output
    (record,) = map(json.loads, (folder / "r/latest/results.jsonl").read_text().splitlines()[-1:])
    assert (record["outcome"], record["placement"]["device"]) == ("passed", "sim-v73")


def test_a_part_of_a_name_is_no_option(folder: Path) -> None:
    for word, hint in {"--qnn-dev=x": "", "--devic=x": "", "--max-error=1": "  hint: use "}.items():
        code, output = run(folder, word)
        assert code == 4
        assert f"unrecognized arguments: {word}\n{hint}" in output


def test_an_unknown_engine_is_reported_in_our_form(folder: Path) -> None:
    code, output = run(folder, "--engine=acme")
    assert (code, output.count("error: --engine: unknown engine 'acme' (valid: ")) == (4, 1)


def test_help_has_the_long_forms_alone(folder: Path) -> None:
    code, output = run(folder, "--help", "-p", "stand_ins")
    assert code == 0
    assert "--qnn-device=NAME" in output
    assert len(re.findall(r"^  --device\b", output, re.MULTILINE)) == 1, "that of the other plug-in"


def test_what_conftest_lies_where_a_value_points_is_not_run(folder: Path) -> None:
    (folder / "labs").mkdir()
    (folder / "labs/conftest.py").write_text("raise SystemExit('it was run')\n")
    (folder / "labs/devices.yaml").write_text(
        "schema: 1\ndevices:\n  - {name: one, simulated: true, soc: QCS8550, target: linux-x64}\n"
    )
    code, output = run(folder, "--lab", "labs/devices.yaml", "--collect-only", "test_mine.py")
    assert code == 0, output
    assert "it was run" not in output
