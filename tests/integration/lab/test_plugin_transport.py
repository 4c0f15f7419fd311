"""A transport from a package outside of the tree, which runs cases with the real probe."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.extend_page import shown_module
from tests.unit.core.test_hooks import installed

SUITE = '''"""Two cases: one that ends well, one that crashes."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("crashes", [0, 1])
def test_steps(bench, crashes):
    bench.run(Plan((Step("noop"),) + (Step("crash", {"signal": "11"}),) * crashes)).check()
'''


def shown_lab() -> dict[str, Any]:
    """Return the devices.yaml in the section of docs/reference/api.md."""
    blocks = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs/reference/api.md").read_text(), re.DOTALL
    )
    (lab,) = (yaml.safe_load(text) for text in blocks if "transport: command" in text)
    assert lab["devices"][0]["prefix"] == ["docker", "exec", "-i", "board"]
    return dict(lab)


@pytest.fixture
def runs(tmp_path: Path) -> DeviceRuns:
    """A lab with one device behind a command, and the plug-in that knows such devices."""
    packages, board = tmp_path / "packages", tmp_path / "board"
    (tmp_path / "lab").mkdir()
    packages.mkdir()
    board.mkdir()
    installed(packages, shown_module("devices behind a command"))
    runs = DeviceRuns(tmp_path / "lab")
    runs.environment["PYTHONPATH"] = f"{packages}:{ROOT}"
    lab = shown_lab()
    lab["devices"][0] |= {"prefix": ["env", f"--chdir={board}"], "workdir": f"{board}/work"}
    runs.file.write_text(yaml.safe_dump(lab))
    return runs


@pytest.mark.slow
def test_cases_run_by_it(runs: DeviceRuns) -> None:
    suite = runs.file.with_name("test_steps.py")
    suite.write_text(SUITE)
    finished = runs.run(suites=suite, code=1)
    assert sorted(case["outcome"] for case in finished.cases) == ["crashed", "passed"]
    serial = f"env --chdir={runs.file.parents[1]}/board"
    assert {case["device"]["serial"] for case in finished.cases} == {serial}
    assert (runs.file.parents[1] / "board/work").is_dir()
