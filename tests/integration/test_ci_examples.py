"""The files in docs/ci: their commands run, as their systems run them, on a simulated device."""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests.integration.device_runs import LAB, ROOT, DeviceRuns
from tests.processes import run_to_end

CI = ROOT / "docs/ci"
SET_UP = ["python3 -m venv .venv", ".venv/bin/pip install -q /opt/qnn-harness"]
SUITE = """import os
import pytest

@pytest.mark.device(backend="htp")
def test_tiny(bench):
    assert "BREAK" not in os.environ, "it is broken"
    bench.measure(noted=1)
"""
# no network in tests: what would tell the system's server notes what it was told
SERVER_MOCK = '#!/bin/sh\necho "$0 $*" >>told\n'


def github_scripts(folder: Path = CI) -> list[str]:
    (job,) = yaml.safe_load((folder / "github-actions.yml").read_text())["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def github_keeps_runs(event: str) -> bool:
    """Return whether the branch's next run gets what lies in reports/ then."""
    (job,) = yaml.safe_load((CI / "github-actions.yml").read_text())["jobs"].values()
    (step,) = (
        step
        for step in job["steps"]
        if step.get("uses", "").startswith(("actions/cache@", "actions/cache/save@"))
        and step["with"]["path"] == "reports"
    )
    condition = step.get("if", "success()")
    assert condition.startswith("always()"), "a run that fails is one, too"
    return event != "pull_request" or "github.event_name != 'pull_request'" not in condition


def gitlab_scripts(folder: Path = CI, name: str = "devices") -> list[str]:
    job = yaml.safe_load((folder / "gitlab-ci.yml").read_text())[name]
    return ["\n".join(job["script"]), "\n".join(job["after_script"])]


def jenkins_scripts(folder: Path = CI) -> list[str]:
    text = (folder / "Jenkinsfile").read_text()
    return [long or short for long, short in re.findall(r"sh (?:'''(.*?)'''|'(.*?)')", text, re.S)]


class Project:
    """A folder with one test and a lab, and the environment of a CI system."""

    def __init__(self, lab: DeviceRuns, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        (folder / "suites").mkdir(parents=True)
        (folder / "suites/test_own.py").write_text(SUITE)
        (folder / "pytest.ini").write_text("[pytest]\ntestpaths = suites\n")
        (folder / "devices.yaml").write_text(LAB)
        (folder / "programs").mkdir()
        for name in ("gh", "curl"):
            self.write_program(name, SERVER_MOCK)
        path = f"{folder / 'programs'}:{Path(sys.executable).parent}:{lab.environment['PATH']}"
        self.environment = lab.environment | {"PATH": path} | dict(variables)

    def write_program(self, name: str, text: str) -> None:
        (self.folder / "programs" / name).write_text(text)
        (self.folder / "programs" / name).chmod(0o755)

    def run(self, scripts: list[str], **more: str) -> list[tuple[int, str]]:
        """Each script in a shell of its own; one that fails keeps none of the others."""
        results = []
        for script in scripts:
            lines = [line.strip() for line in script.splitlines()]
            set_up = (SET_UP[0], ".venv/bin/pip install")
            commands = "\n".join(line for line in lines if not line.startswith(set_up))
            shell, environment = ("bash", "-e", "-o", "pipefail", "-c"), self.environment | more
            completed = run_to_end(*shell, commands, cwd=self.folder, env=environment, timeout=300)
            results.append((completed.returncode, completed.stdout))
        return results


def test_all_set_up_the_same() -> None:
    for scripts in (github_scripts(), gitlab_scripts(), jenkins_scripts()):
        lines = [line.strip() for script in scripts for line in script.splitlines()]
        assert set(SET_UP) < set(lines)
        assert any(line.endswith("pytest -m device -n auto") for line in lines)


@pytest.mark.slow
def test_github_actions(lab: DeviceRuns, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    files["GITHUB_PATH"] = str(tmp_path / "path")
    variables = files | {"GITHUB_ACTIONS": "true", "CI": "true", "PULL_REQUEST": "7"}
    project = Project(lab, tmp_path / "project", variables)
    assert github_keeps_runs("schedule")
    assert not github_keeps_runs("pull_request"), "it is no base of its own"
    first = project.run(github_scripts())
    assert [code for code, _ in first] == [0, 0, 0, 0], first
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert "### Devices: 1 passed" in summary
    (tmp_path / "GITHUB_STEP_SUMMARY").unlink()
    again = project.run(github_scripts(), BREAK="1")
    assert [code for code, _ in again] == [0, 1, 0, 0], again
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert "1 new since `" in summary
    assert "#### New" in summary, "compare says it, too"
    newest = (project.folder / "reports/latest").resolve().name
    assert (tmp_path / "GITHUB_OUTPUT").read_text().splitlines()[-1] == f"run={newest}"
    calls = (project.folder / "told").read_text().splitlines()
    assert len(calls) == 1, "the first had no other run"
    assert calls[-1].endswith("gh pr comment 7 --body-file comparison.md")


# a run of one case that ends with the code in `ends`, in place of one on devices
PYTEST_MOCK = f"""#!{sys.executable}
import pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.unit.history.runs import attempt, run_folder
code = int(pathlib.Path("ends").read_text())
ends = ["passed", "failed", "error cause=config", "error"][code]
run_folder(pathlib.Path("reports"), attempt(f"a {{ends}}"))
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("scripts", [github_scripts, gitlab_scripts, jenkins_scripts])
def test_what_a_run_left_is_published_however_it_ended(
    lab: DeviceRuns, tmp_path: Path, scripts: Callable[[], list[str]]
) -> None:
    output = tmp_path / "output"
    names = ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
    variables = dict.fromkeys(names, str(output))
    project = Project(lab, tmp_path / "project", variables)
    project.write_program("pytest", PYTEST_MOCK)
    junit_files = {"gitlab_scripts": "junit.xml", "jenkins_scripts": "kept/latest/junit.xml"}
    comparison = project.folder / "comparison.md"
    for code in (0, 1, 2, 3):
        (project.folder / "ends").write_text(str(code))
        output.unlink(missing_ok=True)
        results = project.run(scripts())
        assert sorted(exit_code for exit_code, _ in results) == sorted(
            [code, *[0] * (len(results) - 1)]
        ), results
        newest = (project.folder / "reports/latest").resolve()
        if scripts is github_scripts:
            assert f"run={newest.name}\n" in output.read_text()
        else:
            junit = (project.folder / junit_files[scripts.__name__]).read_text()
            assert junit == (newest / "junit.xml").read_text()
        assert bool(comparison.read_text()) == (code > 0), "the first has no other run"
    project.write_program("pytest", "#!/bin/sh\nexit 2\n")
    output.unlink(missing_ok=True)
    results = project.run(scripts())
    assert sorted(code for code, _ in results) == sorted([2, *[0] * (len(results) - 1)]), results
    assert not output.exists() or "run=" not in output.read_text(), "another run is not its own"
    assert not (project.folder / junit_files.get(scripts.__name__, "no file")).exists()
