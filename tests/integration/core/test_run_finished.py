"""`qnn_run_finished`: a package outside of the tree acts on runs whose reports are written."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.extend_page import run_with_plugin, shown_module
from tests.integration.nightly.servers import Webhook

SUITE = """
import pytest

@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("figure", [1, 2])
def test_figure(bench, figure):
    bench.measure(figure=figure)
"""
RAISES = """
import pytest

@pytest.hookimpl
def qnn_run_finished(folder):
    assert (folder / "report.html").is_file()
    raise ConnectionError("the dashboard is away")
"""


@dataclass(frozen=True)
class Ended:
    """A run with the plug-in: its exit code, its output, its run.json."""

    code: int
    output: str
    info: dict[str, Any]


def run_with(plugin: str, lab: DeviceRuns, *words: str, **variables: str) -> Ended:
    """Run two cases in a process that has the plug-in installed."""
    (lab.folder / "test_mine.py").write_text(SUITE)
    (lab.folder / "pytest.ini").write_text("[pytest]\n")
    command = ("pytest", "-m", "device", "--qnn=2.51.0", *words)
    completed = run_with_plugin(
        plugin, lab.folder, *command, environment=lab.environment | variables
    )
    info = lab.reports / "latest/run.json"
    content = json.loads(info.read_text()) if info.is_file() else {}
    return Ended(completed.returncode, completed.stdout, content)


@pytest.fixture
def dashboard() -> Iterator[Webhook]:
    webhook = Webhook()
    yield webhook
    webhook.close()


@pytest.mark.slow
def test_a_package_sends_the_figures_of_a_run(lab: DeviceRuns, dashboard: Webhook) -> None:
    url = f"http://{dashboard.address}/runs"
    ended = run_with(shown_module("the figures "), lab, "-n2", "--dist=load", ACME_DASHBOARD=url)
    assert (ended.code, ended.info["plugin_errors"]) == (0, []), ended.output
    (figures,) = dashboard.got
    assert figures.pop("seconds") > 0
    run = ended.info["run"]
    assert figures == {"run": run, "outcomes": {"passed": 2}, "exit_code": 0, "without_verdict": 0}
    assert f"dashboard: 200 for {run}\n" in ended.output


@pytest.mark.slow
def test_a_plug_in_that_fails_is_named_and_the_reports_stay(lab: DeviceRuns) -> None:
    summary = lab.folder / "summary.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    ended = run_with(RAISES, lab, **github)
    text = "plug-in acme: qnn_run_finished: ConnectionError: the dashboard is away"
    assert (ended.code, ended.info["exit_code"], ended.info["problem"]) == (3, 3, None)
    assert ended.info["plugin_errors"] == [text]
    assert f"error: {text}\n" in ended.output
    assert "2 passed" in ended.output
    assert "Traceback" not in ended.output
    assert (lab.reports / "latest/junit.xml").is_file()
    assert "2 passed" in summary.read_text()  # another plug-in
