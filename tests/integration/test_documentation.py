"""What README and docs show is true: commands run, examples load, output is a real one."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.lab.inventory import load_lab
from tests.integration.device_runs import ROOT, DeviceRuns

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

# Run by .ci/run itself, or by every developer before this test can run at all.
RUN_ELSEWHERE = {"make device", "make test", "make bench", "pip install -e ."}


def blocks(language: str) -> list[tuple[Path, str]]:
    found = []
    for page in PAGES:
        for indent, name, text in BLOCK.findall(page.read_text()):
            if name == language:
                plain = "\n".join(line.removeprefix(indent) for line in text.splitlines())
                found.append((page, plain + "\n"))
    return found


def shown_commands() -> list[str]:
    lines = [line for _, text in blocks("") for line in text.splitlines()]
    commands = [line.partition("  #")[0].strip() for line in lines]
    starts = ("pytest ", "qnn-harness ", "make ", "pip ")
    return sorted({line for line in commands if line.startswith(starts)} - RUN_ELSEWHERE)


def test_there_are_commands_to_run() -> None:
    assert len(shown_commands()) >= 4


@pytest.mark.parametrize("command", shown_commands())
def test_commands_run(command: str, lab: DeviceRuns) -> None:
    program, *arguments = shlex.split(command)
    if program == "pytest":
        # Shown to be accepted and to find cases; what they do is tested case by case elsewhere.
        given = [a for a in arguments if a not in ("-m", "device", "--plan")]
        if "--resume" in given:
            assert lab.run("-k", "tiny and 66 and window").code == 0
        done = lab.run("--plan", *given)
        assert done.code == 0, done.output
        assert "cases; " in done.output
        return
    if arguments[0] == "simulator":
        return  # tests/integration/cli starts and ends it
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *arguments],
        cwd=ROOT,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_lab_examples_load(page: Path, text: str, tmp_path: Path) -> None:
    if "devices:" not in text:
        pytest.skip("not a lab")
    file = tmp_path / "devices.yaml"
    file.write_text(text)
    assert load_lab(file).devices


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_examples_run(page: Path, text: str, lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "elsewhere" / "test_example.py"
    suite.parent.mkdir()
    suite.write_text(text)
    done = lab.run(suites=suite)
    assert done.code == 0, done.output
    assert {case["outcome"] for case in done.cases} == {"passed"}


def test_the_record_shown_is_a_valid_one() -> None:
    import jsonschema

    schema = json.loads((ROOT / "docs/schema/results.schema.json").read_text())
    for _, text in blocks("json"):
        jsonschema.validate(json.loads(text), schema)
