"""What all tests share: a simulated lab of their own, and honesty about missing tools."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = pytest.StashKey[dict[str, dict[str, int]]]()

ONE_DEVICE = """schema: 1
devices:
  - name: {name}
    simulated: true
    soc: QCS8550
"""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        tool: str = marker.args[0]
        if os.environ.get(tool) if tool.isupper() else shutil.which(tool):
            continue
        # What a variable points to is made by hand (tests/integration/adb/real_adb.sh), so only
        # programs are insisted on.
        if os.environ.get("QNN_HARNESS_INSIST") and not tool.isupper():
            pytest.fail(f"{tool} is missing and every test is insisted on", pytrace=False)
        left_out = item.config.stash[LEFT_OUT].setdefault(tool, {})
        test = item.nodeid.partition("[")[0]
        left_out[test] = left_out.get(test, 0) + 1
        pytest.skip(f"needs {tool}")


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    for tool, tests in config.stash[LEFT_OUT].items():
        terminalreporter.write_line(f"left out for want of {tool}: {sum(tests.values())} tests")
        for test, count in tests.items():
            terminalreporter.write_line(f"    {test}" + (f" ({count})" if count > 1 else ""))


@pytest.fixture
def simulated_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A devices.yaml with one simulated device whose storage is this test's own."""
    monkeypatch.setenv("QNN_HARNESS_SIMULATED", str(tmp_path / "simulated"))
    lab = tmp_path / "devices.yaml"
    lab.write_text(ONE_DEVICE.format(name="sim-test"))
    return lab


@pytest.fixture
def show_figures(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., None]]:
    """Prints measured figures even when output is captured."""

    def show(title: str, **figures: object) -> None:
        with capsys.disabled():
            print(f"\n{title}: " + ", ".join(f"{k} {v}" for k, v in figures.items()))

    return show
