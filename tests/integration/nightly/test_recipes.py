"""The files in docs/nightly: their commands run, as by their systems, on a simulated device."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.test_ci_examples import (
    SET_UP,
    Project,
    github_scripts,
    gitlab_scripts,
    jenkins_scripts,
)

NIGHTLY = ROOT / "docs/nightly"
# what GitHub would say: the first time nothing, then that there is an open issue of this number
GH = """#!/bin/sh
echo "gh $*" >>"$HOME/told"
[ "$2" != list ] || ! grep -q "gh issue create" "$HOME/told" || echo "7 open"
"""


def cron_scripts() -> list[str]:
    lines = (NIGHTLY / "crontab").read_text().splitlines()
    jobs = [line for line in lines if re.match(r"[\d@]", line)]
    return [re.sub(r"^(@reboot|(\S+ ){5})", "", line).strip() for line in jobs]


def systemd_scripts() -> list[str]:
    text = (NIGHTLY / "qnn-nightly.service").read_text().replace("%h", "$HOME")
    return re.findall(r"^Exec(?:Start|StopPost)=(.*)$", text, re.M)


@pytest.fixture
def project(lab: DeviceRuns, tmp_path: Path) -> Project:
    """The tree at the home of an account that has nothing else."""
    found = Project(lab, tmp_path / "home/qnn-harness", {"HOME": str(tmp_path / "home")})
    (found.folder / ".venv").mkdir()
    (found.folder / ".venv/bin").symlink_to(Path(sys.executable).parent)
    gh = found.folder / "programs/gh"
    gh.write_text(GH)
    return found


def issues(reports: Path) -> list[Path]:
    return list(reports.glob("latest-nightly/issues/*.md"))


def test_all_set_up_the_same() -> None:
    for scripts in (
        github_scripts(NIGHTLY),
        gitlab_scripts(NIGHTLY, "nightly"),
        jenkins_scripts(NIGHTLY),
    ):
        lines = [line.strip() for script in scripts for line in script.splitlines()]
        assert set(SET_UP) < set(lines)


@pytest.mark.nightly
def test_github_actions(project: Project, tmp_path: Path) -> None:
    told = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_ACTIONS": "true"}
    told["GITHUB_PATH"] = str(tmp_path / "path")
    project.environment |= told
    said = tmp_path / "home/told"
    assert [code for code, _ in project.run(github_scripts(NIGHTLY))] == [0] * 4
    assert not said.exists()
    for _ in range(2):
        again = project.run(github_scripts(NIGHTLY), BREAK="1")
        assert again[2][0] == again[3][0] == 0, again
    (issue,) = issues(tmp_path / "home/qnn-nights")
    assert [line.split(" --")[0] for line in said.read_text().splitlines()] == [
        *("gh issue list", "gh issue create"),
        *("gh issue list", "gh issue edit 7"),
    ]
    assert f"--title `failed: it is broken` [{issue.stem}] --body-file {issue.parents[2]}" in (
        said.read_text()
    )
    assert "#### Causes of failures" in (tmp_path / "summary").read_text()
    assert (project.folder / "nightly/latest/report.html").is_file()
    assert (project.folder / "nightly/latest-nightly/summary.md").is_file()
    # the next night it is gone
    assert [code for code, _ in project.run(github_scripts(NIGHTLY))] == [0] * 4
    assert said.read_text().splitlines()[-1].startswith("gh issue close 7")


@pytest.mark.nightly
def test_gitlab(project: Project, tmp_path: Path) -> None:
    assert [code for code, _ in project.run(gitlab_scripts(NIGHTLY, "nightly"))] == [0, 0]
    again = project.run(gitlab_scripts(NIGHTLY, "nightly"), BREAK="1")
    assert [code for code, _ in again] == [1, 0], again
    assert len(issues(project.folder / "nightly")) == 1
    assert (project.folder / "nightly/latest/junit.xml").is_file()


@pytest.mark.nightly
def test_jenkins(project: Project) -> None:
    project.environment["WORKSPACE"] = str(project.folder)
    assert [code for code, _ in project.run(jenkins_scripts(NIGHTLY))] == [0, 0, 0]
    again = project.run(jenkins_scripts(NIGHTLY), BREAK="1")
    assert [code for code, _ in again] == [0, 1, 0], again
    assert len(issues(project.folder / "reports")) == 1


def test_cron(project: Project) -> None:
    night, reboot = cron_scripts()
    assert [code for code, _ in project.run([night, reboot], BREAK="1")] == [1, 0]
    assert len(issues(project.folder / "reports")) == 1


@pytest.mark.nightly
def test_systemd(project: Project, tmp_path: Path) -> None:
    done = project.run(systemd_scripts())
    assert [code for code, _ in done] == [0, 0], done
    assert "qnn_harness_cases" in (tmp_path / "home/metrics/qnn.prom").read_text()
