"""The files in docs/nightly: their commands run, as by their systems, on a simulated device."""

import re
import sys
from collections.abc import Callable
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


def cron_scripts() -> list[str]:
    lines = (NIGHTLY / "crontab").read_text().splitlines()
    jobs = [line for line in lines if re.match(r"[\d@]", line)]
    return [re.sub(r"^(@reboot|(\S+ ){5})", "", line).strip() for line in jobs]


def systemd_scripts(name: str) -> list[str]:
    text = (NIGHTLY / name).read_text().replace("%h", "$HOME")
    scripts = re.findall(r"^Exec(?:Start|StopPost)=(.*)$", text, re.M)
    # after one that fails none runs but for `-`
    assert all(script.startswith("-") for script in scripts[1:-1])
    return [script.removeprefix("-") for script in scripts]


@pytest.fixture
def project(lab: DeviceRuns, tmp_path: Path) -> Project:
    """The tree at the home of an account that has nothing else."""
    project_files = Project(lab, tmp_path / "home/qnn-harness", {"HOME": str(tmp_path / "home")})
    (project_files.folder / ".venv").mkdir()
    (project_files.folder / ".venv/bin").symlink_to(Path(sys.executable).parent)
    return project_files


def issues(reports: Path) -> list[Path]:
    return list(reports.glob("latest-nightly/issues/*.md"))


def assert_only_why_it_died(folder: Path) -> None:
    """Of a night that died before its run there is a summary, and nothing of the night before."""
    (night,) = folder.iterdir()
    assert (night / "summary.md").is_file()


def shown_by_jenkins() -> list[str]:
    """The first of its scripts, as Jenkins runs them: each line is shown, its variables filled."""
    return [f"set -x\n{script}" for script in jenkins_scripts(NIGHTLY)[:2]]


SERVICE, RESUMED = "qnn-nightly.service", "qnn-nightly-resume.service"


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 2])
@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param(lambda: github_scripts(NIGHTLY)[:2], id="github"),
        pytest.param(lambda: gitlab_scripts(NIGHTLY, "nightly"), id="gitlab"),
        pytest.param(shown_by_jenkins, id="jenkins"),
        pytest.param(lambda: cron_scripts()[:1], id="cron"),
        pytest.param(lambda: cron_scripts()[1:], id="cron-reboot"),
        pytest.param(lambda: [f"EXIT_STATUS=$CODE {systemd_scripts(SERVICE)[-1]}"], id="systemd"),
        pytest.param(
            lambda: [f"EXIT_STATUS=$CODE {systemd_scripts(RESUMED)[-1]}"], id="systemd-boot"
        ),
    ],
)
def test_a_night_pings_with_its_exit_code(
    project: Project, tmp_path: Path, scripts: Callable[[], list[str]], code: int
) -> None:
    for folder in (project.folder / "programs", project.folder / ".venv/bin"):
        if folder.is_symlink():
            folder.unlink()
            folder.mkdir()
        (folder / "qnn-harness").write_text(f"#!/bin/sh\nexit {code}\n")
        (folder / "qnn-harness").chmod(0o755)
    variables = {"CODE": str(code), "GITHUB_PATH": str(tmp_path / "path")}
    if scripts()[0] in cron_scripts():
        variables["PATH"] = f"{project.folder / 'programs'}:{project.environment['PATH']}"
    completed = project.run(scripts(), PING_URL="https://ping.invalid/x", **variables)
    assert not any("ping.invalid" in text for _, text in completed), "it is a secret"
    ended = [code for code, _ in completed]
    resumes = scripts() in (
        cron_scripts()[1:],
        [f"EXIT_STATUS=$CODE {systemd_scripts(RESUMED)[-1]}"],
    )
    if resumes and code == 2:  # there is no night to go on with
        assert (ended, (project.folder / "told").exists()) == ([0], False)
        return
    assert code in ended or scripts()[0].startswith("EXIT_STATUS")
    (line,) = (project.folder / "told").read_text().splitlines()
    assert line.endswith(f"https://ping.invalid/x/{code}")
    (project.folder / "told").unlink()
    project.run(scripts(), **variables)
    assert not (project.folder / "told").exists(), "nobody waits for it"


def test_all_set_up_the_same() -> None:
    for scripts in (
        github_scripts(NIGHTLY),
        gitlab_scripts(NIGHTLY, "nightly"),
        jenkins_scripts(NIGHTLY),
    ):
        lines = [line.strip() for script in scripts for line in script.splitlines()]
        install = SET_UP[1].replace("/opt/qnn-harness", "'/opt/qnn-harness[notify]'")
        assert {SET_UP[0], install} < set(lines)


# keeps the titles of issues, and finds one by a word of its title
GH = """#!/bin/bash
test "$GH_TOKEN" = t || exit 4
case "$1 $2" in
  "issue list") grep -n "${6% in:title}" issues || true;;
  "issue create") echo "$4" >>issues; test -f "$6";;
esac
"""


@pytest.mark.nightly
def test_github_actions(project: Project, tmp_path: Path) -> None:
    project.environment |= {
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_ACTIONS": "true",
        "GITHUB_PATH": str(tmp_path / "path"),
        "GH_TOKEN": "t",
    }
    (project.folder / "programs/gh").write_text(GH)
    created = project.folder / "issues"
    assert [code for code, _ in project.run(github_scripts(NIGHTLY))] == [0] * 4
    assert not created.exists()
    for _ in range(2):
        again = project.run(github_scripts(NIGHTLY), BREAK="1")
        assert [code for code, _ in again[2:]] == [0, 0], again
    (issue,) = issues(tmp_path / "home/qnn-nights")
    assert created.read_text() == f"`failed: it is broken in test_tiny` [{issue.stem}]\n", "once"
    assert issue.stem in (tmp_path / "summary").read_text()
    assert (project.folder / "nightly/latest/report.html").is_file()
    assert (project.folder / "nightly/latest-nightly/summary.md").is_file()
    # the next night it is gone
    assert [code for code, _ in project.run(github_scripts(NIGHTLY))] == [0] * 4
    (project.folder / "devices.yaml").write_text("none")
    assert [code for code, _ in project.run(github_scripts(NIGHTLY))] == [0, 2, 0, 0]
    assert created.read_text().count("\n") == 1
    assert_only_why_it_died(project.folder / "nightly")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scripts", "ends"),
    [
        (gitlab_scripts(NIGHTLY, "nightly"), ([0, 0], [1, 0], [2, 0])),
        (jenkins_scripts(NIGHTLY), ([0] * 4, [0, 1, 0, 0], [0, 2, 0, 0])),
    ],
    ids=["gitlab", "jenkins"],
)
def test_gitlab_and_jenkins(
    project: Project, scripts: list[str], ends: tuple[list[int], ...]
) -> None:
    project.environment["WORKSPACE"] = str(project.folder)
    assert [code for code, _ in project.run(scripts)] == ends[0]
    again = project.run(scripts, BREAK="1")
    assert [code for code, _ in again] == ends[1], again
    assert len(issues(project.folder / "nightly")) == 1
    assert (project.folder / "nightly/latest/junit.xml").is_file()
    (project.folder / "devices.yaml").write_text("none")
    assert [code for code, _ in project.run(scripts)] == ends[2]
    assert_only_why_it_died(project.folder / "nightly")


def test_jenkins_keeps_a_night_whatever_comes_of_it() -> None:
    text = (NIGHTLY / "Jenkinsfile").read_text()
    assert "allowEmptyResults: true" in text
    assert text.index("archiveArtifacts") < text.index("junit ")


@pytest.mark.nightly
def test_cron(project: Project) -> None:
    night, reboot = cron_scripts()
    assert [code for code, _ in project.run([night, reboot], BREAK="1")] == [1, 0]
    assert len(issues(project.folder / "reports")) == 1


@pytest.mark.nightly
def test_a_night_by_cron_waits_for_the_one_that_is_gone_on_with(project: Project) -> None:
    night, reboot = cron_scripts()
    script = "flock .venv sh -c 'touch held; sleep 5; ls -A reports >seen' & "
    script += "until test -e held; do sleep 0.1; done"
    ((code, said),) = project.run([f"{script}\n({reboot})\n({night})\nwait"])
    assert code == 0, said
    assert "nightly: publish" in said
    assert (project.folder / "seen").read_text() == "", "it had not begun by then"


@pytest.mark.nightly
def test_systemd(project: Project) -> None:
    completed = project.run(systemd_scripts("qnn-nightly.service"))
    assert {code for code, _ in completed} == {0}, completed
    # at boot, with nothing to go on with
    late = project.run(systemd_scripts("qnn-nightly-resume.service"))
    assert late[0][0] == 2
    assert {code for code, _ in late[1:]} == {0}, late
    assert "SuccessExitStatus=2" in (NIGHTLY / "qnn-nightly-resume.service").read_text()
